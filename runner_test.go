package midge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// work is the job of these tests: what it does is up to the function registered.
type work struct {
	Name string
}

// bench is a runner on a memory storage with a client beside it, inside a bubble.
type bench struct {
	*testing.T
	store  storage.Storage
	client *midge.Client
	runner *midge.Runner
	ctx    context.Context
	stop   context.CancelFunc
	done   chan error
}

func bubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.Open(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{T: t, store: store, done: make(chan error, 1)}
		b.ctx, b.stop = context.WithCancel(t.Context())
		if b.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
			t.Fatal(err)
		}
		test(b)
		if b.runner != nil {
			_ = b.drain() // a test that minds looks itself
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// run starts a runner whose work job is fn.
func (b *bench) run(cfg midge.RunnerConfig, fn func(context.Context, work) error) {
	b.Helper()
	b.runner = b.newRunner(b.store, cfg, fn)
	go func() { b.done <- b.runner.Run(b.ctx) }()
	synctest.Wait()
}

func (b *bench) newRunner(store storage.Storage, cfg midge.RunnerConfig, fn func(context.Context, work) error) *midge.Runner {
	b.Helper()
	r, err := midge.NewRunner(store, cfg)
	if err != nil {
		b.Fatal(err)
	}
	if fn != nil {
		if err := midge.Handle(r, fn); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

// drain ends the runner and gives what Run returned.
func (b *bench) drain() error {
	b.Helper()
	b.stop()
	err := <-b.done
	b.done <- err // for another drain
	return err
}

func (b *bench) enqueue(name string, opts ...midge.Option) midge.Task {
	b.Helper()
	t, err := b.client.Enqueue(b.Context(), work{name}, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func (b *bench) task(ref storage.Ref) storage.Task {
	b.Helper()
	t, err := b.store.Task(b.Context(), ref)
	if err != nil {
		b.Fatalf("task %s: %v", ref, err)
	}
	return t
}

func (b *bench) gone(ref storage.Ref) {
	b.Helper()
	if _, err := b.store.Task(b.Context(), ref); !errors.Is(err, storage.ErrNotFound) {
		b.Errorf("task %s: got %v, want it gone", ref, err)
	}
}

// after lets virtual time pass and everything settle.
func (b *bench) after(d time.Duration) {
	b.Helper()
	time.Sleep(d) // virtual: the bubble's clock
	synctest.Wait()
}

func TestRunnerRunsAndForgets(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran []string
		b.run(midge.RunnerConfig{Concurrency: 1}, func(_ context.Context, w work) error {
			ran = append(ran, w.Name)
			return nil
		})
		first := b.enqueue("a")
		b.enqueue("b")
		b.after(time.Millisecond)
		if got := strings.Join(ran, ""); got != "ab" {
			t.Errorf("ran %q, want ab", got)
		}
		b.gone(first.Ref)
	})
}

func TestRunnerRetriesUntilDead(t *testing.T) {
	bubble(t, func(b *bench) {
		runs := 0
		begun := time.Now()
		var at []time.Duration
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Minute)}, func(context.Context, work) error {
			runs++
			at = append(at, time.Since(begun))
			return fmt.Errorf("boom %d", runs)
		})
		task := b.enqueue("a", midge.MaxRetries(2))
		b.after(10 * time.Minute)
		got := b.task(task.Ref)
		if runs != 3 || got.State != storage.Dead || got.Retries != 3 || got.Reason != storage.ReasonRetries {
			t.Errorf("runs %d, state %s, retries %d, reason %q; want 3, dead, 3, %q", runs, got.State, got.Retries, got.Reason, storage.ReasonRetries)
		}
		if len(got.Attempts) != 3 || got.Attempts[2].Error != "boom 3" {
			t.Errorf("attempts %+v, want three with the errors", got.Attempts)
		}
		for i, d := range at {
			if want := time.Duration(i) * time.Minute; d < want || d > want+50*time.Millisecond {
				t.Errorf("run %d at %v, want %v, not early", i+1, d, want)
			}
		}
	})
}

