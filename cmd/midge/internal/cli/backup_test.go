package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
)

// TestARunWithABackupGoesOnWithAnother stops a run that writes a backup. The message names a new file for the next
// run, which does the rest, and both files together have all tasks.
func TestARunWithABackupGoesOnWithAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the failing call is repeated for a while
		r := newRig(t)
		r.many()
		store, path := r.store, filepath.Join(t.TempDir(), "bulk.jsonl")
		line, second := "task rm --queue bulk --yes --backup "+path, path+".2"
		r.store = &faulty{Storage: store, good: 1, fails: storage.ErrUnavailable}
		next := r.says(Partly, "next: midge task rm --queue bulk --yes --backup "+second+"\n", line)
		r.store = store
		// A repeat is refused before anybody is asked.
		r.person = true
		exists := r.says(BadInput, path+" exists already\nnext: midge task rm --queue bulk --backup "+second+"\n", strings.Replace(line, " --yes", "", 1))
		if strings.Contains(exists.err, "Delete 100 tasks?") || !strings.Contains(r.ok("queue ls bulk -o jsonl"), `"waiting":100`) {
			t.Errorf("a repeat with the same file: got %+v", exists)
		}
		r.ok(pasted(t, next))
		r.says(Done, "enqueued 200", "task restore --yes "+path)
		r.says(Done, "enqueued 100", "task restore --yes "+second)
	})
}

// TestABackupWithoutATaskLeavesNoFile checks that a run that comes to no task can be repeated as it is.
func TestABackupWithoutATaskLeavesNoFile(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "none.jsonl")
	for range 2 {
		r.says(NotFound, "", "task rm mail/none --backup "+path)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the backup: got %v, want no file", err)
	}
}

// TestARestoreLeavesOutATaskThatWasNotDeleted restores a backup with a task that changed while the backup
// was written, and that has run since.
func TestARestoreLeavesOutATaskThatWasNotDeleted(t *testing.T) {
	r := newRig(t)
	r.many()
	well := r.store
	r.store = &between{Storage: well, ahead: func() {
		priority := 5
		err := r.session.ChangeTask(t.Context(), storage.Ref{Queue: "bulk", ID: "t000"}, func(storage.Task) (storage.Change, error) {
			return storage.Change{Priority: &priority}, nil
		})
		if err != nil {
			t.Error(err)
		}
	}}
	backup := filepath.Join(t.TempDir(), "backup")
	r.says(Partly, "deleted 299, 1 changed meanwhile", "task rm --queue bulk --yes --backup "+backup)
	r.store = well
	r.work("bulk", storage.Settle{Outcome: storage.Complete})
	got := r.run("task restore --yes " + backup)
	if got.code != Done || !strings.Contains(got.out, "enqueued 299, 0 there already") || !strings.Contains(got.err, "1 task left out: the run") {
		t.Errorf("got %+v, want all but the one that has run", got)
	}
	if got := r.run("task show bulk/t000"); got.code != NotFound {
		t.Errorf("the task that has run is there again: %+v", got)
	}
	two := filepath.Join(t.TempDir(), "two")
	r.ok("task rm --yes bulk/t001 bulk/t002 --backup " + two)
	text, err := os.ReadFile(two)
	if err != nil {
		t.Fatal(err)
	}
	// The backup holds the mark of an earlier run before the tasks of a later run.
	mark := `{"queue":"bulk","id":"t001","not_deleted":true}` + "\n"
	if err := os.WriteFile(two, append([]byte(mark), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.ok("task restore --yes " + two); !strings.Contains(got, "enqueued 2") {
		t.Errorf("got %s, want both tasks that were deleted behind the line", got)
	}
}

// TestABackupThatAKillHasCutIsRestored restores the tasks up to the last complete line.
func TestABackupThatAKillHasCutIsRestored(t *testing.T) {
	r := newRig(t)
	r.many()
	path := r.backup()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text[:len(text)-20])
	if got := r.run("task restore --yes " + path); got.code != Done || !strings.Contains(got.out, "enqueued 299,") ||
		!strings.Contains(got.err, "the last line of "+path+" is not whole") {
		t.Errorf("a cut line: got %+v, want the others enqueued", got)
	}
	write(text[:len(text)-1])
	if got := r.run("task restore --yes " + path); got.code != Done || !strings.Contains(got.out, "enqueued 1, 299 there already") {
		t.Errorf("only the end of the last line is cut: got %+v, want its task enqueued", got)
	}
	write(text[10:])
	if got := r.run("task restore --yes " + path); got.code != BadInput || !strings.Contains(got.err, "invalid line 1 of the backup") {
		t.Errorf("the first line is cut: got %+v", got)
	}
}

// TestARestoreTellsWhichTasksAreRefused checks that the other tasks are enqueued.
func TestARestoreTellsWhichTasksAreRefused(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		r.ok("task add send --queue mail --id " + id + " --unique " + id)
	}
	path := filepath.Join(t.TempDir(), "backup")
	r.ok("task rm --queue mail --yes --backup " + path)
	r.ok("task add send --queue mail --id d")
	for _, key := range []string{"a", "b"} {
		r.ok("task add send --queue mail --id other-" + key + " --unique " + key)
	}
	got := r.run("task restore --yes " + path)
	if got.code != Partly || !strings.Contains(got.out, "enqueued 1, 1 there already, 2 refused") ||
		!strings.Contains(got.err, "mail/b: storage: mail/b: unique key is held by mail/other-b") {
		t.Errorf("got %+v, want the tasks whose keys are held refused", got)
	}
	r.says(Refused, "enqueued 0, 2 there already, 2 refused", "task restore --yes "+path)
	got = r.run("task restore --yes -o jsonl " + path)
	if want := `{"matched":4,"enqueued":0,"existing":2,"refused":2,"not_deleted":0,"dry_run":false,"reasons":[{"ref":"mail/a",`; got.code != Refused || !strings.HasPrefix(got.out, want) {
		t.Errorf("got %+v, want %s", got, want)
	}
}

