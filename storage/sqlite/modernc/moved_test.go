package modernc_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestAFileThatWasMovedAcknowledgesNothing takes the file, or its log, away while it is open. From
// then on each call is refused, with an error about the missing file, until the file is back. Every
// acknowledged task is there then.
func TestAFileThatWasMovedAcknowledgesNothing(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, path string) (undo func()){
		"renamed": func(t *testing.T, path string) func() {
			t.Helper()
			must(t, os.Rename(path, path+".old"))
			return func() { must(t, os.Rename(path+".old", path)) }
		},
		"replaced": func(t *testing.T, path string) func() {
			t.Helper()
			must(t, os.Rename(path, path+".old"))
			must(t, os.WriteFile(path, nil, 0o600))
			return func() { must(t, os.Rename(path+".old", path)) }
		},
		"its log renamed": func(t *testing.T, path string) func() {
			t.Helper()
			must(t, os.Rename(path+"-wal", path+".old"))
			return func() { must(t, os.Rename(path+".old", path+"-wal")) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := file(t)
			db := database(t, path, "&_txlock=immediate")
			must(t, sqlite.Migrate(t.Context(), sqlite.Config{DB: db}))
			s := opened(t, sqlite.Config{DB: db})
			must(t, s.insert(t.Context(), "a"))
			undo := change(t, path)
			wantMoved(t, s, what != "its log renamed")
			undo()
			must(t, s.insert(t.Context(), "b"))
			if a, b := s.state(t, "a"), s.state(t, "b"); a != storage.Waiting || b != storage.Waiting {
				t.Errorf("with the file back, a is %q and b is %q, want both waiting", a, b)
			}
		})
	}
}

// wantMoved expects each kind of call to report that the file has lost its name. Reads do not use the log.
func wantMoved(t *testing.T, s *side, reads bool) {
	t.Helper()
	wantProblem(t, s.insert(t.Context(), "lost"), sqlite.Moved)
	_, err := s.claim(t.Context(), 1)
	wantProblem(t, err, sqlite.Moved)
	if reads {
		_, err = s.store.Describe(t.Context())
		wantProblem(t, err, sqlite.Moved)
	}
	if !strings.Contains(err.Error(), "restart") {
		t.Errorf("%v: want an error that says what to do", err)
	}
}

// TestDescribeWritesNothingToAFileThatWasTaken takes the file, its log or its index in each way from a storage
// that has never described it, so that Describe tries whether the file has space.
func TestDescribeWritesNothingToAFileThatWasTaken(t *testing.T) {
	for _, c := range allCells() {
		if c.killed || c.mayGoOn() && c.file != "-wal" || c.action == "read-only" {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			path, aside := file(t), filepath.Join(t.TempDir(), "aside")
			s := open(t, path)
			must(t, s.addAlone(t.Context(), "a"))
			log, err := os.Open(path + "-wal")
			must(t, err)
			defer func() { _ = log.Close() }()
			actions[c.action](t, c.path(path), aside)
			before, err := log.Stat()
			must(t, err)
			_, _ = s.store.Describe(t.Context()) // it need not read the log
			after, err := log.Stat()
			must(t, err)
			if before.Size() != after.Size() {
				t.Errorf("the log had %d bytes before, and has %d after", before.Size(), after.Size())
			}
		})
	}
}

// TestATransactionOnATruncatedLogIsRefused truncates the log under a connection that has the pages of a step in
// memory: SQLite commits the next transaction behind the hole.
func TestATransactionOnATruncatedLogIsRefused(t *testing.T) {
	for what, write := range map[string]string{
		"empty": "PRAGMA user_version", "with a hole": "CREATE TABLE own (n)",
	} {
		t.Run(what, func(t *testing.T) {
			path := file(t)
			db := database(t, path, "&_txlock=immediate")
			must(t, sqlite.Migrate(t.Context(), sqlite.Config{DB: db}))
			s := opened(t, sqlite.Config{DB: db})
			conn, err := db.Conn(t.Context())
			must(t, err)
			defer func() { _ = conn.Close() }()
			within := func(id string) error {
				tx, err := conn.BeginTx(t.Context(), nil)
				must(t, err)
				defer func() { _ = tx.Commit() }()
				_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{},
					storage.Tx{Inserts: []storage.Insert{job(id)}})
				return err
			}
			must(t, within("a"))
			execute(t, path, "PRAGMA wal_checkpoint(TRUNCATE)") // it does no harm
			must(t, within("b"))
			must(t, os.Truncate(path+"-wal", 0))
			_, err = conn.ExecContext(t.Context(), write)
			must(t, err)
			wantProblem(t, within("c"), sqlite.Broken)
		})
	}
}

// TestATransactionOnAMovedFileIsRefused joins a transaction on a file that was removed under it.
func TestATransactionOnAMovedFileIsRefused(t *testing.T) {
	path := file(t)
	db := database(t, path, "&_txlock=immediate")
	must(t, sqlite.Migrate(t.Context(), sqlite.Config{DB: db}))
	s := opened(t, sqlite.Config{DB: db})
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, os.Remove(path))
	_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{job("a")}})
	wantProblem(t, err, sqlite.Moved)
	must(t, tx.Rollback())
}

