package midge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// claimCounter is a storage that counts the calls of Claim.
type claimCounter struct {
	storage.Storage

	claims atomic.Int32
}

func (c *claimCounter) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	c.claims.Add(1)
	return c.Storage.Claim(ctx, req)
}

// slotsHeld holds jobs until a signal, and counts which run.
type slotsHeld struct {
	release chan struct{}
	running atomic.Int32
}

func holdSlots() *slotsHeld { return &slotsHeld{release: make(chan struct{})} }

func (h *slotsHeld) job(ctx context.Context, _ work) error {
	h.running.Add(1)
	defer h.running.Add(-1)
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fullAndClosed are bounds that let no further job of the queue default start, once one runs.
func fullAndClosed() map[string]midge.RunnerConfig {
	first := true
	return map[string]midge.RunnerConfig{
		"full": {Queues: []string{"default", "other"}, QueueConcurrency: map[string]int{"default": 1}},
		"closed": {
			Queues: []string{"default", "other"},
			Gates: map[string]func() bool{"default": func() bool {
				was := first
				first = false
				return was
			}},
		},
	}
}

// closeQueue starts a runner on the store with a job that holds the only slot of the queue default, or runs
// behind its gate, which has closed since.
func (b *bench) closeQueue(store storage.Storage, cfg midge.RunnerConfig, held *slotsHeld) midge.Task {
	b.Helper()
	cfg.Concurrency, cfg.Logger = 10, zap.NewNop()
	b.runner = b.newRunner(store, cfg, held.job)
	go func() { b.done <- b.runner.Run(b.ctx) }()
	task := b.enqueue("holds the slot")
	b.after(3 * time.Second)
	if n := held.running.Load(); n != 1 {
		b.Fatalf("%d jobs run, want one", n)
	}
	return task
}

func TestInsertsIntoAClosedQueueCauseNoClaims(t *testing.T) {
	for name, cfg := range fullAndClosed() {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				store, held := &claimCounter{Storage: b.store}, holdSlots()
				b.closeQueue(store, cfg, held)
				store.claims.Store(0)
				for range 1000 {
					if _, err := b.client.EnqueueMany(b.ctx, slices.Repeat([]midge.Item{midge.New(work{})}, 10)); err != nil {
						t.Fatal(err)
					}
					b.after(time.Millisecond)
				}
				if n := store.claims.Load(); n > 5 {
					t.Errorf("%d claims in the second of 10,000 inserts, want at most 5", n)
				}
				if n := held.running.Load(); n != 1 {
					t.Errorf("%d jobs run, want one", n)
				}
				begun := time.Now()
				b.enqueue("beside them", midge.To("other"))
				b.after(5 * time.Millisecond)
				if n := held.running.Load(); n != 2 {
					t.Errorf("%d jobs run %s after an insert into another queue, want two", n, time.Since(begun))
				}
			})
		})
	}
}

// TestDeclinedTasksLiveBesideAClosedQueue has a runner that knows the kind and has no slot for the queue for
// much longer than declined tasks live without such a runner.
func TestDeclinedTasksLiveBesideAClosedQueue(t *testing.T) {
	for name, cfg := range fullAndClosed() {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				store, err := memory.Open(memory.Config{Limits: storage.Limits{DeclinedFor: 2 * time.Second}})
				if err != nil {
					t.Fatal(err)
				}
				b.store = store
				if b.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
					t.Fatal(err)
				}
				held, strangers := holdSlots(), 0
				cfg.Concurrency, cfg.Logger = 10, zap.NewNop()
				b.runner = b.newRunner(store, cfg, held.job)
				if err := midge.Handle(b.runner, func(context.Context, stranger) error { strangers++; return nil }); err != nil {
					t.Fatal(err)
				}
				go func() { b.done <- b.runner.Run(b.ctx) }()
				b.enqueue("holds the slot")
				b.after(3 * time.Second)
				ran := &pickUps{started: make(map[string]time.Time)}
				quiet := midge.RunnerConfig{Logger: zap.NewNop()}
				stop := b.crewOf(store, quiet, "work", ran)
				task := b.enqueueStranger(1)
				b.after(30 * time.Second)
				if s := b.stats(midge.DefaultQueue); len(s.Declined) != 1 || s.Dead > 0 || strangers > 0 {
					t.Fatalf("got %+v, want the task declined and alive", s)
				}
				b.diesWithout(store, task.Ref, stop)
			})
		})
	}
}

