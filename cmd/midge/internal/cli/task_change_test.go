package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/steps"
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

// TestARequeueForgetsCheckpoints checks --from-start of both commands that requeue, and the audit.
func TestARequeueForgetsCheckpoints(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "send_mail"})
	}
	claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 4, Lease: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, fence := range claimed.Fences {
		leases := []storage.Extension{{Fence: fence, Checkpoint: []byte("7")}}
		_, extended := r.session.Extend(t.Context(), storage.ExtendRequest{Leases: leases})
		bury := storage.Settle{Fence: fence, Outcome: storage.Bury}
		_, settled := r.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{bury}})
		if err := errors.Join(extended, settled); err != nil {
			t.Fatal(err)
		}
	}
	r.ok("task requeue mail/a")
	r.ok("task requeue mail/b --from-start")
	r.ok("task edit mail/c --params '{\"to\":\"bob\"}' --requeue --from-start")
	r.ok("task requeue state:dead --from-start --yes")
	for _, fence := range claimed.Fences {
		now, err := r.store.Task(t.Context(), fence.Ref)
		if err != nil || now.State != storage.Waiting || (now.Checkpoint != nil) != (now.ID == "a") {
			t.Errorf("%s is %s with checkpoint %q, %v", now.Ref, now.State, now.Checkpoint, err)
		}
	}
	if got := r.ok("audit -o jsonl"); strings.Count(got, "from the start") != 3 {
		t.Errorf("the audit does not name the three requeues from the start:\n%s", got)
	}
	if got := r.run("task edit mail/a --priority 3 --from-start"); got.code != BadInput {
		t.Errorf("an edit from the start without a requeue: got %+v", got)
	}
}

// TestATaskShowsItsStepsAndItsRun checks the page and the record of a task that has completed, and of one
// whose steps are damaged.
func TestATaskShowsItsStepsAndItsRun(t *testing.T) {
	r := newRig(t)
	whole := steps.Envelope{Checkpoint: []byte("7"), Steps: []steps.Step{
		{Name: "charge", Ended: r.now, Took: 2 * time.Second, Result: []byte(`{"id":"ch_9"}`)},
		{Name: "a week", Ended: r.now, Until: r.now.Add(7 * 24 * time.Hour)},
	}}.Encode()
	for id, stored := range map[string][]byte{"whole": whole, "damaged": whole[:len(whole)-1]} {
		r.insert(storage.Insert{
			Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "send_mail", Keep: storage.Keep{For: time.Hour},
		})
		claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Lease: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		r.now = r.now.Add(3*time.Second + time.Millisecond)
		leases := []storage.Extension{{Fence: claimed.Fences[0], Checkpoint: stored}}
		_, extended := r.session.Extend(t.Context(), storage.ExtendRequest{Leases: leases})
		end := storage.Settle{Fence: claimed.Fences[0], Outcome: storage.Complete}
		_, settled := r.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{end}})
		if err := errors.Join(extended, settled); err != nil {
			t.Fatal(err)
		}
	}
	var task show.Task
	r.decode("task show mail/whole -o jsonl", &task)
	if len(task.Steps) != 2 || task.Steps[0].Name != "charge" || string(task.Steps[0].Result) != `{"id":"ch_9"}` ||
		task.Steps[1].Until == nil || string(task.Checkpoint) != "7" || task.Runner != "runner-1" || task.Started == nil {
		t.Errorf("the record is %+v", task)
	}
	page := r.ok("task show mail/whole")
	for _, text := range []string{"charge after 2s", `{"id":"ch_9"}`, "a week sleeps until", "took        3s", "succeeded after 3s on runner-1"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not show %q:\n%s", text, page)
		}
	}
	const problem = "the steps of the task cannot be read: cut off"
	if page := r.ok("task show mail/damaged"); !strings.Contains(page, problem) || strings.Contains(page, "checkpoint") {
		t.Errorf("the page of damaged steps is:\n%s", page)
	}
	var damaged show.Task
	r.decode("task show mail/damaged -o jsonl", &damaged)
	if !strings.HasPrefix(damaged.StepsProblem, problem) || damaged.Steps != nil || damaged.Checkpoint != nil {
		t.Errorf("the record of damaged steps is %+v", damaged)
	}
}

