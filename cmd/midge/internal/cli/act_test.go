package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

func TestTasksAreRequeued(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "task_requeue", r.transcript(
		"task requeue", "task requeue error:timeout", "task requeue error:timeout --dry-run", "task requeue error:nothing -y",
		"task requeue mail/a1", "task requeue mail/a1", "task requeue mail/none", "task retry error:timeout --limit 1 --yes",
		"task requeue --queue mail --yes -o json", "task ls state:dead", "task requeue mail/b1 mail/none --yes", "task requeue --rate -1 x",
		"task requeue state:nope", "task requeue mail/a1 --queue mail"))
	r.in = "mail/a1\nmail/a2\n"
	if got := r.run("task cancel - --yes"); got.code != Done || !strings.Contains(got.out, "cancelled 2") {
		t.Errorf("refs of standard input: got %+v", got)
	}
}

func TestTasksAreCancelledMovedAndDeleted(t *testing.T) {
	r := newRig(t)
	r.night()
	backup := filepath.Join(t.TempDir(), "dead.jsonl")
	golden(t, "task_act", strings.ReplaceAll(r.transcript(
		"task cancel mail/b2", "task cancel mail/a1", "task move mail/b1", "task move --to letters mail/b1", "task show letters/b1 -o json --columns x",
		"task move --to bad/name mail/b1", "task rm state:dead --yes --backup "+backup, "task rm letters/b1 --backup "+backup,
		"task restore "+backup+" --yes", "task restore "+backup+" --yes", "task restore /none --yes", "task ls mail", "task rm mail/a1",
		"task delete mail/a1"), backup, "BACKUP"))
	if info, err := os.Stat(backup); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v; want a file of its owner alone", info, err)
	}
}

func TestTasksAreEdited(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "task_edit", r.transcript(
		"task edit", "task edit mail/a1", "task edit mail/a1 --params '{\"to\":\"bob\"}' --dry-run", "task edit mail/a1 --params '{\"to\":\"bob\"}'",
		"task edit mail/a1 --params '{\"to\":\"cy\"}' --requeue", "task show mail/a1 -o jsonl", "task edit mail/b1 --priority 5", "task edit mail/b1 --priority 50",
		"task edit mail/b2 --now", "task edit queue:mail --in 2h --yes", "task edit mail/b1 --params '{' ", "task edit mail/none --params '{}'",
		"task edit mail/b1 --params '{}' --priority 1", "task edit kind:send_mail --params '{}'", "task edit mail/b1 --priority 1 --requeue"))
}

func TestAnEditorEditsParameters(t *testing.T) {
	r := newRig(t)
	r.night()
	r.person = true
	r.env["EDITOR"] = "sed -i s/ann/bob/"
	r.ok("task edit mail/a1 --requeue")
	if got := r.ok("task show mail/a1 -o jsonl"); !strings.Contains(got, `"params":{"to":"bob@example.org"}`) || !strings.Contains(got, `"state":"waiting"`) {
		t.Errorf("the task is %s", got)
	}
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	// An edit that is no JSON, and an edit to a value of another type.
	for edit, problem := range map[string]string{"s/}/,/": "JSON", `s/"ann@example.org"/7/`: "a text"} {
		r.env["EDITOR"] = "sed -i '" + edit + "'"
		got := r.run("task edit mail/a2")
		kept := regexp.MustCompile(`--params (@\S+)`).FindStringSubmatch(got.err)
		if got.code != BadInput || !strings.Contains(got.err, problem) || kept == nil {
			t.Fatalf("%s: got %+v, want where the text is", edit, got)
		}
		if text, err := os.ReadFile(kept[1][1:]); err != nil || !strings.Contains(string(text), `"to":`) {
			t.Errorf("%s: the text that is kept is %s, %v", edit, text, err)
		}
		if err := os.RemoveAll(filepath.Dir(kept[1][1:])); err != nil {
			t.Error(err)
		}
	}
	r.env["EDITOR"] = "sed -i s/ann/cy/"
	got := r.run("task edit mail/a2 --dry-run")
	kept := regexp.MustCompile(`midge (task edit mail/a2 --params @\S+)`).FindStringSubmatch(got.err)
	if got.code != Done || kept == nil || strings.Contains(got.err, "mended") {
		t.Fatalf("--dry-run: got %+v, want where the text is", got)
	}
	if got := r.run(kept[1] + " --dry-run"); got.code != Done || !strings.Contains(got.err, "cy@example.org") {
		t.Errorf("with the text that is kept: got %+v", got)
	}
	r.env["EDITOR"] = "true"
	if got := r.run("task edit mail/a2"); got.code != Done || !strings.Contains(got.err, "nothing was changed") {
		t.Errorf("an editor that changes nothing: got %+v", got)
	}
	r.env["EDITOR"] = "truncate -s 0"
	if got := r.run("task edit mail/a2"); got.code != BadInput {
		t.Errorf("an editor that deletes all: got %+v", got)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Error(err)
	}
	r.env["EDITOR"] = "false"
	if got := r.run("task edit mail/a2"); got.code != Failed {
		t.Errorf("an editor that fails: got %+v", got)
	}
	r.env["EDITOR"] = "sed -i s/ann/cy/"
	r.ok("task edit mail/a2")
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("files are left of editors whose text was taken, or not changed: %v, %v", left, err)
	}
}

