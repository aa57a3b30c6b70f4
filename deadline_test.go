package midge_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

func TestADeadlineEndsATaskOnce(t *testing.T) {
	for name, c := range map[string]struct {
		late    time.Duration // how much later than the task the runner starts
		opts    []midge.Option
		outcome midge.Outcome // with a deadline in five seconds
		state   storage.State
		took    time.Duration
	}{
		"succeeded": {outcome: midge.OutcomeSucceeded, state: storage.Completed, took: 2 * time.Second},
		// The job never starts.
		"never":   {late: 6 * time.Second, outcome: midge.OutcomeExpired, state: storage.Dead},
		"delayed": {opts: []midge.Option{midge.In(6 * time.Second)}, outcome: midge.OutcomeExpired, state: storage.Dead},
		// The job runs, or would run again, after the deadline.
		"timed-out": {outcome: midge.OutcomeExpired, state: storage.Dead, took: 5 * time.Second},
		"snoozed":   {outcome: midge.OutcomeExpired, state: storage.Dead},
		"chosen":    {outcome: midge.OutcomeFailed, state: storage.Dead},
	} {
		bubble(t, func(b *bench) {
			var told heard
			var cause error
			begun := time.Now()
			task := b.enqueue(name, append(c.opts, midge.Deadline(begun.Add(5*time.Second)), midge.KeepFor(time.Hour))...)
			if got := b.task(task.Ref).Deadline(); !got.Equal(begun.Add(5 * time.Second)) {
				t.Errorf("%s: got the deadline %v", name, got)
			}
			b.after(c.late)
			b.run(midge.RunnerConfig{OnEnd: told.hooks()}, func(ctx context.Context, w work) error {
				err := endings(ctx, w)
				cause = context.Cause(ctx)
				return err
			})
			b.after(10 * time.Second)
			got := told.only(b, task.Ref)
			if got.Outcome != c.outcome || !got.Final || got.Task.State != c.state || got.Took.Round(time.Millisecond) != c.took {
				t.Errorf("%s: got %s %s after %v, final %v", name, got.Outcome, got.Task.State, got.Took, got.Final)
			}
			stored := b.task(task.Ref)
			if last := len(stored.Attempts); c.state == storage.Dead && (last == 0 || stored.Attempts[last-1].Outcome != string(c.outcome)) {
				t.Errorf("%s: got the history %+v", name, stored.Attempts)
			}
			if stored.State != c.state || c.state == storage.Dead && stored.Reason != "expired" {
				t.Errorf("%s: got %s, %q", name, stored.State, stored.Reason)
			}
			if (name == "timed-out") != errors.Is(cause, midge.ErrExpired) {
				t.Errorf("%s: the context ended by %v", name, cause)
			}
		})
	}
}

// A task has all its retries as long as they come before its deadline.
func TestADeadlineLeavesTheRetriesBeforeIt(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		b.run(midge.RunnerConfig{OnEnd: told.hooks(), Backoff: midge.Constant(2 * time.Second)}, endings)
		task := b.enqueue("failed", midge.Deadline(time.Now().Add(5*time.Second)))
		dead := b.enqueue("dead", midge.Deadline(time.Now().Add(5*time.Second)), midge.Retries(1))
		b.after(time.Minute)
		ends := told.of(task.Ref)
		if len(ends) != 3 || ends[2].Outcome != midge.OutcomeFailed || !ends[2].Final || ends[2].Task.Reason != "expired" {
			t.Errorf("got %+v, want two retries and then death", ends)
		}
		if got := b.task(dead.Ref); got.Reason != storage.ReasonRetries {
			t.Errorf("without a retry left: got the reason %q", got.Reason)
		}
	})
}

// TestADeadlineEndsATaskWhoseFollowUpIsRefused has a job succeed, whose failure is decided by the settle.
func TestADeadlineEndsATaskWhoseFollowUpIsRefused(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		child := b.enqueue("child", midge.To("elsewhere"))
		cfg := midge.RunnerConfig{OnEnd: told.hooks(), Backoff: midge.Constant(30 * time.Second)}
		b.run(cfg, func(ctx context.Context, _ work) error {
			return midge.FollowUp(ctx, work{"another"}, midge.To(child.Queue), midge.ID(child.ID))
		})
		task := b.enqueue("parent", midge.Deadline(time.Now().Add(5*time.Second)))
		b.after(time.Minute)
		got := told.only(b, task.Ref)
		if got.Outcome != midge.OutcomeFailed || !got.Final || got.Task.Reason != "expired" {
			t.Errorf("got %s, final %v, %q; want a final failure, expired", got.Outcome, got.Final, got.Task.Reason)
		}
		stored := b.task(task.Ref)
		if n := len(stored.Attempts); n != 1 || stored.Attempts[0].Outcome != string(midge.OutcomeFailed) {
			t.Errorf("got the history %+v, want one failure", stored.Attempts)
		}
	})
}

