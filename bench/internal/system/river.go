package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverSystem returns River with its defaults.
func riverSystem() System {
	return System{
		Name: "river", Storages: []string{Postgres, SQLite}, Bulk: true,
		Fetch: river.FetchCooldownDefault, Open: openRiver(river.Config{}),
	}
}

// riverTuned returns River that fetches as often as is best for it.
func riverTuned() System {
	cfg := river.Config{FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond}
	return System{
		Name: "river-tuned", Storages: []string{Postgres, SQLite}, Tuned: ForWork, Bulk: true,
		Fetch: cfg.FetchCooldown, Open: openRiver(cfg),
	}
}

// poolConnections limits the connections of a system to PostgreSQL. It is enough that sixteen
// producers wait for the server and not for each other. By default the pool may have as few as
// four.
const poolConnections = 20

// onRiver is an opened River.
type onRiver struct {
	cfg    river.Config
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // enqueues; a worker has its own
	look   *pgxpool.Pool         // counts
}

// riverArgs is the job, which River writes as JSON.
type riverArgs struct{ Payload []byte }

// Kind names the job.
func (riverArgs) Kind() string { return "bench" }

func openRiver(cfg river.Config) func(context.Context, Place) (Instance, error) {
	// A worker logs warnings about the machine's pauses to standard output, which belongs to the
	// protocol with the parent.
	cfg.Logger = slog.New(slog.DiscardHandler)
	return func(ctx context.Context, at Place) (Instance, error) {
		if at.Storage == SQLite {
			return openRiverSQLite(ctx, at, cfg)
		}
		if at.Storage != Postgres {
			return nil, fmt.Errorf("river: no storage is named %q", at.Storage)
		}
		r := &onRiver{cfg: cfg}
		var err error
		if r.pool, err = pool(ctx, at, poolConnections); err != nil {
			return nil, err
		}
		if r.look, err = pool(ctx, at, 1); err == nil {
			err = r.prepare(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		return r, nil
	}
}

func pool(ctx context.Context, at Place, connections int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(at.Addr)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = connections
	return pgxpool.NewWithConfig(ctx, cfg)
}

// prepare creates the tables if they do not exist.
func (r *onRiver) prepare(ctx context.Context) error {
	driver := riverpgxv5.New(r.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: r.cfg.Logger})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("river: make its tables: %w", err)
	}
	cfg := r.cfg
	r.client, err = river.NewClient(driver, &cfg)
	return err
}

func (r *onRiver) Enqueue(ctx context.Context, queue string, payload []byte, due time.Time) error {
	opts := river.InsertOpts{Queue: queue, ScheduledAt: due}
	_, err := r.client.Insert(context.WithoutCancel(ctx), riverArgs{payload}, &opts)
	return err
}

// EnqueueMany uses the faster of River's two calls, which copies the rows and returns nothing
// about the jobs.
func (r *onRiver) EnqueueMany(ctx context.Context, queue string, payloads [][]byte, due time.Time) error {
	_, err := r.client.InsertManyFast(context.WithoutCancel(ctx), riverItems(queue, payloads, due))
	return err
}

func riverItems(queue string, payloads [][]byte, due time.Time) []river.InsertManyParams {
	items := make([]river.InsertManyParams, len(payloads))
	for i, p := range payloads {
		items[i] = river.InsertManyParams{
			Args: riverArgs{p}, InsertOpts: &river.InsertOpts{Queue: queue, ScheduledAt: due},
		}
	}
	return items
}

// riverWorker returns the configuration of a worker.
func riverWorker(cfg river.Config, w Worker) (river.Config, error) {
	cfg.Queues = make(map[string]river.QueueConfig, len(w.Queues))
	for _, queue := range w.Queues {
		cfg.Queues[queue] = river.QueueConfig{MaxWorkers: w.Concurrency}
	}
	cfg.Workers = river.NewWorkers()
	err := river.AddWorkerSafely(cfg.Workers, river.WorkFunc(
		func(_ context.Context, job *river.Job[riverArgs]) error {
			err := w.Run(job.Args.Payload)
			if errors.Is(err, ErrDiscard) {
				return river.JobCancel(err)
			}
			return err
		}))
	return cfg, err
}

func (r *onRiver) Work(ctx context.Context, w Worker) error {
	cfg, err := riverWorker(r.cfg, w)
	if err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(r.pool), &cfg)
	if err != nil {
		return err
	}
	work := context.WithoutCancel(ctx) // running jobs must finish after ctx ends
	if err := client.Start(work); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(work)
}

// Totals counts the rows, because River keeps no counters.
func (r *onRiver) Totals(ctx context.Context, queues ...string) (t Totals, err error) {
	rows, err := r.look.Query(ctx, `SELECT state::text, count(*), coalesce(sum(cardinality(errors)), 0)
		FROM river_job WHERE queue = ANY($1) GROUP BY state`, queues)
	if err != nil {
		return Totals{}, fmt.Errorf("river: count: %w", err)
	}
	var state string
	var jobs, failed int64
	_, err = pgx.ForEachRow(rows, []any{&state, &jobs, &failed}, func() error {
		t = t.Plus(riverTotals(state, jobs, failed))
		return nil
	})
	return t, err
}

// riverTotals returns the totals of jobs in one of River's states.
func riverTotals(state string, jobs, failed int64) (t Totals) {
	t.Failed = failed
	switch state {
	case "available":
		t.Waiting += jobs
	case "running":
		t.Pending += jobs
	case "completed":
		t.Completed += jobs
	case "cancelled", "discarded":
		t.Dead += jobs
	default:
		t.Later += jobs
	}
	return t
}

// Close closes the connections.
func (r *onRiver) Close() error {
	r.pool.Close()
	if r.look != nil {
		r.look.Close()
	}
	return nil
}
