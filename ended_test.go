package midge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// heard records the values that a hook receives.
type heard struct {
	mu   sync.Mutex
	ends []midge.Ended
}

func (h *heard) hear(_ context.Context, e midge.Ended) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, e)
}

// hooks returns the hooks of a runner that report to h.
func (h *heard) hooks() []func(context.Context, midge.Ended) { return only(h.hear) }

// only returns a list of one hook.
func only(hook func(context.Context, midge.Ended)) []func(context.Context, midge.Ended) {
	return []func(context.Context, midge.Ended){hook}
}

// of returns the recorded ends of a task.
func (h *heard) of(ref storage.Ref) []midge.Ended {
	h.mu.Lock()
	defer h.mu.Unlock()
	var own []midge.Ended
	for _, e := range h.ends {
		if e.Task.Ref == ref {
			own = append(own, e)
		}
	}
	return own
}

// unheard is a storage that extends no lease while it is silent.
type unheard struct {
	storage.Storage
	silent atomic.Bool
}

func (m *unheard) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if m.silent.Load() && len(req.Leases) > 0 {
		return storage.Extended{}, storage.ErrUnavailable
	}
	return m.Storage.Extend(ctx, req)
}

var errBroken = errors.New("it is broken")

// endings is a job that can end its attempt in each possible way.
func endings(ctx context.Context, w work) error {
	switch w.Name {
	case "failed", "dead":
		return errBroken
	case "chosen":
		return midge.RetryIn(time.Minute, errBroken)
	case "timed-out", "cancelled":
		<-ctx.Done()
		return errors.Join(errBroken, ctx.Err())
	case "panicked":
		panic("it is broken")
	case "discarded":
		return midge.Discard(errBroken)
	case "snoozed":
		return errors.Join(errBroken, midge.Snooze(time.Hour))
	case "throttled":
		return errors.Join(errBroken, midge.Throttle(time.Hour))
	case "succeeded":
		time.Sleep(2 * time.Second) // virtual
		return midge.SetResult(ctx, "a result")
	}
	return nil
}

func TestEachEndOfAJobIsTold(t *testing.T) {
	broken := func(err error) bool { return errors.Is(err, errBroken) }
	for name, c := range map[string]struct {
		want midge.Ended
		err  func(error) bool // nil for none
		opts []midge.Option
	}{
		"succeeded": {want: midge.Ended{Outcome: midge.OutcomeSucceeded, Final: true, Took: 2 * time.Second}},
		"failed":    {want: midge.Ended{Outcome: midge.OutcomeFailed, RetryIn: time.Second}, err: broken},
		"chosen":    {want: midge.Ended{Outcome: midge.OutcomeFailed, RetryIn: time.Minute}, err: broken},
		"dead": {
			want: midge.Ended{Outcome: midge.OutcomeFailed, Final: true}, err: broken,
			opts: []midge.Option{midge.Retries(midge.None)},
		},
		"timed-out": {
			want: midge.Ended{Outcome: midge.OutcomeTimedOut, RetryIn: time.Second, Took: 3 * time.Second},
			err:  func(err error) bool { return broken(err) && errors.Is(err, midge.ErrTimeout) },
			opts: []midge.Option{midge.Timeout(3 * time.Second)},
		},
		"panicked": {
			want: midge.Ended{Outcome: midge.OutcomePanicked, RetryIn: time.Second},
			err:  func(err error) bool { return errors.As(err, new(*midge.PanicError)) },
		},
		"discarded": {want: midge.Ended{Outcome: midge.OutcomeDiscarded, Final: true}, err: broken},
		"snoozed":   {want: midge.Ended{Outcome: midge.OutcomeSnoozed, RetryIn: time.Hour}, err: broken},
		"throttled": {want: midge.Ended{Outcome: midge.OutcomeThrottled, RetryIn: time.Hour}, err: broken},
	} {
		bubble(t, func(b *bench) {
			var told heard
			var seen midge.Outcome
			b.run(midge.RunnerConfig{
				Backoff: midge.Constant(time.Second), OnEnd: told.hooks(),
				Middleware: []midge.Middleware{func(next func(context.Context) error) func(context.Context) error {
					return func(ctx context.Context) error {
						err := next(ctx)
						seen = midge.OutcomeOf(err)
						return err
					}
				}},
			}, endings)
			task := b.enqueue(name, c.opts...)
			b.after(3500 * time.Millisecond)
			_ = b.drain()
			ends := told.of(task.Ref)
			if len(ends) == 0 {
				t.Fatalf("%s: nothing was told", name)
			}
			got := ends[0]
			if c.err == nil && got.Err != nil || c.err != nil && !c.err(got.Err) {
				t.Errorf("%s: got the error %v", name, got.Err)
			}
			if seen != c.want.Outcome {
				t.Errorf("%s: the middleware saw %q", name, seen)
			}
			b.checkTold(name, got, task, c.want)
			got.Task, got.Err, got.Runner = storage.Task{}, nil, ""
			if !equalEnds(got, c.want) {
				t.Errorf("%s: got %+v, want %+v", name, got, c.want)
			}
		})
	}
}

