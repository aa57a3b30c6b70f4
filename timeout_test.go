package midge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// These jobs declare in their types how long an attempt may take.
type (
	endless struct{ Name string }
	quick   struct{ Name string }
)

func (endless) Options() midge.Options { return midge.Options{Timeout: storage.NoTimeout} }
func (quick) Options() midge.Options   { return midge.Options{Timeout: 10 * time.Second} }

// TestWhoseTimeoutEndsAnAttempt enqueues with every combination of a timeout of the call, of the type
// and of the runner.
func TestWhoseTimeoutEndsAnAttempt(t *testing.T) {
	const long, middle, short, asLong = time.Minute, 10 * time.Second, time.Second, 100 * time.Second
	own := func(d time.Duration) []midge.Option { return []midge.Option{midge.Timeout(d)} }
	for name, c := range map[string]struct {
		job    any
		opts   []midge.Option
		stored time.Duration
		limit  time.Duration // beside a runner's timeout of a minute; 0 for none
	}{
		"nobody":                  {work{}, nil, 0, long},
		"the call":                {work{}, own(short), short, short},
		"none by the call":        {work{}, own(0), storage.NoTimeout, 0},
		"the type":                {quick{}, nil, middle, middle},
		"the call, not the type":  {quick{}, own(short), short, short},
		"none, not the type's":    {quick{}, own(0), storage.NoTimeout, 0},
		"none by the type":        {endless{}, nil, storage.NoTimeout, 0},
		"the call, beside a none": {endless{}, own(short), short, short},
	} {
		for _, runners := range []time.Duration{0, long} {
			bubble(t, func(b *bench) {
				limit := c.limit
				if runners == 0 && c.stored == 0 {
					limit = 0
				}
				var took time.Duration
				b.runner = b.newRunner(b.store, midge.RunnerConfig{Timeout: runners}, nil)
				times[work](b, asLong, &took)
				times[endless](b, asLong, &took)
				times[quick](b, asLong, &took)
				go func() { b.done <- b.runner.Run(b.ctx) }()
				task, err := b.client.Enqueue(b.ctx, c.job, c.opts...)
				if err != nil {
					t.Fatal(err)
				}
				if got := b.task(task.Ref).Timeout; got != c.stored || task.Timeout != c.stored {
					t.Errorf("%s: stored the timeout %v, want %v", name, got, c.stored)
				}
				b.after(asLong + time.Second)
				if want := cmp.Or(limit, asLong); took != want {
					t.Errorf("%s, beside a runner's of %v: the attempt took %v, want %v", name, runners, took, want)
				}
			})
		}
	}
}

// times registers a job that runs until its context ends, or as long as it wants, and reports how long it
// took.
func times[J any](b *bench, asLong time.Duration, took *time.Duration) {
	b.Helper()
	err := midge.Handle(b.runner, func(ctx context.Context, _ J) error {
		begun := time.Now()
		select {
		case <-ctx.Done():
		case <-time.After(asLong): // virtual
		}
		*took = time.Since(begun)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// A deadline ends an attempt of a task without a timeout.
func TestADeadlineHoldsWithoutATimeout(t *testing.T) {
	bubble(t, func(b *bench) {
		var cause error
		b.run(midge.RunnerConfig{Timeout: time.Minute}, func(ctx context.Context, _ work) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		b.enqueue("a", midge.Timeout(0), midge.Deadline(time.Now().Add(2*time.Minute)))
		b.after(3 * time.Minute)
		if cause != midge.ErrExpired { //nolint:errorlint // this one
			t.Errorf("got the cause %v, want the deadline", cause)
		}
	})
}

// A task keeps that it has no timeout through a retry, a requeue, and a schedule.
func TestNoTimeoutIsKept(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := 0
		b.run(midge.RunnerConfig{Timeout: time.Second, Backoff: midge.Constant(time.Second)},
			func(ctx context.Context, _ work) error {
				ran++
				if _, limited := ctx.Deadline(); limited {
					t.Errorf("run %d has a timeout", ran)
				}
				return errBroken
			})
		task := b.enqueue("a", midge.Timeout(0), midge.Retries(1))
		b.after(time.Minute)
		if err := b.client.Requeue(b.ctx, task.Ref); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if got := b.task(task.Ref); got.Timeout != storage.NoTimeout || ran != 4 {
			t.Errorf("got the timeout %v after %d runs", got.Timeout, ran)
		}
	})
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Timeout: time.Second}, func(ctx context.Context, _ work) error {
			if _, limited := ctx.Deadline(); limited {
				t.Error("the task of a tick has a timeout")
			}
			return nil
		})
		if err := b.runner.Periodic(midge.Every(time.Minute), work{"tick"}, midge.Timeout(0)); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(150 * time.Second)
		if n := b.stats("default").Totals.Completed; n != 2 {
			t.Errorf("%d ticks have completed, want 2", n)
		}
	})
}

// A job may return the cause that ended its context, as it is or within its own words.
func TestAnErrorOfATimeoutSaysItOnce(t *testing.T) {
	late := context.Cause
	for name, c := range map[string]struct {
		end         func(ctx context.Context) error
		late, ended string
	}{
		"the cause":     {late, "midge: job timed out after 1s", "midge: the deadline of the task is over"},
		"ctx.Err()":     {context.Context.Err, "midge: job timed out after 1s: context deadline exceeded", "midge: the deadline of the task is over: context deadline exceeded"},
		"another error": {func(context.Context) error { return errBroken }, "midge: job timed out after 1s: it is broken", "midge: the deadline of the task is over: it is broken"},
		"a wrapped cause": {
			func(ctx context.Context) error { return fmt.Errorf("charge: %w", late(ctx)) },
			"charge: midge: job timed out after 1s", "charge: midge: the deadline of the task is over",
		},
		"a joined cause": {
			func(ctx context.Context) error { return errors.Join(errBroken, late(ctx)) },
			"it is broken\nmidge: job timed out after 1s", "it is broken\nmidge: the deadline of the task is over",
		},
	} {
		bubble(t, func(b *bench) {
			var seen error
			b.run(midge.RunnerConfig{
				Middleware: []midge.Middleware{func(next func(context.Context) error) func(context.Context) error {
					return func(ctx context.Context) error { seen = next(ctx); return seen }
				}},
			}, func(ctx context.Context, _ work) error {
				<-ctx.Done()
				return c.end(ctx)
			})
			for _, by := range []struct {
				opt   func() midge.Option
				want  string
				cause error
			}{
				{func() midge.Option { return midge.Timeout(time.Second) }, c.late, midge.ErrTimeout},
				{func() midge.Option { return midge.Deadline(time.Now().Add(time.Second)) }, c.ended, midge.ErrExpired},
			} {
				task := b.enqueue("a", by.opt(), midge.Retries(midge.None))
				b.after(2 * time.Second)
				if got := b.task(task.Ref); got.LastError() != by.want || !errors.Is(seen, by.cause) {
					t.Errorf("%s: got %q, a %v; want %q", name, got.LastError(), seen, by.want)
				}
			}
		})
	}
}
