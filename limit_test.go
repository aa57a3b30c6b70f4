package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// started records when jobs start.
type started struct {
	mu sync.Mutex
	at []time.Time
}

func (s *started) job(take time.Duration) func(context.Context, work) error {
	return func(ctx context.Context, _ work) error {
		s.mu.Lock()
		s.at = append(s.at, time.Now())
		s.mu.Unlock()
		select {
		case <-time.After(take):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// second starts a second runner on the storage of b, until the test ends.
func (b *bench) second(cfg midge.RunnerConfig, fn func(context.Context, work) error) (stop func()) {
	b.Helper()
	r := b.newRunner(b.store, cfg, fn)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	b.after(time.Second)
	return func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// TestALimitHoldsOverTwoRunners: a limit of three at once holds for two runners of ten slots each, every slot is
// in use while tasks wait, and another queue is served meanwhile.
func TestALimitHoldsOverTwoRunners(t *testing.T) {
	for name, take := range map[string]time.Duration{"slow": time.Minute, "short": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				c := newCrowd("api", "other")
				cfg := midge.RunnerConfig{
					Queues: []string{"api", "other"}, Concurrency: 10,
					QueueLimits: map[string]midge.Limit{"api": {Concurrency: 3}},
				}
				for i := range 99 {
					b.enqueue(fmt.Sprint(i), midge.To("api"))
				}
				begin := time.Now()
				b.run(cfg, c.job(take))
				defer b.second(cfg, c.job(take))()
				b.enqueue("a", midge.To("other"))
				b.after(2 * time.Second)
				if c.ran["other"].Load() != 1 {
					t.Error("the job of the other queue did not start")
				}
				for c.ran["api"].Load() < 99 || c.now["api"].Load() > 0 {
					b.after(10 * time.Millisecond)
				}
				if most := c.most["api"].Load(); most != 3 {
					t.Errorf("%d jobs ran at once, want 3", most)
				}
				// A slot that the other runner frees is found by the scan of each second.
				if took, want := time.Since(begin), 33*take+3*time.Second; took > want {
					t.Errorf("99 jobs of %v took %v, want at most %v", take, took, want)
				}
			})
		})
	}
}

// TestARateHoldsOverTwoRunners: of a backlog ten jobs start in any minute, and at least nine in each.
func TestARateHoldsOverTwoRunners(t *testing.T) {
	bubble(t, func(b *bench) {
		var s started
		cfg := midge.RunnerConfig{
			Concurrency: 20, QueueLimits: map[string]midge.Limit{"default": {Rate: midge.Rate{N: 10, Per: time.Minute}}},
		}
		for i := range 100 {
			b.enqueue(fmt.Sprint(i))
		}
		b.run(cfg, s.job(time.Millisecond))
		defer b.second(cfg, s.job(time.Millisecond))()
		b.after(5*time.Minute + 10*time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := 10; i < len(s.at); i++ {
			if apart := s.at[i].Sub(s.at[i-10]); apart < time.Minute-time.Microsecond { // the storage's clock has whole microseconds
				t.Fatalf("eleven jobs started within %v", apart)
			}
		}
		if len(s.at) < 50 || len(s.at) > 60 {
			t.Errorf("%d jobs started in 5 minutes, want 50 to 60", len(s.at))
		}
	})
}

// TestAQueueAtItsLimitIsNotClaimed: 10,000 inserts a second into a queue at its limit cause at most five claims
// a second, and the slot that a job frees is used at once.
func TestAQueueAtItsLimitIsNotClaimed(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &claimsCounted{Storage: b.store}
		b.store = s
		c := newCrowd("default")
		b.run(midge.RunnerConfig{Concurrency: 4, QueueLimits: map[string]midge.Limit{"default": {Concurrency: 2}}},
			c.job(time.Minute))
		b.enqueue("a")
		b.enqueue("b")
		b.after(10 * time.Second)
		s.claims.Store(0)
		const seconds = 3
		for range seconds * 1000 {
			for range 10 {
				b.enqueue("")
			}
			b.after(time.Millisecond)
		}
		if n := s.claims.Load(); n > 5*seconds {
			t.Errorf("%d claims in %d seconds, want at most 5 a second", n, seconds)
		}
		b.after(47*time.Second + time.Millisecond) // the first two jobs have just ended
		if ran := c.ran["default"].Load(); ran != 4 {
			t.Errorf("%d jobs have started once two slots were free, want 4", ran)
		}
	})
}