func TestAnotherDeadlineCanBeGiven(t *testing.T) {
	bubble(t, func(b *bench) {
		task := b.enqueue("succeeded", midge.Deadline(time.Now().Add(time.Second)), midge.In(3*time.Second), midge.KeepFor(time.Hour))
		if err := b.client.Change(b.Context(), task.Ref, midge.Deadline(time.Now().Add(time.Minute))); err != nil {
			t.Fatal(err)
		}
		b.run(midge.RunnerConfig{}, endings)
		b.after(10 * time.Second)
		if got := b.task(task.Ref); got.State != storage.Completed {
			t.Errorf("got %s, %q; want it completed", got.State, got.Reason)
		}
		if _, err := b.client.Enqueue(b.Context(), work{}, midge.Deadline(time.Time{})); !errors.As(err, new(*midge.InvalidError)) {
			t.Errorf("the zero time: got %v, want it refused", err)
		}
		err := b.newRunner(b.store, midge.RunnerConfig{}, nil).Periodic(midge.Every(time.Hour), work{}, midge.Deadline(time.Now()))
		if !errors.As(err, new(*midge.InvalidError)) {
			t.Errorf("with a schedule: got %v, want it refused", err)
		}
	})
}

// The clock of the storage runs ahead: first for a moment, which must not end a task, and then for
// good.
func TestAClockThatIsAheadForAMomentEndsNoDeadline(t *testing.T) {
	type step struct {
		jump, wait time.Duration
		want       storage.State
	}
	for name, steps := range map[string][]step{
		"while the runner runs": {
			{0, time.Second, storage.Completed},
			{2 * time.Hour, time.Second, storage.Completed},
			{0, time.Second, storage.Completed},
			{2 * time.Hour, time.Second, storage.Completed},
			{2 * time.Hour, 6 * time.Second, storage.Completed},
			{2 * time.Hour, 0, storage.Dead}, // the clock is believed now
			{0, 0, storage.Completed},
		},
		"as the runner starts": {
			{2 * time.Hour, time.Second, storage.Completed},
			{2 * time.Hour, 6 * time.Second, storage.Completed},
			{2 * time.Hour, 0, storage.Dead},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ahead atomic.Int64
				ahead.Store(int64(steps[0].jump))
				store, err := memory.Open(memory.Config{Now: func() time.Time {
					return time.Now().Add(time.Duration(ahead.Load()))
				}})
				if err != nil {
					t.Fatal(err)
				}
				b := &bench{T: t, store: store, done: make(chan error, 1)}
				b.ctx, b.stop = context.WithCancel(t.Context())
				if b.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
					t.Fatal(err)
				}
				b.run(midge.RunnerConfig{}, endings)
				for _, c := range steps {
					ahead.Store(int64(c.jump))
					task := b.enqueue("", midge.Deadline(time.Now().Add(time.Hour)), midge.KeepFor(72*time.Hour))
					b.after(time.Second)
					if got := b.task(task.Ref); got.State != c.want {
						t.Errorf("%v ahead: got %s, %q; want %s", c.jump, got.State, got.Reason, c.want)
					}
					b.after(c.wait)
				}
				_ = b.drain()
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestADeadlineBeforeTheMomentOfATask is refused if both are moments, and Why reports the others.
func TestADeadlineBeforeTheMomentOfATask(t *testing.T) {
	bubble(t, func(b *bench) {
		at, earlier := midge.At(time.Now().Add(time.Hour)), midge.Deadline(time.Now().Add(time.Minute))
		later := midge.Deadline(time.Now().Add(2 * time.Hour))
		delayed := b.enqueue("delayed", midge.In(time.Hour), earlier)
		fine := b.enqueue("fine", at, later)
		for verb, err := range map[string]error{
			"Enqueue":     second(b.client.Enqueue(b.ctx, work{}, at, earlier)),
			"other order": second(b.client.Enqueue(b.ctx, work{}, earlier, at)),
			"EnqueueAt":   second(b.client.EnqueueAt(b.ctx, time.Now().Add(time.Hour), work{}, earlier)),
			"EnqueueMany": second(b.client.EnqueueMany(b.ctx, []midge.Item{midge.New(work{}, at, earlier)})),
			"Change":      b.client.Change(b.ctx, fine.Ref, at, earlier),
		} {
			if invalid := (*midge.InvalidError)(nil); !errors.As(err, &invalid) || invalid.What != "Deadline" {
				t.Errorf("%s: got %v, want an *InvalidError about the deadline", verb, err)
			}
		}
		b.enqueue("past", midge.At(time.Now().Add(-time.Hour)), midge.Deadline(time.Now().Add(-time.Minute)))
		for ref, expires := range map[midge.Ref]bool{delayed.Ref: true, fine.Ref: false} {
			why, err := b.client.Why(b.ctx, ref)
			text := why.String()
			if must(err); !strings.Contains(text, "it is due in") || strings.Contains(text, "expires") != expires {
				t.Errorf("got %q, want a word about the deadline: %v", why, expires)
			}
		}
	})
}
