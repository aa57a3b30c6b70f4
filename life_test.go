package midge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestStartsContextBoundsTheStartAlone(t *testing.T) {
	bubble(t, func(b *bench) {
		type key struct{}
		var value any
		var ended error
		r := b.newRunner(b.store, midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			<-time.After(3 * time.Second) // virtual
			value, ended = ctx.Value(key{}), ctx.Err()
			return nil
		})
		starting, over := context.WithCancel(context.WithValue(b.Context(), key{}, 7))
		if err := r.Start(starting); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(starting); !errors.Is(err, midge.ErrRunning) {
			t.Errorf("a second start: got %v, want ErrRunning", err)
		}
		over()
		task := b.enqueue("a", midge.KeepFor(time.Hour))
		b.after(time.Second)
		begun := time.Now()
		if err := r.Shutdown(b.Context()); err != nil || time.Since(begun) != 2*time.Second {
			t.Errorf("Shutdown returned %v after %v; want nil when the job has returned", err, time.Since(begun))
		}
		if value != 7 || ended != nil {
			t.Errorf("the job got the value %v, its context ended by %v", value, ended)
		}
		if got := b.task(task.Ref); got.State != storage.Completed {
			t.Errorf("got %s, want it completed", got.State)
		}
		if err := r.Shutdown(b.Context()); err != nil {
			t.Errorf("a second shutdown: %v", err)
		}
	})
}

func TestTheEndOfShutdownsContextEndsTheGracePeriod(t *testing.T) {
	bubble(t, func(b *bench) {
		r := b.newRunner(b.store, midge.RunnerConfig{}, func(ctx context.Context, w work) error {
			if w.Name == "deaf" {
				<-time.After(time.Minute) // virtual
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if err := r.Start(b.Context()); err != nil {
			t.Fatal(err)
		}
		task := b.enqueue("heeds")
		b.after(time.Second)
		ctx, cancel := context.WithTimeout(b.Context(), 4*time.Second)
		defer cancel()
		begun := time.Now()
		if err := r.Shutdown(ctx); err != nil || time.Since(begun).Round(100*time.Millisecond) != 4*time.Second {
			t.Errorf("Shutdown returned %v after %v; want nil after 4 s", err, time.Since(begun))
		}
		if got := b.task(task.Ref); got.State != storage.Waiting || got.Retries+got.Crashes > 0 {
			t.Errorf("got %+v, want it released, uncharged", got)
		}
	})
}

// TestASignalDuringTheStartIsNoFailure checks that Run returns nil and that the storage lists no
// runner.
func TestASignalDuringTheStartIsNoFailure(t *testing.T) {
	for name, stop := range map[string]func(b *bench){
		"the context ends": func(b *bench) { b.stop() },
		"shutdown": func(b *bench) {
			if err := b.runner.Shutdown(b.Context()); err != nil {
				b.Errorf("shutdown: %v", err)
			}
		},
	} {
		for call, hold := range map[string]func(h *heldStart){
			"before the first heartbeat": func(h *heldStart) { h.describe = true },
			"in the first heartbeat":     func(*heldStart) {},
		} {
			t.Run(name+" "+call, func(t *testing.T) {
				bubble(t, func(b *bench) {
					h := &heldStart{Storage: b.store}
					hold(h)
					b.runner = b.newRunner(h, midge.RunnerConfig{}, nil)
					go func() { b.done <- b.runner.Run(b.ctx) }()
					b.after(time.Second)
					stop(b)
					if err := <-b.done; err != nil {
						t.Errorf("Run returned %v, want nil", err)
					}
					b.done <- nil // for the cleanup of the test
					if alive, err := b.client.Runners(b.Context()); err != nil || len(alive) > 0 {
						t.Errorf("the storage lists %v, %v", alive, err)
					}
				})
			})
		}
	}
}

// TestARefusedStartIsAFailure checks this if the context of Run has ended, too.
func TestARefusedStartIsAFailure(t *testing.T) {
	bubble(t, func(b *bench) {
		h := &heldStart{Storage: b.store, describe: true, refusal: errors.New("no such schema")}
		b.runner = b.newRunner(h, midge.RunnerConfig{}, nil)
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		b.stop()
		if err := <-b.done; !errors.Is(err, h.refusal) {
			t.Errorf("Run returned %v, want %v", err, h.refusal)
		}
		b.done <- nil // for the cleanup of the test
	})
}

// heldStart is a storage in which the start of a runner blocks until its context ends. The first
// heartbeat arrives nevertheless.
type heldStart struct {
	storage.Storage

	describe bool
	refusal  error // returned instead of the context's error
}

func (h *heldStart) Describe(ctx context.Context) (storage.Description, error) {
	if !h.describe {
		return h.Storage.Describe(ctx) //nolint:wrapcheck // as the storage has it
	}
	<-ctx.Done()
	return storage.Description{}, cmp.Or(h.refusal, ctx.Err())
}

func (h *heldStart) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	got, err := h.Storage.Extend(context.WithoutCancel(ctx), req)
	if req.Runner.Leaving {
		return got, err //nolint:wrapcheck // as the storage has it
	}
	<-ctx.Done()
	return storage.Extended{}, fmt.Errorf("%w: %w", storage.ErrUnknown, ctx.Err())
}

func TestARunnerThatWasNotStartedHasNothingToDrain(t *testing.T) {
	bubble(t, func(b *bench) {
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		if err := r.Start(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a start whose context has ended: got %v", err)
		}
		if err := r.Shutdown(b.Context()); err != nil {
			t.Error(err)
		}
		if err := r.Healthy(); err != nil {
			t.Errorf("healthy: %v", err)
		}
		if err := r.Ready(); err == nil {
			t.Error("it is ready without a start")
		}
	})
}

func TestARunnerIsReadyWhileItClaims(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &blackhole{Storage: b.store}
		b.runner = b.newRunner(s, midge.RunnerConfig{Lease: 3 * time.Second}, func(context.Context, work) error {
			<-time.After(2 * time.Second) // virtual
			return nil
		})
		want := func(when string, ready error) {
			t.Helper()
			if err := b.runner.Healthy(); err != nil {
				t.Errorf("%s: healthy: %v", when, err)
			}
			got := b.runner.Ready()
			if (got == nil) != (ready == nil) || ready != nil && !strings.Contains(got.Error(), ready.Error()) {
				t.Errorf("%s: ready: got %v, want %v", when, got, ready)
			}
		}
		want("new", errors.New("has not been started"))
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Minute)
		want("idle", nil)
		s.open()
		b.after(time.Hour)
		want("without a storage", errors.New("the storage has answered no heartbeat for "))
		if !errors.Is(b.runner.Ready(), midge.ErrUnavailable) {
			t.Errorf("got %v, want an ErrUnavailable", b.runner.Ready())
		}
		s.close()
		b.after(time.Minute)
		want("with it again", nil)
		b.enqueue("a")
		b.after(time.Second)
		b.stop()
		b.after(time.Millisecond)
		want("draining", errors.New("is draining"))
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		want("stopped", errors.New("has stopped"))
	})
}

