package main

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
	"github.com/riverqueue/river/rivertype"
	"riverqueue.com/riverui"

	"github.com/midgehq/midge/internal/testserver"
)

// riverArgs are the parameters of a task, with its kind. River asks a value of this type for the kind.
type riverArgs struct {
	params

	kind string
}

// Kind returns the kind of the task.
func (a riverArgs) Kind() string { return a.kind }

// onRiver is River on a PostgreSQL, and the rows with which it is filled.
type onRiver struct {
	pool *pgxpool.Pool
	rows []row
}

func serveRiver(ctx context.Context, all *stack, rows []row) (peer, error) {
	server, err := testserver.StartPostgres(testserver.PostgresOptions{Unsafe: true})
	if err != nil {
		return peer{}, err
	}
	all.add(server.Close)
	pool, err := pgxpool.New(ctx, server.URL())
	if err != nil {
		return peer{}, err
	}
	all.add(func() error { pool.Close(); return nil })
	r := &onRiver{pool: pool, rows: rows}
	if err := r.fill(ctx); err != nil {
		return peer{}, err
	}
	client, err := r.work(map[string]river.QueueConfig{"exports": {MaxWorkers: 4}})
	if err != nil {
		return peer{}, err
	}
	if err := client.Start(ctx); err != nil {
		return peer{}, err
	}
	all.add(func() error { return client.StopAndCancel(context.WithoutCancel(ctx)) })
	endpoints := riverui.NewEndpoints(client, nil)
	h, err := riverui.NewHandler(&riverui.HandlerOpts{Endpoints: endpoints, Logger: quiet})
	if err != nil {
		return peer{}, err
	}
	if err := h.Start(ctx); err != nil {
		return peer{}, err
	}
	var id int64
	err = pool.QueryRow(ctx, `SELECT id FROM river_job
		WHERE queue = 'mail' AND state <> 'available' ORDER BY id DESC LIMIT 1`).Scan(&id)
	if err != nil {
		return peer{}, err
	}
	url, err := listen(ctx, all, h)
	return peer{URL: url, Pages: map[string]string{
		"overview": "/jobs", "queues": "/queues", "tasks": "/jobs?state=available",
		"task": fmt.Sprint("/jobs/", id), "dead": "/jobs?state=discarded",
	}}, err
}

var quiet = slog.New(slog.DiscardHandler)

// fill inserts jobs and runs them, until each has the state of its row.
func (r *onRiver) fill(ctx context.Context) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	queues := map[string]river.QueueConfig{}
	for _, row := range r.rows {
		if row.Running == 0 {
			queues[row.Queue] = river.QueueConfig{MaxWorkers: 10}
		}
	}
	client, err := r.work(queues)
	if err != nil {
		return err
	}
	for _, row := range r.rows {
		if err := insert(ctx, client, row, 0, row.begun(), 0); err != nil {
			return err
		}
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	err = await(ctx, "River's jobs", func() (bool, error) {
		var left int
		err := r.pool.QueryRow(ctx, `SELECT count(*) FROM river_job
			WHERE queue <> 'exports' AND state IN ('available', 'running')`).Scan(&left)
		return left == 0, err
	})
	if err := errors.Join(err, client.Stop(ctx)); err != nil {
		return err
	}
	for _, row := range r.rows {
		err := insert(ctx, client, row, row.begun(), row.Waiting, 0)
		err = errors.Join(err, insert(ctx, client, row, row.begun(), row.Scheduled, time.Hour))
		if row.Paused {
			err = errors.Join(err, client.QueuePause(ctx, row.Queue, nil))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// insert adds the n tasks of a row that begin with the number from. If apart is not 0, each is due so long
// after the task before it.
func insert(
	ctx context.Context, client *river.Client[pgx.Tx], r row, from, n int, apart time.Duration,
) error {
	items := make([]river.InsertManyParams, 0, n)
	for i := range n {
		opts := &river.InsertOpts{Queue: r.Queue}
		if i += from; i < r.begun() && r.last(i) {
			opts.MaxAttempts = 1
		}
		if apart > 0 {
			opts.ScheduledAt = time.Now().Add(time.Duration(i-from+1) * apart)
		}
		items = append(items, river.InsertManyParams{Args: riverArgs{paramsOf(i), r.Kind}, InsertOpts: opts})
	}
	if n == 0 {
		return nil
	}
	_, err := client.InsertMany(ctx, items)
	return err
}

func (r *onRiver) work(queues map[string]river.QueueConfig) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	for _, row := range r.rows {
		work := func(ctx context.Context, job *river.Job[riverArgs]) error {
			if row.runs(job.Args.User) {
				<-ctx.Done()
			}
			if text := row.failure(job.Args.User); text != "" {
				return errors.New(text)
			}
			return nil
		}
		river.AddWorkerArgs(workers, riverArgs{kind: row.Kind}, river.WorkFunc(work))
	}
	return river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues: queues, Workers: workers, Logger: quiet, RetryPolicy: hourly{}, JobTimeout: -1,
		FetchPollInterval: 100 * time.Millisecond,
	})
}

// hourly is a policy that retries each task an hour after it failed.
type hourly struct{}

// NextRetry returns the time in an hour.
func (hourly) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(time.Hour) }