// TestARestoredTaskKeepsItsWindow restores tasks whose unique windows are still there, were freed with their
// queue, belong to another task by now, or are over.
func TestARestoredTaskKeepsItsWindow(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "backup")
	add := func(id, key, window string) string {
		return "task add send --queue mail --id " + id + " --unique " + key + " --unique-for " + window
	}
	for _, id := range []string{"a", "b"} {
		r.ok(add(id, id, "1h"))
	}
	r.ok("task rm --queue mail --yes --backup " + path)
	r.says(Done, "enqueued 2, 0 there already", "task restore --yes "+path)
	r.says(Done, "mail/a", add("other", "a", "1h"))
	r.ok("queue rm mail --yes")
	r.ok(add("other", "b", "1h"))
	r.now = r.now.Add(20 * time.Minute)
	r.says(Partly, "enqueued 1, 0 there already, 1 refused", "task restore --yes "+path)
	r.says(Done, "mail/a", add("third", "a", "1h"))
	window := func() storage.Unique {
		task, err := r.store.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		return task.Unique
	}
	if got := window(); got.Mode != storage.UniqueWindow || got.For.Round(time.Minute) != 40*time.Minute {
		t.Errorf("got %+v, want what was left of the hour", got)
	}
	r.ok("queue rm mail --yes")
	r.now = r.now.Add(time.Hour)
	r.says(Done, "enqueued 2, 0 there already", "task restore --yes "+path)
	if got := window(); got != (storage.Unique{}) {
		t.Errorf("got %+v, want no window, which is over", got)
	}
}

