package imports

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// killedAt enqueues ten tasks, and runs an import to the queue letters that ends at a step.
func (p *peer) killedAt(step string) {
	p.t.Helper()
	for i := range 10 {
		p.enqueue("email:send", fmt.Sprintf(`{"n":%d}`, i))
	}
	a := p.asynq()
	a.step = func(at string) error {
		if at == step {
			return errEnded
		}
		return nil
	}
	if _, err := a.Run(p.t.Context()); !errors.Is(err, errEnded) {
		p.t.Fatal(err)
	}
}

// has checks how many tasks wait in the queues of midge and of asynq.
func (p *peer) has(letters, other, pending int) {
	p.t.Helper()
	stats, err := p.session.Storage().Stats(p.t.Context(), "letters", "other")
	if err != nil {
		p.t.Fatal(err)
	}
	info, err := p.look.GetQueueInfo("mail")
	if err != nil {
		p.t.Fatal(err)
	}
	got := [3]int{int(stats[0].Waiting), int(stats[1].Waiting), info.Pending}
	if want := [3]int{letters, other, pending}; got != want {
		p.t.Errorf("letters, other and asynq have %v, want %v", got, want)
	}
}

// elsewhere returns an import into another storage.
func (p *peer) elsewhere() *Asynq {
	p.t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = store.Close() })
	a := p.asynq()
	a.Session = storage.NewSession(store, 0)
	return a
}

// TestAnImportWhoseRecordWasMeddledWithDoublesNothing ends an import between the insert of a chunk and its end,
// completes the tasks, and changes all scheduled tasks of the queue as people and programs may change them.
// The next run, and an abort, find the record.
func TestAnImportWhoseRecordWasMeddledWithDoublesNothing(t *testing.T) {
	t.Parallel()
	all := func(ctx context.Context, s *storage.Session, a bulk.Action) error {
		q := "queue:letters state:all"
		f, err := filter.Parse(q)
		if err == nil {
			_, err = bulk.Run(ctx, s, bulk.Request{Action: a, Scan: scan.Request{Filter: f}})
		}
		return err
	}
	cancel := func(ctx context.Context, s *storage.Session) error {
		_, err := s.CancelAll(ctx, "letters", storage.Scheduled, nil)
		return err
	}
	for name, meddle := range map[string]func(ctx context.Context, s *storage.Session) error{
		"a cancel": func(ctx context.Context, s *storage.Session) error {
			return all(ctx, s, bulk.Action{Verb: bulk.Cancel})
		},
		"a deletion": func(ctx context.Context, s *storage.Session) error {
			return all(ctx, s, bulk.Action{Verb: bulk.Delete})
		},
		"a move": func(ctx context.Context, s *storage.Session) error {
			return all(ctx, s, bulk.Action{Verb: bulk.Move, Queue: "other"})
		},
		"CancelAll": cancel,
		"CancelAll and DeleteAll": func(ctx context.Context, s *storage.Session) error {
			if err := cancel(ctx, s); err != nil {
				return err
			}
			_, err := s.DeleteAll(ctx, "letters", storage.Cancelled, nil)
			return err
		},
		"DeleteAll": func(ctx context.Context, s *storage.Session) error {
			_, err := s.DeleteAll(ctx, "letters", storage.Scheduled, nil)
			return err
		},
		"RequeueAll": func(ctx context.Context, s *storage.Session) error {
			_, err := s.RequeueAll(ctx, "letters", storage.Scheduled, nil)
			return err
		},
	} {
		for _, abort := range []bool{false, true} {
			p := newPeer(t)
			p.killedAt("inserted")
			p.work(func(string) {})
			if err := meddle(t.Context(), p.session); err != nil {
				t.Fatal(err)
			}
			for range chunkTasks + 10 { // of which some are in a second chunk
				p.enqueue("email:send", "{}")
			}
			a, want := p.asynq(), chunkTasks+10
			end := func(ctx context.Context) error { _, err := a.Run(ctx); return err }
			if abort {
				end, want = a.Abort, 0
			}
			if err := end(t.Context()); err != nil {
				t.Errorf("%s, abort %v: %v", name, abort, err)
			}
			p.has(want, 0, chunkTasks+10-want)
			if left := append(p.tasks(storage.Scheduled), p.tasks(storage.Cancelled)...); len(left) != 0 {
				t.Errorf("%s, abort %v: the record is left", name, abort)
			}
		}
	}
}