// checkTold checks the values that were reported of a task besides its outcome, and its history.
func (b *bench) checkTold(name string, got midge.Ended, task midge.Task, want midge.Ended) {
	b.Helper()
	if got.Runner != b.runner.ID() || got.Task.Kind != "work" || got.Task.Version <= task.Version {
		b.Errorf("%s: got the runner %s, the task %+v", name, got.Runner, got.Task)
	}
	if want.Final != got.Task.State.Ended() || (name == "succeeded") != (got.Task.Result != nil) {
		b.Errorf("%s: got the state %s, the result %q", name, got.Task.State, got.Task.Result)
	}
	if name == "succeeded" || name == "snoozed" || name == "throttled" {
		return // the history has no such attempts
	}
	if stored := b.history(task.Ref); len(stored) == 0 || stored[0] != string(want.Outcome) {
		b.Errorf("%s: the history calls it %q", name, stored)
	}
}

// history returns the outcomes in the history of a task, none if the task is gone.
func (b *bench) history(ref storage.Ref) (outcomes []string) {
	b.Helper()
	task, err := b.store.Task(b.Context(), ref)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		b.Fatal(err)
	}
	for _, a := range task.Attempts {
		outcomes = append(outcomes, a.Outcome)
	}
	return outcomes
}

func equalEnds(a, b midge.Ended) bool {
	return a.Outcome == b.Outcome && a.Final == b.Final && a.RetryIn == b.RetryIn && a.Wait == b.Wait && a.Took == b.Took
}

// only returns the only recorded end of a task.
func (h *heard) only(b *bench, ref storage.Ref) midge.Ended {
	b.Helper()
	ends := h.of(ref)
	if len(ends) != 1 {
		b.Fatalf("%d ends of %s were told: %+v; want one", len(ends), ref, ends)
	}
	return ends[0]
}

func TestTheCancelOfARunningTaskIsToldOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		b.run(midge.RunnerConfig{OnEnd: told.hooks()}, endings)
		task := b.enqueue("cancelled")
		b.after(time.Second)
		if _, err := b.client.Cancel(b.Context(), task.Ref); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		if got := told.only(b, task.Ref); got.Outcome != midge.OutcomeCancelled || !got.Final || got.Task.State != storage.Cancelled {
			t.Errorf("got %+v", got)
		}
	})
}

func TestTheReleaseOfAShutdownIsTold(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		b.run(midge.RunnerConfig{OnEnd: told.hooks(), Grace: time.Second, Concurrency: 1}, endings)
		task := b.enqueue("cancelled")
		b.after(time.Millisecond)
		waits := b.enqueue("succeeded") // its job never begins
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		got := told.only(b, task.Ref)
		if got.Outcome != midge.OutcomeReleased || got.Final || !errors.Is(got.Err, midge.ErrShutdown) ||
			got.Task.State != storage.Waiting || got.Took != time.Second+time.Millisecond {
			t.Errorf("got %+v", got)
		}
		if ends := told.of(waits.Ref); len(ends) > 0 {
			t.Errorf("of a task that nobody began was told %+v", ends)
		}
	})
}

