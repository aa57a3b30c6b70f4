package midge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// stepsJSON and stepsMsgpack are jobs of steps in either encoding.
type (
	stepsJSON    struct{}
	stepsMsgpack struct{}
)

func (stepsJSON) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

// handleSteps registers fn for both.
func handleSteps(r *midge.Runner, fn func(ctx context.Context) error) error {
	return errors.Join(midge.Handle(r, func(ctx context.Context, _ stepsJSON) error { return fn(ctx) }),
		midge.Handle(r, func(ctx context.Context, _ stepsMsgpack) error { return fn(ctx) }))
}

// stepResult makes a step with a result of one type.
type stepResult func(ctx context.Context) (got, want any, err error)

func resultOf[T any](v T) stepResult {
	return func(ctx context.Context) (any, any, error) {
		got, err := midge.Step(ctx, "it", func(context.Context) (T, error) { return v, nil })
		return got, v, err
	}
}

type mixed struct {
	N    int
	P    *mixed
	Any  any
	Raw  json.RawMessage
	When time.Time
}

// TestResultsOfStepsComeBack checks the results of steps of many types in the attempt that calls the step
// and in the next one: each is as it was, or was refused by an *InvalidError.
func TestResultsOfStepsComeBack(t *testing.T) {
	when, one := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), 1
	large, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	kept := []stepResult{
		resultOf(struct{}{}), resultOf(&struct{}{}), resultOf(mixed{1, &mixed{N: 2, Raw: json.RawMessage("1")}, "x", json.RawMessage(`{"a":1}`), when}),
		resultOf(&one), resultOf((*int)(nil)), resultOf([]*int{nil, &one}), resultOf([]int(nil)), resultOf([]int{}),
		resultOf([]byte(nil)), resultOf([]byte{}), resultOf([]byte{0, 255}), resultOf([][]byte{nil, {}, {1}}), resultOf([2]byte{7}),
		resultOf(map[string]int(nil)), resultOf(map[string]int{}), resultOf(map[int]*int{-1: nil}), resultOf(when), resultOf(time.Time{}),
		resultOf(time.Duration(-1)), resultOf(large), resultOf(*large), resultOf((*big.Int)(nil)), resultOf[any](nil), resultOf[any]("x"),
		resultOf[any]([]any{nil, true, map[string]any{"a": []any{}}}), resultOf(uint64(1<<64 - 1)), resultOf("a\x00<\u2028"), resultOf(-0.5),
	}
	refused := []stepResult{
		resultOf(errors.New("x")), resultOf[error](nil), resultOf(make(chan int)), resultOf(func() {}), resultOf(complex(1, 1)),
		resultOf(struct{ n int }{1}), resultOf[any](errors.New("x")), resultOf[any](make(chan int)), resultOf(strings.Builder{}),
	}
	for _, job := range []any{stepsJSON{}, stepsMsgpack{}} {
		for i, step := range slices.Concat(kept, refused) {
			attemptTwice(t, job, step, i < len(kept))
		}
	}
}

// attemptTwice makes two attempts of a job of one step.
func attemptTwice(t *testing.T, job any, step stepResult, kept bool) {
	t.Helper()
	var got, want any
	var err error
	k := midgetest.New(t, midgetest.Config{
		Runner: midge.RunnerConfig{Logger: zap.NewNop()},
		Register: func(r *midge.Runner) error {
			return handleSteps(r, func(ctx context.Context) error {
				got, want, err = step(ctx)
				return errors.New("again")
			})
		},
	})
	worked := k.Work(job)
	var invalid *midge.InvalidError
	if !kept {
		if !errors.As(err, &invalid) {
			t.Errorf("%T, a %T: got %v, want an *InvalidError", job, want, err)
		}
		return
	}
	for range 2 {
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%T: got %#v, %v, want %#v", job, got, err, want)
		}
		worked = k.WorkTask(worked.Task.Ref)
	}
	if len(worked.Called) > 0 {
		t.Errorf("%T, a %T: the second attempt called %q", job, want, worked.Called)
	}
}

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
// returns, even where a middleware hides that, and that its result and follow-ups of this attempt are not
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
				attempts, outcomes := 0, []midge.Outcome{}
				hide := func(next func(context.Context) error) func(context.Context) error {
					return func(ctx context.Context) error { _ = next(ctx); return nil }
				}
				b.run(midge.RunnerConfig{
					Logger: zap.NewNop(), Middleware: []midge.Middleware{hide},
					OnEnd: []func(context.Context, midge.Ended){func(_ context.Context, end midge.Ended) { outcomes = append(outcomes, end.Outcome) }},
				}, func(ctx context.Context, _ work) error {
					if attempts++; attempts > 1 {
						return midge.Sleep(ctx, "it", forth)
					}
					return end(ctx, midge.Sleep(ctx, "it", forth))
				})
				task := b.enqueue("a", midge.KeepFor(time.Hour))
				asleep := time.Now().Add(forth)
				b.after(forth - time.Second)
				if got := b.task(task.Ref); got.State != storage.Scheduled || !got.Due.Equal(asleep) || got.Retries != 0 || attempts != 1 {
					t.Errorf("got %+v after %d attempts, want it to sleep until %v", got, attempts, asleep)
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
