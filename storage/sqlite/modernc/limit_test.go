package modernc_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// limit sets the limit of an operator.
func (s *side) limit(t *testing.T, l storage.Limit) {
	t.Helper()
	must(t, s.session.Configure(t.Context(), queue, storage.Settings{
		Limit: &storage.OperatorLimit{On: true, Limit: l},
	}))
}

// TestProcessesShareALimit lets several handles on one file claim from a queue whose limit
// has one slot. Each counts the pending tasks before it completes its own.
func TestProcessesShareALimit(t *testing.T) {
	const sides, tasks = 4, 60
	path := file(t)
	first := open(t, path)
	first.limit(t, storage.Limit{Concurrency: 1})
	for i := range tasks {
		must(t, first.insert(t.Context(), fmt.Sprint(i)))
	}
	var ended atomic.Int64
	run := func(s *side) error {
		for ended.Load() < tasks {
			c, err := s.claimLong(t.Context(), 2)
			if err != nil {
				return err
			}
			for _, fence := range c.Fences {
				stats, err := s.store.Stats(t.Context(), queue)
				if err != nil {
					return err
				}
				if stats[0].Pending != 1 {
					t.Errorf("%d tasks are pending, want 1", stats[0].Pending)
				}
				if err := s.complete(t.Context(), fence); err != nil {
					return err
				}
				ended.Add(1)
			}
		}
		return nil
	}
	var all sync.WaitGroup
	for range sides {
		s := open(t, path)
		all.Go(func() {
			if err := run(s); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestAnotherProcessSeesALimit changes the limit through one handle and claims through another, which has
// claimed from the queue before.
func TestAnotherProcessSeesALimit(t *testing.T) {
	path := file(t)
	operator, runner := open(t, path), open(t, path)
	must(t, runner.insert(t.Context(), "a", "b", "c", "d", "e", "f"))
	for _, step := range []struct {
		limit   storage.Limit
		want    int
		bounded bool
	}{
		{storage.Limit{Concurrency: 1}, 1, true},
		{storage.Limit{Concurrency: 1}, 0, true},
		{storage.Limit{Concurrency: 3}, 2, true},
		{storage.Limit{Rate: storage.Rate{N: 2, Per: time.Hour}}, 2, true},
		{storage.Limit{Rate: storage.Rate{N: 3, Per: time.Hour}}, 1, true},
		{storage.Limit{}, 0, false},
	} {
		operator.limit(t, step.limit)
		c, err := runner.claimLong(t.Context(), 10)
		must(t, err)
		bounded := slices.Contains(c.Bounded, queue)
		if len(c.Tasks) != step.want || bounded != step.bounded {
			t.Errorf("with the limit %v: got %d tasks, bounded %v; want %d, %v",
				step.limit, len(c.Tasks), bounded, step.want, step.bounded)
		}
	}
}

// TestADamagedLimitIsCounted writes into the columns of a limit, and pauses the queue: the damage stays visible
// until a limit is set.
func TestADamagedLimitIsCounted(t *testing.T) {
	for _, damage := range []string{
		"operator = 'abc'", "operator = 7", "declared = '1 0 0;x'", "declared = x'00'", "starts = 'abc'",
		"operator = '20000 0 0'",
	} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			s.limit(t, storage.Limit{Concurrency: 1})
			execute(t, path, "UPDATE midge_queues SET "+damage)
			damaged := func() int64 {
				stats, err := s.store.Stats(t.Context(), queue)
				must(t, err)
				return stats[0].Damaged
			}
			for range 2 {
				if n := damaged(); n != 1 {
					t.Errorf("Stats.Damaged is %d, want 1", n)
				}
				must(t, s.session.Configure(t.Context(), queue, storage.Settings{Pause: &storage.Pause{On: true}}))
			}
			s.limit(t, storage.Limit{Concurrency: 1})
			if n := damaged(); n != 0 {
				t.Errorf("Stats.Damaged is %d after a limit was set, want 0", n)
			}
		})
	}
}
