package midgetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
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
		Runner: midge.RunnerConfig{Slog: slog.New(slog.DiscardHandler)},
		Register: func(r *midge.Runner) error {
			return handleSteps(r, func(ctx context.Context) error {
				got, want, err = step(ctx)
				return errors.New("again")
			})
		},
	})
	worked := k.Work(job)
	if !kept {
		if _, ok := errors.AsType[*midge.InvalidError](err); !ok {
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
