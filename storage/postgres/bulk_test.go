package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestAStuckCopyIsEnded has a client begin to copy tasks and stop: after a while its transaction is
// ended, and holds up no vacuum. A copy that goes on is left alone, and so is a copy of the
// application's.
func TestAStuckCopyIsEnded(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, _ := opened(t, cfg)
	const columns = " (sort, turn, version, queue, line, flags, priority, id, lease, past, record) FROM STDIN BINARY"
	tables := `"` + cfg.Schema + `".`
	application, giveUp := stuck(t, "SELECT 1", "COPY "+tables+"tasks"+columns)
	frozen, _ := stuck(t, postgres.InSchema("SELECT "+postgres.Copying, `"`+cfg.Schema+`"`), "COPY "+tables+"tasks"+columns)
	if err := store.Unstick(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-frozen:
		t.Fatalf("the copy ended with %v, want it to have its time", err)
	default:
	}
	if err := store.Unstick(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-frozen; err == nil {
		t.Error("the copy that was stuck succeeded, want it ended")
	}
	giveUp()
	const failed = "57014" // ended by its client, not by an administrator (57P01)
	var refused *pgconn.PgError
	if err := <-application; !errors.As(err, &refused) || refused.Code != failed {
		t.Errorf("the application's copy ended with %v, want it left alone until it gave up", err)
	}
}

// stuck begins a transaction whose copy sends no rows until giveUp is called; the channel receives the copy's
// error. stuck returns once the server waits for rows.
func stuck(t *testing.T, begins, copies string) (ended <-chan error, giveUp func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), shared.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Exec(t.Context(), "BEGIN; "+begins); err != nil {
		t.Fatal(err)
	}
	rows, w := io.Pipe()
	done := make(chan error, 1)
	go func() { // ends with its connection or with the rows
		_, err := conn.PgConn().CopyFrom(t.Context(), rows, copies)
		done <- err
		_ = rows.CloseWithError(errors.New("the copy has ended"))
	}()
	giveUp = func() { _ = w.CloseWithError(errors.New("it gives up")) }
	t.Cleanup(giveUp)
	watch, err := pgx.Connect(t.Context(), shared.URL())
	if err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "the server waits for rows", func() (waits bool) {
		err := watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND query = $2 AND wait_event = 'ClientRead')",
			conn.PgConn().PID(), copies).Scan(&waits)
		return err == nil && waits
	})
	_ = watch.Close(t.Context())
	return done, giveUp
}

// TestManyMeetAnEndedTask enqueues hundreds of tasks under ids that were made together, one of which
// belongs to a task that has ended and is kept.
func TestManyMeetAnEndedTask(t *testing.T) {
	testserver.RequirePostgres(t)
	_, session := opened(t, fresh(t, postgres.Config{}))
	txs := insertTxs(300)
	kept := txs[200].Inserts[0]
	kept.Keep.For = time.Hour
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{kept}}); err != nil {
		t.Fatal(err)
	}
	complete(t.Context(), t, session, make(map[string]int))
	applied, err := session.Apply(t.Context(), txs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range applied {
		ended := i == 200
		if a.Err != nil || a.Inserted[0].Existing != ended || (a.Inserted[0].State == storage.Completed) != ended {
			t.Errorf("insert %d: got %+v, want what has ended for the 200th and new tasks else", i, a)
		}
	}
	stats, err := session.Storage().Stats(t.Context(), "q")
	if err != nil || stats[0].Waiting != 299 || stats[0].Totals.Enqueued != 300 {
		t.Errorf("got %+v, %v, want 299 waiting of 300", stats, err)
	}
}

