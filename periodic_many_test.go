package midge_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// distant is a storage behind a network: each call takes five milliseconds, also if its context has
// ended.
type distant struct{ storage.Storage }

func (d distant) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	time.Sleep(5 * time.Millisecond)
	return d.Storage.Apply(ctx, call, txs...) //nolint:wrapcheck // as the storage has it
}

func (d distant) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	time.Sleep(5 * time.Millisecond)
	return d.Storage.Claim(ctx, req) //nolint:wrapcheck // as the storage has it
}

func (d distant) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	time.Sleep(5 * time.Millisecond)
	return d.Storage.Task(ctx, ref) //nolint:wrapcheck // as the storage has it
}

func (d distant) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	time.Sleep(5 * time.Millisecond)
	return d.Storage.Tasks(ctx, q) //nolint:wrapcheck // as the storage has it
}

func (d distant) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	time.Sleep(5 * time.Millisecond)
	return d.Storage.Runners(ctx) //nolint:wrapcheck // as the storage has it
}

// manyTicks counts the ticks of many schedules.
type manyTicks struct {
	mu    sync.Mutex // guards the fields below
	times map[string]int
	late  time.Duration // the longest time from a tick to its run
}

func (m *manyTicks) run(ctx context.Context, w work) error {
	info, _ := midge.Current(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[info.Tick.Format(time.TimeOnly)+" "+w.Name]++
	m.late = max(m.late, time.Since(info.Tick))
	return nil
}

// start starts a runner of many schedules, far from its storage.
func (m *manyTicks) start(b *bench, schedules int, period time.Duration) *midge.Runner {
	b.Helper()
	r := b.newRunner(distant{b.store}, midge.RunnerConfig{Grace: time.Second, Concurrency: 100}, m.run)
	for n := range schedules {
		name := fmt.Sprint("s", n)
		if err := r.Periodic(midge.Every(period), work{name}, midge.Named(name)); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return r
}

func (m *manyTicks) check(t *testing.T, want int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if got := len(m.times); got != want {
		t.Errorf("%d ticks ran, want %d", got, want)
	}
	for tick, n := range m.times {
		if n != 1 {
			t.Fatalf("%s ran %d times, want once", tick, n)
		}
	}
	if m.late > 5*time.Second {
		t.Errorf("a tick ran %v late, want at most 5 s", m.late)
	}
}

// TestManySchedulesDueTogetherTickOnTime has two runners far from their storage, and many schedules
// of the same moments. The runners are shut down in the middle of a moment's ticks.
func TestManySchedulesDueTogetherTickOnTime(t *testing.T) {
	const (
		schedules = 2000
		period    = 20 * time.Second
		moments   = 2
	)
	bubble(t, func(b *bench) {
		ticks := &manyTicks{times: make(map[string]int)}
		runners := []*midge.Runner{ticks.start(b, schedules, period), ticks.start(b, schedules, period)}
		b.after(time.Until(time.Now().Truncate(period).Add(moments*period + period/2)))
		ticks.check(t, moments*schedules)
		time.Sleep(period/2 + 20*time.Millisecond) // to the middle of the next ticks
		drained := time.Now()
		var drains sync.WaitGroup
		for _, r := range runners {
			drains.Go(func() {
				if err := r.Shutdown(b.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		drains.Wait()
		if took := time.Since(drained); took > 3*time.Second {
			t.Errorf("the drain took %v, want the grace period of 1 s and 2 s at most", took)
		}
	})
}

// TestAMiddlewareThatDoesNotReturnHoldsUpNoDrain has a middleware that ignores the end of its context
// during a tick.
func TestAMiddlewareThatDoesNotReturnHoldsUpNoDrain(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		release := make(chan struct{})
		stuck := func(next func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
			return func(ctx context.Context, inserts []*storage.Insert) error {
				<-release
				return next(ctx, inserts)
			}
		}
		b.runner = b.newRunner(b.store, midge.RunnerConfig{
			Grace: time.Second, Logger: logger, EnqueueMiddleware: []midge.EnqueueMiddleware{stuck},
		}, func(context.Context, work) error { return nil })
		if err := b.runner.Periodic(midge.Every(time.Minute), work{"tick"}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(90 * time.Second)
		drained := time.Now()
		if err := b.drain(); err != nil {
			t.Error(err)
		}
		if took := time.Since(drained); took > 3*time.Second {
			t.Errorf("the drain took %v, want the grace period of 1 s and 2 s at most", took)
		}
		if len(lines("EnqueueMiddleware has not returned")) != 1 {
			t.Errorf("got no line about the middleware")
		}
		close(release)
		synctest.Wait()
		if n := b.stats(midge.DefaultQueue).Totals.Enqueued; n != 0 {
			t.Errorf("%d ticks were made after the drain, want none", n)
		}
	})
}

// TestManyDeclarationsAreReplacedAndRestored has so many schedules that a runner seldom lists those that
// are stored. A runner of the earlier declarations, which lives on, puts these back once no runner
// declares the later ones any more, and stores a schedule again that was removed.
func TestManyDeclarationsAreReplacedAndRestored(t *testing.T) {
	const schedules = 250
	bubble(t, func(b *bench) {
		ticks := &manyTicks{times: make(map[string]int)}
		spec := func() map[string]int {
			specs := make(map[string]int)
			for _, s := range b.schedules(b.client.Queue(midge.DefaultQueue)) {
				specs[s.Declared.Spec]++
			}
			return specs
		}
		check := func(when string, period time.Duration) {
			b.after(time.Minute)
			if got := spec(); got["every "+period.String()] != schedules || len(got) != 1 {
				t.Errorf("%s: got %v, want %d of every %v", when, got, schedules, period)
			}
		}
		before := ticks.start(b, schedules, 20*time.Second)
		check("declared", 20*time.Second)
		later := ticks.start(b, schedules, 30*time.Second)
		check("replaced", 30*time.Second)
		if err := later.Shutdown(b.Context()); err != nil {
			t.Error(err)
		}
		check("put back", 20*time.Second)
		if err := b.client.Queue(midge.DefaultQueue).RemoveSchedule(b.Context(), "s7"); err != nil {
			t.Error(err)
		}
		check("removed", 20*time.Second)
		if err := before.Shutdown(b.Context()); err != nil {
			t.Error(err)
		}
	})
}
