package pgfault

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// TestDeadRowsAreNotVisited measures the pages read, not time. Under a transaction that
// stays open, no vacuum removes dead rows. Even so, a task may read at most three times
// as many pages after many other tasks as before.
func TestDeadRowsAreNotVisited(t *testing.T) {
	testserver.RequirePostgres(t)
	const jobs, batch, cycles = 300_000 / share, 1000, 200
	server := testserver.Postgres(t, testserver.PostgresOptions{
		Unsafe: true, Config: []string{"shared_preload_libraries = 'pg_stat_statements'"},
	})
	cfg := fresh(t, postgres.Config{URL: server.URL()})
	_, session := opened(t, cfg)
	conn := connect(t, server.URL())
	_, err := conn.Exec(t.Context(), "CREATE EXTENSION pg_stat_statements")
	succeed(t, err)
	pages := func() int64 {
		return value[int64](t, conn, "SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::int8 "+
			"FROM pg_stat_statements WHERE query ~ '(claim|enqueue|finish)[(]'")
	}
	// Take the third quartile: a claim reads everything once a second or less often, which is up to a fifth
	// of the cycles on a busy machine.
	cost := func() int64 {
		costs := make([]int64, cycles)
		for i := range costs {
			before := pages()
			pass(t, session, 1)
			costs[i] = pages() - before
		}
		slices.Sort(costs)
		return costs[cycles*3/4]
	}
	hold(t, server.URL())
	pass(t, session, batch)
	before := cost()
	for range jobs / batch {
		pass(t, session, batch)
	}
	after := cost()
	t.Logf("a task reads %d pages behind %d others, and %d behind %d whose dead rows nothing removes",
		before, batch, after, jobs)
	if after > 3*before {
		t.Errorf("a task reads %d pages, want at most three times %d", after, before)
	}
}

// hold opens a transaction with a snapshot of the present rows, and returns the
// function that ends it.
func hold(t *testing.T, url string) (end func()) {
	t.Helper()
	conn := connect(t, url)
	tx := must(conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	_, err := tx.Exec(t.Context(), "SELECT count(*) FROM pg_class")
	succeed(t, err)
	return func() { succeed(t, tx.Rollback(context.WithoutCancel(t.Context()))) }
}
