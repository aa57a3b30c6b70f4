package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

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
	if actions := r.actions(); len(actions) != 1 || actions[0].Count != 299 || actions[0].Outcome != ledger.Failed {
		t.Errorf("the audit has %+v, want 299 deleted", actions)
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

// TestAnActionThatIsStoppedTellsHowMuchIsDone stops actions on 300 tasks in the middle of their first call, by an
// interrupt and by --timeout, and repeats them. It checks the exit codes, the terminal and the audit.
func TestAnActionThatIsStoppedTellsHowMuchIsDone(t *testing.T) {
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
				synctest.Test(t, func(t *testing.T) { stopAnAction(t, line, flags, want+why+"\nnext: ") })
			})
		}
	}
}

func stopAnAction(t *testing.T, line, flags, want string) {
	t.Helper()
	r := newRig(t)
	r.many()
	if strings.Contains(line, "BACKUP") {
		line = strings.ReplaceAll(line, "BACKUP", r.backup())
		r.now = r.now.Add(time.Minute)
	}
	well, before := r.store, len(r.actions())
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
	if actions := r.actions(); len(actions) != before+1 || actions[0].Count != did {
		t.Errorf("the audit has %+v, want %d done", actions, did)
	}
	r.store, r.ctx = well, nil
	r.says(Done, "", line)
}

// TestAStoppedActionDoesNotWaitForAStorageThatHangs interrupts a call that takes too long.
func TestAStoppedActionDoesNotWaitForAStorageThatHangs(t *testing.T) {
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
