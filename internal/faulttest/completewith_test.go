//go:build unix

package faulttest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// orderApp is an application whose database also holds its tasks.
type orderApp struct {
	*testing.T

	cfg    postgres.Config
	db     *pgxpool.Pool
	store  *postgres.Storage
	client *midge.Client
}

func newOrderApp(t *testing.T) *orderApp {
	t.Helper()
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	s := &orderApp{T: t, cfg: postgres.Config{URL: server.URL()}}
	s.must(postgres.Migrate(t.Context(), s.cfg))
	db, err := pgxpool.New(context.WithoutCancel(t.Context()), server.URL())
	s.must(err)
	t.Cleanup(db.Close)
	_, err = db.Exec(t.Context(), "CREATE TABLE orders (id text)")
	s.must(err)
	s.db, s.store = db, s.open()
	s.client, err = midge.NewClient(s.store, midge.ClientConfig{})
	s.must(err)
	return s
}

func (s *orderApp) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *orderApp) open() *postgres.Storage {
	s.Helper()
	store, err := postgres.Open(s.Context(), s.cfg)
	s.must(err)
	s.Cleanup(func() { _ = store.Close() })
	return store
}

// begin writes the order of a running job and completes its task, and returns the
// transaction, which is not yet committed.
func (s *orderApp) begin(ctx context.Context, store *postgres.Storage, job orderJob) (pgx.Tx, error) {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", job.Order)
	return tx, errors.Join(err, midge.CompleteWith(ctx, store.Within(tx)))
}

// run starts a runner on a storage. stop ends it and returns the error of Shutdown.
func (s *orderApp) run(
	store *postgres.Storage, lease time.Duration, job func(context.Context, orderJob) error,
) (stop func() error) {
	s.Helper()
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		Lease: lease, Grace: time.Second, Backoff: midge.Constant(10 * time.Millisecond),
	})
	s.must(err)
	s.must(midge.Handle(runner, job))
	s.must(runner.Start(s.Context()))
	stop = func() error {
		now, cancel := context.WithCancel(context.Background()) // without a grace period
		cancel()
		return runner.Shutdown(now)
	}
	s.Cleanup(func() { _ = stop() })
	return stop
}

func (s *orderApp) orders() (n int) {
	s.Helper()
	s.must(s.db.QueryRow(s.Context(), "SELECT count(*) FROM orders").Scan(&n))
	return n
}

// orderLease is a lease that tests of an orderApp wait for. A start fails if its first connection takes longer.
const orderLease = 3 * time.Second

// awaitCompleted waits until a task is completed, and checks that there is one order.
func (s *orderApp) awaitCompleted(ref storage.Ref) {
	s.Helper()
	testserver.Await(s.T, "the task is completed", func() bool {
		_, err := s.store.Task(s.Context(), ref)
		return errors.Is(err, storage.ErrNotFound)
	})
	if n := s.orders(); n != 1 {
		s.Errorf("got %d orders, want one", n)
	}
}

// TestCompleteWithSellsOnce runs a job several times, of which only the last run commits.
// The earlier runs roll back and return an error or nil.
func TestCompleteWithSellsOnce(t *testing.T) {
	testserver.Parallel(t)
	s := newOrderApp(t)
	var runs atomic.Int64
	stop := s.run(s.store, time.Minute, func(ctx context.Context, job orderJob) error {
		runs.Add(1)
		if job.Order == "next" {
			return nil
		}
		info, _ := midge.Current(ctx)
		if err := midge.FollowUp(ctx, orderJob{"next"}); err != nil {
			return err
		}
		tx, err := s.begin(ctx, s.store, job)
		switch {
		case err != nil:
			return err
		case info.Retries == 0:
			return errors.Join(errors.New("no stock"), tx.Rollback(ctx))
		case info.Retries == 1:
			return tx.Rollback(ctx)
		}
		return errors.Join(tx.Commit(ctx), errors.New("after the commit"))
	})
	task, err := s.client.Enqueue(t.Context(), orderJob{"a"})
	s.must(err)
	s.awaitCompleted(task.Ref)
	testserver.Await(t, "the follow-up ran", func() bool { return runs.Load() == 4 })
	s.must(stop())
	stats, err := s.store.Stats(t.Context(), task.Queue)
	s.must(err)
	if got := stats[0].Totals; got.Enqueued != 2 || got.Completed != 2 || got.Failed != 2 || stats[0].Live() != 0 {
		t.Errorf("got %+v, want one task and one follow-up completed, after two failures", stats[0])
	}
}

// TestCompleteWithOutlastsTheLease checks that no other runner starts the task, and no
// cancel changes it, while the transaction of its job is open, even after the lease has
// run out.
func TestCompleteWithOutlastsTheLease(t *testing.T) {
	testserver.Parallel(t)
	s := newOrderApp(t)
	var runs atomic.Int64
	begun, commit := make(chan error), make(chan struct{})
	job := func(ctx context.Context, job orderJob) error {
		runs.Add(1)
		tx, err := s.begin(ctx, s.store, job)
		begun <- err
		<-commit
		return errors.Join(ctx.Err(), tx.Commit(ctx))
	}
	s.run(s.store, orderLease, job)
	s.run(s.open(), orderLease, job)
	task, err := s.client.Enqueue(t.Context(), orderJob{"a"})
	s.must(err)
	s.must(<-begun)
	held, err := s.store.Task(t.Context(), task.Ref)
	s.must(err)
	testserver.Await(t, "the lease is long over", func() bool {
		d, err := s.store.Describe(t.Context())
		return err == nil && d.Now.After(held.LeaseUntil.Add(2*time.Second))
	})
	_, err = s.client.Cancel(t.Context(), task.Ref)
	barred, ok := errors.AsType[*storage.DependencyError](err)
	if !ok || len(barred.Barred) != 1 || barred.Barred[0].State != storage.Pending {
		t.Errorf("a cancel meanwhile: got %v, want it refused because the task is pending", err)
	}
	close(commit)
	s.awaitCompleted(task.Ref)
	if n := runs.Load(); n != 1 {
		t.Errorf("started %d times, want once", n)
	}
}

// TestCompleteWithACrash loses the connection of the transaction and the runner before the
// commit. Another runner must run the job.
func TestCompleteWithACrash(t *testing.T) {
	testserver.Parallel(t)
	s := newOrderApp(t)
	begun, over := make(chan error), make(chan struct{})
	dying := s.open()
	stop := s.run(dying, orderLease, func(ctx context.Context, job orderJob) error {
		tx, err := s.begin(ctx, dying, job)
		begun <- err
		<-ctx.Done()
		<-over // it never returns while the test runs
		return tx.Commit(context.WithoutCancel(ctx))
	})
	t.Cleanup(func() { close(over) })
	task, err := s.client.Enqueue(t.Context(), orderJob{"a"})
	s.must(err)
	s.must(<-begun)
	_, err = s.db.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
		"WHERE state = 'idle in transaction'")
	s.must(err)
	if err := stop(); !errors.Is(err, midge.ErrGraceExceeded) {
		t.Errorf("Run: got %v, want ErrGraceExceeded", err)
	}
	s.must(dying.Close())
	s.run(s.store, orderLease, func(ctx context.Context, job orderJob) error {
		tx, err := s.begin(ctx, s.store, job)
		if err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	s.awaitCompleted(task.Ref)
	stats, err := s.store.Stats(t.Context(), task.Queue)
	s.must(err)
	if got := stats[0].Totals; got.Completed != 1 || got.Crashed != 1 {
		t.Errorf("got %+v, want it completed after one crash", got)
	}
}
