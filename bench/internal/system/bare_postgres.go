package system

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// onBarePostgres has a table of jobs, each with the moment from which it may be claimed,
// and a table that counts the settled jobs.
type onBarePostgres struct {
	pool     *pgxpool.Pool
	listener *pgx.Conn
	notified atomic.Int64 // time of the last wake-up in Unix nanoseconds
	owed     atomic.Bool  // a wake-up must follow
}

const bareTables = `
CREATE TABLE IF NOT EXISTS bare (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	queue text NOT NULL,
	after timestamptz NOT NULL,
	pending boolean NOT NULL DEFAULT false,
	body bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS bare_after ON bare (queue, after, id);
CREATE TABLE IF NOT EXISTS bare_completed (queue text NOT NULL, jobs bigint NOT NULL)`

func openBarePostgres(ctx context.Context, at Place) (*onBarePostgres, error) {
	p, err := pool(ctx, at, poolConnections)
	if err != nil {
		return nil, err
	}
	s := &onBarePostgres{pool: p}
	// Two processes that create the tables at the same time would conflict.
	err = pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(1)"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, bareTables)
		return err
	})
	if err != nil {
		p.Close()
		return nil, err
	}
	return s, nil
}

// wakeEvery is the shortest time between two wake-ups, because each takes a lock of the
// whole server.
const wakeEvery = time.Millisecond

func (s *onBarePostgres) insert(ctx context.Context, queue string, due time.Time, bodies [][]byte) error {
	var after *time.Time // null means now
	if !due.IsZero() {
		after = &due
	}
	now, last := time.Now().UnixNano(), s.notified.Load()
	wakes := now-last > int64(wakeEvery) && s.notified.CompareAndSwap(last, now)
	if !wakes { // the worker may have checked before this insert
		defer s.wakeLater(ctx)
	}
	_, err := s.pool.Exec(ctx, `WITH added AS (
			INSERT INTO bare (queue, after, body) SELECT $1, coalesce($2, now()), unnest($3::bytea[])
		)
		SELECT CASE WHEN $4 THEN pg_notify('bare', '') END`, queue, after, bodies, wakes)
	return err
}

// wakeLater sends one wake-up for all inserts of the next wakeEvery.
func (s *onBarePostgres) wakeLater(ctx context.Context) {
	if s.owed.CompareAndSwap(false, true) {
		time.AfterFunc(wakeEvery, func() {
			s.owed.Store(false)
			_, _ = s.pool.Exec(ctx, "SELECT pg_notify('bare', '')") // fails if the pool was closed
		})
	}
}

func (s *onBarePostgres) claim(
	ctx context.Context, queue string, most int,
) (jobs []bareJob, next time.Time, err error) {
	rows, err := s.pool.Query(ctx, `WITH found AS (
			SELECT id FROM bare WHERE queue = $1 AND after <= now() ORDER BY after, id LIMIT $2
			FOR UPDATE SKIP LOCKED
		)
		UPDATE bare SET after = now() + $3, pending = true FROM found WHERE bare.id = found.id
		RETURNING bare.id, bare.body`, queue, most, bareLease)
	if err != nil {
		return nil, next, err
	}
	var job bareJob
	_, err = pgx.ForEachRow(rows, []any{&job.row, &job.body}, func() error {
		jobs = append(jobs, job)
		job.body = nil
		return nil
	})
	if err != nil || len(jobs) > 0 {
		return jobs, next, err
	}
	err = s.pool.QueryRow(ctx, `SELECT after FROM bare WHERE queue = $1 AND after > now() AND NOT pending
		ORDER BY after LIMIT 1`, queue).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return nil, next, err
}

func (s *onBarePostgres) settle(ctx context.Context, queue string, jobs []bareJob) error {
	rows := make([]int64, len(jobs))
	for i := range jobs {
		rows[i] = jobs[i].row
	}
	_, err := s.pool.Exec(ctx, `WITH gone AS (DELETE FROM bare WHERE id = ANY($2))
		INSERT INTO bare_completed VALUES ($1, $3)`, queue, rows, len(rows))
	return err
}

// wait listens from its first call on.
func (s *onBarePostgres) wait(ctx context.Context, _ string, most time.Duration) error {
	if s.listener == nil {
		conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
		if err != nil {
			return err
		}
		s.listener = conn
		_, err = conn.Exec(ctx, "LISTEN bare")
		return err // a notification may have come before
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_, err := s.listener.WaitForNotification(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *onBarePostgres) totals(ctx context.Context, queue string) (t Totals, err error) {
	err = s.pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE NOT pending AND after <= now()),
			count(*) FILTER (WHERE pending), count(*) FILTER (WHERE NOT pending AND after > now()),
			(SELECT coalesce(sum(jobs), 0)::bigint FROM bare_completed WHERE queue = $1)
		FROM bare WHERE queue = $1`, queue).Scan(&t.Waiting, &t.Pending, &t.Later, &t.Completed)
	return t, err
}

func (s *onBarePostgres) close() error {
	var err error
	if s.listener != nil {
		err = s.listener.Close(context.Background())
	}
	s.pool.Close()
	return err
}
