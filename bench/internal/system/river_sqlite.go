package system

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

// onRiverSQLite is an opened River on a file. It uses one connection, as its driver
// requires.
type onRiverSQLite struct {
	cfg    river.Config
	db     *sql.DB
	client *river.Client[*sql.Tx] // enqueues; a worker has its own
}

func openRiverSQLite(ctx context.Context, at Place, cfg river.Config) (Instance, error) {
	db, err := openSQLite(at.Addr)
	if err != nil {
		return nil, err
	}
	r := &onRiverSQLite{cfg: cfg, db: db}
	driver := riversqlite.New(db)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: cfg.Logger})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		r.client, err = river.NewClient(driver, &cfg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("river: make its tables: %w", err), db.Close())
	}
	return r, nil
}

func (r *onRiverSQLite) Enqueue(ctx context.Context, queue string, payload []byte, due time.Time) error {
	opts := river.InsertOpts{Queue: queue, ScheduledAt: due}
	_, err := r.client.Insert(context.WithoutCancel(ctx), riverArgs{payload}, &opts)
	return err
}

func (r *onRiverSQLite) EnqueueMany(
	ctx context.Context, queue string, payloads [][]byte, due time.Time,
) error {
	_, err := r.client.InsertManyFast(context.WithoutCancel(ctx), riverItems(queue, payloads, due))
	return err
}

func (r *onRiverSQLite) Work(ctx context.Context, w Worker) error {
	cfg, err := riverWorker(r.cfg, w)
	if err != nil {
		return err
	}
	client, err := river.NewClient(riversqlite.New(r.db), &cfg)
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
func (r *onRiverSQLite) Totals(ctx context.Context, queues ...string) (t Totals, err error) {
	names, err := json.Marshal(queues)
	if err != nil {
		return t, err
	}
	rows, err := r.db.QueryContext(ctx, `SELECT state, count(*), coalesce(sum(json_array_length(errors)), 0)
		FROM river_job WHERE queue IN (SELECT value FROM json_each(?)) GROUP BY state`, string(names))
	if err != nil {
		return t, fmt.Errorf("river: count: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var state string
		var jobs, failed int64
		if err := rows.Scan(&state, &jobs, &failed); err != nil {
			return t, err
		}
		t = t.Plus(riverTotals(state, jobs, failed))
	}
	return t, rows.Err()
}

func (r *onRiverSQLite) Close() error { return r.db.Close() }
