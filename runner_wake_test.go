package midge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// claims is a storage that counts its claims.
type claims struct {
	storage.Storage

	n atomic.Int64
}

func (c *claims) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	c.n.Add(1)
	return c.Storage.Claim(ctx, req)
}

// fleet is many runners on the storage of a bench.
type fleet struct {
	*bench

	claims *claims
	all    sync.WaitGroup
}

// fleetOf starts n idle runners, whose work job is fn.
func fleetOf(b *bench, n int, cfg midge.RunnerConfig, fn func(context.Context, work) error) *fleet {
	b.Helper()
	f := &fleet{bench: b, claims: &claims{Storage: b.store}}
	for range n {
		f.start(b.ctx, cfg, fn)
	}
	b.after(10 * time.Second)
	return f
}

// start starts a runner that runs until ctx ends.
func (f *fleet) start(ctx context.Context, cfg midge.RunnerConfig, fn func(context.Context, work) error) {
	f.Helper()
	r := f.newRunner(f.claims, cfg, fn)
	f.all.Go(func() { _ = r.Run(ctx) })
}

// end stops all runners.
func (f *fleet) end() {
	f.stop()
	f.all.Wait()
}

// claimed returns how many claims action causes, without any that time causes.
func (f *fleet) claimed(action func()) int64 {
	before := f.claims.n.Load()
	action()
	synctest.Wait()
	return f.claims.n.Load() - before
}

// TestOneTaskWakesOneRunner of many idle ones.
func TestOneTaskWakesOneRunner(t *testing.T) {
	bubble(t, func(b *bench) {
		var started atomic.Int64
		f := fleetOf(b, 50, midge.RunnerConfig{}, func(context.Context, work) error {
			started.Add(1)
			return nil
		})
		for i := range 20 {
			if n := f.claimed(func() { b.enqueue(fmt.Sprint(i)) }); n > 2 || started.Load() != int64(i+1) {
				t.Errorf("task %d: %d claims, %d tasks started; want 1 or 2 claims, and a start", i, n, started.Load())
			}
			b.after(7 * time.Millisecond)
		}
		f.end()
	})
}

// TestATaskWakesARunnerWithAFreeSlot, and none of the busy ones.
func TestATaskWakesARunnerWithAFreeSlot(t *testing.T) {
	bubble(t, func(b *bench) {
		var running atomic.Int64
		release := make(chan struct{})
		f := fleetOf(b, 20, midge.RunnerConfig{Concurrency: 1}, func(context.Context, work) error {
			running.Add(1)
			<-release
			return nil
		})
		for i := range 20 {
			if n := f.claimed(func() { b.enqueue(fmt.Sprint(i)) }); n > 2 || running.Load() != int64(i+1) {
				t.Errorf("task %d: %d claims, %d tasks run; want 1 or 2 claims, and a start", i, n, running.Load())
			}
			b.after(100 * time.Millisecond)
		}
		if n := f.claimed(func() { b.enqueue("beyond") }); n > 0 {
			t.Errorf("without a free slot a task causes %d claims, want none", n)
		}
		release <- struct{}{}
		if synctest.Wait(); running.Load() != 21 {
			t.Error("a slot became free, and the task that waits did not start")
		}
		close(release)
		f.end()
	})
}

// TestManyTasksWakeManyRunners within a moment.
func TestManyTasksWakeManyRunners(t *testing.T) {
	bubble(t, func(b *bench) {
		var running atomic.Int64
		f := fleetOf(b, 50, midge.RunnerConfig{Concurrency: 1}, func(ctx context.Context, _ work) error {
			running.Add(1)
			<-ctx.Done()
			return nil
		})
		items := make([]midge.Item, 50)
		for i := range items {
			items[i] = midge.New(work{fmt.Sprint(i)})
		}
		n := f.claimed(func() {
			if _, err := b.client.EnqueueMany(b.Context(), items); err != nil {
				t.Fatal(err)
			}
		})
		if b.after(time.Millisecond); running.Load() != 50 || n > 200 {
			t.Errorf("%d of 50 tasks run, after %d claims", running.Load(), n)
		}
		f.end()
	})
}

// rest is a job that only some runners of a test know.
type rest struct{ Name string }

// TestATaskIsPassedToARunnerThatKnowsItsKind at once.
func TestATaskIsPassedToARunnerThatKnowsItsKind(t *testing.T) {
	bubble(t, func(b *bench) {
		f := fleetOf(b, 10, midge.RunnerConfig{}, func(context.Context, work) error { return nil })
		var started atomic.Int64
		knowing := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := midge.Handle(knowing, func(context.Context, rest) error {
			started.Add(1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		f.all.Go(func() { _ = knowing.Run(b.ctx) })
		b.after(10 * time.Second)
		for i := range 20 {
			if _, err := b.client.Enqueue(b.Context(), rest{fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
			if b.after(time.Millisecond); started.Load() != int64(i+1) {
				t.Errorf("task %d: %d started", i, started.Load())
			}
		}
		f.end()
	})
}

// TestNoTaskWaitsWhileARunnerIsIdle, however runners come and go. One runner stays, and has slots for all.
func TestNoTaskWaitsWhileARunnerIsIdle(t *testing.T) {
	for range 5 {
		bubble(t, func(b *bench) {
			var longest atomic.Int64
			enqueued := time.Now()
			job := func(_ context.Context, w work) error {
				at, err := time.ParseDuration(w.Name)
				longest.Store(max(longest.Load(), int64(time.Since(enqueued.Add(at)))))
				time.Sleep(rand.N(50 * time.Millisecond))
				return err
			}
			f := fleetOf(b, 1, midge.RunnerConfig{Concurrency: 1000}, job)
			for range 20 {
				f.all.Go(func() {
					for b.ctx.Err() == nil {
						ctx, leave := context.WithTimeout(b.ctx, rand.N(300*time.Millisecond))
						r := b.newRunner(f.claims, midge.RunnerConfig{Concurrency: 1 + rand.N(3)}, job)
						_ = r.Run(ctx)
						leave()
					}
				})
			}
			for range 2000 {
				b.enqueue(time.Since(enqueued).String())
				time.Sleep(rand.N(5 * time.Millisecond))
			}
			b.after(time.Second)
			if most := time.Duration(longest.Load()); most > 200*time.Millisecond {
				t.Errorf("a task waited for %v", most)
			}
			f.end()
		})
	}
}
