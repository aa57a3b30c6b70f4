package midge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// aheadSeen counts the tasks that claims bring ahead, by queue and partition.
type aheadSeen struct {
	storage.Storage
	mu   sync.Mutex
	seen map[string]int
}

func (s *aheadSeen) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	claimed, err := s.Storage.Claim(ctx, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range claimed.Tasks {
		if i >= req.Start {
			s.seen[t.Ref.Queue+"/"+t.Partition]++
		}
	}
	return claimed, err
}

func (s *aheadSeen) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[key]
}

// TestLongJobsAfterShortOnesUseAllSlotsOfALimit: runners of different concurrency have claimed ahead for
// short jobs. Once the jobs are long, all slots of the limit are in use soon, and never more.
func TestLongJobsAfterShortOnesUseAllSlotsOfALimit(t *testing.T) {
	for name, short := range map[string]time.Duration{"long from the start": 0, "after short ones": 3500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) { longAfterShort(b, short) })
		})
	}
}

// longAfterShort runs jobs that are long after a while, by runners that start a second apart.
func longAfterShort(b *bench, short time.Duration) {
	const most = 10
	ahead := &aheadSeen{Storage: b.store, seen: map[string]int{}}
	b.store = ahead
	c := newCrowd("default")
	for i := range 20_000 {
		b.enqueue(fmt.Sprint(i))
	}
	long := time.Now().Add(short)
	job := func(ctx context.Context, w work) error {
		if time.Now().Before(long) {
			return c.job(2*time.Millisecond)(ctx, w)
		}
		return c.job(10*time.Second)(ctx, w)
	}
	cfg := midge.RunnerConfig{Concurrency: 1, QueueLimits: map[string]midge.Limit{"default": {Concurrency: most}}}
	b.run(cfg, job)
	for _, n := range []int{2, 5, 30} {
		cfg.Concurrency = n
		defer b.second(cfg, job)()
	}
	b.after(max(time.Until(long), 0) + 1300*time.Millisecond)
	if now := c.now["default"].Load(); now != most {
		b.Errorf("%d jobs run, want %d", now, most)
	}
	for range 40 {
		b.after(time.Second)
		if n := b.stats("default").Pending; n > most {
			b.Errorf("%d tasks are pending, want at most %d", n, most)
		}
	}
	if n := c.most["default"].Load(); n != most {
		b.Errorf("%d jobs ran at once, want %d", n, most)
	}
	if short > 0 && ahead.count("default/") == 0 {
		b.Error("no task was claimed ahead for the short jobs")
	}
}

// TestOwnLimitOfAPartitionIsNotClaimedAhead: in a queue with a Concurrency, tasks of other partitions go
// ahead, but none of a partition with a limit of its own.
func TestOwnLimitOfAPartitionIsNotClaimedAhead(t *testing.T) {
	bubble(t, func(b *bench) {
		ahead := &aheadSeen{Storage: b.store, seen: map[string]int{}}
		b.store = ahead
		s := newTenants()
		for i := range 3000 {
			b.enqueue(fmt.Sprint(i), midge.Partition("acme"))
			b.enqueue(fmt.Sprint(i), midge.Partition("zenith"))
		}
		acme := b.client.Queue("default").Partition("acme")
		if err := acme.SetLimit(b.Context(), midge.PartitionLimit{Concurrency: 2}); err != nil {
			t.Fatal(err)
		}
		b.run(midge.RunnerConfig{
			Concurrency: 4, QueueLimits: map[string]midge.Limit{"default": {Concurrency: 20}},
		}, s.job(time.Millisecond))
		b.after(10 * time.Second)
		for _, key := range []string{"acme", "zenith"} {
			if _, ran := s.count(key); ran != 3000 {
				t.Errorf("%d jobs of %s have run, want 3000", ran, key)
			}
		}
		if n := ahead.count("default/acme"); n != 0 {
			t.Errorf("%d tasks of acme were claimed ahead", n)
		}
		if ahead.count("default/zenith") == 0 {
			t.Error("no task of zenith was claimed ahead")
		}
		if s.most["acme"] > 2 {
			t.Errorf("%d jobs of acme ran at once, want at most 2", s.most["acme"])
		}
	})
}

