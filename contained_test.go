package midge_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// failures are the two ways in which a function of the application fails without an error.
func failures() map[string]func() {
	return map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit}
}

// eachFailure runs a test for both failures.
func eachFailure(t *testing.T, test func(b *bench, name string, fail func())) {
	t.Helper()
	for name, fail := range failures() {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) { test(b, name, fail) })
		})
	}
}

// goesOn checks that the runner, whose job fails for each name but "fine", still runs tasks, and
// drains.
func (b *bench) goesOn() {
	b.Helper()
	fine := b.enqueue("fine", midge.KeepFor(time.Hour))
	b.after(time.Second)
	if got := b.task(fine.Ref); got.State != storage.Completed {
		b.Errorf("the task after it is %s, want it completed", got.State)
	}
	begun := time.Now()
	if err := b.drain(); err != nil || time.Since(begun) > time.Second {
		b.Errorf("the drain returned %v after %v, want nil at once", err, time.Since(begun))
	}
}

// unlessFine returns the error of a job.
func unlessFine(w work) error {
	if w.Name == "fine" {
		return nil
	}
	return errBroken
}

func TestABackoffThatFailsGivesTheDefault(t *testing.T) {
	eachFailure(t, func(b *bench, name string, fail func()) {
		logger, lines := logged()
		b.run(midge.RunnerConfig{
			Logger: logger, Concurrency: 1, Backoff: func(int) time.Duration { fail(); return 0 },
		}, func(_ context.Context, w work) error { return unlessFine(w) })
		task := b.enqueue("a")
		b.after(time.Second)
		got := b.task(task.Ref)
		if got.State != storage.Retry || got.Retries != 1 || !strings.Contains(got.LastError(), errBroken.Error()) {
			b.Fatalf("got %s, %d retries, %q; want a retry of the job's error", got.State, got.Retries, got.LastError())
		}
		if in := got.Due.Sub(got.Attempts[0].At); in < 1800*time.Millisecond || in > 2200*time.Millisecond {
			b.Errorf("the retry is due in %v, want the default", in)
		}
		if said := lines("the backoff of work default/" + task.ID); len(said) != 1 {
			b.Errorf("logged %q, want the %s", said, name)
		}
		b.goesOn()
	})
}

// treacherous is an error whose method fails.
type treacherous struct {
	method string
	fail   func()
}

func (e *treacherous) in(method string) {
	if e.method == method {
		e.fail()
	}
}

func (e *treacherous) Error() string   { e.in("Error"); return "a treacherous error" }
func (e *treacherous) Is(error) bool   { e.in("Is"); return false }
func (e *treacherous) As(any) bool     { e.in("As"); return false }
func (e *treacherous) Unwrap() []error { e.in("Unwrap"); return nil }

func TestAnErrorWhoseMethodFailsEndsItsAttempt(t *testing.T) {
	for _, method := range []string{"Error", "Is", "As", "Unwrap"} {
		for how, wrap := range map[string]func(error) error{
			"alone": func(err error) error { return err }, "discarded": midge.Discard,
			"joined to a snooze":   func(err error) error { return errors.Join(err, midge.Snooze(time.Hour)) },
			"joined to a throttle": func(err error) error { return errors.Join(err, midge.Throttle(time.Hour)) },
		} {
			eachFailure(t, func(b *bench, name string, fail func()) {
				b.run(midge.RunnerConfig{Concurrency: 1}, func(_ context.Context, w work) error {
					if w.Name == "fine" {
						return nil
					}
					return wrap(&treacherous{method, fail})
				})
				task := b.enqueue("a", midge.Partition("acme"))
				b.after(time.Second)
				waits := how == "joined to a throttle" && method == "Error" // its other methods hide the throttle
				if got := b.task(task.Ref); got.State == storage.Pending || (got.State == storage.Waiting) != waits {
					b.Errorf("%s in %s, %s: the task is %s, want the attempt ended", name, method, how, got.State)
				}
				b.goesOn()
			})
		}
	}
}

func TestAnErrorWhoseMethodFailsAfterACompletionEndsItsAttempt(t *testing.T) {
	for _, commits := range []bool{true, false} {
		eachFailure(t, func(b *bench, name string, fail func()) {
			b.run(midge.RunnerConfig{Concurrency: 1}, func(ctx context.Context, w work) error {
				if w.Name == "fine" {
					return nil
				}
				var with midge.Applier = storageTx{b.store}
				if !commits {
					with = rolledBack{}
				}
				return errors.Join(midge.CompleteWith(ctx, with), &treacherous{"Error", fail})
			})
			task := b.enqueue("a", midge.KeepFor(time.Hour))
			b.after(time.Second)
			want := storage.Retry
			if commits {
				want = storage.Completed
			}
			if got := b.task(task.Ref); got.State != want {
				b.Errorf("%s: the task is %s, want %s", name, got.State, want)
			}
			b.goesOn()
		})
	}
}

// rolledBack is a transaction that is rolled back.
type rolledBack struct{ storage.Storage }

