package midge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestTimeoutIsAFailure(t *testing.T) {
	bubble(t, func(b *bench) {
		var cause error
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		task := b.enqueue("slow", midge.Timeout(5*time.Second))
		b.after(6 * time.Second)
		got := b.task(task.Ref)
		if got.State != storage.Retry || got.Retries != 1 || !strings.Contains(got.Attempts[0].Error, "timed out after 5s") {
			t.Errorf("%s, retries %d, attempts %+v", got.State, got.Retries, got.Attempts)
		}
		if !errors.Is(cause, midge.ErrTimeout) {
			t.Errorf("cause %v, want ErrTimeout", cause)
		}
	})
}

func TestCancelReachesTheRunningJob(t *testing.T) {
	bubble(t, func(b *bench) {
		var cause error
		var took time.Duration
		b.run(midge.RunnerConfig{Concurrency: 1}, func(ctx context.Context, w work) error {
			if w.Name == "stubborn" {
				time.Sleep(5 * time.Second)
				return nil
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		task := b.enqueue("patient", midge.KeepFor(time.Hour))
		b.after(3 * time.Second)
		asked := time.Now()
		if state, err := b.client.Cancel(b.Context(), task.Ref); err != nil || state != storage.Pending {
			t.Fatalf("cancel: %s, %v; want pending", state, err)
		}
		b.after(time.Second)
		took = time.Since(asked)
		if got := b.task(task.Ref); got.State != storage.Cancelled || !errors.Is(cause, midge.ErrCancelled) {
			t.Errorf("%s, cause %v after %v; want cancelled, ErrCancelled", got.State, cause, took)
		}
		won := b.enqueue("stubborn", midge.KeepFor(time.Hour))
		b.after(time.Second)
		if _, err := b.client.Cancel(b.Context(), won.Ref); err != nil {
			t.Fatal(err)
		}
		b.after(5 * time.Second)
		if got := b.task(won.Ref); got.State != storage.Completed {
			t.Errorf("completion after the request: %s, want completed", got.State)
		}
	})
}

func TestDrainWaitsForRunningJobs(t *testing.T) {
	bubble(t, func(b *bench) {
		finished := false
		b.run(midge.RunnerConfig{Grace: 10 * time.Second}, func(ctx context.Context, _ work) error {
			time.Sleep(5 * time.Second)
			finished = ctx.Err() == nil
			return nil
		})
		task := b.enqueue("a")
		b.after(time.Second)
		begun := time.Now()
		if err := b.drain(); err != nil || !finished {
			t.Errorf("drain: %v, finished %v; want nil, true", err, finished)
		}
		if took := time.Since(begun); took > 4100*time.Millisecond {
			t.Errorf("drain took %v, want the 4s that the job still ran", took)
		}
		b.gone(task.Ref)
	})
}

func TestGraceEndsTheContextAndReleases(t *testing.T) {
	bubble(t, func(b *bench) {
		var cause error
		leave := make(chan struct{})
		b.run(midge.RunnerConfig{Grace: 5 * time.Second, Concurrency: 2}, func(ctx context.Context, w work) error {
			if w.Name == "deaf" {
				<-leave
				return nil
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		heard, deaf := b.enqueue("heard"), b.enqueue("deaf")
		b.after(time.Second)
		begun := time.Now()
		err := b.drain()
		if took := time.Since(begun); !errors.Is(err, midge.ErrGraceExceeded) || took > 7*time.Second {
			t.Errorf("drain: %v after %v, want ErrGraceExceeded within 7s", err, took)
		}
		if !errors.Is(cause, midge.ErrShutdown) {
			t.Errorf("cause %v, want ErrShutdown", cause)
		}
		for _, ref := range []storage.Ref{heard.Ref, deaf.Ref} {
			if got := b.task(ref); got.State != storage.Waiting || got.Retries != 0 || got.Crashes != 0 {
				t.Errorf("%s: %s, retries %d, crashes %d; want waiting, uncharged", ref, got.State, got.Retries, got.Crashes)
			}
		}
		close(leave)
		synctest.Wait()
	})
}

// slowReads is a storage whose reads of tasks take a while.
type slowReads struct {
	storage.Storage
	take time.Duration
}

func (s slowReads) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	select {
	case <-time.After(s.take): // virtual
		return s.Storage.Task(ctx, ref)
	case <-ctx.Done():
		return storage.Task{}, ctx.Err()
	}
}

// TestNoJobBeginsAfterTheGracePeriod checks that an attempt whose runner reads the history of its task for a
// hook until the grace period is over does not begin, and is released.
func TestNoJobBeginsAfterTheGracePeriod(t *testing.T) {
	for take, want := range map[time.Duration]storage.State{
		1500 * time.Millisecond: storage.Waiting, // while jobs may still return
		time.Hour:               storage.Pending, // until the runner ends its calls
	} {
		t.Run(take.String(), func(t *testing.T) {
			bubble(t, func(b *bench) {
				task := b.enqueue("a")
				b.crash()
				b.recover()
				ran := false
				hook := only(func(context.Context, midge.Ended) {})
				b.runner = b.newRunner(slowReads{b.store, take}, midge.RunnerConfig{Grace: time.Second, OnEnd: hook},
					func(context.Context, work) error { ran = true; return nil })
				go func() { b.done <- b.runner.Run(b.ctx) }()
				synctest.Wait()
				if got := b.task(task.Ref); got.State != storage.Pending {
					t.Fatalf("got %+v, want it claimed", got)
				}
				if err := b.drain(); err != nil && want == storage.Waiting {
					t.Errorf("drain: got %v", err)
				}
				synctest.Wait()
				if got := b.task(task.Ref); ran || got.State != want || got.Crashes != 1 || got.Retries != 0 {
					t.Errorf("the job ran: %t; got %+v, want it %s without a run, with the one crash before", ran, got, want)
				}
			})
		})
	}
}

func TestAStorageClosedWhileTheRunnerRunsEndsIt(t *testing.T) {
	for _, busy := range []bool{false, true} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			var cause error
			b.run(midge.RunnerConfig{Logger: logger}, func(ctx context.Context, _ work) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ctx.Err()
			})
			if busy {
				b.enqueue("patient")
				b.after(time.Second)
			}
			if err := b.store.Close(); err != nil {
				t.Fatal(err)
			}
			closed := time.Now()
			err := <-b.done
			b.done <- err
			const want = "the storage was closed while the runner ran: close it after Run has returned"
			if !errors.Is(err, storage.ErrClosed) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want ErrClosed and %q", err, want)
			}
			if took := time.Since(closed); took > 3*time.Second {
				t.Errorf("Run returned after %v", took)
			}
			if busy && !errors.Is(cause, midge.ErrShutdown) {
				t.Errorf("the job's context ended with %v, want ErrShutdown", cause)
			}
			if got := append(lines("claim"), lines("heartbeat")...); len(got) > 0 {
				t.Errorf("got %q, want none of these", got)
			}
		})
	}
}

