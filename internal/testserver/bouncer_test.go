package testserver

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestBouncerPoolsTransactions checks that the transactions of one client run on several
// connections of the server.
func TestBouncerPoolsTransactions(t *testing.T) {
	RequirePostgres(t)
	bouncer := Bouncer(t, Postgres(t, PostgresOptions{Unsafe: true}))
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), bouncer.URL())
		must(t, err)
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		return conn
	}
	pids := make(map[int32]bool)
	type asker interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}
	ask := func(from asker) {
		var pid int32
		must(t, from.QueryRow(t.Context(), "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid))
		pids[pid] = true
	}
	conn := connect()
	tx, err := connect().Begin(t.Context())
	must(t, err)
	ask(tx) // no other client gets this connection until the transaction ends
	ask(conn)
	must(t, tx.Rollback(t.Context()))
	seen := len(pids)
	clear(pids)
	for range 4 {
		ask(conn)
	}
	if seen != 2 || len(pids) != 2 {
		t.Errorf("got %d connections beside a transaction and %d after it, want 2 and 2", seen, len(pids))
	}
}
