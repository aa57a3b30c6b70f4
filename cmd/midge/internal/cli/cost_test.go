package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
)

// TestTheCostOfTasks adds, lists, shows and edits tasks with costs.
func TestTheCostOfTasks(t *testing.T) {
	r := newRig(t)
	text := r.transcript("task add send_mail --queue mail --cost 5 --id a", "task add send_mail --queue mail --cost 0 --id b",
		"task add send_mail --queue mail --id c", "task show mail/a", "task show mail/b", "task show mail/c",
		"task ls 'cost>1' -o ids", "task ls cost=0 -o ids", "task edit mail/a --cost 7", "task edit mail/a --cost 7",
		"task edit mail/a --cost 1 --priority 3", "task edit mail/b --cost 2 --partition acme",
		"task edit kind:send_mail --cost 9 --dry-run", "task edit kind:send_mail --cost 9 --yes",
		"task edit mail/a --cost 3 --params '{\"to\":\"bo\"}'", "task edit mail/c --set to=eve --cost 4")
	text += r.transcript("task edit mail/a --cost 2 --now", "task edit mail/a --cost 2 --requeue")
	golden(t, "cost", text)
	r.audited("enqueue mail of kind send_mail", "enqueue mail of kind send_mail", "enqueue mail of kind send_mail",
		"cost mail to the cost 7", "cost mail to the cost 7", "prioritise mail to 3 and to the cost 1", `partition mail to the partition "acme" and to the cost 2`,
		"cost  to the cost 9", "edit mail and to the cost 3", "edit mail to and to the cost 4")
	for id, want := range map[string]int{"a": 3, "b": 9, "c": 4} {
		var task show.Task
		if r.decode("task show mail/"+id+" -o json", &task); task.Cost != want {
			t.Errorf("the record of %s has the cost %d, want %d", id, task.Cost, want)
		}
	}
}

// TestTheCostOfASchedule sets schedules, whose cursor has the cost of their ticks.
func TestTheCostOfASchedule(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		line string
		want int
	}{
		{"--kind k", 1}, {"--kind k --cost 5", 5}, {"", 5}, {"--kind k --cost 0", 0}, {"--kind k", 1},
	} {
		r.ok("schedule set mail/ann --every 1h " + c.line)
		task, err := r.store.Task(t.Context(), storage.Ref{Queue: "mail", ID: "cursor.ann"})
		if err != nil || task.Cost.N() != c.want {
			t.Errorf("schedule set %s: the cost %d, %v, want %d", c.line, task.Cost.N(), err, c.want)
		}
	}
}

// TestABackupKeepsCosts restores tasks with their costs, and refuses a backup with a bad cost.
func TestABackupKeepsCosts(t *testing.T) {
	r := newRig(t)
	for id, flag := range map[string]string{"a": " --cost 5", "b": " --cost 0", "c": ""} {
		r.ok("task add send_mail --queue mail --id " + id + flag)
	}
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	r.ok("task rm --queue mail --state live --yes --backup " + path)
	r.ok("task restore --yes " + path)
	for filter, want := range map[string]string{"cost:5": "mail/a\n", "cost:0": "mail/b\n", "cost:1": "mail/c\n"} {
		if got := r.ok("task ls " + filter + " -o ids"); got != want {
			t.Errorf("restored %q with %s, want %q", got, filter, want)
		}
	}
	line := `{"queue":"mail","id":"bad","kind":"k","encoding":"json","payload":"e30=","cost":-1,"max_retries":0,"crash_limit":3,"state":"waiting"}`
	if err := os.WriteFile(path, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.run("task restore --yes " + path); got.code != BadInput || !strings.Contains(got.err, `line 1: invalid cost -1`) {
		t.Errorf("a bad cost: exit %d, %s", got.code, got.err)
	}
}
