package cli

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/load"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// TestLoad checks the output of the command about a file, its rows and its record.
func TestLoad(t *testing.T) {
	r := newRig(t)
	var got string
	t.Run("session", func(t *testing.T) { // in a folder of its own
		t.Chdir(t.TempDir())
		write := func(name, text string) {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("orders.jsonl", "{\"id\":1}\n{\"id\":2}\n{\"secret\n{\"id\":4}\n")
		write("orders.csv", "id,customer\n1,acme\nx,secret\n")
		write("empty.txt", "")
		got = r.transcript("load orders.jsonl --kind bill --queue bills", "task ls --queue bills",
			"task show bills/orders.jsonl.load", "task why bills/orders.jsonl.load", "task why bills/orders.jsonl.load -o json",
			"load orders.jsonl --kind bill --queue bills --reject wrong", "load orders.jsonl --kind bill --queue bills",
			"load orders.jsonl --kind bill --queue bills -o json", "task ls --queue bills state:scheduled",
			"load orders.jsonl --kind other --queue bills",
			"load orders.csv --name orders.jsonl --format jsonl --kind bill --queue bills",
			"load orders.csv --kind bill --queue bills --types id=int --partition-field customer",
			"load empty.txt --kind bill", "load --forget orders.jsonl --queue bills", "load --forget orders.jsonl --queue bills",
			"load orders.csv --kind bill --queue bills --types id=number", "load orders.csv --kind bill --queue midge.own",
			"load nothing --kind bill", "load orders.csv", "load", "load - --kind bill",
			"load orders.csv --kind bill --high-water 0", "load orders.csv --kind bill --reject orders.csv", "load . --name x --kind bill --format csv",
			"load orders.csv --forget x")
	})
	if strings.Contains(got, "secret") {
		t.Error("a row is shown")
	}
	golden(t, "load", got)
	r.says(BadInput, "midge: nothing.csv cannot be read: ", "load nothing.csv --kind bill")
}

// TestStandardInputIsLoaded under a name, as a second run of a longer text goes on.
func TestStandardInputIsLoaded(t *testing.T) {
	r := newRig(t)
	r.in = "1\n2\n"
	r.ok("load - --name urls --format lines --field url --kind fetch --quiet")
	r.in = "1\n2\n3\n"
	var said show.Load
	r.decode("load - --name urls --format lines --field url --kind fetch -o json", &said)
	if said != (show.Load{Rows: 3, Before: 2, Loaded: 1}) {
		t.Errorf("got %+v, want one more row", said)
	}
}

// TestAPipeEndsWithANewline because the program that writes it may have died within a row. A file may end
// without one, also as standard input.
func TestAPipeEndsWithANewline(t *testing.T) {
	r := newRig(t)
	const line = "load - --name urls --format lines --kind fetch"
	r.in = "1\n2\n34"
	got := r.run(line)
	want := "-:3: the text ends within the row: want a newline behind the last row; did the program that wrote it die?\n" +
		"2 rows loaded\nnext: correct the row and give the same command again\n"
	if got.code != Failed || !strings.HasSuffix(got.err, want) {
		t.Errorf("got %+v, want %d and %q", got, Failed, want)
	}
	r.in = "1\n2\n345\n"
	if got := r.ok(line); got != "loaded 1 row after 2 before\n" {
		t.Errorf("got %q", got)
	}
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte("1\n2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.ok("load " + path + " --kind fetch"); got != "loaded 2 rows\n" {
		t.Errorf("got %q", got)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if (&app{std: Std{In: file}}).standardInput().Pipe {
		t.Error("a file as standard input is taken for a pipe")
	}
}

// TestALoadThatTheStorageStops reports how far it is, and the same command goes on.
func TestALoadThatTheStorageStops(t *testing.T) {
	for _, c := range []struct {
		fault faulty
		code  int
		says  string
	}{
		{faulty{good: 2, fails: storage.ErrUnavailable}, Partly, "750 rows loaded, then: storage: unavailable\nnext: the same command again: it goes on"},
		{faulty{good: 2, fails: storage.ErrUnknown}, Unknown, "the outcome is unknown: 750 rows loaded, then: storage: outcome unknown\nnext: the same command again"},
		{faulty{good: 2, fails: storage.ErrUnknown, passes: true}, Done, "loaded 1,000 rows"},
		{faulty{fails: storage.ErrFull}, Refused, "storage: full\nnext: midge doctor"},
		{faulty{good: 2, fails: storage.ErrFull}, Partly, "750 rows loaded, then: storage: full"},
	} {
		synctest.Test(t, func(t *testing.T) { // failing calls are repeated for a while
			r := newRig(t)
			path := filepath.Join(t.TempDir(), "a.txt")
			if err := os.WriteFile(path, []byte(strings.Repeat("a\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
			whole := r.store
			c.fault.Storage = whole
			r.store = &c.fault
			got := r.run("load " + path + " --kind k --queue q")
			if got.code != c.code || !strings.Contains(got.out+got.err, c.says) {
				t.Errorf("got %+v, want %d and %q", got, c.code, c.says)
			}
			r.store = whole
			r.ok("load " + path + " --kind k --queue q")
			stats, err := whole.Stats(t.Context(), "q")
			if err != nil || stats[0].Waiting != 1000 || stats[0].Scheduled != 1 {
				t.Errorf("got %+v, %v, want 1,000 tasks and the record", stats[0], err)
			}
		})
	}
}

// TestALoadOfADamagedFile fails, and names the repair after which the same command can go on.
func TestALoadOfADamagedFile(t *testing.T) {
	r := newRig(t)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write([]byte("1\n2\n"))
	_ = w.Close()
	path := filepath.Join(t.TempDir(), "a.txt.gz")
	for _, c := range []struct {
		data []byte
		code int
		says string
	}{
		{zipped.Bytes()[:zipped.Len()-3], Failed, "its gzip data ends in the middle\n2 rows loaded\nnext: bring the whole file (gzip -t tests it)"},
		{append(zipped.Bytes(), "garbage garbage"...), Failed, "something else than gzip data stands in it\n2 rows loaded\nnext: bring"},
		{[]byte("\x1f\x8bno gzip data"), Failed, "something else than gzip data stands in it\n0 rows loaded\nnext: bring"},
		{zipped.Bytes(), Done, "loaded before: 2 rows"},
	} {
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := r.run("load " + path + " --kind k"); got.code != c.code || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("got %+v, want %d and %q", got, c.code, c.says)
		}
	}
}

// TestARejectedRowIsNotLoaded checks that a load counts rows as loaded only if they are tasks.
func TestARejectedRowIsNotLoaded(t *testing.T) {
	r := newRig(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "a.jsonl")
	line := "load " + path + " --kind k --queue q --reject " + filepath.Join(folder, "wrong")
	for _, c := range []struct {
		rows string
		code int
		says string
	}{
		{"x\ny\n", Done, "loaded 0 rows; of all rows, rejected: 2\n"},
		{"x\ny\n1\n" + strings.Repeat("z", 65<<20), Failed, "\n1 row loaded; rejected: 2\n"},
		{"x\ny\n1\n2\nz\n", Done, "loaded 1 row after 1 before; of all rows, rejected: 3\n"},
		{"x\ny\n1\n2\nz\n", Done, "loaded before: 2 rows; of all rows, rejected: 3\n"},
	} {
		if err := os.WriteFile(path, []byte(c.rows), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := r.run(line); got.code != c.code || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("got %+v, want %d and %q", got, c.code, c.says)
		}
	}
	r.says(Done, "of which 2 rows had been loaded", "load --forget a.jsonl --queue q")
}

// TestTheRecordOfALoadIsKept by an action on the tasks of its queue, which succeeds.
func TestTheRecordOfALoadIsKept(t *testing.T) {
	r := newRig(t)
	r.in = "1\n2\n"
	const line = "load - --name urls --format lines --kind fetch --queue q"
	r.ok(line)
	const why = "q/urls.load: it records a load, which midge load --forget forgets"
	got := r.run("task rm --queue q --yes")
	if got.code != Done || !strings.Contains(got.out, "matched 2, deleted 2\n") || !strings.Contains(got.err, why) {
		t.Errorf("got %+v, want 2 deleted, and %q", got, why)
	}
	for _, c := range []struct {
		line string
		code int
	}{
		{"task rm --queue q --yes", Done},
		{"task rm --queue q --dry-run", Done},
		{"task rm q/urls.load --yes", Refused},
		{"task requeue q/urls.load --yes", Refused},
		{"task move q/urls.load --to other --yes", Refused},
		{"task edit q/urls.load --params {}", Refused},
	} {
		if got := r.run(c.line); got.code != c.code || !strings.Contains(got.err, why) {
			t.Errorf("%s: got %+v, want %d and %q", c.line, got, c.code, why)
		}
	}
	r.in = "1\n2\n"
	if got := r.ok(line); got != "loaded before: 2 rows\n" {
		t.Errorf("got %q", got)
	}
	r.ok("task cancel --queue q --yes")
	r.in = "1\n2\n"
	if got := r.ok(line); got != "loaded before: 2 rows\n" {
		t.Errorf("after a cancel: got %q", got)
	}
}

// TestALoadIsInTheAudit with its results.
func TestALoadIsInTheAudit(t *testing.T) {
	r := newRig(t)
	r.in = "1\n2\n"
	r.ok("load - --name urls --format lines --kind fetch --queue q")
	r.ok("load --forget urls --queue q")
	noted := make(map[string]string)
	for _, e := range r.actions() {
		noted[e.Action] = fmt.Sprint(e.Queue, ": ", e.Note, ", ", e.Outcome, " ", e.Count)
	}
	if noted["load"] != "q: - as urls, of kind fetch, done 2" || noted["forget a load"] != "q: urls, done 1" {
		t.Errorf("the audit has %v", noted)
	}
}

// TestTheProgressOfALoad names the rate, the share and the time left.
func TestTheProgressOfALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for person, want := range map[bool]string{
			false: "1,000 rows, 50/s, 2 rejected, 25 %, about 1m left\n",
			true:  "\r\x1b[K1,000 rows, 50/s, 2 rejected, 25 %, about 1m left\n",
		} {
			var errs strings.Builder
			s := (&app{std: Std{Err: &errs, Person: person}}).loadProgress()
			s.told(load.Report{Of: 4000})
			s.told(load.Report{Of: 4000, Rows: 10}) // a moment later
			sleep.For(t.Context(), 20*time.Second)
			s.told(load.Report{Of: 4000, Rows: 1000, Rejected: 2, Done: 1000})
			s.end()
			if errs.String() != want {
				t.Errorf("got %q, want %q", errs.String(), want)
			}
		}
	})
}
