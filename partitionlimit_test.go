package midge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// tenants counts from outside which jobs of each partition run.
type tenants struct {
	mu     sync.Mutex
	now    map[string]int
	most   map[string]int
	ran    map[string]int
	starts map[string][]time.Time
	ended  map[string]time.Time
	slack  time.Duration // the longest time from the end of a job to the next start in its partition
}

func newTenants() *tenants {
	return &tenants{
		now: map[string]int{}, most: map[string]int{}, ran: map[string]int{}, starts: map[string][]time.Time{},
		ended: map[string]time.Time{},
	}
}

func (s *tenants) job(take time.Duration) func(context.Context, work) error {
	return func(ctx context.Context, _ work) error {
		info, _ := midge.Current(ctx)
		key := info.Partition
		s.mu.Lock()
		s.now[key]++
		s.most[key] = max(s.most[key], s.now[key])
		s.starts[key] = append(s.starts[key], time.Now())
		if at, ok := s.ended[key]; ok {
			s.slack = max(s.slack, time.Since(at))
		}
		s.mu.Unlock()
		select {
		case <-time.After(take):
		case <-ctx.Done():
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now[key]--
		s.ran[key]++
		s.ended[key] = time.Now()
		return ctx.Err()
	}
}

// count returns how many jobs of a partition run, and how many have run.
func (s *tenants) count(key string) (now, ran int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now[key], s.ran[key]
}

// oneEach is a runner of a limit of one job of each partition at once.
func oneEach() midge.RunnerConfig {
	return midge.RunnerConfig{Concurrency: 10, QueueLimits: map[string]midge.Limit{
		"default": {Partition: midge.PartitionLimit{Concurrency: 1}},
	}}
}

// TestALimitOfPartitionsHoldsOverTwoRunners: never two jobs of a tenant run at once, all slots of both runners are
// in use while enough tenants wait, and the tasks without a tenant are not bounded.
func TestALimitOfPartitionsHoldsOverTwoRunners(t *testing.T) {
	bubble(t, func(b *bench) {
		s := newTenants()
		const many, each, take = 50, 6, 100 * time.Millisecond
		for i := range many * each {
			b.enqueue(fmt.Sprint(i), midge.Partition(fmt.Sprint("tenant ", i%many)))
		}
		begin := time.Now()
		b.run(oneEach(), s.job(take))
		defer b.second(oneEach(), s.job(take))()
		for i := range 20 {
			b.enqueue(fmt.Sprint("free ", i))
		}
		left := func() bool {
			for i := range many {
				if _, ran := s.count(fmt.Sprint("tenant ", i)); ran < each {
					return true
				}
			}
			_, ran := s.count("")
			return ran < 20
		}
		for left() && time.Since(begin) < time.Minute {
			b.after(10 * time.Millisecond)
		}
		if took, want := time.Since(begin), (many*each+20)/20*take+time.Second; took > want {
			t.Errorf("the jobs took %v, want at most %v", took, want)
		}
		for key, n := range s.most {
			if key != "" && n != 1 {
				t.Errorf("%d jobs of %s ran at once", n, key)
			}
		}
		if s.most[""] < 5 {
			t.Errorf("%d jobs without a tenant ran at once, want several", s.most[""])
		}
	})
}

// TestTheSlotOfAPartitionIsUsedAtOnce: the runner that ends the job of a tenant starts the next one, whether the
// tasks came before or after that job began, and whichever runner was woken for them.
func TestTheSlotOfAPartitionIsUsedAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		s := newTenants()
		b.run(oneEach(), s.job(50*time.Millisecond))
		defer b.second(oneEach(), s.job(50*time.Millisecond))()
		for round := range 20 {
			for i := range 5 {
				b.enqueue(fmt.Sprint(round, i), midge.Partition(fmt.Sprint("tenant ", round)))
				b.after(7 * time.Millisecond)
			}
		}
		b.after(5 * time.Second)
		for round := range 20 {
			if _, ran := s.count(fmt.Sprint("tenant ", round)); ran != 5 {
				t.Errorf("%d jobs of tenant %d have run, want 5", ran, round)
			}
		}
		if s.slack > 5*time.Millisecond {
			t.Errorf("a slot was free for %v, want at most 5ms", s.slack)
		}
	})
}