func TestALostLeaseIsToldByTheRunnerThatLostIt(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		s := &unheard{Storage: b.store}
		b.runner = b.newRunner(s, midge.RunnerConfig{OnEnd: told.hooks(), Lease: time.Second, Concurrency: 1},
			func(context.Context, work) error {
				time.Sleep(3 * time.Second) // virtual, and deaf to its context
				return nil
			})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		task := b.enqueue("a")
		b.after(time.Millisecond)
		s.silent.Store(true)
		b.after(1500 * time.Millisecond)
		claimed, err := b.store.Claim(b.Context(), storage.ClaimRequest{
			Token: storage.Token{1}, Runner: "another", Queues: []storage.ClaimQueue{{Name: midge.DefaultQueue}},
			Start: 1, Suspect: true, Lease: time.Minute,
		})
		if err != nil || len(claimed.Tasks) != 1 {
			t.Fatalf("claimed %d, %v; want the task", len(claimed.Tasks), err)
		}
		b.after(2 * time.Second)
		got := told.only(b, task.Ref)
		if got.Outcome != midge.OutcomeLeaseLost || got.Final || !errors.Is(got.Err, storage.ErrLeaseLost) || got.Took != 3*time.Second {
			t.Errorf("got %+v", got)
		}
	})
}

// crash claims the task like a runner that dies with it, and lets its lease expire.
func (b *bench) crash() {
	b.Helper()
	claimed, err := b.store.Claim(b.Context(), storage.ClaimRequest{
		Token: storage.Token{1}, Runner: "dies", Queues: []storage.ClaimQueue{{Name: midge.DefaultQueue}},
		Start: 1, Suspect: true, Lease: time.Second,
	})
	if err != nil || len(claimed.Tasks) != 1 {
		b.Fatalf("claimed %d, %v; want the task", len(claimed.Tasks), err)
	}
	b.after(1100 * time.Millisecond)
}

// recover recovers the crashed tasks, which a runner that starts does only after some seconds.
func (b *bench) recover() {
	b.Helper()
	_, err := b.store.Claim(b.Context(), storage.ClaimRequest{
		Runner: "recovers", Queues: []storage.ClaimQueue{{Name: midge.DefaultQueue}},
	})
	if err != nil {
		b.Fatal(err)
	}
}

func TestACrashIsToldByTheRunnerThatStartsTheTaskAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		task := b.enqueue("failed")
		b.crash()
		b.run(midge.RunnerConfig{OnEnd: told.hooks(), Backoff: midge.Constant(time.Second)}, endings)
		b.after(10 * time.Second)
		var crashed []midge.Ended
		for _, e := range told.of(task.Ref) {
			if e.Outcome == midge.OutcomeCrashed {
				crashed = append(crashed, e)
			}
		}
		if len(crashed) != 1 || crashed[0].Final || crashed[0].Runner != "dies" || crashed[0].Task.Crashes != 1 {
			t.Fatalf("got %+v, want one crash of the runner that died", crashed)
		}
	})
}

func TestACrashLoopIsToldByTheRunnerWhoseClaimFoundIt(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		task := b.enqueue("failed")
		for range 3 {
			b.crash()
		}
		b.run(midge.RunnerConfig{OnEnd: told.hooks()}, endings)
		b.after(5 * time.Second) // a runner that starts recovers nothing at first
		got := told.only(b, task.Ref)
		if got.Outcome != midge.OutcomeCrashed || !got.Final || got.Task.State != storage.Dead || got.Task.Reason != storage.ReasonCrashes {
			t.Errorf("got %+v", got)
		}
	})
}

func TestADeathOfAnUnknownKindIsToldAndADeclineIsNot(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		b.limited(storage.Limits{DeclinedFor: time.Hour})
		task, err := b.client.Enqueue(b.Context(), other{})
		if err != nil {
			t.Fatal(err)
		}
		b.run(midge.RunnerConfig{OnEnd: told.hooks()}, endings)
		b.after(50 * time.Minute)
		if ends := told.of(task.Ref); len(ends) > 0 {
			t.Errorf("of a declined task was told %+v", ends)
		}
		b.after(15 * time.Minute)
		if got := told.only(b, task.Ref); got.Outcome != midge.OutcomeUnknownKind || !got.Final || got.Err != nil {
			t.Errorf("got %+v", got)
		}
	})
}