// slowly is a storage that reads a task in more time than a preview has.
type slowly struct{ storage.Storage }

func (s slowly) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	time.Sleep(1100 * time.Millisecond)
	return s.Storage.Task(ctx, ref)
}

// TestAQuestionAboutNamedTasksSpeaksOfNoOthers checks acts on a storage that is too slow for a preview of all
// named tasks.
func TestAQuestionAboutNamedTasksSpeaksOfNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.night()
		r.store, r.person = slowly{r.store}, true
		for line, want := range map[string]string{
			"task cancel mail/none mail/b1 mail/b2": "Cancel up to 2 tasks? [y/N]",
			"task cancel mail/b1 mail/b2":           "Cancel 1 task or more? [y/N]",
			"task cancel mail/b1 mail/b1":           "Cancel 1 task? [y/N]",
		} {
			r.in = "n\n"
			if got := r.run(line); got.code != Failed || !strings.Contains(got.err, want) || strings.Contains(got.err, "match") {
				t.Errorf("midge %s: got %+v, want the question %q", line, got, want)
			}
		}
	})
}

// TestAProgramIsToldWhatWouldHappen checks the JSON of --dry-run, and of acts that find no task to change.
func TestAProgramIsToldWhatWouldHappen(t *testing.T) {
	r := newRig(t)
	r.night()
	for _, c := range []struct {
		line    string
		code    int
		matched int64
	}{
		{"task requeue error:timeout --dry-run", Done, 3},
		{"task requeue error:timeout --limit 2 --dry-run", Done, 2},
		{"task requeue error:nothing --dry-run", Done, 0},
		{"task requeue error:nothing --yes", Done, 0},
		{"task requeue mail/a1 mail/none --dry-run", Done, 2},
		{"task requeue mail/none mail/other --yes", NotFound, 2},
		{"task rm queue:mail --dry-run", Done, 2},
		{"task cancel queue:mail --dry-run", Done, 2},
		{"task move --to letters queue:mail --dry-run", Done, 2},
		{"task edit queue:mail --priority 3 --dry-run", Done, 2},
		{"task edit mail/a1 --params '{}' --dry-run", Done, 1},
	} {
		got := r.run(c.line + " -o json")
		var act show.Act
		if err := json.Unmarshal([]byte(got.out), &act); err != nil || got.code != c.code || act.Matched != c.matched || act.Done != 0 ||
			act.DryRun != strings.Contains(c.line, "--dry-run") {
			t.Errorf("midge %s: got %+v, %v, want %d and %d matched", c.line, got, err, c.code, c.matched)
		}
	}
	if got := r.ok("task ls state:dead -o ids"); strings.Count(got, "\n") != 3 {
		t.Errorf("dead are %s, want three as before", got)
	}
}

