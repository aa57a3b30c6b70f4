package midge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

func TestFollowUpsAndResultCommitWithTheCompletion(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Minute)}, func(ctx context.Context, w work) error {
			if w.Name != "parent" {
				return nil
			}
			if err := midge.FollowUp(ctx, work{"child"}, midge.To("elsewhere")); err != nil {
				return err
			}
			if err := midge.SetResult(ctx, 42); err != nil {
				return err
			}
			if info, _ := midge.Current(ctx); info.Retries == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		task := b.enqueue("parent")
		b.after(10 * time.Second)
		if s := b.stats("elsewhere"); s.Waiting != 0 {
			t.Errorf("follow-ups of a failed attempt: %d, want none", s.Waiting)
		}
		var result int
		if err := b.client.Await(b.Context(), task.Ref, &result); err != nil || result != 42 {
			t.Errorf("result %d, %v; want 42", result, err)
		}
		if s := b.stats("elsewhere"); s.Waiting != 1 {
			t.Errorf("follow-ups: %d, want 1", s.Waiting)
		}
	})
}

func TestCheckpointSurvivesTheAttempt(t *testing.T) {
	bubble(t, func(b *bench) {
		var seen []int
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second)}, func(ctx context.Context, _ work) error {
			var step int
			if _, err := midge.LoadCheckpoint(ctx, &step); err != nil {
				return err
			}
			seen = append(seen, step)
			if step == 2 {
				return nil
			}
			if err := midge.Progress(ctx, map[string]int{"step": step + 1}); err != nil {
				return err
			}
			if err := midge.Checkpoint(ctx, step+1); err != nil {
				return err
			}
			return errors.New("interrupted")
		})
		b.enqueue("steps")
		b.after(time.Minute)
		if fmt.Sprint(seen) != "[0 1 2]" {
			t.Errorf("checkpoints seen %v, want [0 1 2]", seen)
		}
	})
}

func TestMiddlewareWrapsTheAttempt(t *testing.T) {
	bubble(t, func(b *bench) {
		var trace []string
		wrap := func(name string) midge.Middleware {
			return func(next func(context.Context) error) func(context.Context) error {
				return func(ctx context.Context) error {
					trace = append(trace, name)
					err := next(ctx)
					trace = append(trace, "/"+name)
					return err
				}
			}
		}
		b.run(midge.RunnerConfig{Middleware: []midge.Middleware{wrap("a"), wrap("b")}}, func(context.Context, work) error {
			trace = append(trace, "job")
			return nil
		})
		b.enqueue("x")
		b.after(time.Second)
		if got := strings.Join(trace, " "); got != "a b job /b /a" {
			t.Errorf("trace %s", got)
		}
	})
}

func TestRegistrationIsRefusedAfterRun(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { return nil })
		if err := midge.Handle(b.runner, func(context.Context, stranger) error { return nil }); !errors.Is(err, midge.ErrRunning) {
			t.Errorf("register: %v, want ErrRunning", err)
		}
		if err := b.runner.Run(b.Context()); !errors.Is(err, midge.ErrRunning) {
			t.Errorf("second run: %v, want ErrRunning", err)
		}
	})
}