// TestALastSlotIsUsedAtOnce: the runner that took the only slot of a tenant claims when its job ends, although
// another runner was woken for the task that waits.
func TestALastSlotIsUsedAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		s := newTenants()
		cfg := oneEach()
		cfg.Concurrency = 1
		b.run(cfg, s.job(3300*time.Millisecond))
		b.after(time.Second)
		b.enqueue("a", midge.Partition("acme"))
		b.after(time.Second)
		defer b.second(cfg, s.job(time.Second))()
		b.enqueue("b", midge.Partition("acme"))
		b.after(5 * time.Second)
		if _, ran := s.count("acme"); ran != 2 || s.slack > 5*time.Millisecond {
			t.Errorf("%d jobs have run, and a slot was free for %v, want 2 and at most 5ms", ran, s.slack)
		}
	})
}

// TestANewTenantStartsBesideFullOnes: a queue with full partitions is still waited for.
func TestANewTenantStartsBesideFullOnes(t *testing.T) {
	bubble(t, func(b *bench) {
		s := newTenants()
		b.run(oneEach(), s.job(time.Hour))
		for range 3 {
			b.enqueue("a", midge.Partition("big"))
		}
		b.after(10 * time.Second)
		b.enqueue("b", midge.Partition("small"))
		b.enqueue("c")
		b.after(5 * time.Millisecond)
		for key, want := range map[string]int{"big": 1, "small": 1, "": 1} {
			if now, _ := s.count(key); now != want {
				t.Errorf("%d jobs of %q run, want %d", now, key, want)
			}
		}
	})
}

// TestARateOfPartitions: of each tenant two jobs start in any minute, by their costs, and other tenants go on.
func TestARateOfPartitions(t *testing.T) {
	bubble(t, func(b *bench) {
		s := newTenants()
		for i := range 12 {
			b.enqueue(fmt.Sprint(i), midge.Partition(fmt.Sprint("tenant ", i%2)))
		}
		dear := b.enqueue("dear", midge.Partition("dear"), midge.Cost(2))
		last := b.enqueue("last", midge.Partition("dear"))
		cfg := midge.RunnerConfig{QueueLimits: map[string]midge.Limit{"default": {
			Partition: midge.PartitionLimit{Rate: midge.Rate{N: 2, Per: time.Minute}},
		}}}
		b.run(cfg, s.job(time.Millisecond))
		defer b.second(cfg, s.job(time.Millisecond))()
		b.after(10 * time.Second)
		v, err := b.client.Why(b.Context(), last.Ref)
		if err != nil || v.Cause != storage.CausePartitionRate || v.Cost.N() != 1 ||
			v.Until.Sub(dear.Due) < time.Minute-time.Millisecond {
			t.Errorf("got %s: %s until %v, %v", v.Cause, v, v.Until, err)
		}
		stats, err := b.client.Queue("default").Partition("dear").Stats(b.Context())
		if err != nil || storage.Started(stats.Counts) != 2 || stats.Next.IsZero() {
			t.Errorf("the partition is %+v, %v", stats, err)
		}
		b.after(3 * time.Minute)
		for _, key := range []string{"tenant 0", "tenant 1"} {
			at := s.starts[key]
			if len(at) != 6 {
				t.Fatalf("%d jobs of %s have started, want all 6", len(at), key)
			}
			for i := 2; i < len(at); i++ {
				if apart := at[i].Sub(at[i-2]); apart < time.Minute-time.Microsecond || apart > 62*time.Second {
					t.Errorf("three jobs of %s started within %v", key, apart)
				}
			}
		}
	})
}