// TestTasksThatAreNotThereAreNamed misspells the queue or the id of tasks, in the arguments and in a list.
func TestTasksThatAreNotThereAreNamed(t *testing.T) {
	for line, code := range map[string]int{
		"maill/a1": NotFound, "mail/nope": NotFound, "-": NotFound, "maill/a1 mail/nope --yes": NotFound,
		"mail/nope mail/b1 --yes": Partly, "mail/nope --dry-run": NotFound, "mail/nope mail/b1 --dry-run": Done,
	} {
		for _, verb := range []string{"rm", "cancel", "requeue", "move --to x", "edit --priority 3"} {
			r := newRig(t)
			r.night()
			r.in = "mail/nope\n"
			words := line
			if verb == "requeue" {
				words = strings.ReplaceAll(line, "b1", "b2") // b1 waits already
			}
			got := r.run("task " + verb + " " + words)
			for _, ref := range []string{"maill/a1", "mail/nope"} {
				missing := strings.Contains(line, ref) || line == "-" && ref == "mail/nope"
				if strings.Contains(got.err, ref+": there is no such task\n") != missing || got.code != code {
					t.Errorf("midge task %s %s: got %+v, want %d, and %s named: %t", verb, words, got, code, ref, missing)
				}
			}
		}
	}
}

// TestNamedTasksThatStayAsTheyAreExist tells tasks that cannot be changed, or need not be, from missing ones.
func TestNamedTasksThatStayAsTheyAreExist(t *testing.T) {
	r := newRig(t)
	r.night()
	for _, flags := range []string{" --yes", " --dry-run"} {
		r.says(Done, "it was so already; nothing was changed", "task requeue mail/b1 reports/c1"+flags)
		r.says(Refused, "no task can be changed; nothing was changed\n  mail/a1: it is dead", "task edit --in 2h mail/a1 mail/a2"+flags)
		r.says(Refused, "  mail/nope: there is no such task", "task edit --in 2h mail/a1 mail/nope"+flags)
		r.says(NotFound, "no such task; nothing was changed\n  mail/nope: there", "task requeue mail/b1 mail/nope"+flags)
	}
}

// TestAnEmptyFilterChoosesNoTasks gives the arguments that a shell makes of empty variables.
func TestAnEmptyFilterChoosesNoTasks(t *testing.T) {
	r := newRig(t)
	r.night()
	before := r.ok("task ls --state all -o ids")
	for _, line := range []string{
		"task rm '' --yes", "task rm ' ' --yes", "task cancel '' --yes", "task requeue '' --yes", "task move --to x '' --yes",
		"task edit '' --priority 1 --yes", "task rm --queue '' --yes", "task rm --queue '' kind:send_mail --yes",
		"task rm --state '' kind:send_mail --yes", "task cancel '' --queue '' --yes", "task rm kind: --yes", "task ls --queue ''",
	} {
		if got := r.run(line); got.code != BadInput {
			t.Errorf("midge %s: got %+v, want %d", line, got, BadInput)
		}
	}
	if got := r.run("task rm '' --yes"); !strings.Contains(got.err, "--state live") {
		t.Errorf("got %q, want what to type to mean all", got.err)
	}
	if after := r.ok("task ls --state all -o ids"); after != before {
		t.Errorf("the tasks are\n%swant\n%s", after, before)
	}
	if got := r.run("task cancel --state live --yes"); got.code != Done || !strings.Contains(got.out, "cancelled 3") {
		t.Errorf("--state live: got %+v, want all three cancelled", got)
	}
}

// TestManyTasksAreConfirmedByAWord requires the name of the queue to confirm an act on more than 1,000
// tasks.
func TestManyTasksAreConfirmedByAWord(t *testing.T) {
	r := newRig(t)
	for i := range typeAbove + 1 {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%04d", i)}, Kind: "send_mail"})
	}
	r.person = true
	for _, c := range []struct {
		in   string
		code int
	}{{"y\n", Failed}, {"mail\n", Done}} {
		r.in = c.in
		got := r.run("task cancel kind:send_mail")
		if got.code != c.code || !strings.Contains(got.err, `Type "mail" to go on`) {
			t.Errorf("the answer %q: got %+v", c.in, got)
		}
	}
}