// TestALimitChangesWhileRunning sets, lifts and clears the limit of a queue whose runners declare one.
func TestALimitChangesWhileRunning(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCrowd("default")
		b.run(midge.RunnerConfig{Concurrency: 20, QueueLimits: map[string]midge.Limit{"default": {Concurrency: 5}}},
			c.job(time.Minute))
		for i := range 400 {
			b.enqueue(fmt.Sprint(i))
		}
		q := b.client.Queue("default")
		must := func(err error) {
			b.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		running := func(want int64) {
			b.Helper()
			b.after(time.Second / 10)
			if got := c.now["default"].Load(); got != want {
				t.Errorf("%d jobs run, want %d", got, want)
			}
		}
		running(5)
		must(q.SetLimit(b.Context(), midge.Limit{Concurrency: 8}))
		running(8)
		must(q.SetLimit(b.Context(), midge.Limit{}))
		running(20)
		must(q.SetLimit(b.Context(), midge.Limit{Concurrency: 2})) // running jobs go on
		running(20)
		b.after(time.Minute)
		running(2)
		must(q.ClearLimit(b.Context()))
		running(5)
		must(b.drain())
		b.runner = nil
		b.after(time.Minute)
		must(q.ClearLimit(b.Context())) // no live runner declares it any more
		if l := b.stats("default").Limit; l != nil {
			t.Errorf("the limit %v is left", l.InForce())
		}
	})
}

// TestAnEarlierLimitReturnsOnlyAlone: the limit of a later version of a program replaces the stored one. A runner
// of the earlier version restores its own only if no live runner declares the later one.
func TestAnEarlierLimitReturnsOnlyAlone(t *testing.T) {
	bubble(t, func(b *bench) {
		program := func(n int) midge.RunnerConfig {
			return midge.RunnerConfig{QueueLimits: map[string]midge.Limit{"default": {Concurrency: n}}}
		}
		in := func(want int) {
			b.Helper()
			b.after(time.Minute)
			l := b.stats("default").Limit
			if got := l.InForce().Concurrency; got != want {
				t.Errorf("a limit of %d is in force, want %d: %+v", got, want, l.Declared)
			}
		}
		done := func(context.Context, work) error { return nil }
		stopOld := b.second(program(10), done)
		in(10)
		stopNew := b.second(program(20), done)
		in(20) // although the old one still runs
		stopOld()
		stopOld = b.second(program(10), done)
		in(20)
		stopNew()
		in(10)
		stopOld()
		in(10) // nobody declares it any more
	})
}

// TestWhyNamesTheLimit asks why tasks wait for the limit of their queue.
func TestWhyNamesTheLimit(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCrowd("default", "slow")
		b.run(midge.RunnerConfig{
			Queues: []string{"default", "slow"}, Concurrency: 20,
			QueueLimits: map[string]midge.Limit{
				"default": {Concurrency: 3}, "slow": {Rate: midge.Rate{N: 2, Per: time.Minute}},
			},
		}, c.job(time.Hour))
		var last, slow midge.Task
		for i := range 4 {
			last = b.enqueue(fmt.Sprint(i))
			slow = b.enqueue(fmt.Sprint(i), midge.To("slow"))
		}
		b.after(20 * time.Second)
		for _, w := range []struct {
			ref   midge.Ref
			cause storage.Cause
			text  string
		}{
			{last.Ref, storage.CauseLimit, "limit of default: 3 of 3 run; it is number 1 of 1 in line"},
			{slow.Ref, storage.CauseRate, "rate of slow, 2 in 1m: next start in 4"},
		} {
			v, err := storage.Why(b.Context(), b.store, w.ref)
			if err != nil {
				t.Fatal(err)
			}
			if v.Cause != w.cause || !strings.HasPrefix(v.String(), w.text) {
				t.Errorf("%s: %s, want %s: %s", v.Cause, v, w.cause, w.text)
			}
		}
	})
}

func TestQueueLimitsAreChecked(t *testing.T) {
	bubble(t, func(b *bench) {
		for want, l := range map[string]midge.Limit{
			"a Concurrency, a Rate or a Partition": {},
			`["api"].Concurrency -1`:               {Concurrency: -1},
			"10001":                                {Concurrency: 10_001},
			`["api"].Rate.N 0`:                     {Rate: midge.Rate{Per: time.Second}},
			`["api"].Rate.Per 0s`:                  {Rate: midge.Rate{N: 1}},
			"1ms to":                               {Rate: midge.Rate{N: 1, Per: time.Microsecond}},
			"744h0m1s":                             {Rate: midge.Rate{N: 1, Per: storage.MaxPer + time.Second}},
			`["api"].Partition.Concurrency -1`: {
				Concurrency: 1, Partition: midge.PartitionLimit{Concurrency: -1},
			},
			`["api"].Partition.Rate.N 0`: {Partition: midge.PartitionLimit{Rate: midge.Rate{Per: time.Second}}},
			`["api"].Partition.Rate.Per 0s`: {
				Partition: midge.PartitionLimit{Rate: midge.Rate{N: 1, Per: 999 * time.Nanosecond}},
			},
		} {
			_, err := midge.NewRunner(b.store, midge.RunnerConfig{QueueLimits: map[string]midge.Limit{"api": l}})
			var invalid *midge.InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an *InvalidError with %q", err, want)
			}
		}
		q := b.client.Queue("api")
		if err := q.SetLimit(b.Context(), midge.Limit{Concurrency: 1}); !errors.Is(err, midge.ErrNotFound) {
			t.Errorf("got %v, want an ErrNotFound", err)
		}
		if err := q.SetLimit(b.Context(), midge.Limit{Concurrency: -1}); !errors.As(err, new(*midge.InvalidError)) {
			t.Errorf("got %v, want an *InvalidError", err)
		}
	})
}