// A logger that does not accept a line blocks the claimer, which is not an outage of the storage.
func TestALoopThatStandsStillIsUnhealthy(t *testing.T) {
	bubble(t, func(b *bench) {
		stuck := make(chan struct{})
		logger := zap.New(&blocked{Core: zapcore.NewNopCore(), stuck: stuck})
		task := b.enqueue("a")
		b.crash()
		b.recover()
		b.run(midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { return nil })
		b.after(20 * time.Second)
		if err := b.runner.Healthy(); err != nil {
			t.Errorf("after 20 s: %v", err)
		}
		b.after(20 * time.Second)
		err := b.runner.Healthy()
		if err == nil || !strings.Contains(err.Error(), "the claimer of queue default of runner "+b.runner.ID()+" has stood still for 40s") {
			t.Errorf("after 40 s: got %v", err)
		}
		if ready := b.runner.Ready(); ready == nil {
			t.Error("it is ready all the same")
		}
		close(stuck)
		b.after(time.Second)
		if err := b.runner.Healthy(); err != nil {
			t.Errorf("in the end: %v", err)
		}
		b.gone(task.Ref)
	})
}

// blocked is a zap core that blocks at a line about a crash until stuck is closed.
type blocked struct {
	zapcore.Core
	stuck chan struct{}
}

func (*blocked) Enabled(zapcore.Level) bool          { return true }
func (b *blocked) With([]zapcore.Field) zapcore.Core { return b }

func (b *blocked) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.Contains(e.Message, "starts after crash") {
		<-b.stuck
	}
	return c
}

// silentStorage fails a test that calls it.
type silentStorage struct {
	storage.Storage
	t *testing.T
}

func (s silentStorage) Describe(context.Context) (storage.Description, error) {
	s.t.Error("a runner that never starts has asked its storage")
	return storage.Description{}, storage.ErrUnavailable
}

