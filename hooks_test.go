package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// surrounded is a job with hooks, which record their calls in the context.
type surrounded struct{ Name string }

type notesKey struct{}

func notef(ctx context.Context, format string, args ...any) {
	notes, _ := ctx.Value(notesKey{}).(*[]string)
	*notes = append(*notes, fmt.Sprintf(format, args...))
}

func (s *surrounded) BeforeRun(ctx context.Context) error {
	notef(ctx, "before %s", s.Name)
	s.Name += "!"
	switch s.Name {
	case "refused!":
		return errBroken
	case "early!":
		return midge.Discard(errBroken)
	}
	return nil
}

func (s *surrounded) Run(ctx context.Context) error {
	notef(ctx, "run %s", s.Name)
	if s.Name == "panics!" {
		panic("it is broken")
	}
	return nil
}

func (s *surrounded) AfterRun(ctx context.Context, err error) {
	notef(ctx, "after %s: %s", s.Name, midge.OutcomeOf(err))
	if s.Name == "late!" {
		panic("a broken hook")
	}
}

func TestAJobsOwnHooksSurroundItsAttempts(t *testing.T) {
	for name, want := range map[string][]string{
		"plain":   {"middleware &{plain}", "before plain", "run plain!", "after plain!: succeeded", "succeeded"},
		"panics":  {"middleware &{panics}", "before panics", "run panics!", "after panics!: panicked", "panicked"},
		"refused": {"middleware &{refused}", "before refused", "after refused!: failed", "failed"},
		"early":   {"middleware &{early}", "before early", "after early!: discarded", "discarded"},
		"late":    {"middleware &{late}", "before late", "run late!", "after late!: succeeded", "succeeded"},
	} {
		bubble(t, func(b *bench) {
			var told heard
			var notes []string
			logger, lines := logged()
			b.ctx = context.WithValue(b.ctx, notesKey{}, &notes)
			b.runner = b.newRunner(b.store, midge.RunnerConfig{
				Logger: logger, OnEnd: told.hooks(), Backoff: midge.Constant(time.Hour),
				Middleware: []midge.Middleware{func(next func(context.Context) error) func(context.Context) error {
					return func(ctx context.Context) error {
						info, _ := midge.Current(ctx)
						notef(ctx, "middleware %v", info.Job)
						return next(ctx)
					}
				}},
			}, nil)
			if err := midge.Register[surrounded](b.runner); err != nil {
				t.Fatal(err)
			}
			go func() { b.done <- b.runner.Run(b.ctx) }()
			task, err := b.client.Enqueue(b.Context(), surrounded{name})
			if err != nil {
				t.Fatal(err)
			}
			b.after(time.Second)
			notes = append(notes, string(told.only(b, task.Ref).Outcome))
			if got := notes; !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
			hooked := lines("AfterRun, told of surrounded default/" + task.ID + ": panic: a broken hook (hooks_test.go:")
			if (len(hooked) == 1) != (name == "late") {
				t.Errorf("%s: logged %q", name, hooked)
			}
		})
	}
}

type badBefore struct{ N int }

func (badBefore) Run(context.Context) error { return nil }
func (badBefore) BeforeRun() error          { return nil }

type badAfter struct{ N int }

func (badAfter) Run(context.Context) error      { return nil }
func (badAfter) AfterRun(context.Context) error { return nil }

func TestHooksOfAnotherSignatureAreRefused(t *testing.T) {
	bubble(t, func(b *bench) {
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		for want, err := range map[string]error{
			"BeforeRun(context.Context) error": midge.Register[badBefore](r),
			"AfterRun(context.Context, error)": midge.Register[badAfter](r),
		} {
			if !errors.As(err, new(*midge.InvalidError)) || !strings.Contains(err.Error(), "or one that is "+want) {
				t.Errorf("got %v, want to be told of %s", err, want)
			}
		}
	})
}

