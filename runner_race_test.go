package midge_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// blackhole is a storage that answers no Extend, Claim or Apply before the context of its caller
// has ended, while a hole is open.
type blackhole struct {
	storage.Storage

	mu   sync.Mutex // guards the fields below
	hole chan struct{}
	late time.Duration // a Claim ignores its context and answers this late
}

func (h *blackhole) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hole = make(chan struct{})
}

func (h *blackhole) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.hole)
	h.hole = nil
}

func (h *blackhole) pass(ctx context.Context) error {
	h.mu.Lock()
	hole := h.hole
	h.mu.Unlock()
	if hole == nil {
		return nil
	}
	select {
	case <-hole:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", storage.ErrUnknown, ctx.Err())
	}
}

func (h *blackhole) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	if err := h.pass(ctx); err != nil {
		return nil, err
	}
	return h.Storage.Apply(ctx, call, txs...)
}

func (h *blackhole) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := h.pass(ctx); err != nil {
		return storage.Extended{}, err
	}
	return h.Storage.Extend(ctx, req)
}

func (h *blackhole) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	h.mu.Lock()
	late := h.late
	h.mu.Unlock()
	if late > 0 {
		time.Sleep(late) // virtual
		ctx = context.WithoutCancel(ctx)
	} else if err := h.pass(ctx); err != nil {
		return storage.Claimed{}, err
	}
	return h.Storage.Claim(ctx, req)
}

func (h *blackhole) answersLate(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = d
}

// TestAJobOutlivesAnAbsenceOfTheStorage has absences at different moments, each of which ends two
// seconds before the job's lease would be unsafe.
func TestAJobOutlivesAnAbsenceOfTheStorage(t *testing.T) {
	for begin := 8 * time.Second; begin < 20*time.Second; begin += 990 * time.Millisecond {
		bubble(t, func(b *bench) {
			h := &blackhole{Storage: b.store}
			var cause error
			b.runner = b.newRunner(h, midge.RunnerConfig{Lease: 30 * time.Second}, func(ctx context.Context, _ work) error {
				select {
				case <-ctx.Done():
					cause = context.Cause(ctx)
				case <-time.After(2 * time.Minute):
				}
				return nil
			})
			go func() { b.done <- b.runner.Run(b.ctx) }()
			synctest.Wait()
			task := b.enqueue("a")
			b.after(begin)
			h.open()
			b.after(13 * time.Second)
			h.close()
			b.after(3 * time.Minute)
			if cause != nil {
				t.Errorf("away from %v to %v: the job's context ended by %v", begin, begin+13*time.Second, cause)
			}
			b.gone(task.Ref)
		})
	}
}

// TestRunReturnsAlthoughAClaimAnswersLate checks that the tasks of the late claim are left to their
// leases.
func TestRunReturnsAlthoughAClaimAnswersLate(t *testing.T) {
	bubble(t, func(b *bench) {
		h := &blackhole{Storage: b.store}
		b.runner = b.newRunner(h, midge.RunnerConfig{Grace: midge.None}, func(context.Context, work) error { return nil })
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Millisecond)
		h.answersLate(6 * time.Second)
		b.after(2 * time.Second)
		b.enqueue("a")
		b.stop()
		b.after(30 * time.Second)
		select {
		case err := <-b.done:
			b.done <- err
		default:
			b.Fatal("Run has not returned")
		}
	})
}

// TestRunReturnsWithinTwoSecondsOfTheGrace has a storage that is away, and a task that is not
// settled.
func TestRunReturnsWithinTwoSecondsOfTheGrace(t *testing.T) {
	bubble(t, func(b *bench) {
		h := &blackhole{Storage: b.store}
		b.runner = b.newRunner(h, midge.RunnerConfig{Grace: time.Second}, func(context.Context, work) error {
			time.Sleep(time.Second)
			return nil
		})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		b.enqueue("a")
		b.after(100 * time.Millisecond)
		h.open()
		begun := time.Now()
		b.stop()
		err := <-b.done
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("Run returned after %v, want within the grace and two seconds", took)
		}
		b.done <- err
	})
}

// brittle is an error that a job returns by mistake: a nil pointer in an interface. Its methods
// panic.
type brittle struct{ cause error }

func (e *brittle) Error() string { return e.cause.Error() }
func (e *brittle) Unwrap() error { return e.cause }

// TestAnErrorThatPanicsIsAFailure checks that it does not end the process.
func TestAnErrorThatPanicsIsAFailure(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(context.Context, work) error {
			var err *brittle
			return err
		})
		task := b.enqueue("a")
		b.after(time.Second)
		if got := b.task(task.Ref); got.State != storage.Retry || got.Retries != 1 || got.Stack == "" {
			t.Errorf("got %s after %d retries, stack %q; want a failure with a stack", got.State, got.Retries, got.Stack)
		}
	})
}

