package pgfault

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// holding is a job that keeps a connection of the application's pool while it runs.
type holding struct{}

// TestJobsHoldEveryConnection checks that each lease is renewed in time, and each job runs
// once, although jobs hold all connections of the pool for many leases. The pool belongs to
// the application, which has passed it to the storage.
func TestJobsHoldEveryConnection(t *testing.T) {
	testserver.RequirePostgres(t)
	const jobs, lease, held = 8, 4 * time.Second, 6*time.Second + 30*time.Second/share
	settings := must(pgxpool.ParseConfig(shared.URL()))(t)
	settings.MaxConns = jobs
	pool := must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	defer pool.Close()
	cfg := fresh(t, postgres.Config{})
	store, _ := opened(t, postgres.Config{Pool: pool, Schema: cfg.Schema})
	client := must(midge.NewClient(store, midge.ClientConfig{}))(t)
	runner := must(midge.NewRunner(store, midge.RunnerConfig{Concurrency: jobs, Lease: lease}))(t)
	var begun, lost atomic.Int64
	over := make(chan struct{})
	succeed(t, midge.Handle(runner, func(ctx context.Context, _ holding) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		begun.Add(1)
		select {
		case <-over:
		case <-ctx.Done():
			lost.Add(1)
		}
		return nil
	}))
	var tasks []storage.Ref
	for range jobs {
		task := must(client.Enqueue(t.Context(), holding{}, midge.KeepFor(time.Hour)))(t)
		tasks = append(tasks, task.Ref)
	}
	start(t, runner)
	testserver.Await(t, "each connection is held", func() bool { return begun.Load() == jobs })
	pace, since := testserver.StartPace(t), time.Now()
	least := leastLease(t, cfg, held)
	if pool.Stat().AcquiredConns() != jobs {
		t.Errorf("%d connections of %d are held: nobody was starved", pool.Stat().AcquiredConns(), jobs)
	}
	close(over)
	for _, ref := range tasks {
		testserver.Await(t, "the job is completed", func() bool {
			task, err := store.Task(t.Context(), ref)
			return err == nil && task.State == storage.Completed && task.Crashes == 0
		})
	}
	if n := begun.Load(); n != jobs || lost.Load() > 0 {
		t.Errorf("%d jobs began %d times, and %d lost their lease", jobs, n, lost.Load())
	}
	if lease-least > pace.Stretch(2*lease/3, since) {
		t.Errorf("a lease of %v had %v left, want a renewal each third", lease, least)
	}
	t.Logf("%d jobs held all connections for %v: leases of %v had %v left at least, none was lost",
		jobs, held, lease, least.Round(time.Millisecond))
}

// leastLease watches the leases for a time d and returns the least time that a lease had
// left.
func leastLease(t *testing.T, cfg postgres.Config, d time.Duration) time.Duration {
	t.Helper()
	conn := connect(t, cfg.URL)
	least := int64(time.Hour / time.Microsecond)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < d; <-tick.C {
		least = min(least, value[int64](t, conn, "SELECT coalesce(min(sort) - "+clockNow+", 0)"+
			" FROM "+cfg.Schema+".tasks WHERE line & 15 IN (4, 5)"))
	}
	return time.Duration(least) * time.Microsecond
}

// long is a job that runs until the test ends it.
type long struct{}

// TestAnEnqueueStopsNoJob enqueues a task that already runs, in a transaction that stays open
// for longer than a lease. The job's lease must be renewed as usual, and the job must run
// once.
func TestAnEnqueueStopsNoJob(t *testing.T) {
	testserver.RequirePostgres(t)
	const lease, open = 4 * time.Second, 6 * time.Second
	cfg := fresh(t, postgres.Config{})
	store, _ := opened(t, cfg)
	client := must(midge.NewClient(store, midge.ClientConfig{}))(t)
	runner := must(midge.NewRunner(store, midge.RunnerConfig{Lease: lease}))(t)
	var runs, stopped atomic.Int64
	over := make(chan struct{})
	succeed(t, midge.Handle(runner, func(ctx context.Context, _ long) error {
		runs.Add(1)
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			stopped.Add(1)
			return context.Cause(ctx)
		}
	}))
	task := must(client.Enqueue(t.Context(), long{}, midge.ID("a")))(t)
	start(t, runner)
	testserver.Await(t, "the job runs", func() bool { return runs.Load() == 1 })
	tx := must(connect(t, cfg.URL).Begin(t.Context()))(t)
	existing := must(client.With(store.Within(tx)).Enqueue(t.Context(), long{}, midge.ID("a")))(t)
	if !existing.Existing {
		t.Fatalf("got %+v, want it to be there already", existing)
	}
	least := leastLease(t, cfg, open)
	close(over)
	testserver.Await(t, "the job is completed while the transaction is open", func() bool {
		_, err := store.Task(t.Context(), task.Ref)
		return errors.Is(err, storage.ErrNotFound)
	})
	succeed(t, tx.Commit(t.Context()))
	if runs.Load() != 1 || stopped.Load() != 0 || least <= 0 {
		t.Errorf("the job ran %d times and was stopped %d times, its lease had %v left; want once, 0 and some",
			runs.Load(), stopped.Load(), least)
	}
}
