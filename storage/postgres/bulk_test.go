package postgres_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestAStuckCopyIsEnded has a client that began to copy tasks and stopped: after a while its
// transaction holds up nobody's vacuum any more. One that is at work is left alone, and so are
// the application's own.
func TestAStuckCopyIsEnded(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, _ := opened(t, cfg)
	const columns = " (sort, version, queue, line, flags, priority, id, lease, past, record) FROM STDIN BINARY"
	tables := `"` + cfg.Schema + `".`
	application := stuck(t, "COPY "+tables+"ended FROM STDIN BINARY")
	frozen := stuck(t, "COPY "+tables+"tasks"+columns)
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
	select {
	case err := <-application:
		t.Errorf("the application's copy ended with %v, want it left alone", err)
	default:
	}
}

// stuck copies nothing and does not end; the channel gives its error. It waits until the server
// waits for its rows.
func stuck(t *testing.T, copies string) <-chan error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), shared.URL())
	if err != nil {
		t.Fatal(err)
	}
	rows, w := io.Pipe()
	done := make(chan error, 1)
	go func() { // ends with its connection or with rows
		_, err := conn.PgConn().CopyFrom(t.Context(), rows, copies)
		done <- err
		_ = rows.CloseWithError(errors.New("the copy has ended"))
	}()
	t.Cleanup(func() { _ = w.CloseWithError(errors.New("the test is over")) })
	watch, err := pgx.Connect(t.Context(), shared.URL())
	if err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "the server waits for rows", func() (waits bool) {
		err := watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query = $1 AND wait_event = 'ClientRead')",
			copies).Scan(&waits)
		return err == nil && waits
	})
	_ = watch.Close(t.Context())
	return done
}

// TestManyMeetAnEndedTask enqueues hundreds of tasks under ids that were made together, among
// them one whose task has ended and is kept.
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
