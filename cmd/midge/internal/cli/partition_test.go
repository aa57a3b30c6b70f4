package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/storage"
)

// partitioned fills the queue mail with tasks in two partitions, and with one task in none.
func (r *rig) partitioned() {
	r.t.Helper()
	for i, key := range []string{"acme", "acme", "Ökö GmbH", ""} {
		r.insert(storage.Insert{
			Ref: storage.Ref{Queue: "mail", ID: fmt.Sprint("a", i)}, Kind: "send_mail", Partition: key,
		})
	}
}

func TestThePartitionsOfAQueue(t *testing.T) {
	r := newRig(t)
	r.partitioned()
	text := r.transcript("queue partitions mail", "queue pause mail --partition acme --for 1h", "queue pause mail --partition idle",
		"queue partitions mail", "queue partitions mail --utc", "queue partitions mail --limit 1", "queue partitions mail -o json",
		"queue partitions mail -o ids", "queue show mail", "queue ls", "queue resume mail --partition acme",
		"queue resume mail --partition idle", "queue partitions mail")
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "plain", ID: "b1"}, Kind: "send_mail"})
	text += r.transcript("queue partitions plain", "queue show plain")
	// The mistakes.
	text += r.transcript("queue partitions none", "queue partitions", "queue partitions mail --limit -1", "queue pause mail --partition ''",
		"queue resume mail --partition acme --for 1h", "queue pause none --partition acme", "queue resume none --partition acme",
		"queue pause midge.audit --partition acme")
	golden(t, "partition", text)
	r.audited(`pause-partition mail partition "acme", for 1h`, `pause-partition mail partition "idle"`,
		`resume-partition mail partition "acme"`, `resume-partition mail partition "idle"`)
}

// audited compares the actions in the audit, in any order, because the clock of the rig stands still.
func (r *rig) audited(want ...string) {
	r.t.Helper()
	var got []string
	for _, e := range r.actions() {
		got = append(got, e.Action+" "+e.Queue+" "+e.Note)
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		r.t.Errorf("the audit has %q, want %q", got, want)
	}
}

// TestTheTasksOfAPartition adds, lists, shows and edits tasks of partitions.
func TestTheTasksOfAPartition(t *testing.T) {
	r := newRig(t)
	r.partitioned()
	text := r.transcript("task add send_mail --queue mail --partition acme --id new", "task ls --partition acme", "task ls --partition 'Ökö GmbH' -o ids",
		"task ls state:waiting partition=acme", `task ls 'partition:"" -is:declined' -o ids`, "task ls mail -o wide --columns task,partition",
		"task show mail/new", "task edit mail/new --partition idle --priority 3", "task edit mail/new --partition idle", "task edit mail/new --partition ''",
		"task edit partition:acme --partition other --dry-run", "task edit partition:acme --partition other --yes",
		"task edit mail/a2 --partition x --params '{\"to\":\"bo\"}'", "task edit mail/a2 --set to=eve --partition y", "task ls -o wide --columns task,partition,priority")
	text += r.transcript("task add send_mail --partition ''", "task ls --partition ''", "task edit mail/a0 --partition x --now", "task edit mail/a0 --partition x --requeue")
	golden(t, "partition_tasks", text)
	r.audited("enqueue mail of kind send_mail", `prioritise mail to 3 and to the partition "idle"`, "partition mail to the partition \"idle\"", "partition mail to no partition",
		`partition  to the partition "other"`, `edit mail and to the partition "x"`, `edit mail to and to the partition "y"`)
	var task show.Task
	if r.decode("task show mail/a0 -o json", &task); task.Partition != "other" {
		t.Errorf("the record has the partition %q", task.Partition)
	}
}

// TestABackupKeepsPartitions restores tasks with their partitions, and refuses a backup with a bad key.
func TestABackupKeepsPartitions(t *testing.T) {
	r := newRig(t)
	r.partitioned()
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	r.ok("task rm --queue mail --state live --yes --backup " + path)
	r.ok("task restore --yes " + path)
	if got := r.ok("task ls partition:acme -o ids"); got != "mail/a0\nmail/a1\n" {
		t.Errorf("restored %q", got)
	}
	line, err := json.Marshal(bulk.Record{Queue: "mail", ID: "bad", Kind: "k", Encoding: "json", CrashLimit: 3, Partition: "a\nb"})
	if err == nil {
		err = os.WriteFile(path, append(line, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := r.run("task restore --yes " + path); got.code != BadInput || !strings.Contains(got.err, `line 1: invalid partition`) {
		t.Errorf("a bad key: exit %d, %s", got.code, got.err)
	}
}

// TestAKeyThatIsTooLongIsRefused checks the longest key and a longer key.
func TestAKeyThatIsTooLongIsRefused(t *testing.T) {
	r := newRig(t)
	r.partitioned()
	r.ok("queue pause mail --partition " + strings.Repeat("k", storage.MaxPartition))
	got := r.run("queue pause mail --partition " + strings.Repeat("k", storage.MaxPartition+1))
	if got.code != BadInput || !strings.Contains(got.err, `: want 1 to 128 bytes`) {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// TestAllPartitionsAreListed lists more partitions than a page of the storage has.
func TestAllPartitionsAreListed(t *testing.T) {
	r := newRig(t)
	for i := range storage.MaxNames + 5 {
		r.insert(storage.Insert{
			Ref: storage.Ref{Queue: "mail", ID: fmt.Sprint("t", i)}, Kind: "k", Partition: fmt.Sprintf("p%04d", i),
		})
	}
	if n := strings.Count(r.ok("queue partitions mail -o ids"), "\n"); n != storage.MaxNames+5 {
		t.Errorf("listed %d partitions, want %d", n, storage.MaxNames+5)
	}
	if n := strings.Count(r.ok("queue partitions mail -o ids --limit 1002"), "\n"); n != 1002 {
		t.Errorf("listed %d partitions, want 1002", n)
	}
}

// sparse is a storage whose first page of partitions is empty, though there are more.
type sparse struct{ storage.Storage }

func (s sparse) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	if q.After == "" && q.Key == "" {
		return storage.PartitionsPage{Next: " "}, nil
	}
	return s.Storage.Partitions(ctx, q)
}

// TestKeysAreCompleted completes the keys of the partitions of the queue that a command names.
func TestKeysAreCompleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.partitioned()
		pause := storage.Settings{Partition: "idle", Pause: &storage.Pause{On: true, For: time.Hour}}
		if err := r.session.Configure(t.Context(), "mail", pause); err != nil {
			t.Fatal(err)
		}
		for line, want := range map[string]string{
			"queue resume mail --partition i":          "idle\n",
			"queue pause mail --partition ''":          "acme\nidle\nÖkö GmbH\n",
			"queue pause --partition ''":               "",
			"task add k --queue mail --partition a":    "acme\n",
			"task ls --queue mail --partition a":       "acme\n",
			"task ls --queue mail,other --partition a": "",
			"task edit x --queue mail --partition a":   "acme\n",
		} {
			for _, store := range []storage.Storage{r.store, sparse{r.store}} {
				r.store = store
				if got, _, _ := strings.Cut(r.run("__complete "+line).out, ":4"); got != want {
					t.Errorf("%s: %T: got %q, want %q", line, store, got, want)
				}
			}
		}
	})
}
