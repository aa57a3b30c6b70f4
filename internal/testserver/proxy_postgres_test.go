package testserver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// connect opens a connection through a proxy in front of a PostgreSQL server.
func connect(t *testing.T, p *Proxy) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "postgres://"+p.Addr()+"/postgres?user=midge&sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// TestProxyOfPostgres checks that the proxy loses the request or the reply of a prepared
// statement, which it matches by the statement's SQL, and that it forwards messages that the
// server sends unasked.
func TestProxyOfPostgres(t *testing.T) {
	RequirePostgres(t)
	server := Postgres(t, PostgresOptions{Unsafe: true})
	proxy := NewProxy(t, server.Addr())
	must(t, server.Exec(t.Context(), "CREATE TABLE a (b text)"))
	const insert = "INSERT INTO a VALUES ($1)"
	rows := func() (n int) {
		must(t, connect(t, proxy).QueryRow(t.Context(), "SELECT count(*) FROM a").Scan(&n))
		return n
	}
	conn := connect(t, proxy)
	_, err := conn.Exec(t.Context(), insert, "one")
	must(t, err)

	lost := proxy.CutBeforeRequest(Containing("INSERT"), 1)
	if _, err := conn.Exec(t.Context(), insert, "two"); err == nil {
		t.Error("a lost request succeeded")
	}
	<-lost.Struck()
	if n := rows(); n != 1 {
		t.Errorf("%d rows after a lost request, want one", n)
	}
	conn = connect(t, proxy)
	unanswered := proxy.CutAfterRequest(Containing("INSERT"), 1)
	var batch pgx.Batch
	batch.Queue("BEGIN")
	batch.Queue(insert, "three")
	batch.Queue("COMMIT")
	if err := conn.SendBatch(t.Context(), &batch).Close(); err == nil {
		t.Error("a call whose reply was lost succeeded")
	}
	<-unanswered.Struck()
	if n := rows(); n != 2 {
		t.Errorf("%d rows after a lost reply, want two", n)
	}

	conn = connect(t, proxy)
	_, err = conn.Exec(t.Context(), "LISTEN news")
	must(t, err)
	must(t, server.Exec(t.Context(), "NOTIFY news, 'some'"))
	note, err := conn.WaitForNotification(t.Context())
	must(t, err)
	if note.Payload != "some" {
		t.Errorf("heard %q", note.Payload)
	}
	must(t, server.Kill())
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a killed server answers")
	}
}

func TestPostgresPause(t *testing.T) {
	RequirePostgres(t)
	server := Postgres(t, PostgresOptions{Unsafe: true})
	conn := connect(t, NewProxy(t, server.Addr()))
	must(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT 1"); err == nil {
		t.Error("a paused server answers")
	}
	must(t, server.Resume())
	must(t, server.Exec(t.Context(), "SELECT 1"))
}

func TestStandby(t *testing.T) {
	RequirePostgres(t)
	primary := Postgres(t, PostgresOptions{})
	standby := Standby(t, primary)
	must(t, primary.Exec(t.Context(), "CREATE TABLE a (b int)"))
	Await(t, "the table is on the standby", func() bool {
		return standby.Exec(t.Context(), "SELECT b FROM a") == nil
	})
	if err := standby.Exec(t.Context(), "INSERT INTO a VALUES (1)"); err == nil {
		t.Error("a standby takes writes")
	}
	must(t, primary.Kill())
	must(t, standby.Exec(t.Context(), "SELECT 1 / pg_promote()::int"))
	must(t, standby.Exec(t.Context(), "INSERT INTO a VALUES (1)"))
	must(t, primary.Follow(standby))
	must(t, primary.Exec(t.Context(), "SELECT 1 / count(*) FROM a"))
}

// TestPostgresCopy sends the rows of copies through the proxy, including copies that the
// server refuses. Later commands must be answered, and a fault must strike the command that it
// is meant for.
func TestPostgresCopy(t *testing.T) {
	RequirePostgres(t)
	server := Postgres(t, PostgresOptions{Unsafe: true})
	proxy := NewProxy(t, server.Addr())
	must(t, server.Exec(t.Context(), "CREATE TABLE a (b text PRIMARY KEY)"))
	conn := connect(t, proxy)
	many := make([][]any, 5000)
	for i := range many {
		many[i] = []any{fmt.Sprint("row ", i)}
	}
	copies := func(table string, rows ...[]any) error {
		_, err := conn.CopyFrom(t.Context(), pgx.Identifier{table}, []string{"b"}, pgx.CopyFromRows(rows))
		return err
	}
	must(t, copies("a", many...))
	if err := copies("a", many[0]); err == nil {
		t.Error("a row was copied twice, want it refused")
	}
	if err := copies("nowhere", many...); err == nil {
		t.Error("rows were copied to a table that is not there")
	}
	var n int
	must(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM a").Scan(&n))
	if n != len(many) {
		t.Errorf("%d rows, want %d", n, len(many))
	}
	lost := proxy.CutAfterRequest(Containing("copy"), 1)
	if err := copies("a", []any{"one more"}); err == nil {
		t.Error("a copy whose reply was lost succeeded")
	}
	<-lost.Struck()
	conn = connect(t, proxy)
	must(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM a").Scan(&n))
	if n != len(many)+1 {
		t.Errorf("%d rows after a copy whose reply was lost, want %d", n, len(many)+1)
	}
}