// TestTheLimitOfAnOperatorBoundsPartitions: SetLimit holds at once, also for partitions that wait.
func TestTheLimitOfAnOperatorBoundsPartitions(t *testing.T) {
	bubble(t, func(b *bench) {
		s := newTenants()
		b.run(oneEach(), s.job(time.Hour))
		for range 6 {
			b.enqueue("a", midge.Partition("acme"))
		}
		running := func(want int) {
			b.Helper()
			b.after(100 * time.Millisecond)
			if now, _ := s.count("acme"); now != want {
				t.Errorf("%d jobs run, want %d", now, want)
			}
		}
		running(1)
		q := b.client.Queue("default")
		set := func(n int) {
			b.Helper()
			rate := midge.Rate{N: 100, Per: time.Minute + 999*time.Nanosecond}
			l := midge.Limit{Partition: midge.PartitionLimit{Concurrency: n, Rate: rate}}
			if err := q.SetLimit(b.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		set(3)
		running(3)
		if p := b.stats("default").Limit.InForce().Partition; p.Rate.Per != time.Minute {
			t.Errorf("the limit %v is in force, want whole microseconds", p)
		}
		set(2)
		running(3)
		if err := q.SetLimit(b.Context(), midge.Limit{}); err != nil {
			t.Fatal(err)
		}
		running(6)
		if err := q.ClearLimit(b.Context()); err != nil {
			t.Fatal(err)
		}
		held := b.enqueue("a", midge.Partition("acme"))
		running(6)
		v, err := b.client.Why(b.Context(), held.Ref)
		if err != nil || v.Cause != storage.CausePartitionLimit || v.PartitionRunning < 1 {
			t.Errorf("got %s: %s, %v", v.Cause, v, err)
		}
	})
}

// TestAPartitionHasALimitOfItsOwn: it holds in place of that of all partitions at once, and Why reports it.
func TestAPartitionHasALimitOfItsOwn(t *testing.T) {
	bubble(t, func(b *bench) {
		s := newTenants()
		b.run(oneEach(), s.job(time.Hour))
		for range 4 {
			b.enqueue("a", midge.Partition("acme"))
			b.enqueue("b", midge.Partition("other"))
		}
		running := func(acme, other int) {
			b.Helper()
			b.after(100 * time.Millisecond)
			a, _ := s.count("acme")
			o, _ := s.count("other")
			if a != acme || o != other {
				t.Errorf("%d and %d jobs run, want %d and %d", a, o, acme, other)
			}
		}
		running(1, 1)
		p := b.client.Queue("default").Partition("acme")
		own := midge.PartitionLimit{Concurrency: 3, Weight: 2}
		if err := p.SetLimit(b.Context(), own); err != nil {
			t.Fatal(err)
		}
		running(3, 1)
		if stats, err := p.Stats(b.Context()); err != nil || stats.Limit == nil || *stats.Limit != own {
			t.Errorf("the partition is %+v, %v", stats, err)
		}
		held := b.enqueue("a", midge.Partition("acme"))
		v, err := b.client.Why(b.Context(), held.Ref)
		if err != nil || v.Cause != storage.CausePartitionLimit || v.Limit.Partition != own || v.PartitionRunning != 3 {
			t.Errorf("got %s: %s, %v", v.Cause, v, err)
		}
		if err := p.ClearLimit(b.Context()); err != nil {
			t.Fatal(err)
		}
		running(3, 1)
		if err := p.SetLimit(b.Context(), midge.PartitionLimit{}); err != nil {
			t.Fatal(err)
		}
		running(5, 1)
		var invalid *midge.InvalidError
		if err := p.SetLimit(b.Context(), midge.PartitionLimit{Weight: 1001}); !errors.As(err, &invalid) {
			t.Errorf("a weight of 1,001: got %v", err)
		}
		none := b.client.Queue("none").Partition("acme")
		if err := none.SetLimit(b.Context(), own); !errors.Is(err, midge.ErrNotFound) {
			t.Errorf("a queue that does not exist: got %v", err)
		}
	})
}

// TestAWeightIsFeltBySingleSlots: the slots fall free one by one, and yet a partition gets its share by weight.
func TestAWeightIsFeltBySingleSlots(t *testing.T) {
	bubble(t, func(b *bench) {
		const many = 80
		for range many {
			b.enqueue("a", midge.Partition("acme"))
			b.enqueue("b", midge.Partition("other"))
		}
		err := b.client.Queue("default").Partition("acme").SetLimit(b.Context(), midge.PartitionLimit{Weight: 3})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var ran []string
		b.run(midge.RunnerConfig{Concurrency: 3}, func(ctx context.Context, _ work) error {
			info, _ := midge.Current(ctx)
			mu.Lock()
			ran = append(ran, info.Partition)
			take := time.Duration(100+37*len(ran)%50) * time.Millisecond // so that no two jobs end together
			mu.Unlock()
			<-time.After(take)
			return nil
		})
		b.after(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		share := map[string]int{}
		for _, key := range ran[:40] {
			share[key]++
		}
		if share["acme"] < 28 || share["acme"] > 32 {
			t.Errorf("of 40 jobs %v ran, want three of acme for each other", share)
		}
	})
}