func TestAShutdownBeforeTheStartIsNotForgotten(t *testing.T) {
	bubble(t, func(b *bench) {
		over, cancel := context.WithCancel(b.Context())
		cancel()
		for name, ctx := range map[string]context.Context{"with time": b.Context(), "without time": over} {
			r := b.newRunner(silentStorage{b.store, t}, midge.RunnerConfig{}, func(context.Context, work) error { return nil })
			for range 2 {
				first := r.Shutdown(ctx)
				started, ran := r.Start(b.Context()), r.Run(b.Context())
				if again := r.Shutdown(ctx); first != nil || again != nil {
					t.Errorf("%s: the shutdowns returned %v and %v, want nil", name, first, again)
				}
				if !errors.Is(started, midge.ErrShutdown) || ran != nil {
					t.Errorf("%s: Start returned %v and Run %v, want an ErrShutdown and nil", name, started, ran)
				}
			}
			if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "has stopped") {
				t.Errorf("%s: Ready returned %v, want that it has stopped", name, err)
			}
			if err := r.Healthy(); err != nil {
				t.Errorf("%s: healthy: %v", name, err)
			}
		}
	})
}

// TestAShutdownThatRacesWithTheStart checks that both return, and that no runner is left over.
func TestAShutdownThatRacesWithTheStart(t *testing.T) {
	bubble(t, func(b *bench) {
		over, cancel := context.WithCancel(b.Context())
		cancel()
		for i := range 400 {
			r := b.newRunner(b.store, midge.RunnerConfig{Slog: slog.New(slog.DiscardHandler)}, nil)
			begin, ctx := r.Run, []context.Context{over, b.Context()}[i%2]
			if i%4 < 2 {
				begin = r.Start
			}
			begun, shut := make(chan error), make(chan error)
			go func() { begun <- begin(b.Context()) }()
			go func() {
				for range i % 20 { // the race is decided anew
					runtime.Gosched()
				}
				shut <- r.Shutdown(ctx)
			}()
			if err := <-begun; err != nil && (i%4 >= 2 || !errors.Is(err, midge.ErrShutdown)) {
				t.Fatalf("the start returned %v, want nil or, from Start, an ErrShutdown", err)
			}
			if err := <-shut; err != nil {
				t.Fatalf("the shutdown returned %v", err)
			}
			if err := r.Ready(); err == nil {
				t.Fatal("the runner claims tasks after its shutdown")
			}
		}
		if alive, err := b.client.Runners(b.Context()); err != nil || len(alive) > 0 {
			t.Errorf("the storage lists %v, %v", alive, err)
		}
	})
}

// TestAMiddlewareThatHoldsUpTicksIsUnhealthy has an EnqueueMiddleware that does not return for a tick: of a schedule
// that the runner declares, and of kept ones in queues that it maintains while another runner serves them.
func TestAMiddlewareThatHoldsUpTicksIsUnhealthy(t *testing.T) {
	for queue, loop := range map[string]string{
		midge.DefaultQueue: "the ticker of queue default", "other": "the sweeper",
	} {
		bubble(t, func(b *bench) {
			leave := make(chan struct{})
			hold := passing(func(ins []*storage.Insert) []*storage.Insert {
				<-leave
				return ins
			})
			b.runner = b.newRunner(b.store, midge.RunnerConfig{EnqueueMiddleware: []midge.EnqueueMiddleware{hold}},
				func(context.Context, work) error { return nil })
			var err error
			if queue == midge.DefaultQueue {
				err = b.runner.Periodic(midge.Every(time.Hour), work{"tick"})
			} else {
				err = b.serveElsewhere(queue, 40) // about half of the queues is swept by this runner
			}
			if err != nil {
				b.Fatal(err)
			}
			go func() { b.done <- b.runner.Run(b.ctx) }()
			b.after(59 * time.Minute)
			if err := b.runner.Healthy(); err != nil {
				b.Errorf("before the tick: %v", err)
			}
			b.after(10 * time.Minute)
			err = b.runner.Healthy()
			if err == nil || !strings.Contains(err.Error(), loop+" of runner "+b.runner.ID()+" has stood still for") {
				b.Errorf("got %v, want an error about %s", err, loop)
			}
			close(leave)
			b.after(time.Minute)
			if err := b.runner.Healthy(); err != nil {
				b.Errorf("in the end: %v", err)
			}
		})
	}
}

// serveElsewhere keeps a schedule in each of so many queues, which another runner serves.
func (b *bench) serveElsewhere(prefix string, queues int) error {
	other := storage.RunnerInfo{ID: "other", For: 24 * time.Hour, Kinds: []string{"work"}}
	for i := range queues {
		queue := fmt.Sprint(prefix, i)
		other.Queues = append(other.Queues, queue)
		if err := b.client.Queue(queue).SetSchedule(b.ctx, "kept", midge.Every(time.Hour), work{"tick"}); err != nil {
			return err
		}
	}
	_, err := b.store.Extend(b.ctx, storage.ExtendRequest{Runner: other})
	return err
}
