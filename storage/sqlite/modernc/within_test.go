package modernc_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestWithinATransaction enqueues and completes in transactions of the application's.
func TestWithinATransaction(t *testing.T) {
	path := file(t)
	s := open(t, path)
	db := database(t, path, "&_txlock=immediate")
	_, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT PRIMARY KEY)")
	must(t, err)
	insert := storage.Tx{Inserts: []storage.Insert{job("a")}}
	for _, commits := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ('a')")
		must(t, err)
		_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{}, insert)
		must(t, err)
		if state := s.state(t, "a"); state != "" {
			t.Fatalf("before the transaction ends the task is %s, want none", state)
		}
		want := storage.State("")
		if commits {
			must(t, tx.Commit())
			want = storage.Waiting
		} else {
			must(t, tx.Rollback())
		}
		if state := s.state(t, "a"); state != want {
			t.Fatalf("committed %t: the task is %q, want %q", commits, state, want)
		}
	}
	claimed, err := s.claimLong(t.Context(), 1)
	must(t, err)
	for _, commits := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		joined := s.store.Within(tx)
		refused, err := joined.Apply(t.Context(), storage.Call{}, storage.Tx{Deletes: []storage.Delete{{Ref: ref("b"), Version: 1}}})
		must(t, err)
		if !errors.Is(refused[0].Err, storage.ErrNotFound) {
			t.Fatalf("a delete of nothing: got %v, want an ErrNotFound", refused[0].Err)
		}
		_, err = joined.Apply(t.Context(), storage.Call{}, storage.Tx{
			Settles: []storage.Settle{{Fence: claimed.Fences[0], Outcome: storage.Complete}},
		})
		must(t, err)
		want := storage.Pending
		if commits {
			must(t, tx.Commit())
			want = storage.Completed
		} else {
			must(t, tx.Rollback())
		}
		if state := s.state(t, "a"); state != want {
			t.Fatalf("committed %t: the task is %q, want %q", commits, state, want)
		}
	}
}

// TestADeferredTransactionIsTold reads in a transaction that began as a reader, lets another one
// write, and enqueues: no repeat helps, and the error names the remedy.
func TestADeferredTransactionIsTold(t *testing.T) {
	path := file(t)
	s := open(t, path)
	must(t, s.insert(t.Context(), "a"))
	tx, err := database(t, path, "").BeginTx(t.Context(), nil)
	must(t, err)
	var n int
	must(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM midge_jobs").Scan(&n))
	must(t, s.insert(t.Context(), "b"))
	_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{job("c")}})
	if _, told := errors.AsType[*sqlite.DeferredError](err); !told {
		t.Fatalf("got %v, want a *DeferredError", err)
	}
	must(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM midge_jobs").Scan(&n))
	must(t, tx.Rollback())
}

// TestTheApplicationsDatabase keeps tasks beside the application's tables, under a prefix.
func TestTheApplicationsDatabase(t *testing.T) {
	path := file(t)
	execute(t, path, "CREATE TABLE orders (id TEXT PRIMARY KEY)")
	cfg := sqlite.Config{DB: database(t, path, "&_txlock=immediate"), Prefix: "work_"}
	_, err := sqlite.Open(t.Context(), cfg)
	if !errors.Is(err, storage.ErrRefused) {
		t.Fatalf("open before Migrate: got %v, want an ErrRefused", err)
	}
	must(t, sqlite.Migrate(t.Context(), cfg))
	must(t, sqlite.Migrate(t.Context(), cfg))
	s := opened(t, cfg)
	must(t, s.insert(t.Context(), "a"))
	var tasks int
	must(t, cfg.DB.QueryRowContext(t.Context(), "SELECT count(*) FROM work_jobs WHERE id = 'a'").Scan(&tasks))
	must(t, s.store.Close())
	var timeout int // of the application's connections, which the storage's former one has joined
	err = cfg.DB.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&timeout)
	if err != nil || tasks != 1 || timeout != 5000 {
		t.Fatalf("after Close: %v, %d tasks, busy_timeout %d; want the database open, one, and 5000", err, tasks, timeout)
	}
	cfg.DB.SetMaxOpenConns(2)
	var invalid *storage.InvalidError
	if _, err := sqlite.Open(t.Context(), cfg); !errors.As(err, &invalid) {
		t.Fatalf("a pool of two: got %v, want an *InvalidError", err)
	}
}

