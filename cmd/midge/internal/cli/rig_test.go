package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/work/command"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// rig runs commands on a storage.
type rig struct {
	t       *testing.T
	store   storage.Storage
	session *storage.Session
	now     time.Time
	env     map[string]string
	in      string
	person  bool
	width   int                                          // width of the terminal, 0 for none
	real    bool                                         // open the storage that the command names
	ctx     context.Context                              // context of the next command, nil for that of the test
	post    func(ctx context.Context, body []byte) error // takes the requests to a webhook
}

// unclosed is a storage that stays open when a command closes it.
type unclosed struct{ storage.Storage }

func (unclosed) Close() error { return nil }

// noon is the time at which the tests begin.
var noon = time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)

// newRig makes a rig on the memory storage, whose clock stands still.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, now: noon, env: map[string]string{connect.EnvStorage: "redis://u:s3cret@db.example:6379/0", "XDG_CONFIG_HOME": "/none"}}
	store, err := memory.Open(memory.Config{Now: func() time.Time { return r.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r.store, r.session = unclosed{store}, storage.NewSession(store, 0)
	return r
}

// answer is the output and the exit code of a command.
type answer struct {
	out, err string
	code     int
}

// run runs a command line of midge. Spaces separate the words; quotes keep the spaces of a word.
func (r *rig) run(line string) answer {
	r.t.Helper()
	var out, errs bytes.Buffer
	ctx := r.ctx
	if ctx == nil {
		ctx = r.t.Context()
	}
	code := Run(ctx, words(line), r.std(strings.NewReader(r.in), &out, &errs))
	r.in = ""
	if text := out.String() + errs.String(); strings.Contains(text, "s3cret") {
		r.t.Errorf("midge %s shows the password:\n%s", line, text)
	}
	return answer{out: out.String(), err: errs.String(), code: code}
}

// std returns the process of a command.
func (r *rig) std(in io.Reader, out, errs io.Writer) Std {
	return Std{
		In: in, Out: out, Err: errs, Person: r.person, User: "ann@web-1", Terminal: r.width > 0, Width: r.width,
		Ask: func() (Dialog, error) {
			if !r.person {
				return Dialog{}, os.ErrNotExist
			}
			return Dialog{In: in, Out: errs, Close: func() error { return nil }}, nil
		},
		Env: func(name string) string { return r.env[name] }, Open: r.open(), Post: r.post,
		Reaper: reaper,
	}
}

// open returns a function that opens the storage of the rig for any target, or nil if real is set.
func (r *rig) open() func(context.Context, connect.Target) (storage.Storage, error) {
	if r.real {
		return nil
	}
	return func(context.Context, connect.Target) (storage.Storage, error) { return r.store, nil }
}

// ok runs a command that has to exit with 0, and returns its output.
func (r *rig) ok(line string) string {
	r.t.Helper()
	got := r.run(line)
	if got.code != Done {
		r.t.Errorf("midge %s exits with %d, want 0:\n%s%s", line, got.code, got.out, got.err)
	}
	return got.out
}

// decode runs a command that has to exit with 0 and to write JSON, and decodes it.
func (r *rig) decode(line string, into any) {
	r.t.Helper()
	if text := r.ok(line); json.Unmarshal([]byte(text), into) != nil {
		r.t.Fatalf("midge %s writes no such JSON: %s", line, text)
	}
}

// words splits a line as a shell would, but knows only single quotes.
func words(line string) (args []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if strings.ReplaceAll(string(want), "\r\n", "\n") != got {
		t.Errorf("got:\n%s\nwant, as %s has it:\n%s", got, path, want)
	}
}

// transcript returns the output of lines as a session in a shell would show it.
func (r *rig) transcript(lines ...string) string {
	r.t.Helper()
	var all strings.Builder
	for _, line := range lines {
		got := r.run(line)
		all.WriteString("$ midge " + line + "\n" + got.out)
		if got.err != "" {
			all.WriteString("[stderr]\n" + got.err)
		}
		all.WriteString("[exit " + meaning(got.code) + "]\n\n")
	}
	return all.String()
}

// steady returns a transcript without the measured times of doctor, which differ from run to run.
func steady(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		for _, begin := range []string{"answers in", `  "round_trip_seconds"`} {
			if strings.HasPrefix(line, begin) {
				lines[i] = begin + " …"
			}
		}
	}
	return strings.Join(lines, "\n")
}

func meaning(code int) string {
	return map[int]string{
		Done: "0 done", Failed: "1 failed", BadInput: "2 bad input", NotFound: "3 not found", Refused: "4 refused",
		Partly: "5 partly done", Unknown: "6 unknown", Unreachable: "7 unreachable", TimedOut: "124 timed out",
	}[code]
}

// insert inserts tasks.
func (r *rig) insert(inserts ...storage.Insert) {
	r.t.Helper()
	for _, in := range inserts {
		if in.Encoding == "" {
			in.Encoding, in.Payload = "json", []byte(`{"to":"ann@example.org"}`)
		}
		in.CrashLimit = max(in.CrashLimit, 3)
		if _, err := r.session.ApplyOne(r.t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// work claims every waiting task of a queue and settles it.
func (r *rig) work(queue string, settle storage.Settle) {
	r.t.Helper()
	claimed, err := r.session.Claim(r.t.Context(), storage.ClaimRequest{
		Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 100, Lease: time.Minute,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, fence := range claimed.Fences {
		s := settle
		s.Fence = fence
		if _, err := r.session.ApplyOne(r.t.Context(), storage.Tx{Settles: []storage.Settle{s}}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// beat sends a heartbeat of a runner.
func (r *rig) beat(id string, queues, kinds []string, schedules ...storage.Declared) {
	r.t.Helper()
	_, err := r.session.Extend(r.t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
		ID: id, Host: "web-1", PID: 4711, Version: "0.1.0", Queues: queues, Kinds: kinds, Concurrency: 10,
		Started: r.now.Add(-time.Hour), Schedules: schedules, For: time.Hour,
	}})
	if err != nil {
		r.t.Fatal(err)
	}
}

// night fills the storage with work for the person on call: tasks died of two causes, a queue is paused, a
// schedule is orphaned, and a task waits for a kind that no runner knows.
func (r *rig) night() {
	r.t.Helper()
	for i, id := range []string{"a1", "a2", "a3"} {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "send_mail", Priority: i})
	}
	r.work("mail", storage.Settle{Outcome: storage.Bury, Error: "smtp: timeout after 30s", Reason: "out of retries"})
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "b1"}, Kind: "send_mail"},
		storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "b2"}, Kind: "send_mail", Delay: time.Hour})
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "reports", ID: "c1"}, Kind: "nightly"})
	d := storage.Declaration{Spec: "cron 0 3 * * *", Zone: "Europe/Paris", CatchUp: "one", Hash: "h1"}
	live := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h2"}
	r.insert(
		storage.Insert{Ref: storage.Ref{Queue: "reports", ID: "cursor.nightly"}, Kind: "nightly", Cursor: &storage.Cursor{
			Next: r.now.Add(13 * time.Hour), Last: r.now.Add(-11 * time.Hour), Declaration: d.Encode(),
		}},
		storage.Insert{Ref: storage.Ref{Queue: "reports", ID: "cursor.hourly"}, Kind: "hourly", Cursor: &storage.Cursor{
			Next: r.now.Add(time.Hour), Declaration: live.Encode(),
		}})
	if err := r.session.Configure(r.t.Context(), "reports", storage.Settings{Pause: &storage.Pause{On: true}}); err != nil {
		r.t.Fatal(err)
	}
	r.beat("runner-1", []string{"mail", "reports"}, []string{"send_mail", "nightly"},
		storage.Declared{Ref: storage.Ref{Queue: "reports", ID: "cursor.hourly"}, Hash: "h2"})
	r.now = r.now.Add(5 * time.Minute)
}

// reaper is that of the programs that tests of work run.
var reaper *command.Reaper

func TestMain(m *testing.M) {
	reaper = command.Main()
	time.Local = time.UTC //nolint:gosmopolitan // moments are shown where the reader is
	bulk.PreviewTime = time.Hour
	os.Exit(m.Run())
}