// TestQueuesWithAndWithoutALimitBothGoOn: of a queue with a limit and of one without, jobs start in each
// second, by weights, and in order once the first has used its limit.
func TestQueuesWithAndWithoutALimitBothGoOn(t *testing.T) {
	for name, weights := range map[string]map[string]int{"in order": nil, "by weight": {"api": 1, "other": 5}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				c := newCrowd("api", "other")
				for i := range 20_000 {
					b.enqueue(fmt.Sprint(i), midge.To("other"))
				}
				for i := range 2000 {
					b.enqueue(fmt.Sprint(i), midge.To("api"))
				}
				cfg := midge.RunnerConfig{
					Queues: []string{"api", "other"}, Weights: weights, Concurrency: 8,
					QueueLimits: map[string]midge.Limit{"api": {Concurrency: 4}},
				}
				b.run(cfg, c.job(20*time.Millisecond))
				defer b.second(cfg, c.job(20*time.Millisecond))()
				for range 5 {
					api, other := c.ran["api"].Load(), c.ran["other"].Load()
					b.after(time.Second)
					api, other = c.ran["api"].Load()-api, c.ran["other"].Load()-other
					if api < 20 || other < 100 {
						t.Errorf("%d and %d jobs started in a second, want 20 and 100 at least", api, other)
					}
				}
				if most := c.most["api"].Load(); most > 4 {
					t.Errorf("%d jobs of api ran at once, want 4 at most", most)
				}
			})
		})
	}
}

// TestLimitsInRandomSequences changes the limit, the pause and the slots of a runner at random. Once a change
// has settled, no more jobs run than the limit admits, and free slots are in use. Each task runs once.
func TestLimitsInRandomSequences(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(b *bench) { limitsAtRandom(b, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func limitsAtRandom(b *bench, random *rand.Rand) {
	const declared, tasks = 6, 4000
	c := newCrowd("default")
	var mu sync.Mutex
	ran, long := map[string]int{}, false
	job := func(ctx context.Context, w work) error {
		mu.Lock()
		ran[w.Name]++
		take := time.Millisecond
		if long {
			take = 3 * time.Second
		}
		mu.Unlock()
		return c.job(take)(ctx, w)
	}
	cfg := midge.RunnerConfig{
		Concurrency: 3, QueueLimits: map[string]midge.Limit{"default": {Concurrency: declared}},
	}
	b.run(cfg, job)
	cfg.Concurrency = 20
	defer b.second(cfg, job)()
	q, most, paused, next := b.client.Queue("default"), declared, false, 0
	change := func(n int) error {
		switch n {
		case 0, 1:
			most = 1 + random.IntN(12)
			return q.SetLimit(b.Context(), midge.Limit{Concurrency: most})
		case 2:
			most = declared
			return q.ClearLimit(b.Context())
		case 3:
			paused = true
			return q.Pause(b.Context())
		case 4:
			paused = false
			return q.Resume(b.Context())
		default:
			return b.runner.SetConcurrency(1 + random.IntN(8))
		}
	}
	idle := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return long && !paused && next > len(ran) && int(c.now["default"].Load()) < most
	}
	for next < tasks {
		mu.Lock()
		long = random.IntN(2) == 0
		mu.Unlock()
		for range 1 + random.IntN(400) {
			b.enqueue(fmt.Sprint(next))
			next++
		}
		if err := change(random.IntN(6)); err != nil {
			b.Fatal(err)
		}
		b.after(4500 * time.Millisecond) // jobs that a lower limit left have ended, and other runners found the slots
		now := int(c.now["default"].Load())
		pending := int(b.stats("default").Pending)
		if now > most || pending > most {
			b.Errorf("%d jobs run and %d tasks are pending, want at most %d", now, pending, most)
		}
		// Another runner finds a free slot within about a second, even the slot of a task that went back.
		for range 13 {
			if idle() {
				b.after(100 * time.Millisecond)
			}
		}
		if idle() {
			b.Errorf("%d of %d jobs run for 1.3s while tasks wait", c.now["default"].Load(), most)
		}
	}
	if err := q.Resume(b.Context()); err != nil {
		b.Fatal(err)
	}
	mu.Lock()
	long = false
	mu.Unlock()
	b.after(2 * time.Minute)
	mu.Lock()
	defer mu.Unlock()
	b.eachOnce(ran, next)
}

// eachOnce fails the test unless each of so many tasks has run once, and none is pending.
func (b *bench) eachOnce(ran map[string]int, tasks int) {
	b.Helper()
	for name, n := range ran {
		if n != 1 {
			b.Errorf("task %s ran %d times", name, n)
		}
	}
	if len(ran) != tasks || b.stats("default").Pending != 0 {
		b.Errorf("%d of %d tasks have run", len(ran), tasks)
	}
}
