package modernc_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// wantProblem fails the test unless err is a *FileError with this problem.
func wantProblem(t *testing.T, err error, want sqlite.Problem) {
	t.Helper()
	var problem *sqlite.FileError
	if !errors.As(err, &problem) || problem.Problem != want || !errors.Is(err, storage.ErrRefused) {
		t.Fatalf("got %v, want a *FileError: %s", err, want)
	}
	t.Log(err)
}

func TestAForeignFileIsRefused(t *testing.T) {
	path := file(t)
	execute(t, path, "CREATE TABLE orders (id TEXT)")
	before, err := os.ReadFile(path)
	must(t, err)
	_, err = modernc.Open(t.Context(), path)
	wantProblem(t, err, sqlite.Foreign)
	after, err := os.ReadFile(path)
	must(t, err)
	if string(after) != string(before) {
		t.Error("the file of others was changed")
	}
}

// TestAFileOfTwoNamesIsRefused opens a file by a hard link: that name would have another log.
func TestAFileOfTwoNamesIsRefused(t *testing.T) {
	path := file(t)
	s := open(t, path)
	must(t, s.insert(t.Context(), "a"))
	must(t, os.Link(path, path+".link"))
	for _, name := range []string{path, path + ".link"} {
		_, err := modernc.Open(t.Context(), name)
		wantProblem(t, err, sqlite.Linked)
	}
	_, err := sqlite.Open(t.Context(), sqlite.Config{DB: database(t, path, "")})
	wantProblem(t, err, sqlite.Linked)
	must(t, os.Remove(path+".link"))
	if ids := open(t, path).claimAll(t); len(ids) != 1 {
		t.Errorf("claimed %q, want a", ids)
	}
}

func TestAReadOnlyFileIsTold(t *testing.T) {
	path := file(t)
	must(t, open(t, path).store.Close())
	_, err := sqlite.Open(t.Context(), sqlite.Config{DB: database(t, "file:"+path, "&mode=ro")})
	wantProblem(t, err, sqlite.ReadOnly)
}

func TestANewerSchemaIsTold(t *testing.T) {
	path := file(t)
	must(t, open(t, path).store.Close())
	execute(t, path, "UPDATE midge_meta SET version = 8")
	must(t, open(t, path).store.Close()) // a version that this one can use
	execute(t, path, "UPDATE midge_meta SET version = 9, least = 7")
	_, err := modernc.Open(t.Context(), path)
	var newer *sqlite.SchemaError
	if !errors.As(err, &newer) || newer.Found != 9 || newer.Least != 7 || !errors.Is(err, storage.ErrRefused) {
		t.Fatalf("got %v, want a *SchemaError of version 9, least 7", err)
	}
}

// TestADamagedVersionIsTold writes a value that no version of midge writes into the table of the version.
func TestADamagedVersionIsTold(t *testing.T) {
	const other = "DROP TABLE midge_meta; CREATE TABLE midge_meta "
	for what, damage := range map[string]string{
		"a negative version": "UPDATE midge_meta SET version = -1",
		"version 0":          "UPDATE midge_meta SET version = 0",
		"a text":             "UPDATE midge_meta SET version = 'one'",
		"a text as least":    "UPDATE midge_meta SET least = 'one'",
		"no row":             "DELETE FROM midge_meta",
		"no version": other + "(one, version, least, mark, clock, jumped); " +
			"INSERT INTO midge_meta VALUES (1, NULL, NULL, 0, 0, 0)",
		"other columns":       other + "(key, value)",
		"a column is missing": other + "(version, least); INSERT INTO midge_meta VALUES (1, 1)",
	} {
		t.Run(what, func(t *testing.T) {
			path := file(t)
			must(t, open(t, path).store.Close())
			execute(t, path, damage)
			_, err := modernc.Open(t.Context(), path)
			wantProblem(t, err, sqlite.Broken)
			cfg := sqlite.Config{DB: database(t, path, "")}
			wantProblem(t, sqlite.Migrate(t.Context(), cfg), sqlite.Broken)
		})
	}
}