// TestARestoreReportsToAProgram checks the JSON of a restore: of a dry run, of a restore that the storage
// stops halfway, and of the rest.
func TestARestoreReportsToAProgram(t *testing.T) {
	r := newRig(t)
	r.many()
	path := r.backup()
	tell := func(flags string, code int) (told show.Restored) {
		got := r.run("task restore " + path + " -o json " + flags)
		if err := json.Unmarshal([]byte(got.out), &told); err != nil || got.code != code {
			t.Fatalf("got %+v, %v, want exit %d", got, err, code)
		}
		told.Reasons = nil
		return told
	}
	check := func(got, want show.Restored) {
		t.Helper()
		if want.Matched = 300; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	check(tell("--dry-run", Done), show.Restored{DryRun: true})
	if got := r.run("task restore " + path); got.code != BadInput || !strings.Contains(got.err, "--dry-run") {
		t.Errorf("nobody is there to confirm: got %+v", got)
	}
	well := r.store
	synctest.Test(t, func(*testing.T) { // failing calls are repeated for a while
		r.store = &faulty{Storage: well, good: 1, fails: storage.ErrUnavailable}
		check(tell("--yes", Partly), show.Restored{Enqueued: 100})
	})
	r.store = well
	check(tell("--dry-run", Done), show.Restored{Existing: 100, DryRun: true})
	check(tell("--yes", Done), show.Restored{Enqueued: 200, Existing: 100})
}

// TestARestoreCountsBeforeALostWindow has a storage that fails when a task whose own window holds its key is
// enqueued without the key, after another task was enqueued.
func TestARestoreCountsBeforeALostWindow(t *testing.T) {
	r := newRig(t)
	r.ok("task add send --queue mail --id a --unique a --unique-for 1h")
	r.ok("task add send --queue mail --id b")
	path := filepath.Join(t.TempDir(), "backup")
	r.ok("task rm --queue mail --yes --backup " + path)
	well := r.store
	synctest.Test(t, func(*testing.T) { // failing calls are repeated for a while
		r.store = &faulty{Storage: well, good: 1, fails: storage.ErrUnavailable}
		var told show.Restored
		got := r.run("task restore --yes -o json " + path)
		err := json.Unmarshal([]byte(got.out), &told)
		if err != nil || got.code != Partly || told.Enqueued != 1 || told.Existing+told.Refused != 0 {
			t.Errorf("got %+v, %v, want one task enqueued", got, err)
		}
	})
	r.store = well
	r.says(Done, "enqueued 1, 1 there already", "task restore --yes "+path)
}

// refusing is a storage that refuses the third step of each call with 100 steps.
type refusing struct{ storage.Storage }

func (s refusing) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	applied, err := s.Storage.Apply(ctx, call, txs...)
	if len(applied) == 100 {
		applied[2] = storage.Applied{Err: storage.ErrFull}
	}
	return applied, err
}

// TestARestoreCountsBehindATaskThatIsRefused checks the tasks after a refused task in the same call.
func TestARestoreCountsBehindATaskThatIsRefused(t *testing.T) {
	r := newRig(t)
	r.many()
	path := r.backup()
	r.store = refusing{r.store}
	r.says(Partly, "enqueued 297, 0 there already, 3 refused", "task restore --yes "+path)
}

// TestADamagedLineOfABackupIsRefused changes a line of a backup by hand. The task would come back without its
// parameters, or with other ones, and no later restore of the whole backup would mend it.
func TestADamagedLineOfABackupIsRefused(t *testing.T) {
	r := newRig(t)
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a1"}, Kind: "send", Headers: map[string]string{"a": "1", "A": "2"}})
	path := filepath.Join(t.TempDir(), "backup")
	r.ok("task rm mail/a1 --yes --backup " + path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"payload"`, `"paylaod"`, `the field "paylaod" is unknown`},
		{`"payload":"`, `"payload":"e30=","payload":"`, "the field payload stands there twice"},
		{`"payload":"`, `"Payload":"e30=","payload":"`, "the field payload stands there twice"},
		{`"headers":{`, `"headers":{"a":"0",`, "the field a stands there twice"},
		{`"max_retries":0`, `"max_retries":"0"`, "a field has a value of another kind"},
		{`"queue":"mail",`, "", "the field queue is missing"},
		{`"id":"a1",`, "", "the field id is missing"},
		{`"kind":"send",`, "", "the field kind is missing"},
		{`"encoding":"json",`, "", "the field encoding is missing"},
		{`"max_retries":0,`, "", "the field max_retries is missing"},
		{`"crash_limit":3,`, "", "the field crash_limit is missing"},
		{`,"state":"waiting"`, "", "the field state is missing"},
		{"}\n", "} {}\n", "it is no JSON"},
	} {
		damaged := strings.Replace(string(text), c.old, c.new, 1)
		if damaged == string(text) {
			t.Fatalf("%s has no %s", text, c.old)
		}
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		r.says(BadInput, "line 1 of the backup", "task restore --yes "+path)
		r.says(BadInput, c.want, "task restore --yes "+path)
	}
	payload := regexp.MustCompile(`"payload":"[^"]*",`)
	if err := os.WriteFile(path, payload.ReplaceAll(text, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	r.says(BadInput, "the field payload is missing", "task restore --yes "+path)
	r.says(NotFound, "", "task show mail/a1")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r.says(Done, "enqueued 1", "task restore --yes "+path)
}