// TestABacklogDoesNotStarveAQueueWithALimit: jobs of a queue with a limit, which stands first or has a weight,
// start within a second although the backlog of another queue keeps all slots in use and tasks ahead.
func TestABacklogDoesNotStarveAQueueWithALimit(t *testing.T) {
	for name, weights := range map[string]map[string]int{"in order": nil, "by weight": {"api": 1, "other": 10}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				c := newCrowd("api", "other")
				for i := range 20_000 {
					b.enqueue(fmt.Sprint(i), midge.To("other"))
				}
				b.run(midge.RunnerConfig{
					Queues: []string{"api", "other"}, Weights: weights, Concurrency: 4,
					QueueLimits: map[string]midge.Limit{"api": {Concurrency: 3}},
				}, c.job(time.Millisecond))
				b.after(100 * time.Millisecond)
				for i := range 2 {
					b.enqueue(fmt.Sprint(i), midge.To("api"))
				}
				b.after(time.Second)
				if ran, others := c.ran["api"].Load(), c.ran["other"].Load(); ran != 2 {
					t.Errorf("%d jobs have started after a second, and %d of the other queue, want 2", ran, others)
				}
			})
		})
	}
}

// undeclarable refuses to change a queue while refuses is set.
type undeclarable struct {
	storage.Storage
	queue   string
	refuses atomic.Bool
}

func (s *undeclarable) Configure(ctx context.Context, call storage.Call, queue string, with storage.Settings) error {
	if queue == s.queue && s.refuses.Load() {
		return errors.New("this queue cannot be changed")
	}
	return s.Storage.Configure(ctx, call, queue, with)
}

// TestALimitThatCannotBeStoredHoldsItsQueueAlone: a runner that cannot store the limit of a queue starts no job
// there until it can, and serves its other queues.
func TestALimitThatCannotBeStoredHoldsItsQueueAlone(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &undeclarable{Storage: b.store, queue: "api"}
		s.refuses.Store(true)
		b.store = s
		c := newCrowd("api", "other")
		for _, queue := range []string{"api", "api", "other"} {
			b.enqueue("", midge.To(queue))
		}
		b.run(midge.RunnerConfig{
			Queues: []string{"api", "other"}, QueueLimits: map[string]midge.Limit{"api": {Concurrency: 1}},
		}, c.job(time.Minute))
		b.after(10 * time.Second)
		if api, other := c.ran["api"].Load(), c.ran["other"].Load(); api != 0 || other != 1 {
			t.Errorf("%d and %d jobs have started, want none of api and the one of other", api, other)
		}
		s.refuses.Store(false)
		b.after(3 * time.Second)
		if api := c.ran["api"].Load(); api != 1 {
			t.Errorf("%d jobs of api have started once the limit could be stored, want 1", api)
		}
	})
}

// apart is a storage in which no two queues share an atomic step, as on a Redis Cluster.
type apart struct{ storage.Storage }

func (apart) Spans(queues ...string) bool { return len(slices.Compact(queues)) < 2 }

// TestTheLimitOfAQueueThatIsNotServedIsDeclared also if no served queue shares its part of the storage.
func TestTheLimitOfAQueueThatIsNotServedIsDeclared(t *testing.T) {
	bubble(t, func(b *bench) {
		b.store = apart{b.store}
		c := newCrowd("api", "other")
		b.enqueue("", midge.To("other"))
		b.run(midge.RunnerConfig{
			Queues: []string{"other"}, QueueLimits: map[string]midge.Limit{"api": {Concurrency: 1}},
		}, c.job(time.Millisecond))
		b.after(time.Minute)
		stats, err := b.store.Stats(b.Context(), "api")
		if err != nil {
			t.Fatal(err)
		}
		if l := stats[0].Limit.InForce(); l.Concurrency != 1 || c.ran["other"].Load() != 1 {
			t.Errorf("the limit is %v and %d jobs ran, want 1 at once and 1", l, c.ran["other"].Load())
		}
	})
}