func (rolledBack) Apply(_ context.Context, _ storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	return make([]storage.Applied, len(txs)), nil
}

// breaking is a job whose own methods fail if its name is theirs.
type breaking struct{ Name string }

type failKey struct{}

func (f breaking) in(ctx context.Context, method string) {
	if fail, ok := ctx.Value(failKey{}).(func()); ok && f.Name == method {
		fail()
	}
}

func (f breaking) BeforeRun(ctx context.Context) error     { f.in(ctx, "BeforeRun"); return nil }
func (f breaking) Run(ctx context.Context) error           { f.in(ctx, "Run"); return nil }
func (f breaking) AfterRun(ctx context.Context, _ error)   { f.in(ctx, "AfterRun") }
func (f breaking) BeforeEnqueue(ctx context.Context) error { f.in(ctx, "BeforeEnqueue"); return nil }

func (f breaking) Options() midge.Options { return midge.Options{Retries: midge.None} }

func (f breaking) middleware(when string) midge.Middleware {
	return func(next func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if when == "after" {
				err := next(ctx)
				f.named(ctx, "after next")
				return err
			}
			f.named(ctx, "before next")
			return next(ctx)
		}
	}
}

// named fails if the running job is called name.
func (breaking) named(ctx context.Context, name string) {
	info, _ := midge.Current(ctx)
	if job, ok := info.Job.(*breaking); ok {
		job.in(ctx, name)
	}
}

func TestMethodsAndMiddlewareThatFailEndTheAttempt(t *testing.T) {
	for method, want := range map[string]storage.State{
		"BeforeRun": storage.Dead, "Run": storage.Dead, "AfterRun": storage.Completed, "before next": storage.Dead,
		"after next": storage.Dead, "none": storage.Completed,
	} {
		eachFailure(t, func(b *bench, name string, fail func()) {
			logger, lines := logged()
			b.ctx = context.WithValue(b.ctx, failKey{}, fail)
			b.runner = b.newRunner(b.store, midge.RunnerConfig{
				Logger: logger, Concurrency: 1,
				Middleware: []midge.Middleware{breaking{}.middleware("after"), breaking{}.middleware("before")},
			}, func(context.Context, work) error { return nil })
			if err := midge.Register[breaking](b.runner); err != nil {
				b.Fatal(err)
			}
			go func() { b.done <- b.runner.Run(b.ctx) }()
			task, err := b.client.Enqueue(b.ctx, breaking{method}, midge.KeepFor(time.Hour))
			if err != nil {
				b.Fatal(err)
			}
			b.after(time.Second)
			if got := b.task(task.Ref); got.State != want {
				b.Errorf("%s in %s: the task is %s, want %s", name, method, got.State, want)
			}
			if said := lines("AfterRun, told of breaking"); (len(said) == 1) != (method == "AfterRun") {
				b.Errorf("%s in %s: logged %q", name, method, said)
			}
			b.goesOn()
		})
	}
}

// A BeforeEnqueue of a follow-up fails in the running job.
func TestABeforeEnqueueThatFailsEndsTheAttempt(t *testing.T) {
	eachFailure(t, func(b *bench, name string, fail func()) {
		b.run(midge.RunnerConfig{Concurrency: 1}, func(ctx context.Context, w work) error {
			if w.Name == "fine" {
				return nil
			}
			return midge.FollowUp(context.WithValue(ctx, failKey{}, fail), breaking{"BeforeEnqueue"})
		})
		task := b.enqueue("a", midge.Retries(midge.None))
		b.after(time.Second)
		if got := b.task(task.Ref); got.State != storage.Dead {
			b.Errorf("%s: the task is %s, want it dead", name, got.State)
		}
		b.goesOn()
	})
}

