package postgres

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// vacuum decides when the tables need a vacuum. A task leaves two dead rows behind, and the server's
// autovacuum checks a table once a minute. By then a busy queue has left a hundred times as many
// rows as it holds: claims have to pass over them, and no vacuum makes the table small again.
//
// Each storage counts the dead rows that it leaves, and vacuums when they are a third of the live
// rows. If an old transaction holds vacuum back, a vacuum removes nothing, and is tried only now
// and then. Only the owner of the tables can vacuum them; under other roles the server's autovacuum
// is all there is.
type vacuum struct {
	dead  atomic.Int64 // dead rows that this storage left since its last vacuum
	most  atomic.Int64 // with more dead rows it is time to check the tables
	after time.Time    // no vacuum before; this and the fields below belong to one goroutine
	rest  time.Duration
	count int64 // vacuums so far, the server's included
	conn  *pgx.Conn
}

const (
	vacuumRows  = 2000 // plus a third of the live rows
	vacuumShare = 4    // a vacuum is followed by so many times its duration without one
	// A vacuum that removed too little is tried again soon, as even an analysis that takes a second
	// is an old transaction, and then less and less often.
	vacuumSoon = 100 * time.Millisecond
	vacuumRest = time.Minute
	// vacuumLimit is more than a vacuum takes. The connection may be dead.
	vacuumLimit = 10 * time.Minute
	// vacuumKeep is how long the connection is kept for the next vacuum: starting a process of the
	// server costs as much as a small vacuum.
	vacuumKeep = 2 * time.Second
)

// left counts rows that a step has left behind.
func (v *vacuum) left(n int) { v.dead.Add(int64(n)) }

// due reports whether it is time to check the tables.
func (v *vacuum) due() bool { return v.dead.Load() > v.most.Load() }

// vacuumWhileBusy checks the tables, and again at each notification, until none has come for
// vacuumKeep.
func (s *Storage) vacuumWhileBusy(ctx context.Context, again <-chan struct{}) {
	defer s.vacuumEnd(ctx)
	for {
		s.vacuumTables(ctx)
		idle := time.NewTimer(vacuumKeep)
		select {
		case <-again:
			idle.Stop()
		case <-idle.C:
			return
		case <-ctx.Done():
			idle.Stop()
			return
		}
	}
}

// vacuumEnd closes the connection for vacuums.
func (s *Storage) vacuumEnd(ctx context.Context) {
	if s.vacuum.conn != nil {
		hangUp(ctx, s.vacuum.conn)
		s.vacuum.conn = nil
	}
}

// vacuumTables checks the tables, and vacuums them if that is worth it. The next round makes up
// for a failure.
func (s *Storage) vacuumTables(ctx context.Context) {
	v := &s.vacuum
	v.most.Store(v.dead.Load() + vacuumRows) // after a failure or during a rest, not again at once
	if time.Now().Before(v.after) {
		return
	}
	live, _, err := s.rowsOf(ctx)
	switch {
	case err != nil:
		return
	case live < 0:
		v.most.Store(math.MaxInt64)
		return
	case v.dead.Load() < worth(live):
		v.most.Store(worth(live))
		return
	}
	v.dead.Store(0)
	begun := time.Now()
	if s.vacuumNow(ctx) != nil {
		return
	}
	v.after = time.Now().Add(vacuumShare * time.Since(begun))
	before := v.count
	live, dead, err := s.rowsOf(ctx)
	if err == nil && v.count > before && dead > worth(live) { // the dead rows could not be removed
		v.rest = min(max(2*v.rest, vacuumSoon), vacuumRest)
		v.after = time.Now().Add(v.rest)
	} else {
		v.rest = 0
	}
	v.most.Store(worth(live))
}

// vacuumNow vacuums the tables, on a connection of its own: it may take long.
func (s *Storage) vacuumNow(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, vacuumLimit)
	defer cancel()
	v := &s.vacuum
	if v.conn == nil {
		if v.conn, err = dial(ctx, s.pool.Config()); err != nil {
			return err
		}
	}
	_, err = v.conn.PgConn().Exec(ctx, s.schema.in("VACUUM (SKIP_LOCKED, TRUNCATE false, PARALLEL 0) "+
		"{schema}.tasks, {schema}.keys, {schema}.lanes, {schema}.deltas, {schema}.lines")).ReadAll()
	if err != nil {
		s.vacuumEnd(ctx)
	}
	return err
}

// worth is how many dead rows are worth a vacuum, beside so many live ones.
func worth(live int64) int64 { return vacuumRows + live/3 }

// rowsOf returns the numbers of live tasks and dead rows by the server's statistics; live is -1 if
// this role does not own the table.
func (s *Storage) rowsOf(ctx context.Context) (live, dead int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	var owner bool
	err = s.askAside(ctx, query{
		text: `SELECT pg_has_role(c.relowner, 'USAGE'),
				pg_stat_get_live_tuples(c.oid), pg_stat_get_dead_tuples(c.oid),
				pg_stat_get_vacuum_count(c.oid) + pg_stat_get_autovacuum_count(c.oid)
			FROM pg_catalog.pg_class c WHERE c.oid = '{schema}.tasks'::regclass`,
		scan: one(&owner, &live, &dead, &s.vacuum.count),
	})
	if !owner {
		live = -1
	}
	return live, dead, err
}