func TestPanicIsAFailureWithItsStack(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{Concurrency: 1}, func(_ context.Context, w work) error {
			switch w.Name {
			case "panic":
				panic("at the disco")
			case "goexit":
				runtime.Goexit()
			}
			return nil
		})
		p := b.enqueue("panic", midge.MaxRetries(midge.None))
		g := b.enqueue("goexit", midge.MaxRetries(midge.None))
		ok := b.enqueue("ok")
		b.after(time.Second)
		if got := b.task(p.Ref); got.State != storage.Dead || !strings.Contains(got.Attempts[0].Error, "at the disco") ||
			!strings.Contains(got.Stack, "runner_test.go") {
			t.Errorf("panic: %s, attempts %+v, stack %q", got.State, got.Attempts, got.Stack)
		}
		if got := b.task(g.Ref); got.State != storage.Dead || !strings.Contains(got.Attempts[0].Error, "Goexit") {
			t.Errorf("goexit: %s, attempts %+v", got.State, got.Attempts)
		}
		b.gone(ok.Ref) // the slot was not lost
	})
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		state   storage.State
		retries int
		in      time.Duration
	}{
		{"discard", midge.Discard(errors.New("no")), storage.Dead, 0, 0},
		{"retry in", midge.RetryIn(7*time.Minute, errors.New("later")), storage.Retry, 1, 7 * time.Minute},
		{"snooze", midge.Snooze(9 * time.Minute), storage.Scheduled, 0, 9 * time.Minute},
		{"error", errors.New("plain"), storage.Retry, 1, time.Hour},
		{"wrapped", fmt.Errorf("about: %w", midge.Snooze(time.Minute)), storage.Scheduled, 0, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Hour)}, func(context.Context, work) error { return c.err })
				task := b.enqueue("x")
				begun := time.Now()
				b.after(100 * time.Millisecond)
				got := b.task(task.Ref)
				if got.State != c.state || got.Retries != c.retries {
					t.Errorf("state %s with %d retries, want %s with %d", got.State, got.Retries, c.state, c.retries)
				}
				if in := got.Due.Sub(begun); c.in > 0 && (in < c.in || in > c.in+100*time.Millisecond) {
					t.Errorf("due in %v, want %v", in, c.in)
				}
			})
		})
	}
}

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

type stranger struct{ X int }

func TestUnknownKindIsPutOffUncharged(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := 0
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { ran++; return nil })
		task, err := b.client.Enqueue(b.Context(), stranger{1})
		if err != nil {
			t.Fatal(err)
		}
		b.enqueue("after it")
		b.after(10 * time.Minute)
		got := b.task(task.Ref)
		if ran != 1 || got.Retries != 0 || got.State != storage.Scheduled || got.Snoozes < 10 {
			t.Errorf("ran %d, state %s, retries %d, snoozes %d; want the neighbour run and the stranger snoozed", ran, got.State, got.Retries, got.Snoozes)
		}
		b.after(24*time.Hour + 10*time.Minute)
		if got := b.task(task.Ref); got.State != storage.Dead || got.Reason != "unknown kind" {
			t.Errorf("after a day: %s, %q; want dead, unknown kind", got.State, got.Reason)
		}
	})
}

func TestUndecodablePayloadIsDeadAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := 0
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { ran++; return nil })
		ref := storage.Ref{Queue: midge.DefaultQueue, ID: "bad"}
		if _, err := storage.NewSession(b.store, 0).ApplyOne(b.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: ref, Kind: "work", Encoding: "msgpack", Payload: []byte{0xc1}, MaxRetries: 5, CrashLimit: 3,
		}}}); err != nil {
			t.Fatal(err)
		}
		b.enqueue("good")
		b.after(time.Second)
		if got := b.task(ref); got.State != storage.Dead || got.Reason != "undecodable payload" || ran != 1 {
			t.Errorf("%s %q, neighbours run %d; want dead, undecodable payload, 1", got.State, got.Reason, ran)
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

func (b *bench) stats(queue string) storage.Stats {
	b.Helper()
	s, err := b.store.Stats(b.Context(), queue)
	if err != nil {
		b.Fatal(err)
	}
	return s[0]
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
		b.runner.Stop()
		if err := b.drain(); err != nil || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("Run returned %v after %v; want nil at once", err, time.Since(begun))
		}
	})
}