// TestAFullDiskLosesNothing fills a database that may not grow. Every acknowledged task is there, and
// can be completed; then there is room again.
func TestAFullDiskLosesNothing(t *testing.T) {
	path := file(t)
	db := database(t, path, "&_pragma=max_page_count(120)")
	must(t, sqlite.Migrate(t.Context(), sqlite.Config{DB: db}))
	s := opened(t, sqlite.Config{DB: db, MinLease: time.Second})
	acknowledged := 0
	for {
		err := s.insert(t.Context(), storage.NewID())
		if err == nil {
			acknowledged++
			continue
		}
		if !errors.Is(err, storage.ErrFull) {
			t.Fatalf("after %d tasks: got %v, want an ErrFull", acknowledged, err)
		}
		break
	}
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	if stats[0].Waiting != int64(acknowledged) || acknowledged < 100 {
		t.Fatalf("%d tasks were acknowledged, and %d wait", acknowledged, stats[0].Waiting)
	}
	other := opened(t, sqlite.Config{DB: db, MinLease: time.Second}) // it finds out by a write of its own
	held, err := db.Conn(t.Context())
	must(t, err)
	execOn := func(statement string) {
		_, err := held.ExecContext(t.Context(), statement)
		must(t, err)
	}
	execOn("BEGIN IMMEDIATE")
	_, err = other.store.Describe(t.Context()) // its trial waits for a later one
	must(t, err)
	execOn("ROLLBACK")
	must(t, held.Close())
	for _, s := range []*side{s, other} {
		var d storage.Description
		await(t, "the report of the full file", func() bool { // while the other handle writes, there is no trial
			var err error
			d, err = s.store.Describe(t.Context())
			must(t, err)
			return d.Full != ""
		})
		if !strings.HasPrefix(d.Full, "SQLite is full: ") || d.FullSince.IsZero() || d.FullSince.After(d.Now) {
			t.Errorf("got %q since %v, want why the file is full, and since when", d.Full, d.FullSince)
		}
	}
	// A delete makes room.
	page, err := s.store.Tasks(t.Context(), storage.TasksQuery{Queue: queue, State: storage.Waiting, Limit: 50})
	must(t, err)
	for _, task := range page.Tasks {
		must(t, s.session.DeleteTask(t.Context(), task.Ref))
	}
	must(t, s.insert(t.Context(), "afterwards"))
	d, err := s.store.Describe(t.Context())
	must(t, err)
	if d.Full != "" || !d.FullSince.IsZero() {
		t.Errorf("with room again: got %q since %v, want none", d.Full, d.FullSince)
	}
	wantSound(t, path)
}

func TestNamesOfFiles(t *testing.T) {
	for _, name := range []string{"a b.db", "a?b.db", "a#b%20.db", "ä.db"} {
		path := t.TempDir() + "/" + name
		must(t, open(t, path).store.Close())
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	for what, cfg := range map[string]sqlite.Config{
		"nothing":       {},
		"no driver":     {Path: "a.db"},
		"a prefix":      {Path: "a.db", Driver: modernc.Driver, Prefix: "a-b"},
		"a short lease": {Path: "a.db", Driver: modernc.Driver, MinLease: time.Millisecond},
		"no file":       {Path: ":memory:", Driver: modernc.Driver},
		"a URI":         {Path: "file:a.db", Driver: modernc.Driver},
		"a driver":      {Path: "a.db", Driver: "nobody's"},
	} {
		_, err := sqlite.Open(t.Context(), cfg)
		if _, refused := errors.AsType[*storage.InvalidError](err); !refused {
			t.Errorf("%s: got %v, want an *InvalidError", what, err)
		}
	}
}

// TestATaskOfANewerVersionIsLeftAlone sets a flag of a task that this version does not know. Claims
// pass over the task and leave it as it is.
func TestATaskOfANewerVersionIsLeftAlone(t *testing.T) {
	path := file(t)
	s := open(t, path)
	must(t, s.insert(t.Context(), "a", "b"))
	execute(t, path, "UPDATE midge_tasks SET flags = flags | 1024 WHERE id = 'a'")
	for _, want := range []string{"b", "a"} {
		claimed, err := s.claim(t.Context(), 10)
		must(t, err)
		if len(claimed.Tasks) != 1 || claimed.Tasks[0].ID != want {
			t.Fatalf("claimed %+v, want %s alone", claimed.Tasks, want)
		}
		if want == "a" {
			break
		}
		if _, err := s.store.Task(t.Context(), ref("a")); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Fatalf("the task: got %v, want an error that names a newer version", err)
		}
		execute(t, path, "UPDATE midge_tasks SET flags = flags & 1023 WHERE id = 'a'")
	}
}

// TestDeletedDataAreNotInTheFile deletes tasks in each way, with data of each kind, small and large.
func TestDeletedDataAreNotInTheFile(t *testing.T) {
	const secret = "PASSPORT-4711"
	path := file(t)
	s := open(t, path)
	for i := range 60 {
		in := job(fmt.Sprint("t", i))
		in.Keep = storage.Keep{}
		in.Payload = []byte(`{"secret":"` + secret + strings.Repeat("x", i%3*5000) + `"}`)
		_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
		must(t, err)
	}
	c, err := s.claimLong(t.Context(), 20)
	must(t, err)
	for i, fence := range c.Fences {
		_, err := s.session.Extend(t.Context(), storage.ExtendRequest{Leases: []storage.Extension{
			{Fence: fence, Progress: []byte(secret), Checkpoint: []byte(strings.Repeat(secret, 1+i*100))},
		}})
		must(t, err)
		if i%2 == 0 {
			must(t, s.complete(t.Context(), fence))
			continue
		}
		_, err = s.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{
			{Fence: fence, Outcome: storage.Bury, Error: secret, Stack: secret},
		}})
		must(t, err)
	}
	for i := 30; i < 40; i++ {
		must(t, s.session.DeleteTask(t.Context(), ref(fmt.Sprint("t", i))))
	}
	_, err = s.session.RemoveQueue(t.Context(), queue)
	must(t, err)
	must(t, s.store.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	if n := bytes.Count(data, []byte(secret)); n > 0 {
		t.Errorf("the file has data of deleted tasks in %d places", n)
	}
}