// diesWithout stops the runner that knows the kind of a declined task, and another one, and checks that the task
// then dies: so the storage would have ended it before.
func (b *bench) diesWithout(store storage.Storage, ref midge.Ref, stop func() error) {
	b.Helper()
	b.stop()
	if err := errors.Join(stop(), <-b.done); err != nil {
		b.Error(err)
	}
	b.done <- nil
	b.ctx = b.Context()
	stop = b.crewOf(store, midge.RunnerConfig{Logger: zap.NewNop()}, "work", &pickUps{started: make(map[string]time.Time)})
	b.after(30 * time.Second)
	if got := b.task(ref).State; got != storage.Dead {
		b.Errorf("without the runner the task is %s, want it dead", got)
	}
	if err := stop(); err != nil {
		b.Error(err)
	}
}

func TestACancelIsSeenInAClosedQueue(t *testing.T) {
	for name, cfg := range fullAndClosed() {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				held := holdSlots()
				task := b.closeQueue(b.store, cfg, held)
				for range 20 {
					b.enqueue("waits")
				}
				b.after(1300 * time.Millisecond)
				if _, err := b.client.Cancel(b.ctx, task.Ref); err != nil {
					t.Fatal(err)
				}
				b.after(time.Second)
				b.gone(task.Ref)
			})
		})
	}
}

// drainsIn measures how long the short jobs of one queue take beside a queue of slow ones.
func (b *bench) drainsIn(cfg midge.RunnerConfig, slow int) time.Duration {
	b.Helper()
	var short, last atomic.Int64 // last is when the last one ended
	for range slow {
		b.enqueue("slow", midge.To("slow"))
	}
	items := slices.Repeat([]midge.Item{midge.New(work{"short"}, midge.To("short"))}, 2000)
	if _, err := b.client.EnqueueMany(b.ctx, items); err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	cfg.Logger = zap.NewNop()
	b.run(cfg, func(_ context.Context, w work) error {
		if w.Name == "slow" && time.Since(begun) > 100*time.Millisecond { // short until then: claimed ahead
			time.Sleep(time.Second) // virtual
			return nil
		}
		time.Sleep(time.Millisecond) // virtual
		if w.Name == "short" {
			short.Add(1)
			last.Store(int64(time.Since(begun)))
		}
		return nil
	})
	b.after(time.Minute)
	if err := b.drain(); err != nil || short.Load() != 2000 {
		b.Fatalf("%d jobs ran, and run returned %v", short.Load(), err)
	}
	return time.Duration(last.Load())
}

func TestASlowFullQueueSlowsNoOtherDown(t *testing.T) {
	queues := []string{"slow", "short"}
	for name, weights := range map[string]map[string]int{"in order": nil, "by weight": {"slow": 10}} {
		t.Run(name, func(t *testing.T) {
			var alone, beside time.Duration
			bubble(t, func(b *bench) {
				alone = b.drainsIn(midge.RunnerConfig{Queues: queues, Weights: weights, Concurrency: 4}, 0)
			})
			for _, cfg := range []midge.RunnerConfig{
				{Concurrency: 6, QueueConcurrency: map[string]int{"slow": 2}},
				{Concurrency: 6, QueueLimits: map[string]midge.Limit{"slow": {Concurrency: 2}}},
				{Concurrency: 24, QueueLimits: map[string]midge.Limit{"slow": {Concurrency: 20}}},
			} {
				cfg.Queues, cfg.Weights = queues, weights
				bubble(t, func(b *bench) { beside = b.drainsIn(cfg, 1000) })
				if float64(alone) < 0.9*float64(beside) {
					t.Errorf("2000 short jobs take %s with four slots, and %s with %d, of which all but four are slow: %v, %v",
						alone, beside, cfg.Concurrency, cfg.QueueConcurrency, cfg.QueueLimits)
				}
			}
		})
	}
}

