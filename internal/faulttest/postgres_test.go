//go:build unix

package faulttest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
)

// list returns the rows of a query that has one text column.
func list(t *testing.T, server *testserver.PostgresServer, sql string, args ...any) []string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, server.URL())
	must(t, err)
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, sql, args...)
	must(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return texts
}

// rowsOf lists the keys of the rows in a schema, sorted. It leaves out lanes, which
// live for minutes, and deltas that are not folded into the queues yet.
func rowsOf(t *testing.T, server *testserver.PostgresServer, schema string) []string {
	t.Helper()
	var parts []string
	for table, key := range map[string]string{
		"queues": "name", "tasks": "id::text", "ended": "id::text", "sides": "id::text", "keys": "key", "runners": "id",
	} {
		parts = append(parts, "SELECT '"+table+"/' || "+key+" FROM "+schema+"."+table)
	}
	return list(t, server, strings.Join(parts, " UNION ALL ")+" ORDER BY 1")
}

// backendsOf returns the number of client connections of processes other than this one.
func backendsOf(t *testing.T, server *testserver.PostgresServer) int {
	t.Helper()
	return len(list(t, server, `SELECT application_name FROM pg_stat_activity WHERE backend_type = 'client backend'
		AND pid <> pg_backend_pid() AND application_name <> $1`, strconv.Itoa(os.Getpid())))
}

// statements returns the statements that a server, which must log all of them, receives
// within a time. The statements of a transaction count as one.
func statements(t *testing.T, server *testserver.PostgresServer, within time.Duration) []string {
	t.Helper()
	before := len(server.Log())
	<-time.NewTimer(within).C
	var texts []string
	inside := make(map[string]bool) // whether a server process is in a transaction
	for line := range strings.Lines(server.Log()[before:]) {
		who, text, ok := strings.Cut(line, " LOG:  ")
		who = who[strings.IndexByte(who, '[')+1:]
		kind, text, _ := strings.Cut(strings.TrimSpace(text), ": ")
		if !ok || kind != "statement" && !strings.HasPrefix(kind, "execute") {
			continue
		}
		if !inside[who] {
			texts = append(texts, text[:min(len(text), 60)])
		}
		inside[who] = strings.HasPrefix(text, "BEGIN") || inside[who] && !strings.HasPrefix(text, "COMMIT")
	}
	return texts
}
