package midge_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// sweeps is a storage that records the claims that only maintain queues.
type sweeps struct {
	storage.Storage

	mu     sync.Mutex // guards the fields below
	last   map[string]time.Time
	gap    time.Duration // the longest gap between two sweeps of a queue
	swept  int
	window time.Time // the beginning of ten seconds
	inIt   int       // number of queues that were swept in the window
	most   int       // highest such number
}

func (s *sweeps) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if req.Queues[0].Max < 0 {
		s.note(req.Queues)
	}
	return s.Storage.Claim(ctx, req)
}

func (s *sweeps) note(queues []storage.ClaimQueue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.window) >= 10*time.Second {
		s.window, s.inIt = now, 0
	}
	s.inIt += len(queues)
	s.swept += len(queues)
	s.most = max(s.most, s.inIt)
	for _, q := range queues {
		s.gap = max(s.gap, now.Sub(s.last[q.Name]))
		s.last[q.Name] = now
	}
}

// oldest returns the longest time that a queue has waited for its sweep, now or before.
func (s *sweeps) oldest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, last := range s.last {
		s.gap = max(s.gap, time.Since(last))
	}
	return s.gap
}

func (s *sweeps) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.swept
}

// silentLeave is a storage that does not learn that a runner leaves, as if the runner was killed.
type silentLeave struct{ storage.Storage }

func (s silentLeave) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if req.Runner.Leaving {
		return storage.Extended{}, nil
	}
	return s.Storage.Extend(ctx, req)
}

// TestEachQueueIsSweptByOneRunnerAtATime has ten thousand queues that nobody serves, and five
// runners, one of which is killed.
func TestEachQueueIsSweptByOneRunnerAtATime(t *testing.T) {
	bubble(t, func(b *bench) {
		const queues = 10_000
		s := &sweeps{Storage: b.store, last: make(map[string]time.Time, queues)}
		items := make([]midge.Item, queues)
		for i := range items {
			q := fmt.Sprintf("q%04d", i)
			items[i] = midge.New(work{}, midge.To(q))
			s.last[q] = time.Now()
		}
		if _, err := b.client.EnqueueMany(b.ctx, items); err != nil {
			t.Fatal(err)
		}
		stops := make([]context.CancelFunc, 5)
		var all sync.WaitGroup
		for i := range stops {
			var ctx context.Context
			ctx, stops[i] = context.WithCancel(b.ctx)
			r := b.newRunner(silentLeave{s}, midge.RunnerConfig{Queues: []string{"served"}},
				func(context.Context, work) error { return nil })
			all.Go(func() { _ = r.Run(ctx) })
			b.after(3 * time.Second)
		}
		b.after(2 * time.Minute)
		before := s.total()
		b.after(4 * time.Minute)
		if got, want := s.total()-before, 4*60*100; got > want*5/4 {
			t.Errorf("%d queues were swept in four minutes, want about %d", got, want)
		}
		stops[1]()
		b.after(6 * time.Minute)
		if got := s.oldest(); got > 5*time.Minute {
			t.Errorf("a queue waited %v for its sweep, want 5 minutes at most", got)
		}
		b.stop()
		all.Wait()
		if s.most > 2000 {
			t.Errorf("%d queues were swept in ten seconds, want 2000 at most", s.most)
		}
	})
}

func TestASweepIsHeldUpByNoSilentSlice(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &sliced{Storage: b.store, t: t}
		for i := range 20 {
			b.enqueue("x", midge.To(fmt.Sprint("a", i)))
			b.enqueue("x", midge.To(fmt.Sprint("b", i)))
		}
		task := b.enqueue("x", midge.To("c0"), midge.In(time.Minute))
		s.silence('b')
		b.store = s
		b.run(midge.RunnerConfig{Queues: []string{"served"}}, func(context.Context, work) error { return nil })
		b.after(3 * time.Minute)
		if got := b.task(task.Ref).State; got != storage.Waiting {
			t.Errorf("a task that is due in a queue which nobody serves is %s, want it waiting", got)
		}
		s.speak()
	})
}