// TestASlotOfAQueueIsTakenAgainAtOnce has one slot and jobs of ten milliseconds, with a claim for each.
func TestASlotOfAQueueIsTakenAgainAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran int
		begun, last := time.Now(), time.Now()
		for range 100 {
			b.enqueue("x")
		}
		b.run(midge.RunnerConfig{QueueConcurrency: map[string]int{"default": 1}}, func(context.Context, work) error {
			time.Sleep(10 * time.Millisecond) // virtual
			ran, last = ran+1, time.Now()
			return nil
		})
		b.after(time.Minute)
		if took := last.Sub(begun); ran != 100 || took > 1500*time.Millisecond {
			t.Errorf("%d jobs took %s, want 100 of 10ms each, and 5ms at most between two", ran, took)
		}
	})
}

func TestAHigherQueueConcurrencyStartsJobsAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		held := holdSlots()
		for range 10 {
			b.enqueue("x")
		}
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Concurrency: 8}, held.job)
		if err := b.runner.SetQueueConcurrency("default", 2); err != nil { // before Run
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(3 * time.Second)
		for _, step := range []struct{ set, want int32 }{{2, 2}, {5, 5}, {1, 5}, {6, 6}, {midge.None, 8}} {
			if err := b.runner.SetQueueConcurrency("default", int(step.set)); err != nil {
				t.Fatal(err)
			}
			b.after(5 * time.Millisecond)
			if n := held.running.Load(); n != step.want {
				t.Errorf("with a concurrency of %d, %d jobs run, want %d", step.set, n, step.want)
			}
		}
		for _, n := range []int{0, -2, 1_000_001} {
			if err := b.runner.SetQueueConcurrency("default", n); !errors.As(err, new(*storage.InvalidError)) {
				t.Errorf("a concurrency of %d: got %v, want an InvalidError", n, err)
			}
		}
		close(held.release)
	})
}

// TestASlotIsTakenAgainAfterAChangeOfQueues has a job that ends after the queues have changed.
func TestASlotIsTakenAgainAfterAChangeOfQueues(t *testing.T) {
	bubble(t, func(b *bench) {
		held := holdSlots()
		b.run(midge.RunnerConfig{
			Queues: []string{"default", "other"}, QueueConcurrency: map[string]int{"default": 1},
			Logger: zap.NewNop(),
		}, held.job)
		b.enqueue("first")
		b.enqueue("second")
		for _, queues := range [][]string{{"other", "default"}, {"other"}, {"default", "more"}} {
			if err := b.runner.SetQueues(queues, nil); err != nil {
				t.Fatal(err)
			}
			b.after(1300 * time.Millisecond)
		}
		for range 2 {
			held.release <- struct{}{}
			b.after(5 * time.Millisecond)
			if n, s := held.running.Load(), b.stats("default"); int64(n) != s.Live() {
				t.Errorf("5ms after a job has ended %d run, of %d tasks", n, s.Live())
			}
		}
	})
}

// twoRunners starts two runners on one storage, of which each has one slot for the queue default, or a gate.
func (b *bench) twoRunners(held *slotsHeld, gates ...func() bool) (stop func()) {
	b.Helper()
	done := make(chan error, 2)
	for i := range 2 {
		cfg := midge.RunnerConfig{
			Queues: []string{"default"}, Concurrency: 10, QueueConcurrency: map[string]int{"default": 1},
			Logger: zap.NewNop(),
		}
		if gates != nil {
			cfg.QueueConcurrency, cfg.Gates = nil, map[string]func() bool{"default": gates[i]}
		}
		r := b.newRunner(b.store, cfg, held.job)
		go func() { done <- r.Run(b.ctx) }()
	}
	b.after(3 * time.Second)
	return func() {
		b.stop()
		if err := errors.Join(<-done, <-done); err != nil {
			b.Error(err)
		}
	}
}

