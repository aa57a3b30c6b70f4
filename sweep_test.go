package midge_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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

// roster is a storage that counts the reads of the runners.
type roster struct {
	storage.Storage
	records, ids atomic.Int64
}

func (s *roster) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	runners, err := s.Storage.Runners(ctx)
	s.records.Add(int64(len(runners)))
	return runners, err
}

func (s *roster) RunnerIDs(ctx context.Context) ([]string, error) {
	ids, err := storage.RunnerIDs(ctx, s.Storage)
	s.ids.Add(int64(len(ids)))
	return ids, err
}

// TestAnIdleRunnerReadsNoRecordsOfOthers has a hundred records of runners. A runner reads none of them. It reads
// the ids once in 30 s at most, and only if there is a queue to share.
func TestAnIdleRunnerReadsNoRecordsOfOthers(t *testing.T) {
	const runners, turns = 100, 20
	for _, others := range []bool{false, true} {
		bubble(t, func(b *bench) {
			session := storage.NewSession(b.store, 0)
			for i := range runners - 1 {
				info := storage.RunnerInfo{ID: fmt.Sprint("r", i), For: time.Hour}
				if _, err := session.Extend(b.ctx, storage.ExtendRequest{Runner: info}); err != nil {
					t.Fatal(err)
				}
			}
			b.enqueue("x", midge.To("served"))
			if others {
				b.enqueue("x", midge.To("other"))
			}
			s := &roster{Storage: b.store}
			b.store = s
			b.run(midge.RunnerConfig{Queues: []string{"served"}}, func(context.Context, work) error { return nil })
			b.after(turns * 30 * time.Second)
			records, ids := s.records.Load(), s.ids.Load()
			if records != 0 {
				t.Errorf("with other queues %t: the runner read %d records", others, records)
			}
			if most := int64(runners * turns * 5 / 4); ids > most || others != (ids > 0) {
				t.Errorf("with other queues %t: the runner read %d ids, want %d at most", others, ids, most)
			}
		})
	}
}