func TestALongJobKeepsItsLease(t *testing.T) {
	bubble(t, func(b *bench) {
		runs := 0
		b.run(midge.RunnerConfig{}, func(context.Context, work) error {
			runs++
			time.Sleep(3 * time.Hour)
			return nil
		})
		other := b.newRunner(b.store, midge.RunnerConfig{}, func(context.Context, work) error {
			runs++
			return nil
		})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		task := b.enqueue("long")
		b.after(4 * time.Hour)
		b.gone(task.Ref)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if runs != 1 {
			t.Errorf("%d runs, want 1", runs)
		}
	})
}

// faulty is a storage whose calls fail while a switch is on: after says that they
// are carried out and only their reply is lost.
type faulty struct {
	storage.Storage
	down, after atomic.Bool
	extends     atomic.Bool // extends fail
}

func (f *faulty) fail(before bool) error {
	if f.down.Load() && before != f.after.Load() {
		return fmt.Errorf("faulty: %w", storage.ErrUnknown)
	}
	return nil
}

func (f *faulty) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if err := f.fail(true); err != nil {
		return nil, err
	}
	applied, err := f.Storage.Apply(ctx, call, txs...)
	if lost := f.fail(false); lost != nil {
		return nil, lost
	}
	return applied, err
}

func (f *faulty) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := f.fail(true); err != nil {
		return storage.Claimed{}, err
	}
	claimed, err := f.Storage.Claim(ctx, req)
	if lost := f.fail(false); lost != nil {
		return storage.Claimed{}, lost
	}
	return claimed, err
}

func (f *faulty) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if f.extends.Load() {
		return storage.Extended{}, fmt.Errorf("faulty: %w", storage.ErrUnknown)
	}
	return f.Storage.Extend(ctx, req)
}

func TestAJobEndsBeforeItsLeaseDoes(t *testing.T) {
	bubble(t, func(b *bench) {
		f := &faulty{Storage: b.store}
		var cause error
		var ended time.Duration
		begun := time.Now()
		b.runner = b.newRunner(f, midge.RunnerConfig{Lease: 30 * time.Second}, func(ctx context.Context, _ work) error {
			<-ctx.Done()
			cause, ended = context.Cause(ctx), time.Since(begun)
			return ctx.Err()
		})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		f.extends.Store(true)
		task := b.enqueue("a")
		b.after(29 * time.Second)
		if !errors.Is(cause, storage.ErrLeaseLost) || ended < 25*time.Second || ended > 27*time.Second {
			t.Errorf("ended after %v by %v; want 25s and ErrLeaseLost", ended, cause)
		}
		if got := b.task(task.Ref); got.Retries != 0 || got.Crashes != 0 {
			t.Errorf("charged: %d retries, %d crashes", got.Retries, got.Crashes)
		}
	})
}

func TestLostRepliesLoseNothing(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%v", after), func(t *testing.T) {
			bubble(t, func(b *bench) {
				f := &faulty{Storage: b.store}
				f.after.Store(after)
				var mu sync.Mutex
				runs := map[string]int{}
				b.runner = b.newRunner(f, midge.RunnerConfig{Concurrency: 4}, func(_ context.Context, w work) error {
					time.Sleep(3 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					runs[w.Name]++
					return nil
				})
				go func() { b.done <- b.runner.Run(b.ctx) }()
				for i := range 200 {
					b.enqueue(fmt.Sprint(i))
				}
				for range 100 { // the weather changes every few milliseconds
					f.down.Store(!f.down.Load())
					b.after(7 * time.Millisecond)
				}
				f.down.Store(false)
				b.after(10 * time.Second)
				if s := b.stats(midge.DefaultQueue); s.Live() != 0 || s.Totals.Completed != 200 || s.Totals.Crashed != 0 {
					t.Errorf("stats %+v, want 200 completed and nothing left", s)
				}
				for name, n := range runs {
					if n != 1 {
						t.Errorf("%s ran %d times", name, n)
					}
				}
			})
		})
	}
}