// other is a job of a kind that these runners do not know.
type other struct{}

func TestUndecodableParametersAreTold(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		b.limited(storage.Limits{DeclinedFor: time.Hour})
		ref := storage.Ref{Queue: midge.DefaultQueue, ID: "bad"}
		_, err := b.store.Apply(b.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{{
			Ref: ref, Kind: "work", Encoding: "json", CrashLimit: 3, Payload: []byte("[]"),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		b.run(midge.RunnerConfig{OnEnd: told.hooks()}, endings)
		b.after(100 * time.Millisecond)
		if got := told.only(b, ref); got.Outcome != midge.OutcomeUndecodable || got.Final || got.Err == nil || got.RetryIn <= 0 {
			t.Errorf("got %+v", got)
		}
		b.after(time.Hour + time.Minute)
		ends := told.of(ref)
		if last := ends[len(ends)-1]; last.Outcome != midge.OutcomeUndecodable || !last.Final {
			t.Errorf("in the end: got %+v", last)
		}
	})
}

// A hook that panics, or ends its goroutine, costs at most a line of the log.
func TestAHookThatPanicsKeepsNothingFromBeingTold(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		var told heard
		b.run(midge.RunnerConfig{Logger: logger, OnEnd: []func(context.Context, midge.Ended){
			func(context.Context, midge.Ended) { panic("a broken hook") }, told.hear,
		}}, endings)
		for range 20 {
			b.enqueue("")
		}
		b.after(time.Second)
		if n := len(told.ends); n != 20 {
			t.Errorf("%d ends were told, want 20", n)
		}
		got := lines("OnEnd")
		if len(got) != 20 || !strings.Contains(got[0], "panic: a broken hook (ended_test.go:") {
			t.Errorf("got the lines %q", got)
		}
	})
}

func TestAHookThatEndsItsGoroutineKeepsNothingFromBeingTold(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		b.run(midge.RunnerConfig{Concurrency: 100, OnEnd: only(func(ctx context.Context, e midge.Ended) {
			told.hear(ctx, e)
			runtime.Goexit()
		})}, endings)
		for range 500 {
			b.enqueue("")
		}
		b.after(time.Second)
		if n := len(told.ends); n != 500 {
			t.Errorf("%d ends were told, want 500", n)
		}
	})
}

// Run returns after the calls of the hook, within the grace period.
func TestTheDrainWaitsForTheHook(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  int
		warns bool
	}{
		"a hook that returns":      {takes: 5 * time.Second, want: 20},
		"a hook that returns late": {takes: time.Hour, want: 0, warns: true},
	} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			var told heard
			b.run(midge.RunnerConfig{Logger: logger, Concurrency: 20, OnEnd: only(func(ctx context.Context, e midge.Ended) {
				select {
				case <-time.After(c.takes):
					told.hear(ctx, e)
				case <-ctx.Done():
				}
			})}, endings)
			for range 20 {
				b.enqueue("")
			}
			b.after(time.Second)
			begun := time.Now()
			if err := b.drain(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if took := time.Since(begun); took > 25*time.Second || len(told.ends) != c.want {
				t.Errorf("%s: %d ends were told within %v, want %d", name, len(told.ends), took, c.want)
			}
			if warned := len(lines("OnEnd has not returned in time: 20 ends")) == 1; warned != c.warns {
				t.Errorf("%s: warned %v, want %v", name, warned, c.warns)
			}
		})
	}
}

// robbed is a storage in which each lease is lost when it is extended.
type robbed struct{ storage.Storage }

func (r *robbed) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	var lost []storage.Ref
	for i := range req.Leases {
		lost = append(lost, req.Leases[i].Fence.Ref)
	}
	req.Leases = nil
	extended, err := r.Storage.Extend(ctx, req)
	extended.Lost = lost
	return extended, err
}