// TestAnActReachesAMatchThatThePreviewDidNot puts the only match after more tasks than a preview reads.
func TestAnActReachesAMatchThatThePreviewDidNot(t *testing.T) {
	r := newRig(t)
	for i := range 210 {
		txs := make([]storage.Tx, 100)
		for j := range txs {
			in := storage.Insert{
				Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%05d", i*100+j)}, Kind: "send_mail", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
			}
			if i == 209 && j == 99 {
				in.Kind = "needle"
			}
			txs[j] = storage.Tx{Inserts: []storage.Insert{in}}
		}
		if _, err := r.session.Apply(t.Context(), txs...); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.run("task cancel kind:needle --dry-run"); got.code != Done || strings.Contains(got.err, "no such task;") ||
		!strings.Contains(got.err, "no such task so far (searched 20,000 of 21,000; the act searches all)") {
		t.Errorf("--dry-run: got %+v", got)
	}
	if got := r.run("task cancel kind:needle"); got.code != BadInput {
		t.Errorf("nobody is there to confirm: got %+v", got)
	}
	r.person, r.in = true, "y\n"
	if got := r.run("task cancel kind:needle"); got.code != Failed || !strings.Contains(got.err, `Cancel all that match? Type "cancel" to go on`) {
		t.Errorf("an answer that is not enough: got %+v", got)
	}
	if got := r.run("task cancel kind:needle --yes"); got.code != Done || !strings.Contains(got.out, "cancelled 1") {
		t.Errorf("got %+v, want the one that matches cancelled", got)
	}
	if got := r.run("task cancel kind:needle --yes"); got.code != Done || !strings.Contains(got.out, "nothing to do") {
		t.Errorf("once more: got %+v", got)
	}
}

// late is a user who takes a while to answer.
type late struct {
	io.Reader

	meanwhile func()
}

func (l *late) Read(b []byte) (int, error) {
	l.meanwhile()
	return l.Reader.Read(b)
}

// TestAnActIsDoneToNoMoreTasksThanWereConfirmed adds a matching task before the user answers.
func TestAnActIsDoneToNoMoreTasksThanWereConfirmed(t *testing.T) {
	r := newRig(t)
	n := 0
	insert := func() {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%04d", n)}, Kind: "send_mail"})
		n++
	}
	insert()
	insert()
	var out, errs bytes.Buffer
	std := r.std(strings.NewReader(""), &out, &errs)
	std.Ask = func() (Dialog, error) {
		return Dialog{In: &late{strings.NewReader("y\n"), insert}, Out: &errs, Close: func() error { return nil }}, nil
	}
	if code := Run(t.Context(), words("task cancel kind:send_mail"), std); code != Done || !strings.Contains(errs.String(), "Cancel 2 tasks?") {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	if !strings.Contains(out.String(), "cancelled 2") || r.ok("task ls -o ids") == "" {
		t.Errorf("%d tasks were there: %s", n, out.String())
	}
}

// between is a storage that runs ahead before the first call with more than one Tx, and behind after that
// call. Each of them may be nil.
type between struct {
	storage.Storage

	ahead, behind func()
}

func (b *between) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	ahead, behind := b.ahead, b.behind
	if len(txs) > 1 {
		b.ahead, b.behind = nil, nil
		if ahead != nil {
			ahead()
		}
	}
	applied, err := b.Storage.Apply(ctx, call, txs...)
	if len(txs) > 1 && behind != nil {
		behind()
	}
	return applied, err
}

// TestARemovalThatARunnerStopsIsDoneInPart lets a runner claim a task after the first tasks are deleted.
func TestARemovalThatARunnerStopsIsDoneInPart(t *testing.T) {
	r := newRig(t)
	r.many()
	r.store = &between{Storage: r.store, behind: func() {
		request := storage.ClaimRequest{Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "bulk"}}, Start: 1, Lease: time.Minute}
		if _, err := r.session.Claim(t.Context(), request); err != nil {
			t.Error(err)
		}
	}}
	want := "299 of 300 records deleted, then: 1 task of bulk is running: pause the queue and wait, or cancel the task\nnext: midge queue pause bulk"
	r.says(Partly, want, "queue rm bulk --yes")
	if acts := r.acts(); len(acts) != 1 || acts[0].Count != 299 || acts[0].Outcome != ledger.Failed {
		t.Errorf("the audit has %+v, want 299 deleted", acts)
	}
}