func TestConcurrencyIsNeverExceeded(t *testing.T) {
	bubble(t, func(b *bench) {
		var now, most atomic.Int32
		b.run(midge.RunnerConfig{Concurrency: 3}, func(context.Context, work) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
			return nil
		})
		for i := range 300 {
			b.enqueue(fmt.Sprint(i))
		}
		b.after(500 * time.Millisecond)
		if most.Load() != 3 {
			t.Errorf("at most %d at once, want 3", most.Load())
		}
		if err := b.runner.SetConcurrency(10); err != nil {
			t.Fatal(err)
		}
		b.after(200 * time.Millisecond)
		if most.Load() != 10 {
			t.Errorf("after SetConcurrency at most %d at once, want 10", most.Load())
		}
		b.after(10 * time.Second)
	})
}

func TestQueuesInStrictOrder(t *testing.T) {
	bubble(t, func(b *bench) {
		var order []string
		for i := range 3 {
			b.enqueue(fmt.Sprint("low", i), midge.To("low"))
			b.enqueue(fmt.Sprint("high", i), midge.To("high"))
		}
		b.run(midge.RunnerConfig{Queues: []string{"high", "low"}, Concurrency: 1}, func(_ context.Context, w work) error {
			order = append(order, w.Name)
			return nil
		})
		b.after(time.Second)
		if got := strings.Join(order, " "); got != "high0 high1 high2 low0 low1 low2" {
			t.Errorf("order %s", got)
		}
	})
}

func TestQueuesByWeight(t *testing.T) {
	bubble(t, func(b *bench) {
		var a, z int
		for i := range 1000 {
			b.enqueue(fmt.Sprint(i), midge.To("a"))
			b.enqueue(fmt.Sprint(i), midge.To("z"))
		}
		b.run(midge.RunnerConfig{
			Queues: []string{"a", "z"}, Weights: map[string]int{"a": 3, "z": 1}, Concurrency: 1, Ahead: midge.None,
		}, func(ctx context.Context, _ work) error {
			if info, _ := midge.Current(ctx); info.Ref.Queue == "a" {
				a++
			} else {
				z++
			}
			if a+z == 400 {
				b.runner.Stop()
			}
			return nil
		})
		if err := <-b.done; err != nil {
			t.Fatal(err)
		}
		b.done <- nil
		if a < 240 || a > 360 {
			t.Errorf("a %d, z %d of 400; want about 300 and 100", a, z)
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

func TestWhatIsClaimedAheadIsGivenBack(t *testing.T) {
	bubble(t, func(b *bench) {
		block := make(chan struct{})
		slow := atomic.Bool{}
		b.run(midge.RunnerConfig{Concurrency: 2, Grace: time.Second}, func(ctx context.Context, _ work) error {
			if slow.Load() {
				select {
				case <-block:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			time.Sleep(100 * time.Microsecond)
			return nil
		})
		for i := range 500 {
			b.enqueue(fmt.Sprint(i))
		}
		b.after(2 * time.Second)
		slow.Store(true)
		for i := range 200 {
			b.enqueue(fmt.Sprint("slow", i))
		}
		b.after(2 * time.Second)
		if s := b.stats(midge.DefaultQueue); s.Pending > 2 || s.Waiting != 198 {
			t.Errorf("%d pending, %d waiting; want what is ahead of two slow jobs given back", s.Pending, s.Waiting)
		}
		if err := b.drain(); err != nil {
			t.Error(err)
		}
		if s := b.stats(midge.DefaultQueue); s.Pending != 0 || s.Waiting != 200 || s.Totals.Failed != 0 {
			t.Errorf("after the drain %d pending, %d waiting, %d failed; want 0, 200, 0", s.Pending, s.Waiting, s.Totals.Failed)
		}
		close(block)
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

// mailed is a job whose type names its queue.
type mailed struct{}

func (mailed) Options() midge.Options { return midge.Options{Queue: "mail"} }

func TestTheQueuesOfRegisteredJobsAreServed(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := 0
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := midge.Handle(b.runner, func(context.Context, mailed) error { ran++; return nil }); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		if _, err := b.client.Enqueue(b.Context(), mailed{}); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		if ran != 1 {
			t.Errorf("ran %d times, want 1", ran)
		}
	})
}