// TestAFullRunnerTakesNoWakeUpFromAnother has runners of which the storage wakes only one for a new task.
func TestAFullRunnerTakesNoWakeUpFromAnother(t *testing.T) {
	bubble(t, func(b *bench) {
		held := holdSlots()
		defer b.twoRunners(held)()
		for i := range 10 {
			for n := range 2 {
				b.enqueue("x")
				b.after(5 * time.Millisecond)
				if got := held.running.Load(); got != int32(n)+1 {
					t.Errorf("5ms after the insert %d jobs run, want %d", got, n+1)
				}
				b.after(time.Duration(i) * 90 * time.Millisecond) // any place in the turns of their scans
			}
			b.after(time.Second)
			held.release <- struct{}{}
			held.release <- struct{}{}
			b.after(450 * time.Millisecond)
		}
	})
}

func TestAClosedRunnerTakesNoWakeUpFromAnother(t *testing.T) {
	bubble(t, func(b *bench) {
		var open [2]atomic.Bool
		held := holdSlots()
		open[0].Store(true)
		open[1].Store(true)
		defer b.twoRunners(held, open[0].Load, open[1].Load)()
		for i := range 10 {
			open[i%2].Store(false)
			b.after(2 * time.Second)
			b.enqueue("x")
			b.after(5 * time.Millisecond)
			if got := held.running.Load(); got != 1 {
				t.Errorf("5ms after the insert %d jobs run, want one", got)
			}
			open[i%2].Store(true)
			b.after(2 * time.Second)
			held.release <- struct{}{}
		}
	})
}

func TestAClosedGateReturnsTheTasksAhead(t *testing.T) {
	bubble(t, func(b *bench) {
		var open, slow atomic.Bool
		open.Store(true)
		b.run(midge.RunnerConfig{
			Concurrency: 1, Logger: zap.NewNop(), Gates: map[string]func() bool{"default": open.Load},
		}, func(context.Context, work) error {
			if slow.Load() {
				time.Sleep(5 * time.Second) // virtual
			}
			return nil
		})
		for range 500 {
			b.enqueue("short")
		}
		b.after(time.Second)
		slow.Store(true)
		if _, err := b.client.EnqueueMany(b.ctx, slices.Repeat([]midge.Item{midge.New(work{})}, 20)); err != nil {
			t.Fatal(err)
		}
		open.Store(false)
		b.after(10 * time.Millisecond)
		if n := b.stats("default").Pending; n < 5 {
			t.Fatalf("%d tasks are pending, want one that runs and several ahead", n)
		}
		b.after(2 * time.Second)
		if s := b.stats("default"); s.Pending != 1 || s.Waiting != 19 {
			t.Errorf("got %+v behind the closed gate, want one task that runs and 19 waiting", s)
		}
	})
}

// TestAGateThatNeverAnswersDoesNotHoldUpADrain has gates that end their goroutine, or do not return.
func TestAGateThatNeverAnswersDoesNotHoldUpADrain(t *testing.T) {
	release := make(map[string]func())
	never := func() (func() bool, func()) {
		c := make(chan struct{})
		return func() bool { <-c; return true }, func() { close(c) }
	}
	gates := map[string]func() (func() bool, func()){
		"never": never,
		"exits": func() (func() bool, func()) {
			return func() bool { runtime.Goexit(); return true }, func() {}
		},
	}
	for name, gate := range gates {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var started atomic.Int32
				ask, end := gate()
				release[name] = end
				b.enqueue("behind the gate")
				b.enqueue("beside it", midge.To("other"))
				b.run(midge.RunnerConfig{
					Queues: []string{"default", "other"}, Logger: zap.NewNop(),
					Gates: map[string]func() bool{"default": ask, "other": func() bool { return true }},
				}, func(context.Context, work) error { started.Add(1); return nil })
				b.after(time.Minute)
				if n := started.Load(); n != 1 {
					t.Errorf("%d jobs started, want the one beside the gate", n)
				}
				begun := time.Now()
				if err := b.drain(); err != nil || time.Since(begun) > time.Second {
					t.Errorf("run returned %v after %s", err, time.Since(begun))
				}
				release[name]()
			})
		})
	}
}