// TestManyOfOneTxMeetOthers has a Tx insert hundreds of numbered tasks beside an operation of another kind.
// One of the ids belongs to a task that has ended, and another to a task that an application's transaction
// is making.
func TestManyOfOneTxMeetOthers(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, session := opened(t, cfg)
	var tx storage.Tx
	for i, one := range insertTxs(300) {
		one.Inserts[0].Ref.ID = fmt.Sprintf("order.%010d", i)
		tx.Inserts = append(tx.Inserts, one.Inserts...)
	}
	kept := tx.Inserts[200]
	kept.Keep.For = time.Hour
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{kept}})
	must(err)
	complete(t.Context(), t, session, make(map[string]int))
	other := tx.Inserts[0]
	other.Ref.ID = "other"
	applied, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{other}})
	must(err)
	tx.Depends = []storage.Depend{{Ref: other.Ref, Version: applied.Inserted[0].Version}}

	conn, err := pgx.Connect(t.Context(), cfg.URL)
	must(err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	application, err := conn.Begin(t.Context())
	must(err)
	made, err := store.Within(application).Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: tx.Inserts[100:101]})
	must(errors.Join(err, made[0].Err))
	var many storage.Applied
	done := make(chan error, 1)
	go func() { // ends with the application's transaction
		var err error
		many, err = session.ApplyOne(t.Context(), tx)
		done <- err
	}()
	watch, err := pgx.Connect(t.Context(), cfg.URL)
	must(err)
	defer func() { _ = watch.Close(context.WithoutCancel(t.Context())) }()
	testserver.Await(t, "the copy waits for the application", func() (waits bool) {
		must(watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity "+
			"WHERE wait_event_type = 'Lock' AND query LIKE 'COPY%')").Scan(&waits))
		return waits
	})
	must(application.Commit(t.Context()))
	must(<-done)
	for i, p := range many.Inserted {
		if was := i == 100 || i == 200; p.Existing != was || (p.State == storage.Completed) != (i == 200) {
			t.Errorf("insert %d: got %+v, want the tasks of two others, and new ones else", i, p)
		}
	}
	stats, err := store.Stats(t.Context(), "q")
	if err != nil || stats[0].Waiting != 300 || stats[0].Totals.Enqueued != 301 {
		t.Errorf("got %+v, %v, want 300 waiting of 301", stats, err)
	}
}

// TestManyAreRepeated repeats a large call whose ids are taken: ids that were made for it, and ids of
// the application's own.
func TestManyAreRepeated(t *testing.T) {
	testserver.RequirePostgres(t)
	store, session := opened(t, fresh(t, postgres.Config{}))
	made, named := insertTxs(200), insertTxs(200)
	for i := range named {
		named[i].Inserts[0].Ref.ID = fmt.Sprintf("order-%d", i)
	}
	for what, txs := range map[string][]storage.Tx{"made": made, "named": named} {
		for n := range 3 {
			applied, err := session.Apply(t.Context(), txs...)
			if err != nil || applied[199].Err != nil || applied[199].Inserted[0].Existing != (n > 0) {
				t.Fatalf("%s, the %dth time: %v, %v", what, n, err, applied)
			}
		}
	}
	stats, err := store.Stats(t.Context(), "q")
	if err != nil || stats[0].Waiting != 400 || stats[0].Totals.Enqueued != 400 {
		t.Errorf("got %+v, %v, want 400 waiting", stats, err)
	}
}

// TestACommitThatNotifiesWaits has another transaction hold the lock that a commit with a
// notification takes: inserts of every size wait for that lock, however long it is held.
func TestACommitThatNotifiesWaits(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// This setting makes a commit wait for a standby that does not exist, until the wait is
	// cancelled.
	must(server.Exec(t.Context(), "ALTER DATABASE postgres SET synchronous_commit = 'local'"))
	must(server.Exec(t.Context(), "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"))
	must(server.Exec(t.Context(), "SELECT pg_reload_conf()"))
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), server.URL())
		must(err)
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		return conn
	}
	slow, watch := connect(), connect()
	must(server.Exec(t.Context(), "CREATE TABLE written (a int)"))
	_, err := slow.Exec(t.Context(), "SET synchronous_commit = on")
	must(err)
	sees := func(what string) {
		t.Helper()
		testserver.Await(t, what, func() (seen bool) {
			must(watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE "+what+")").Scan(&seen))
			return seen
		})
	}
	for _, n := range []int{1, 50, 150} {
		_, session := opened(t, fresh(t, postgres.Config{URL: server.URL()}))
		_, err = slow.Exec(t.Context(), "BEGIN; INSERT INTO written VALUES (1); NOTIFY other")
		must(err)
		committed, applied := make(chan error, 1), make(chan error, 1)
		go func() { // ends with the wait for the standby
			_, err := slow.Exec(t.Context(), "COMMIT")
			committed <- err
		}()
		sees("wait_event = 'SyncRep'")
		go func() { // ends with the commit above
			_, err := session.Apply(t.Context(), insertTxs(n)...)
			applied <- err
		}()
		sees("wait_event_type = 'Lock' AND state_change < clock_timestamp() - interval '200 ms'")
		must(server.Exec(t.Context(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
		must(<-committed)
		if err := <-applied; err != nil {
			t.Errorf("%d inserts beside a commit that takes long: %v", n, err)
		}
	}
}