// TestTheViewOfJobs reads tasks in the view.
func TestTheViewOfJobs(t *testing.T) {
	path := file(t)
	s := open(t, path)
	must(t, s.insert(t.Context(), "a", "b", "c"))
	c, err := s.claimLong(t.Context(), 2)
	must(t, err)
	_, err = s.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{
		{Fence: c.Fences[0], Outcome: storage.Bury, Error: "out of paper"},
	}})
	must(t, err)
	rows, err := database(t, path, "").QueryContext(t.Context(), "SELECT id || ' ' || kind || ' ' || state || ' ' || "+
		"coalesce(last_error, '') || ' ' || (lease_until IS NOT NULL) || ' ' || (abs(julianday() - julianday(created_at)) < 1) "+
		"FROM midge_jobs WHERE queue = 'q' ORDER BY id")
	must(t, err)
	defer func() { _ = rows.Close() }()
	for _, want := range []string{"a kind dead out of paper 0 1", "b kind pending  1 1", "c kind waiting  0 1"} {
		var got string
		if !rows.Next() {
			t.Fatalf("no row, want %q", want)
		}
		must(t, rows.Scan(&got))
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	must(t, rows.Err())
}

func TestWithinRefusesNoTransaction(t *testing.T) {
	s := open(t, file(t))
	_, err := s.store.Within(nil).Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{job("a")}})
	if _, refused := errors.AsType[*storage.InvalidError](err); !refused {
		t.Errorf("got %v, want an *InvalidError", err)
	}
}

// TestMidgetestWithinATransaction checks the tasks that an open transaction has enqueued.
func TestMidgetestWithinATransaction(t *testing.T) {
	path := file(t)
	s := open(t, path)
	client, err := midge.NewClient(s.store, midge.ClientConfig{})
	must(t, err)
	tx, err := database(t, path, "&_txlock=immediate").BeginTx(t.Context(), nil)
	must(t, err)
	within := client.With(s.store.Within(tx))
	task, err := within.Enqueue(t.Context(), order{Number: 7})
	must(t, err)
	if read, err := within.Task(t.Context(), task.Ref); err != nil || read.State != midge.Waiting {
		t.Errorf("the transaction reads its task as %s, %v, want waiting", read.State, err)
	}
	midgetest.RequireEnqueued[order](t, within, midgetest.Params(order{Number: 7}))
	midgetest.RequireNone[order](t, client)
	must(t, tx.Commit())
	midgetest.RequireEnqueued[order](t, client, midgetest.Params(order{Number: 7}))
}

// TestLocationTellsFilesApart, and is the same for all names of one file.
func TestLocationTellsFilesApart(t *testing.T) {
	t.Parallel()
	path := file(t)
	link := filepath.Join(t.TempDir(), "link.db")
	first := open(t, path)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	same, other := open(t, link), open(t, file(t))
	if err := storage.CheckLocation(first.store, same.store.Within(nil)); err != nil {
		t.Errorf("by a symbolic link: got %v", err)
	}
	var invalid *storage.InvalidError
	if err := storage.CheckLocation(first.store, other.store.Within(nil)); !errors.As(err, &invalid) {
		t.Errorf("of another file: got %v, want an *InvalidError", err)
	}
}

// TestTransactionsOfOpenDB writes in two transactions at once, and reads in a third. The second waits
// for the first, and none fails.
func TestTransactionsOfOpenDB(t *testing.T) {
	path := t.TempDir() + "/a?b #%20.db"
	db, err := modernc.OpenDB(path)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, sqlite.Migrate(t.Context(), sqlite.Config{DB: db}))
	s := opened(t, sqlite.Config{DB: db})
	first, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	enqueue := func(tx *sql.Tx, id string) error {
		_, err := s.store.WithinSQL(tx).Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{job(id)}})
		return errors.Join(err, tx.Commit())
	}
	second := make(chan error, 1)
	go func() {
		tx, err := db.BeginTx(t.Context(), nil)
		if err == nil {
			err = enqueue(tx, "b")
		}
		second <- err
	}()
	reading, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	must(t, err)
	if _, err := s.store.WithinSQL(reading).Task(t.Context(), ref("a")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("before the first commits: got %v, want an ErrNotFound", err)
	}
	must(t, reading.Rollback())
	must(t, enqueue(first, "a"))
	must(t, <-second)
	if a, b := s.state(t, "a"), s.state(t, "b"); a != storage.Waiting || b != storage.Waiting {
		t.Errorf("a is %q and b %q, want both waiting", a, b)
	}
	_, err = os.Stat(path)
	must(t, err)
	for _, path := range []string{"", ":memory:", "file:a.db"} {
		if _, err := modernc.OpenDB(path); !errors.As(err, new(*storage.InvalidError)) {
			t.Errorf("%q: got %v, want an *InvalidError", path, err)
		}
	}
}