// lengthy is a storage whose calls with more than one Tx take a time. A call whose context ends before this
// time happens too, but its caller does not learn of it.
type lengthy struct {
	storage.Storage

	takes time.Duration
	begun func() // called at the begin of each such call, if not nil
}

func (s *lengthy) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if len(txs) < 2 {
		return s.Storage.Apply(ctx, call, txs...)
	}
	if s.begun != nil {
		s.begun()
	}
	heard := sleep.For(ctx, s.takes)
	applied, err := s.Storage.Apply(context.WithoutCancel(ctx), call, txs...)
	if !heard {
		return nil, fmt.Errorf("%w: %w", storage.ErrUnknown, context.Cause(ctx))
	}
	return applied, err
}

// TestAnActThatIsStoppedTellsHowMuchIsDone stops acts on 300 tasks in the middle of their first call, by an
// interrupt and by --timeout, and repeats them. It checks the exit codes, the terminal and the audit.
func TestAnActThatIsStoppedTellsHowMuchIsDone(t *testing.T) {
	for line, want := range map[string]string{
		"queue rm bulk --yes":                         "200 of 300 records deleted, then: ",
		"task rm --queue bulk --yes":                  "200 tasks deleted, then: ",
		"task cancel --queue bulk --yes":              "200 tasks cancelled, then: ",
		"task move --to x --queue bulk --yes":         "200 tasks moved, then: ",
		"task edit --queue bulk --priority 3 --yes":   "200 tasks prioritised, then: ",
		"task restore BACKUP --yes":                   "100 of 300 tasks enqueued, then: ",
		"task rm --queue bulk --rate 40 --yes -o ids": "10 tasks deleted, then: ",
	} {
		for flags, why := range map[string]string{"": interrupted, "--timeout 500ms": timedOut} {
			t.Run(line+" "+flags, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { stopAnAct(t, line, flags, want+why+"\nnext: ") })
			})
		}
	}
}

func stopAnAct(t *testing.T, line, flags, want string) {
	t.Helper()
	r := newRig(t)
	r.many()
	if strings.Contains(line, "BACKUP") {
		line = strings.ReplaceAll(line, "BACKUP", r.backup())
		r.now = r.now.Add(time.Minute)
	}
	well, before := r.store, len(r.acts())
	calls, code := &lengthy{Storage: well, takes: time.Second}, TimedOut
	r.store = calls
	if flags == "" {
		r.ctx, calls.begun = context.WithCancel(t.Context())
		code = Interrupted
	}
	r.says(code, want, line+" "+flags)
	var did int
	if _, err := fmt.Sscan(want, &did); err != nil {
		t.Fatal(err)
	}
	if acts := r.acts(); len(acts) != before+1 || acts[0].Count != did {
		t.Errorf("the audit has %+v, want %d done", acts, did)
	}
	r.store, r.ctx = well, nil
	r.says(Done, "", line)
}

// TestAStoppedActDoesNotWaitForAStorageThatHangs interrupts a call that takes too long.
func TestAStoppedActDoesNotWaitForAStorageThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.many()
		ctx, interrupt := context.WithCancel(t.Context())
		r.store, r.ctx = &lengthy{Storage: r.store, takes: time.Hour, begun: interrupt}, ctx
		begun := time.Now()
		r.says(Unknown, "the outcome is unknown: ", "task cancel --queue bulk --yes")
		if took := time.Since(begun); took != grace {
			t.Errorf("it took %v, want %v", took, grace)
		}
	})
}

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

// TestARestoreTellsAProgramWhatItDid checks the JSON of a restore: of a dry run, of one that the storage
// stops halfway, and of the rest.
func TestARestoreTellsAProgramWhatItDid(t *testing.T) {
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
