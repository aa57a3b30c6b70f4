package midge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// TestStepsOfExactlyTheLimit checks that steps and the checkpoint together take exactly MaxPayload, and that a
// step with one byte more makes the task dead, with a reason that names the step, whatever the job returns.
func TestStepsOfExactlyTheLimit(t *testing.T) {
	const limit = 4096
	run := func(size int) (task storage.Task, err error) {
		synctestJob(t, storage.Limits{MaxPayload: limit}, func(ctx context.Context) error {
			_, first := midge.Step(ctx, "before", func(context.Context) (string, error) { return strings.Repeat("b", 1000), nil })
			first = errors.Join(first, midge.Checkpoint(ctx, strings.Repeat("c", 1000)))
			_, err = midge.Step(ctx, "large", func(context.Context) (string, error) { return strings.Repeat("x", size), nil })
			return first
		}, func(got storage.Task) { task = got })
		return task, err
	}
	size := 1500 // one more byte of a result of this size is one more byte of the whole
	task, err := run(size)
	if err != nil {
		t.Fatal(err)
	}
	size += limit - len(task.Checkpoint)
	if task, err = run(size); err != nil || len(task.Checkpoint) != limit || task.State != storage.Completed {
		t.Errorf("%d bytes: got %s, %v, want it completed with %d", len(task.Checkpoint), task.State, err, limit)
	}
	var invalid *midge.InvalidError
	if task, err = run(size + 1); !errors.As(err, &invalid) || task.State != storage.Dead || !strings.Contains(task.Reason, "large") {
		t.Errorf("one byte more: got %s, %q, %v, want it dead for the step", task.State, task.Reason, err)
	}
	if steps, err := midge.StepsOf(task); err != nil || len(steps) != 1 || steps[0].Name != "before" {
		t.Errorf("got the steps %v, %v, want the one before", steps, err)
	}
}

// synctestJob runs one task of a job for a second.
func synctestJob(t *testing.T, limits storage.Limits, job func(ctx context.Context) error, after func(storage.Task)) {
	t.Helper()
	bubble(t, func(b *bench) {
		store, err := memory.Open(memory.Config{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		b.store = store
		if b.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
			t.Fatal(err)
		}
		b.run(midge.RunnerConfig{Logger: zap.NewNop()}, func(ctx context.Context, _ work) error { return job(ctx) })
		task := b.enqueue("a", midge.KeepFor(time.Hour))
		b.after(time.Second)
		after(b.task(task.Ref))
	})
}

// TestASleepBeatsEveryReturn checks that a job that has begun a sleep is snoozed until its end, whatever it
// returns, even if a middleware hides that, and that its result and follow-ups of this attempt are not
// stored.
func TestASleepBeatsEveryReturn(t *testing.T) {
	const forth = time.Minute
	for name, end := range map[string]func(ctx context.Context, slept error) error{
		"the error":           func(_ context.Context, slept error) error { return slept },
		"wrapped":             func(_ context.Context, slept error) error { return fmt.Errorf("wrapped: %w", slept) },
		"nil":                 func(context.Context, error) error { return nil },
		"another error":       func(context.Context, error) error { return errors.New("failed") },
		"a shorter snooze":    func(context.Context, error) error { return midge.Snooze(time.Second) },
		"a longer snooze":     func(context.Context, error) error { return midge.Snooze(time.Hour) },
		"a retry":             func(context.Context, error) error { return midge.RetryIn(0, errors.New("failed")) },
		"a discard":           func(context.Context, error) error { return midge.Discard(errors.New("failed")) },
		"a panic":             func(context.Context, error) error { panic("failed") },
		"Goexit":              func(context.Context, error) error { runtime.Goexit(); return nil },
		"a result":            func(ctx context.Context, _ error) error { return midge.SetResult(ctx, "early") },
		"a follow-up":         func(ctx context.Context, _ error) error { return midge.FollowUp(ctx, work{"follow"}) },
		"another sleep":       func(ctx context.Context, _ error) error { return midge.Sleep(ctx, "other", time.Second) },
		"a sleep in a step":   func(ctx context.Context, _ error) error { return sleepInStep(ctx) },
		"within CompleteWith": func(ctx context.Context, _ error) error { return midge.CompleteWith(ctx, &pretendTx{}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var attempts atomic.Int64
				var outcomes []midge.Outcome
				hide := func(next func(context.Context) error) func(context.Context) error {
					return func(ctx context.Context) error { _ = next(ctx); return nil }
				}
				b.run(midge.RunnerConfig{
					Logger: zap.NewNop(), Middleware: []midge.Middleware{hide},
					OnEnd: []func(context.Context, midge.Ended){func(_ context.Context, end midge.Ended) { outcomes = append(outcomes, end.Outcome) }},
				}, func(ctx context.Context, _ work) error {
					if attempts.Add(1) > 1 {
						return midge.Sleep(ctx, "it", forth)
					}
					return end(ctx, midge.Sleep(ctx, "it", forth))
				})
				task := b.enqueue("a", midge.KeepFor(time.Hour))
				asleep := time.Now().Add(forth)
				b.after(forth - time.Second)
				if got := b.task(task.Ref); got.State != storage.Scheduled || !got.Due.Equal(asleep) || got.Retries != 0 || attempts.Load() != 1 {
					t.Errorf("got %+v after %d attempts, want it to sleep until %v", got, attempts.Load(), asleep)
				}
				b.after(2 * time.Second)
				got := b.task(task.Ref)
				if got.State != storage.Completed || got.Result != nil || b.stats(task.Queue).Totals.Enqueued != 1 {
					t.Errorf("got %+v, want it completed without a result and without follow-ups", got)
				}
				if want := []midge.Outcome{midge.OutcomeSnoozed, midge.OutcomeSucceeded}; !slices.Equal(outcomes, want) {
					t.Errorf("outcomes: got %s, want %s", outcomes, want)
				}
			})
		})
	}
}

func sleepInStep(ctx context.Context) error {
	_, err := midge.Step(ctx, "outer", func(ctx context.Context) (int, error) { return 1, midge.Sleep(ctx, "inner", time.Second) })
	return err
}

// A result or a follow-up that the function of a step asks for is refused, because it would be gone with an
// attempt that fails, and a later attempt does not call the function.
func TestAStepRefusesWhatWouldBeGoneWithItsAttempt(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context) error{
		"FollowUp":  func(ctx context.Context) error { return midge.FollowUp(ctx, work{"next"}) },
		"SetResult": func(ctx context.Context) error { return midge.SetResult(ctx, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			var refused, inner, outer, outside error
			synctestJob(t, storage.Limits{}, func(ctx context.Context) error {
				_, outer = midge.Step(ctx, "outer", func(ctx context.Context) (int, error) {
					_, inner = midge.Step(ctx, "inner", func(ctx context.Context) (int, error) {
						refused = call(ctx)
						return 1, nil
					})
					return 2, nil
				})
				outside = call(ctx)
				return midge.Discard(errBroken)
			}, func(got storage.Task) {
				if steps, err := midge.StepsOf(got); err != nil || len(steps) != 2 {
					t.Errorf("got the steps %v, %v, want both stored", steps, err)
				}
			})
			var invalid *midge.InvalidError
			if !errors.As(refused, &invalid) || invalid.What != name ||
				!strings.HasSuffix(refused.Error(), `"within step inner": want a call outside the step`) {
				t.Errorf("within a step: got %v, want an *InvalidError that names %s", refused, name)
			}
			if err := errors.Join(inner, outer, outside); err != nil {
				t.Errorf("around it: got %v, want no error", err)
			}
		})
	}
}
