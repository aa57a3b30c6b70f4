package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
)

// TestARunnerShowsHowManySlotsAreBusy checks a runner that runs more tasks than its heartbeat lists.
func TestARunnerShowsHowManySlotsAreBusy(t *testing.T) {
	r := newRig(t)
	_, err := r.session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
		ID: "runner-1", Host: "web-1", Queues: []string{"mail"}, Concurrency: 5000, Busy: 4000, Started: r.now, For: time.Hour,
		Running: []storage.Running{{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "k", Since: r.now}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"runner ls", "runner show runner-1"} {
		if got := r.ok(line); !strings.Contains(got, "4000 of 5000") {
			t.Errorf("midge %s does not count the busy slots:\n%s", line, got)
		}
	}
	var runner show.Runner
	if r.decode("runner show runner-1 -o json", &runner); runner.Busy != 4000 || len(runner.Running) != 1 {
		t.Errorf("the record has %d busy slots and %d tasks, want 4000 and 1", runner.Busy, len(runner.Running))
	}
}

// TestAUniqueKeyIsNotPrinted checks the commands that print a task, of which none but the backup has the key.
func TestAUniqueKeyIsNotPrinted(t *testing.T) {
	r := newRig(t)
	key := storage.UniqueKey([]byte("k"), []byte("1234"))
	r.insert(storage.Insert{
		Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "k", Unique: storage.Unique{Key: key, Mode: storage.UniqueLife},
	})
	for _, line := range []string{
		"task show mail/a", "task show mail/a -o json", "task ls", "task ls -o json", "task ls -o wide", "task why mail/a -o json", "audit",
	} {
		if got := r.run(line); strings.Contains(got.out+got.err, key) {
			t.Errorf("midge %s prints the unique key:\n%s%s", line, got.out, got.err)
		}
	}
}