func TestWhyTellsFullFromClosedQueues(t *testing.T) {
	bubble(t, func(b *bench) {
		var open atomic.Bool
		held := holdSlots()
		b.run(midge.RunnerConfig{
			Queues: []string{"full", "gated"}, Concurrency: 5, Logger: zap.NewNop(),
			QueueConcurrency: map[string]int{"full": 2, "gated": 9},
			Gates:            map[string]func() bool{"gated": open.Load},
		}, held.job)
		var task [3]midge.Task
		for i := range task {
			task[i] = b.enqueue("x", midge.To("full"))
		}
		gated := b.enqueue("x", midge.To("gated"))
		b.after(11 * time.Second) // one heartbeat
		b.verdict(task[2].Ref, storage.CauseBusy, 2, true)
		b.verdict(gated.Ref, storage.CauseGated, 0, true)
		b.rooms("full 2 0", "gated 0 0", "other 5 3")
		stop := b.crewOf(b.store, midge.RunnerConfig{ // the second runner cannot take it either
			Queues: []string{"gated"}, Concurrency: 1, Logger: zap.NewNop(), Gates: map[string]func() bool{"gated": open.Load},
		}, "work", &pickUps{started: make(map[string]time.Time)})
		b.verdict(gated.Ref, storage.CauseGated, 0, true)
		if err := stop(); err != nil {
			t.Error(err)
		}
		open.Store(true)
		b.after(3 * time.Second) // the gate's next call, and no heartbeat that is due anyway
		b.verdict(gated.Ref, storage.CauseRunning, 0, false)
		b.after(10 * time.Second) // a heartbeat with the job in it
		b.rooms("full 2 0", "gated 5 2")
		open.Store(false)
		b.after(3 * time.Second)
		b.rooms("full 2 0", "gated 0 0")
		close(held.release)
	})
}

// verdict checks the cause for a task, and the slots that Why counts, of which none is free.
func (b *bench) verdict(ref midge.Ref, cause storage.Cause, slots int, bounded bool) {
	b.Helper()
	v, err := b.client.Why(b.Context(), ref)
	if err != nil {
		b.Fatal(err)
	}
	if v.Cause != cause || bounded && (v.Slots != slots || v.Free != 0) || v.Bounded != bounded {
		b.Errorf("task %s: got %s with %d slots, %d free, bounded %t (%s); want %s, %d, 0, %t",
			ref, v.Cause, v.Slots, v.Free, v.Bounded, v, cause, slots, bounded)
	}
}

// rooms checks the slots of the first runner, as texts of a queue, its slots and the free ones.
func (b *bench) rooms(want ...string) {
	b.Helper()
	runners, err := b.client.Runners(b.Context())
	if err != nil || len(runners) != 1 {
		b.Fatalf("got %d runners and %v, want one", len(runners), err)
	}
	for _, w := range want {
		var queue string
		if _, err := fmt.Sscan(w, &queue); err != nil {
			b.Fatal(err)
		}
		slots, free := runners[0].Room(queue)
		if got := fmt.Sprint(queue, " ", slots, " ", free); got != w {
			b.Errorf("room: got %q, want %q (%v)", got, w, runners[0].Slots)
		}
	}
	synctest.Wait()
}