// TestTheEndOfShutdownsContextEndsTheWaitForHooks has a hook that returns only once its context has ended.
func TestTheEndOfShutdownsContextEndsTheWaitForHooks(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		b.run(midge.RunnerConfig{Logger: logger, OnEnd: only(func(ctx context.Context, _ midge.Ended) { <-ctx.Done() })}, endings)
		b.enqueue("")
		b.after(time.Second)
		ctx, cancel := context.WithTimeout(b.Context(), 4*time.Second)
		defer cancel()
		begun := time.Now()
		err := b.runner.Shutdown(ctx)
		if took := time.Since(begun); err != nil || took < 4*time.Second || took > 6*time.Second {
			t.Errorf("Shutdown returned %v after %v, want nil after 4s to 6s", err, took)
		}
		if got := lines("OnEnd has not returned in time: 1 ends"); len(got) != 1 {
			t.Errorf("logged %q, want one warning about the hook", got)
		}
	})
}

func TestStopCutsTheGraceShort(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{Grace: time.Hour}, func(ctx context.Context, _ work) error {
			<-ctx.Done()
			return ctx.Err()
		})
		b.enqueue("a")
		b.after(time.Second)
		b.stop()
		b.after(time.Second)
		begun := time.Now()
		halt(b.Context(), b.runner)
		if err := b.drain(); err != nil || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("Run returned %v after %v; want nil at once", err, time.Since(begun))
		}
	})
}

// TestAJobThatOutlivesTheDrainGetsItsCause calls the functions that a job may call, once the runner has
// handed its task back while the job runs on, and once the job has returned.
func TestAJobThatOutlivesTheDrainGetsItsCause(t *testing.T) {
	calls := map[string]func(ctx context.Context) error{
		"Step": func(ctx context.Context) error {
			_, err := midge.Step(ctx, "a", func(context.Context) (int, error) { panic("it was called") })
			return err
		},
		"Sleep":          func(ctx context.Context) error { return midge.Sleep(ctx, "b", time.Hour) },
		"Checkpoint":     func(ctx context.Context) error { return midge.Checkpoint(ctx, 1) },
		"LoadCheckpoint": func(ctx context.Context) error { _, err := midge.LoadCheckpoint(ctx, new(int)); return err },
		"Progress":       func(ctx context.Context) error { return midge.Progress(ctx, 1) },
		"SetResult":      func(ctx context.Context) error { return midge.SetResult(ctx, 1) },
		"FollowUp":       func(ctx context.Context) error { return midge.FollowUp(ctx, work{"b"}) },
		"CompleteWith":   func(ctx context.Context) error { return midge.CompleteWith(ctx, &pretendTx{}) },
	}
	for how, cause := range map[string]error{"a drain": midge.ErrShutdown, "a cancel": midge.ErrCancelled} {
		bubble(t, func(b *bench) {
			var left context.Context
			returned := make(chan struct{})
			b.run(midge.RunnerConfig{Grace: time.Second, Logger: zap.NewNop()}, func(ctx context.Context, _ work) error {
				defer close(returned)
				left = ctx              //nolint:fatcontext // for calls after the end of the job
				time.Sleep(time.Minute) // virtual: it ignores the end of its context
				for name, call := range calls {
					if err := call(ctx); !errors.Is(err, cause) || errors.Is(err, midge.ErrNotInJob) {
						t.Errorf("%s after %s: got %v, want the cause", name, how, err)
					}
				}
				return nil
			})
			task := b.enqueue("a")
			b.after(time.Second)
			if how == "a cancel" {
				must1(b.client.Cancel(b.Context(), task.Ref))
				b.after(time.Second)
			}
			if err := b.drain(); !errors.Is(err, midge.ErrGraceExceeded) {
				t.Errorf("the drain: got %v, want ErrGraceExceeded", err)
			}
			<-returned
			synctest.Wait()
			for name, call := range calls {
				if err := call(left); !errors.Is(err, midge.ErrNotInJob) {
					t.Errorf("%s after the job: got %v, want ErrNotInJob", name, err)
				}
			}
		})
	}
}

func TestAStartAfterShutdownIsRefusedInPlainWords(t *testing.T) {
	bubble(t, func(b *bench) {
		r := b.newRunner(b.store, midge.RunnerConfig{}, func(context.Context, work) error { return nil })
		must(r.Shutdown(b.ctx))
		const want = "midge: start the runner: Shutdown was called before it had started; make a new runner"
		if err := r.Start(b.ctx); !errors.Is(err, midge.ErrShutdown) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}