// TestAMissingTableIsTold drops a table or an index. Open refuses the file, and an open handle warns.
func TestAMissingTableIsTold(t *testing.T) {
	for _, drop := range []string{
		"TABLE midge_tasks", "TABLE midge_queues", "TABLE midge_lanes", "TABLE midge_keys", "INDEX midge_tasks_id",
	} {
		t.Run(drop, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			must(t, s.insert(t.Context(), "a"))
			execute(t, path, "DROP "+drop)
			wantWarning(t, s, strings.Fields(drop)[1])
			_, err := modernc.Open(t.Context(), path)
			wantProblem(t, err, sqlite.Broken)
			if !strings.Contains(err.Error(), strings.Fields(drop)[1]) {
				t.Errorf("got %v, want an error that names it", err)
			}
		})
	}
}

// TestAMissingColumnIsTold makes a table anew in a form that no version of midge has.
func TestAMissingColumnIsTold(t *testing.T) {
	path := file(t)
	s := open(t, path)
	execute(t, path, "ALTER TABLE midge_tasks RENAME COLUMN ended TO over")
	wantWarning(t, s, "midge_tasks")
	_, err := modernc.Open(t.Context(), path)
	wantProblem(t, err, sqlite.Broken)
}

// wantWarning expects that Describe warns of something.
func wantWarning(t *testing.T, s *side, what string) {
	t.Helper()
	d, err := s.store.Describe(t.Context())
	must(t, err)
	if len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], what) {
		t.Errorf("warnings: got %q, want one of %s", d.Warnings, what)
	}
}

// breaks overwrites the pages of a file, except for the first ones: behind is their number.
func breaks(t *testing.T, path string, behind int) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	for i := 4096 * behind; i < len(content); i++ {
		content[i] = 0x5a
	}
	must(t, os.WriteFile(path, content, 0o600))
}

// TestAMalformedPageIsTold damages the first and last pages of the tasks, which Open reads.
func TestAMalformedPageIsTold(t *testing.T) {
	path := file(t)
	s := open(t, path)
	s.insertMany(t, 3000)
	must(t, s.store.Close())
	breaks(t, path, 20)
	_, err := modernc.Open(t.Context(), path)
	wantProblem(t, err, sqlite.Broken)
}

// insertMany enqueues tasks in one call.
func (s *side) insertMany(t *testing.T, n int) {
	t.Helper()
	for ; n > 0; n -= 100 {
		tasks := make([]storage.Insert, 100)
		for i := range tasks {
			tasks[i] = job(storage.NewID())
		}
		_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: tasks})
		must(t, err)
	}
}

// TestDamageThatAStepMeetsIsWarnedOf damages pages under an open handle.
func TestDamageThatAStepMeetsIsWarnedOf(t *testing.T) {
	path := file(t)
	s := open(t, path)
	s.insertMany(t, 3000)
	must(t, s.store.Close())
	s = open(t, path)
	breaks(t, path, 20)
	_, err := s.claim(t.Context(), 1000)
	wantProblem(t, err, sqlite.Broken)
	d, err := s.store.Describe(t.Context())
	if err == nil && len(d.Warnings) == 0 {
		t.Errorf("got %+v, want a warning of the damage", d)
	}
	if err != nil && !errors.Is(err, storage.ErrRefused) {
		t.Errorf("got %v, want a warning, or an ErrRefused", err)
	}
}

// TestWhatIsNoFileIsTold opens things that are no file of tasks, and expects an error that names what they
// are.
func TestWhatIsNoFileIsTold(t *testing.T) {
	path := file(t)
	must(t, os.WriteFile(path, []byte("these are 40 bytes of a text, no database"), 0o600))
	_, err := modernc.Open(t.Context(), path)
	wantProblem(t, err, sqlite.Foreign)
	if !strings.Contains(err.Error(), "no SQLite database") {
		t.Errorf("a text: got %v", err)
	}
	_, err = modernc.Open(t.Context(), t.TempDir())
	wantProblem(t, err, sqlite.Foreign)
	if !strings.Contains(err.Error(), "folder") {
		t.Errorf("a folder: got %v", err)
	}
	_, err = modernc.Open(t.Context(), t.TempDir()+"/no/such/jobs.db")
	wantProblem(t, err, sqlite.NoFolder)
}

// TestDescribeReadsAFewPages describes a file with few tasks, and with many: it reads only the first
// and the last of each order.
func TestDescribeReadsAFewPages(t *testing.T) {
	const most = 8 // times as long; a scan takes 25 times as long
	s := opened(t, sqlite.Config{Path: file(t), Driver: modernc.Driver, Relaxed: true})
	quickest := func() time.Duration {
		least := time.Hour
		for range 10 {
			begun := time.Now()
			_, err := s.store.Describe(t.Context())
			must(t, err)
			least = min(least, time.Since(begun))
		}
		return least
	}
	s.insertMany(t, 200)
	few := quickest()
	s.insertMany(t, 50_000)
	if many := quickest(); many > most*few {
		t.Errorf("with 50,000 tasks it takes %v, and with 200 %v", many, few)
	}
}
