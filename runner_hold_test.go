package midge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestALongJobKeepsItsLease(t *testing.T) {
	bubble(t, func(b *bench) {
		runs := 0
		b.run(midge.RunnerConfig{}, func(context.Context, work) error {
			runs++
			time.Sleep(30 * time.Minute)
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
		b.after(40 * time.Minute)
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

// faulty is a storage whose calls fail while down is set. With after they are carried out and only
// their reply is lost.
type faulty struct {
	storage.Storage
	down, after atomic.Bool
	extends     atomic.Bool // Extend fails
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
				for range 100 { // the storage fails or recovers every few milliseconds
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

// Tasks that wait ahead start with the change, even while a claim is not answered.
func TestMoreConcurrencyStartsWhatWaitsAheadAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		hole := &blackhole{Storage: b.store}
		b.store = hole
		var started atomic.Int32
		cfg := midge.RunnerConfig{Concurrency: 1, Grace: midge.None}
		b.run(cfg, func(ctx context.Context, w work) error {
			if w.Name != "short" {
				if started.Add(1) == 1 {
					hole.open()
				}
				<-ctx.Done()
			}
			return ctx.Err()
		})
		for i := range 450 { // short jobs, so that tasks are claimed ahead when a slow one begins
			b.enqueue([]string{"short", "slow"}[i/400])
		}
		b.after(10 * time.Millisecond)
		if n := started.Load(); n != 1 {
			t.Fatalf("%d slow jobs run, want one and the others ahead", n)
		}
		b.enqueue("more") // makes the claimer send a claim
		b.after(time.Millisecond)
		if err := b.runner.SetConcurrency(4); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := started.Load(); n != 4 {
			t.Errorf("%d slow jobs run, want 4 as soon as they may", n)
		}
		hole.close()
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
