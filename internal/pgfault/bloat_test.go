package pgfault

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// TestTablesStaySmall lets many jobs pass through a short queue, at no more than half the
// rate that the machine can do, and checks that the tables stay small.
func TestTablesStaySmall(t *testing.T) {
	testserver.RequirePostgres(t)
	const jobs, window, step, every = 2_000_000 / share, 10_000, 1000, 80 * time.Millisecond
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	cfg := fresh(t, postgres.Config{URL: server.URL()})
	_, session := opened(t, cfg)
	conn := connect(t, server.URL())
	for range window / step {
		must(session.Apply(t.Context(), inserts(step)...))(t)
	}
	first, most := size(t, conn, cfg.Schema), int64(0)
	pace, begun := testserver.StartPace(t), time.Now()
	for range jobs / step {
		passing := time.Now()
		pass(t, session, step)
		took := time.Since(passing)
		most = max(most, size(t, conn, cfg.Schema))
		<-time.NewTimer(max(took, every-took)).C
	}
	took := time.Since(begun)
	times := float64(most) / float64(first)
	t.Logf("%d jobs through a window of %d in %v, %.0f/s: %d kB fresh, %d kB at most, %.1f times",
		jobs, window, took.Round(time.Millisecond), jobs/took.Seconds(), first>>10, most>>10, times)
	// Dead rows stay until a vacuum removes them, which takes longer on a busy machine.
	if limit := 1 + 2*pace.Stretch(time.Second, begun).Seconds(); times > limit {
		t.Errorf("tables and indexes were %.1f times as large as fresh ones, want %.1f at most", times, limit)
	}
}

// size returns the size of all tables and indexes of a schema in bytes.
func size(t testing.TB, conn *pgx.Conn, schema string) int64 {
	t.Helper()
	return value[int64](t, conn, `SELECT sum(pg_total_relation_size(c.oid))::int8 FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'`, schema)
}
