package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
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

// TestAResultTooLargeBesideTheFollowUpsIsRefused checks that SetResult returns the error, so that
// the job can go on.
func TestAResultTooLargeBesideTheFollowUpsIsRefused(t *testing.T) {
	bubble(t, func(b *bench) {
		var refused error
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			for range 4 {
				if err := midge.FollowUp(ctx, work{strings.Repeat("x", 1000<<10)}, midge.To("elsewhere")); err != nil {
					return err
				}
			}
			if err := midge.SetResult(ctx, "short"); err != nil {
				return err
			}
			refused = midge.SetResult(ctx, strings.Repeat("x", 200<<10))
			return nil
		})
		task := b.enqueue("parent", midge.Retries(midge.None))
		b.after(time.Second)
		if !errors.As(refused, new(*midge.InvalidError)) {
			t.Errorf("SetResult returned %v, want an *InvalidError", refused)
		}
		var result string
		if err := b.client.Await(b.Context(), task.Ref, &result); err != nil || result != "short" {
			t.Errorf("got the result %q, %v; want the earlier one", result, err)
		}
		if s := b.stats("elsewhere"); s.Waiting != 4 {
			t.Errorf("%d follow-ups, want 4", s.Waiting)
		}
	})
}

// followed runs a job whose follow-up has the id of an existing task, elsewhere/child. It returns
// the job's task, and the log lines about a failure.
func followed(b *bench, existing work, cancelled, joins bool) (parent storage.Task, failed []string) {
	b.Helper()
	child := storage.Ref{Queue: "elsewhere", ID: "child"}
	if _, err := b.client.Enqueue(b.ctx, existing, midge.To(child.Queue), midge.ID(child.ID), midge.KeepFor(time.Hour)); err != nil {
		b.Fatal(err)
	}
	if cancelled {
		if _, err := b.client.Cancel(b.ctx, child); err != nil {
			b.Fatal(err)
		}
	}
	logger, lines := logged()
	b.run(midge.RunnerConfig{Logger: logger, Backoff: midge.Constant(time.Hour)}, func(ctx context.Context, _ work) error {
		err := midge.FollowUp(ctx, work{"child"}, midge.To(child.Queue), midge.ID(child.ID))
		if err == nil && joins {
			err = midge.CompleteWith(ctx, storageTx{b.store})
		}
		return err
	})
	task := b.enqueue("parent", midge.KeepFor(time.Hour))
	b.after(time.Second)
	return b.task(task.Ref), lines("failed")
}

func TestAFollowUpThatIsThereAlreadyLetsTheCompletionStand(t *testing.T) {
	for _, c := range []struct{ cancelled, joins bool }{{}, {cancelled: true}, {joins: true}, {true, true}} {
		bubble(t, func(b *bench) {
			if got, _ := followed(b, work{"child"}, c.cancelled, c.joins); got.State != storage.Completed {
				t.Errorf("%+v: got %s, %+v; want it completed", c, got.State, got.Attempts)
			}
		})
	}
}

func TestAFollowUpUnderAnothersIDIsNamed(t *testing.T) {
	for _, joins := range []bool{false, true} {
		bubble(t, func(b *bench) {
			const want = "the follow-up work elsewhere/child was refused"
			got, failed := followed(b, work{"other"}, false, joins)
			if got.State != storage.Retry || len(got.Attempts) != 1 || !strings.Contains(got.Attempts[0].Error, want) {
				t.Errorf("joins %v: got %s, %+v; want a failure that names the follow-up", joins, got.State, got.Attempts)
			}
			if len(failed) != 1 || !strings.Contains(failed[0], want) {
				t.Errorf("joins %v: logged %q, want the follow-up named", joins, failed)
			}
		})
	}
}

// storageTx is a transaction that commits at once.
type storageTx struct{ storage.Storage }

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

// A requeued task resumes at its checkpoint if it is dead, and begins at its start if it had completed or is
// requeued with FromStart, by itself or together with others.
func TestARequeueForgetsTheCheckpoint(t *testing.T) {
	for _, c := range []struct {
		name    string
		dies    bool
		requeue func(b *bench, ref midge.Ref) error
		resumes bool
	}{
		{"dead", true, func(b *bench, ref midge.Ref) error { return b.client.Requeue(b.ctx, ref) }, true},
		{"completed", false, func(b *bench, ref midge.Ref) error { return b.client.Requeue(b.ctx, ref) }, false},
		{"dead, from the start", true, func(b *bench, ref midge.Ref) error {
			return b.client.Requeue(b.ctx, ref, midge.FromStart())
		}, false},
		{"all dead, from the start", true, func(b *bench, ref midge.Ref) error {
			return second(b.client.Queue(ref.Queue).RequeueAll(b.ctx, midge.Dead, nil, midge.FromStart()))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var seen []int
				b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
					var page int
					_, err := midge.LoadCheckpoint(ctx, &page)
					if seen = append(seen, page); c.dies && len(seen) == 1 {
						err = midge.Discard(errors.New("refused"))
					}
					return errors.Join(midge.Checkpoint(ctx, 7), err)
				})
				ref := b.enqueue("pages", midge.KeepFor(time.Hour)).Ref
				b.after(time.Second)
				if err := c.requeue(b, ref); err != nil {
					t.Fatal(err)
				}
				b.after(time.Second)
				want := []int{0, 0}
				if c.resumes {
					want[1] = 7
				}
				if !slices.Equal(seen, want) {
					t.Errorf("checkpoints seen %v, want %v", seen, want)
				}
			})
		})
	}
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

// A middleware that counts or reports failures must see panics, and its own panic must not harm
// other tasks.
func TestMiddlewareSeesAPanic(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"without a timeout": 0, "within a timeout": time.Minute} {
		bubble(t, func(b *bench) {
			var seen []error
			see := func(next func(context.Context) error) func(context.Context) error {
				return func(ctx context.Context) error {
					err := next(ctx)
					seen = append(seen, err)
					return err
				}
			}
			b.run(midge.RunnerConfig{Middleware: []midge.Middleware{see, see}}, func(context.Context, work) error {
				panic("boom")
			})
			task := b.enqueue("x", midge.Retries(midge.None), midge.Timeout(timeout))
			b.after(time.Second)
			if len(seen) != 2 {
				t.Fatalf("%s: the middleware saw %d errors, want the panic in both", name, len(seen))
			}
			for _, err := range seen {
				var p *midge.PanicError
				if !errors.As(err, &p) || p.Value != "boom" || !strings.Contains(string(p.Stack), "runner_job_test.go") {
					t.Errorf("%s: got %v, want a *PanicError with its value and stack", name, err)
				}
			}
			if got := b.task(task.Ref); got.State != storage.Dead || !strings.Contains(got.Stack, "runner_job_test.go") {
				t.Errorf("%s: got %s with stack %q, want it dead with the stack of the job", name, got.State, got.Stack)
			}
		})
	}
}

func TestAPanicOfAMiddlewareFailsTheAttempt(t *testing.T) {
	bubble(t, func(b *bench) {
		bad := func(next func(context.Context) error) func(context.Context) error {
			return func(ctx context.Context) error {
				_ = next(ctx)
				panic("of the middleware")
			}
		}
		b.run(midge.RunnerConfig{Middleware: []midge.Middleware{bad}}, func(context.Context, work) error { return nil })
		task := b.enqueue("x", midge.Retries(midge.None))
		b.after(time.Second)
		if got := b.task(task.Ref); got.State != storage.Dead || !strings.Contains(got.Attempts[0].Error, "panic: of the middleware") {
			t.Errorf("got %+v, want it dead of the panic", got)
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