func TestTheTimeoutOfARunnerIsThatOfTasksWithoutOne(t *testing.T) {
	bubble(t, func(b *bench) {
		var told heard
		b.run(midge.RunnerConfig{Timeout: 3 * time.Second, OnEnd: told.hooks()}, endings)
		without, own := b.enqueue("timed-out"), b.enqueue("timed-out", midge.Timeout(time.Second))
		b.after(3500 * time.Millisecond)
		for ref, want := range map[storage.Ref]time.Duration{without.Ref: 3 * time.Second, own.Ref: time.Second} {
			if got := told.only(b, ref); got.Outcome != midge.OutcomeTimedOut || got.Took != want {
				t.Errorf("got %s after %v, want a timeout after %v", got.Outcome, got.Took, want)
			}
		}
	})
	if _, err := midge.NewRunner(nopStore{}, midge.RunnerConfig{Timeout: 30}); !errors.As(err, new(*midge.InvalidError)) {
		t.Errorf("a timeout of 30 ns: got %v, want it refused", err)
	}
}

// nopStore is never called.
type nopStore struct{ storage.Storage }

func TestARunningJobKnowsItsAttemptAndWhenItWasDue(t *testing.T) {
	bubble(t, func(b *bench) {
		seen := make(map[string][]midge.RunInfo)
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Minute)}, func(ctx context.Context, w work) error {
			info, _ := midge.Current(ctx)
			seen[w.Name] = append(seen[w.Name], info)
			switch len(seen[w.Name]) {
			case 1:
				return errBroken
			case 2:
				return midge.Snooze(time.Minute)
			}
			return nil
		})
		begun := time.Now()
		b.enqueue("now")
		b.enqueue("in", midge.In(3*time.Second))
		b.enqueue("at", midge.At(begun.Add(5*time.Second)))
		moved := b.enqueue("moved", midge.In(time.Hour))
		if err := b.client.Change(b.Context(), moved.Ref, midge.At(begun.Add(7*time.Second))); err != nil {
			t.Fatal(err)
		}
		b.after(5 * time.Minute)
		for name, due := range map[string]time.Duration{
			"now": 0, "in": 3 * time.Second, "at": 5 * time.Second, "moved": 7 * time.Second,
		} {
			checkRuns(t, name, seen[name], begun.Add(due))
		}
	})
}

// checkRuns checks the first attempt, the attempt after its failure, and the attempt after a
// snooze.
func checkRuns(t *testing.T, name string, runs []midge.RunInfo, due time.Time) {
	t.Helper()
	if len(runs) != 3 {
		t.Fatalf("%s: ran %d times, want 3", name, len(runs))
	}
	if got := runs[0]; !got.Due.Round(time.Second).Equal(due) || got.Attempt != 1 || got.Snoozes != 0 {
		t.Errorf("%s: first got %+v", name, got)
	}
	if job, ok := runs[0].Job.(*work); !ok || job.Name != name {
		t.Errorf("%s: got the job %+v", name, runs[0].Job)
	}
	if got := runs[1]; !got.Due.IsZero() || got.Attempt != 2 || got.Snoozes != 0 {
		t.Errorf("%s: then got %+v", name, got)
	}
	if got := runs[2]; !got.Due.IsZero() || got.Attempt != 2 || got.Snoozes != 1 {
		t.Errorf("%s: in the end got %+v", name, got)
	}
}

// TestEachEndIsToldOnce checks this although some settles go to the storage in calls of their own,
// concurrently with the others: the settles of jobs whose transactions were not committed.
func TestEachEndIsToldOnce(t *testing.T) {
	const tasks = 600
	bubble(t, func(b *bench) {
		for i := range tasks {
			b.enqueue([...]string{"apart", "together"}[i%2])
		}
		var told heard
		b.run(midge.RunnerConfig{Concurrency: 16, OnEnd: told.hooks(), Logger: zap.NewNop()}, func(ctx context.Context, w work) error {
			if w.Name == "together" {
				return nil
			}
			return errors.Join(midge.CompleteWith(ctx, &pretendTx{store: b.store}), midge.Discard(errors.New("no stock")))
		})
		b.after(time.Minute)
		times := make(map[midge.Ref]int)
		for _, e := range told.ends {
			times[e.Task.Ref]++
		}
		if len(told.ends) != tasks || len(times) != tasks {
			t.Errorf("%d ends of %d tasks were told, want %d of each", len(told.ends), len(times), tasks)
		}
	})
}