func TestNothingIsToldBehindTheEndOfRun(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		over := make(chan struct{})
		b.store = &robbed{b.store}
		b.run(midge.RunnerConfig{Grace: time.Second, Lease: 3 * time.Second, OnEnd: told.hooks()}, func(context.Context, work) error {
			<-over
			return nil
		})
		task := b.enqueue("it outlives the grace period")
		b.after(1500 * time.Millisecond) // the lease is lost
		if err := b.drain(); !errors.Is(err, midge.ErrGraceExceeded) {
			t.Errorf("got %v, want ErrGraceExceeded", err)
		}
		close(over)
		synctest.Wait()
		if got := told.of(task.Ref); len(got) > 0 {
			t.Errorf("got %+v after Run has returned", got)
		}
	})
}

func TestAnEndTellsHowLongTheTaskWaited(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		task := b.enqueue("failed")
		time.Sleep(time.Minute) // virtual
		b.run(midge.RunnerConfig{OnEnd: told.hooks(), Backoff: midge.Constant(time.Second), Logger: zap.NewNop()}, endings)
		b.after(3 * time.Second)
		ends := told.of(task.Ref)
		if len(ends) < 2 || ends[0].Wait.Round(time.Second) != time.Minute || ends[1].Wait != 0 {
			t.Errorf("got %+v, want a wait of a minute, then none that is known", ends)
		}
		if !slices.IsSortedFunc(ends, func(a, b midge.Ended) int { return a.Task.Retries - b.Task.Retries }) {
			t.Errorf("got %+v, want the retries counted", ends)
		}
	})
}

// TestAHookThatBlocksHoldsABoundedNumberOfEnds: the others are dropped and counted, and the log has one
// line when that begins, and one when it is over.
func TestAHookThatBlocksHoldsABoundedNumberOfEnds(t *testing.T) {
	const waiting, underWay, beyond = 10_000, 8 * 32, 500 // the calls of eight goroutines, and their batches
	bubble(t, func(b *bench) {
		logger, lines := logged()
		var told atomic.Int64
		goOn := make(chan struct{})
		b.run(midge.RunnerConfig{Logger: logger, Concurrency: 100, OnEnd: only(func(context.Context, midge.Ended) {
			<-goOn
			told.Add(1)
		})}, endings)
		for _, n := range []int{underWay, waiting + beyond} {
			items := make([]midge.Item, n)
			for i := range items {
				items[i] = midge.New(work{})
			}
			if _, err := b.client.EnqueueMany(b.ctx, items); err != nil {
				t.Fatal(err)
			}
			b.after(time.Minute)
		}
		if got := lines("OnEnd"); len(got) != 1 || !strings.Contains(got[0], "10000 ends wait") ||
			!strings.Contains(got[0], "none of 8 goroutines in OnEnd has taken another one for 1m0s") {
			t.Errorf("the log has the lines %q, want one that says what blocks and for how long", got)
		}
		close(goOn)
		b.after(time.Second)
		dropped := waiting + beyond + underWay - int(told.Load())
		if dropped < beyond || dropped > beyond+underWay {
			t.Errorf("%d ends were dropped, want those behind the first %d", dropped, waiting)
		}
		want := fmt.Sprintf("OnEnd goes on: %d ends were dropped", dropped)
		if len(lines(want)) != 1 || len(lines("OnEnd")) != 2 {
			t.Errorf("the log has the lines %q, want %q", lines("OnEnd"), want)
		}
		if err := b.drain(); err != nil {
			t.Error(err)
		}
	})
}

// TestTheTaskOfAnEndIsNoLongerClaimed checks the fields that a task has only while it is pending.
func TestTheTaskOfAnEndIsNoLongerClaimed(t *testing.T) {
	bubble(t, func(b *bench) {
		var ended []midge.Task
		b.run(midge.RunnerConfig{OnEnd: []func(context.Context, midge.Ended){
			func(_ context.Context, e midge.Ended) { ended = append(ended, e.Task) },
		}}, func(context.Context, work) error { return nil })
		b.enqueue("a")
		b.after(time.Second)
		if len(ended) != 1 {
			t.Fatalf("got %d ends, want 1", len(ended))
		}
		if one := ended[0]; !one.Claimed.IsZero() || !one.LeaseUntil.IsZero() || one.Runner != "" || one.Started {
			t.Errorf("got a task claimed at %v by %q until %v, want none", one.Claimed, one.Runner, one.LeaseUntil)
		}
	})
}