// TestAnImportToAnotherQueueIsRefusedWhileAChunkIsSetAside checks another queue and another storage,
// because the first queue may have the tasks.
func TestAnImportToAnotherQueueIsRefusedWhileAChunkIsSetAside(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"staged", "inserted"} {
		p := newPeer(t)
		p.killedAt(step)
		other := p.asynq()
		other.To = "other"
		_, err := other.Run(t.Context())
		var target *TargetError
		if !errors.As(err, &target) || *target != (TargetError{From: "mail", To: "letters"}) {
			t.Errorf("another queue: got %v, want a TargetError that names letters", err)
		}
		_, err = p.elsewhere().Run(t.Context())
		if !errors.As(err, &target) || *target != (TargetError{From: "mail", To: "letters", Elsewhere: true}) {
			t.Errorf("another storage: got %v, want a TargetError that says so", err)
		}
		if _, err := p.asynq().Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.has(10, 0, 0)
		p.enqueue("email:send", "{}")
		if _, err := other.Run(t.Context()); err != nil { // no chunk is set aside any more
			t.Fatal(err)
		}
		p.has(10, 1, 0)
	}
}

// TestAnAbortIsForTheQueueOfTheKilledRun passes another queue to the abort. Tasks that the killed run
// inserted stay only in its queue.
func TestAnAbortIsForTheQueueOfTheKilledRun(t *testing.T) {
	t.Parallel()
	for step, want := range map[string][3]int{"staged": {0, 0, 10}, "inserted": {10, 0, 0}} {
		p := newPeer(t)
		p.killedAt(step)
		abort := p.asynq()
		abort.To = "other"
		if err := abort.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.has(want[0], want[1], want[2])
		if info, err := p.look.GetQueueInfo("mail"); err != nil || info.Paused || abort.To != "letters" {
			t.Errorf("asynq has %+v, %v, and the queue is %s; want letters, and a queue that goes on", info, err, abort.To)
		}
	}
}

// TestAnAbortFromAnotherStorageIsRefused also checks that Gone allows the abort.
func TestAnAbortFromAnotherStorageIsRefused(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	p.killedAt("inserted")
	abort := p.elsewhere()
	var target *TargetError
	if err := abort.Abort(t.Context()); !errors.As(err, &target) || !target.Elsewhere {
		t.Errorf("got %v, want a TargetError", err)
	}
	p.has(10, 0, 0)
	abort.Gone = true
	if err := abort.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.has(10, 0, 10) // the tasks also remain in the storage that is reported to be gone
}

// TestAnInterruptedImportFinishesItsChunk interrupts an import after an insert, and checks that no task is
// in both queues.
func TestAnInterruptedImportFinishesItsChunk(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	for range 10 {
		p.enqueue("email:send", "{}")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a := p.asynq()
	a.step = func(at string) error {
		if at == "inserted" {
			stop()
		}
		return nil
	}
	if _, err := a.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	p.has(10, 0, 0)
}

// TestAChunkOfAnEarlierVersionHasNoTarget checks that any import takes such a chunk.
func TestAChunkOfAnEarlierVersionHasNoTarget(t *testing.T) {
	t.Parallel()
	a := &Asynq{From: "mail", To: "letters", target: target{"s1", "letters"}}
	for name, want := range map[string]bool{
		"": true, "0190b6a5": true, a.target.chunkName(): true, target{"s1", "other"}.chunkName(): false,
		target{"s2", "letters"}.chunkName(): false, "c s1 letters": true, "c s1 \x1b[31m": false,
	} {
		if err := a.check(name); (err == nil) != want {
			t.Errorf("%q: got %v, want that it is taken: %v", name, err, want)
		}
	}
}