func TestTasksAreCancelledMovedAndDeleted(t *testing.T) {
	r := newRig(t)
	r.night()
	backup := filepath.Join(t.TempDir(), "dead.jsonl")
	golden(t, "task_action", strings.ReplaceAll(r.transcript(
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
	time.Sleep(bulk.PreviewTime + time.Millisecond) // virtual: the bubble's clock
	return s.Storage.Task(ctx, ref)
}

// TestAQuestionAboutNamedTasksSpeaksOfNoOthers checks actions on a storage that is too slow for a preview of
// all named tasks.
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

// meddled is a storage in which something happens before a read of a task.
type meddled struct {
	storage.Storage

	reads   *int // how many reads come before it
	happens func()
}

func (m meddled) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if *m.reads--; *m.reads == -1 {
		m.happens()
	}
	return m.Storage.Task(ctx, ref)
}

// TestNamedTasksAreChangedAsTheyWereShown changes a task between the preview of an action and its answer.
func TestNamedTasksAreChangedAsTheyWereShown(t *testing.T) {
	for line, want := range map[string]string{
		"task requeue mail/a1 mail/a2":                           "matched 2, requeued 1, 1 changed meanwhile",
		"task rm mail/a1 mail/a2":                                "matched 2, deleted 1, 1 changed meanwhile",
		"task move --to letters mail/a1 mail/a2":                 "matched 2, moved 1, 1 changed meanwhile",
		"task edit mail/a1 mail/a2 --priority 9":                 "matched 2, prioritised 1, 1 changed meanwhile",
		"task edit mail/a1 mail/a2 --set to=bob":                 "matched 2, edited 1, 1 changed meanwhile",
		"task cancel mail/b1 mail/b2":                            "matched 2, cancelled 2",
		"task requeue mail/a1 mail/a2 --yes":                     "matched 2, requeued 2",
		"task requeue mail/a1 mail/a2 mail/a1 mail/a2 --limit 2": "matched 2, requeued 1, 1 changed meanwhile",
	} {
		r := newRig(t)
		r.night()
		r.person, r.in = true, "y\n"
		reads, priority := 2, 7
		if strings.Contains(line, "--set") { // reads the first task for its warnings, before the preview
			reads = 4
		}
		before := r.store
		r.store = meddled{before, &reads, func() {
			for _, id := range []string{"a2", "b1"} {
				alter := func(storage.Task) (storage.Change, error) { return storage.Change{Priority: &priority}, nil }
				if err := r.session.ChangeTask(t.Context(), storage.Ref{Queue: "mail", ID: id}, alter); err != nil {
					t.Error(err)
				}
			}
		}}
		if got := r.run(line); !strings.Contains(got.out, want) {
			t.Errorf("midge %s: got %+v, want %q", line, got, want)
		}
	}
}

// filled is a storage in which something happens before its first change.
type filled struct {
	storage.Storage

	happens *func()
}

func (f filled) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	happens := *f.happens
	*f.happens = func() {}
	happens()
	return f.Storage.Apply(ctx, call, txs...)
}

// TestAFilterChoosesTheTasksThatWereShown enqueues a task of a higher priority between the preview of an action
// and its answer, and changes a task that was shown.
func TestAFilterChoosesTheTasksThatWereShown(t *testing.T) {
	for line, want := range map[string]string{
		"task cancel kind:send_mail":                  "matched 2, cancelled 2",
		"task rm kind:send_mail":                      "matched 2, deleted 1, 1 changed meanwhile",
		"task move --to letters kind:send_mail":       "matched 2, moved 1, 1 changed meanwhile",
		"task move --to letters kind:send_mail --yes": "matched 3, moved 3",
	} {
		r := newRig(t)
		r.night()
		r.person, r.in = true, "y\n"
		happens := func() {
			r.now = r.now.Add(time.Second)
			r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "new"}, Kind: "send_mail", Priority: 9})
			priority := 7
			alter := func(storage.Task) (storage.Change, error) { return storage.Change{Priority: &priority}, nil }
			if err := r.session.ChangeTask(t.Context(), storage.Ref{Queue: "mail", ID: "b1"}, alter); err != nil {
				t.Error(err)
			}
		}
		r.store = filled{r.store, &happens}
		if got := r.run(line); !strings.Contains(got.out, want) {
			t.Errorf("midge %s: got %+v, want %q", line, got, want)
		}
		_, err := r.session.Storage().Task(t.Context(), storage.Ref{Queue: "mail", ID: "new"})
		if yes := strings.Contains(line, "--yes"); (err == nil) == yes {
			t.Errorf("midge %s: the new task: %v", line, err)
		}
	}
}

// TestAProgramIsToldWhatWouldHappen checks the JSON of --dry-run, and of actions that find no task to change.
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
		var action show.Action
		if err := json.Unmarshal([]byte(got.out), &action); err != nil || got.code != c.code || action.Matched != c.matched || action.Done != 0 ||
			action.DryRun != strings.Contains(c.line, "--dry-run") {
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

// TestNamedTasksThatStayAsTheyAreExist distinguishes tasks that cannot be changed, or need not be, from
// missing ones.
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