// TestARunnerThatLeftIsNotHeardOfAgain has a heartbeat under way when the runner leaves. It must
// not arrive after the runner has left.
func TestARunnerThatLeftIsNotHeardOfAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &slowBeats{Storage: b.store}
		b.runner = b.newRunner(s, midge.RunnerConfig{}, nil)
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(10*time.Second + 150*time.Millisecond) // a heartbeat is under way
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		if list, err := b.store.Runners(b.Context()); err != nil || len(list) > 0 {
			t.Errorf("got %v, %v, want no runner", list, err)
		}
	})
}

// slowBeats is a storage whose heartbeats take a while, even if their caller's context has ended.
type slowBeats struct{ storage.Storage }

func (s *slowBeats) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if !req.Runner.Leaving {
		time.Sleep(100 * time.Millisecond) // virtual
	}
	return s.Storage.Extend(context.WithoutCancel(ctx), req)
}

// TestMissedTicksTooLargeForOneStepAreAllMade checks that they are made in several steps.
func TestMissedTicksTooLargeForOneStepAreAllMade(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		large := work{Name: string(make([]byte, 900<<10))}
		if err := b.runner.Periodic(midge.Every(time.Minute), large, midge.AllMissed(0), midge.To("later")); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		if err := b.client.Queue("later").Pause(b.Context()); err != nil {
			t.Fatal(err)
		}
		b.after(10 * time.Minute)
		b.ctx, b.stop = context.WithCancel(b.Context())
		b.done = make(chan error, 1)
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := b.runner.Periodic(midge.Every(time.Minute), large, midge.AllMissed(0), midge.To("later")); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(20 * time.Second)
		if got := b.stats("later").Totals.Enqueued; got != 10 {
			t.Errorf("%d ticks, want the ten that were missed", got)
		}
	})
}

// lingering is a storage whose first settle is not answered and stays under way with its arguments.
type lingering struct {
	storage.Storage
	once   sync.Once
	handed []storage.Tx
	fence  storage.Fence
}

func (l *lingering) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) (applied []storage.Applied, err error) {
	if len(txs[0].Settles) > 0 {
		l.once.Do(func() {
			l.handed, l.fence = txs, txs[0].Settles[0].Fence
			err = fmt.Errorf("lingering: %w", storage.ErrUnknown)
		})
	}
	if err != nil {
		return nil, err
	}
	return l.Storage.Apply(ctx, call, txs...)
}

// TestASettleWithoutAnswerKeepsWhatItWasHanded checks this because the first try may reach the
// storage after its repeat, when other tasks have been settled.
func TestASettleWithoutAnswerKeepsWhatItWasHanded(t *testing.T) {
	bubble(t, func(b *bench) {
		l := &lingering{Storage: b.store}
		b.runner = b.newRunner(l, midge.RunnerConfig{}, func(context.Context, work) error { return nil })
		go func() { b.done <- b.runner.Run(b.ctx) }()
		for range 5 {
			task := b.enqueue("a")
			b.after(time.Second)
			b.gone(task.Ref)
		}
		if len(l.handed[0].Settles) != 1 || l.handed[0].Settles[0].Fence != l.fence {
			t.Errorf("the settle of %s has become %+v", l.fence.Ref, l.handed[0].Settles)
		}
	})
}

// cancelledLate is a storage that reports a cancel while a completion is under way.
type cancelledLate struct {
	storage.Storage

	client *midge.Client
	asked  chan struct{} // closed when an extension has reported the cancel
}

func (c *cancelledLate) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if len(txs[0].Settles) > 0 && txs[0].Settles[0].Outcome == storage.Complete {
		if _, err := c.client.Cancel(ctx, txs[0].Settles[0].Fence.Ref); err != nil {
			return nil, err //nolint:wrapcheck // the test's
		}
		<-c.asked
	}
	return c.Storage.Apply(ctx, call, txs...) //nolint:wrapcheck // as the storage has it
}

func (c *cancelledLate) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	extended, err := c.Storage.Extend(ctx, req)
	if len(extended.CancelAsked) > 0 {
		close(c.asked)
	}
	return extended, err //nolint:wrapcheck // as the storage has it
}

// TestACancelDuringACompletionChangesNothing checks an attempt whose job has returned: its settle
// reads the attempt without a lock.
func TestACancelDuringACompletionChangesNothing(t *testing.T) {
	for range 20 {
		bubble(t, func(b *bench) {
			var told heard
			late := &cancelledLate{Storage: b.store, client: b.client, asked: make(chan struct{})}
			b.store = late
			b.run(midge.RunnerConfig{OnEnd: told.hooks()}, func(context.Context, work) error { return nil })
			task := b.enqueue("a", midge.KeepFor(time.Hour))
			b.after(time.Minute)
			if got := told.only(b, task.Ref); got.Outcome != midge.OutcomeSucceeded || got.Task.State != storage.Completed {
				t.Errorf("got %s %s, want it completed", got.Outcome, got.Task.State)
			}
		})
	}
}