// A runner's EnqueueMiddleware that fails leaves out one tick, or fails one job.
func TestAnEnqueueMiddlewareThatFailsStopsNoSchedule(t *testing.T) {
	eachFailure(t, func(b *bench, name string, fail func()) {
		var broken atomic.Bool
		broken.Store(true)
		logger, lines := logged()
		b.runner = b.newRunner(b.store, midge.RunnerConfig{
			Logger: logger, Concurrency: 1,
			EnqueueMiddleware: []midge.EnqueueMiddleware{passing(func(ins []*storage.Insert) []*storage.Insert {
				if broken.Load() {
					fail()
				}
				return ins
			})},
		}, func(ctx context.Context, w work) error {
			if w.Name == "fine" {
				return nil
			}
			return midge.FollowUp(ctx, work{"fine"})
		})
		if err := b.runner.Periodic(midge.Every(time.Minute), work{"tick"}, midge.To("ticks")); err != nil {
			b.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		task := b.enqueue("follows", midge.Retries(midge.None))
		b.after(90 * time.Second)
		if got := b.task(task.Ref); got.State != storage.Dead {
			b.Errorf("%s: the job is %s, want it dead", name, got.State)
		}
		if said := lines("a tick is left out"); len(said) == 0 {
			b.Errorf("%s: got %q, want a line about the tick", name, lines(""))
		}
		broken.Store(false)
		b.after(2 * time.Minute)
		if n := b.stats("ticks").Totals.Enqueued; n != 2 {
			b.Errorf("%s: %d ticks were made after it, want 2", name, n)
		}
		if err := b.runner.Healthy(); err != nil {
			b.Errorf("%s: %v", name, err)
		}
		b.goesOn()
	})
}

// The hooks after it are still called, and the log has the failure.
func TestAHookThatFailsKeepsNoOtherFromBeingTold(t *testing.T) {
	eachFailure(t, func(b *bench, name string, fail func()) {
		var before, after heard
		logger, lines := logged()
		b.run(midge.RunnerConfig{Logger: logger, Concurrency: 10, OnEnd: []func(context.Context, midge.Ended){
			before.hear, func(context.Context, midge.Ended) { fail() }, after.hear,
		}}, func(context.Context, work) error { return nil })
		for range 50 {
			b.enqueue("fine")
		}
		b.after(time.Second)
		if len(before.ends) != 50 || len(after.ends) != 50 {
			b.Errorf("%s: the hooks before and after it were told %d and %d ends, want 50", name, len(before.ends), len(after.ends))
		}
		for _, e := range after.ends {
			if len(after.of(e.Task.Ref)) != 1 || e.Outcome != midge.OutcomeSucceeded {
				b.Fatalf("%s: got %+v, want each end once", name, e)
			}
		}
		if said := lines("OnEnd, told of work"); len(said) != 50 {
			b.Errorf("%s: got %d lines, want 50", name, len(said))
		}
		b.goesOn()
	})
}

// badHandler is a handler of slog that fails.
type badHandler struct{ enabled, handle func() }

func (h *badHandler) Enabled(context.Context, slog.Level) bool  { h.enabled(); return true }
func (h *badHandler) Handle(context.Context, slog.Record) error { h.handle(); return nil }
func (h *badHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h *badHandler) WithGroup(string) slog.Handler             { return h }

// badCore is a core of zap that fails.
type badCore struct {
	zapcore.Core

	enabled, check, write func()
}

func (c *badCore) Enabled(zapcore.Level) bool { c.enabled(); return true }

func (c *badCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	c.check()
	return to.AddCore(e, c)
}

func (c *badCore) Write(zapcore.Entry, []zapcore.Field) error { c.write(); return nil }

func TestALoggerThatFailsEndsNothing(t *testing.T) {
	fine := func() {}
	type loggers map[string]func(fail func()) midge.RunnerConfig
	slogs := func(h *badHandler) midge.RunnerConfig { return midge.RunnerConfig{Slog: slog.New(h)} }
	zaps := func(c *badCore) midge.RunnerConfig {
		c.Core = zapcore.NewNopCore()
		return midge.RunnerConfig{Logger: zap.New(c)}
	}
	for place, config := range (loggers{
		"slog Handle":  func(fail func()) midge.RunnerConfig { return slogs(&badHandler{fine, fail}) },
		"slog Enabled": func(fail func()) midge.RunnerConfig { return slogs(&badHandler{fail, fine}) },
		"zap Write":    func(fail func()) midge.RunnerConfig { return zaps(&badCore{enabled: fine, check: fine, write: fail}) },
		"zap Check":    func(fail func()) midge.RunnerConfig { return zaps(&badCore{enabled: fine, check: fail, write: fine}) },
		"zap Enabled":  func(fail func()) midge.RunnerConfig { return zaps(&badCore{enabled: fail, check: fine, write: fine}) },
	}) {
		eachFailure(t, func(b *bench, name string, fail func()) {
			if strings.HasSuffix(place, "Enabled") { // a goroutine for each question would cost too much
				fail = failures()["panic"]
			}
			cfg := config(fail)
			cfg.Concurrency = 1
			b.runner = b.newRunner(b.store, cfg, func(_ context.Context, w work) error {
				if w.Name == "panics" {
					panic("boom")
				}
				return unlessFine(w)
			})
			go func() { b.done <- b.runner.Run(b.ctx) }()
			for _, how := range []string{"a", "panics", "fine", "unknown"} {
				task := b.enqueue(how, midge.Retries(1), midge.KeepFor(time.Hour))
				b.after(time.Minute)
				if got := b.task(task.Ref); !got.State.Ended() {
					b.Errorf("%s in %s: the task %s is %s, want it ended", name, place, how, got.State)
				}
			}
			if err := b.runner.Healthy(); err != nil {
				b.Errorf("%s in %s: %v", name, place, err)
			}
			b.goesOn()
		})
	}
}

// The default logger of slog has the first failure of another logger, once.
func TestALoggerThatFailsIsReported(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	eachFailure(t, func(b *bench, name string, fail func()) {
		var out bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
		b.run(midge.RunnerConfig{Slog: slog.New(&badHandler{func() {}, fail})}, func(context.Context, work) error { return nil })
		b.goesOn()
		if got := strings.Count(out.String(), "the logger of a runner fails, and lines are lost"); got != 1 {
			b.Errorf("%s: got %q, want one line", name, &out)
		}
	})
}
