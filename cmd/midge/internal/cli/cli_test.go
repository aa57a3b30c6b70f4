package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
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
	post    func(ctx context.Context, body []byte) error // takes what goes to a webhook
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

func TestAStorageThatIsNotKnownStaysSo(t *testing.T) {
	r := newRig(t)
	a := &app{std: r.std(nil, io.Discard, io.Discard), choice: connect.Choice{Profile: "none"}}
	first, second := a.choose(), a.open(t.Context())
	if first == nil || !errors.Is(second, first) || a.store != nil {
		t.Errorf("got the errors %v, then %v; want the same twice, and no open storage", first, second)
	}
}

// TestACompletionWaitsForNoStorage checks that a completion ends in time on a storage that ignores its context.
func TestACompletionWaitsForNoStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, opens := newRig(t), make(chan struct{})
		var out bytes.Buffer
		std := r.std(strings.NewReader(""), &out, io.Discard)
		std.Open = func(context.Context, connect.Target) (storage.Storage, error) {
			<-opens
			return r.store, nil
		}
		begun := time.Now()
		code := Run(t.Context(), []string{"__complete", "queue", "show", ""}, std)
		took := time.Since(begun)
		close(opens)
		if code != Done || took != completeTime || !strings.HasPrefix(out.String(), ":4") {
			t.Errorf("exit %d and %q after %v, want 0 and nothing after %v", code, &out, took, completeTime)
		}
	})
}

// TestAQueueWhoseTasksRunIsNotRemoved checks that the queue keeps all its tasks and totals.
func TestAQueueWhoseTasksRunIsNotRemoved(t *testing.T) {
	r := newRig(t)
	r.night()
	claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Lease: time.Minute,
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claimed %d tasks, %v; want one", len(claimed.Fences), err)
	}
	before := r.ok("queue ls mail -o jsonl")
	got := r.run("queue rm mail --yes")
	if want := "1 task of mail is running: pause the queue and wait, or cancel the task"; got.code != Refused || !strings.Contains(got.err, want) {
		t.Errorf("exit %d, want %d and %q:\n%s", got.code, Refused, want, got.err)
	}
	if after := r.ok("queue ls mail -o jsonl"); after != before {
		t.Errorf("the queue is now %s, want %s", after, before)
	}
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

func TestQueues(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "queue", r.transcript(
		"queue ls", "queue ls 'm*' -o wide", "queue ls --columns queue,dead", "queue ls -o ids", "queue ls -o jsonl",
		"queue show mail", "queue show reports -o json", "queue show none", "queue ls 'x*'", "queue ls --columns nope",
		"queue pause mail --for 1h", "queue ls", "queue resume mail reports", "queue pause mail none", "queue pause mail --for 0s",
		"queue pause", "queue rm mail", "queue rm mail --dry-run", "queue rm mail -y", "queue ls", "queues list", "queue lss"))
}

func TestAQueueTellsOfTasksThatNobodyCanRun(t *testing.T) {
	r := newRig(t)
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "x"}, Kind: "send_fax"})
	r.beat("runner-1", []string{"mail"}, []string{"send_mail"})
	r.work("mail", storage.Settle{Outcome: storage.Decline})
	if got := r.ok("queue show mail"); !strings.Contains(got, "outlook    1 task of a kind that no runner knows waits\n") {
		t.Errorf("got %s", got)
	}
	if got := r.ok("task ls --help"); !strings.Contains(got, "  dead        midge has given the task up") {
		t.Errorf("task ls explains no states:\n%s", got)
	}
}

func TestRunners(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "runner", r.transcript("runner ls", "runner ls -o json", "runner ls --queue none", "runner show runner",
		"runner show runner-1 -o json", "runner show x", "runner ls --utc -o wide"))
}

// TestARunnerShowsWhichKindsItCannotDecode checks the page of a runner, and its record.
func TestARunnerShowsWhichKindsItCannotDecode(t *testing.T) {
	r := newRig(t)
	_, err := r.session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
		ID: "runner-1", Host: "web-1", Queues: []string{"hooks"}, Kinds: []string{"webhook"}, Concurrency: 1,
		Started: r.now, For: time.Hour, Undecodable: []storage.KindTrouble{{
			Queue: "hooks", Kind: "webhook", Since: r.now, Tasks: 31, Reason: "URL: a number, want a string",
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(5 * time.Minute)
	want := "undecodable  webhook of hooks  at least 31 tasks  since 5m ago\n             URL: a number, want a string\n"
	if got := r.ok("runner show runner-1"); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
	want = `"undecodable":[{"queue":"hooks","kind":"webhook","since":"2026-05-17T12:00:00Z","tasks":31,` +
		`"reason":"URL: a number, want a string"}]`
	if got := r.ok("runner show runner-1 -o jsonl"); !strings.Contains(got, want) {
		t.Errorf("got %s, want in it %s", got, want)
	}
}

func TestSchedules(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "schedule", r.transcript("schedule ls --utc", "schedule ls --orphaned -o json", "schedule show reports/nightly --utc",
		"schedule show reports/nightly -o json", "schedule show reports", "schedule show reports/none", "schedule rm reports/hourly",
		"schedule rm reports/nightly --yes", "schedule ls -o ids"))
	if got := r.ok("schedule run reports/hourly"); !strings.HasPrefix(got, "reports/") {
		t.Errorf("schedule run gives %q, want the ref of a task of reports", got)
	}
}

func TestKeptSchedules(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "schedule_set", r.transcript(
		"schedule set mail/ann --every 24h --jitter 6h --kind send_mail --params {\"to\":\"ann\"} --priority 2 --no-overlap",
		"schedule show mail/ann --utc", "schedule pause mail/ann", "schedule ls --utc", "task why mail/ann",
		"schedule set mail/ann --cron @daily --zone Europe/Paris", "schedule resume mail/ann",
		"schedule show mail/ann -o json", "schedule pause reports/nightly", "schedule ls --columns schedule,status,owner,spec",
		"schedule set reports/nightly --every 1h --kind nightly", "schedule set mail/bob --every 1h",
		"schedule set mail/ann --every 1h --params {}", "schedule set mail/ann", "schedule set mail --every 1h",
		"schedule set mail/ann --every 1ms", "schedule set mail/ann --every 1h --jitter 25h", "schedule set mail/ann --cron 0",
		"schedule set mail/ann --every 1h --missed some", "schedule pause mail/none", "schedule rm mail/ann --yes",
		"schedule set mail/eve --every 1h --kind send_fax", "doctor", "task why mail/eve", "audit -o wide",
	))
}

// TestAScheduleHasOneName checks that people see the name of schedule ls in all commands.
func TestAScheduleHasOneName(t *testing.T) {
	r := newRig(t)
	r.night()
	for _, line := range []string{
		"schedule ls -o wide", "schedule show reports/nightly", "task why reports/nightly", "task why reports/nightly -o ids",
		"queue rm reports --dry-run", "schedule rm reports/nightly --dry-run", "schedule run reports/nightly",
		"schedule rm reports/nightly --yes", "audit", "audit -o wide",
	} {
		got := r.run(line)
		if said := got.out + got.err; got.code != Done || strings.Contains(said, "cursor.") ||
			!strings.Contains(said, "reports/") {
			t.Errorf("midge %s: got %+v", line, got)
		}
	}
	if got := r.ok("audit"); strings.Count(got, "reports/nightly") != 2 {
		t.Errorf("the audit is\n%s", got)
	}
}

func TestTheStorageIsLookedOver(t *testing.T) {
	r := newRig(t)
	r.night()
	steady := func(text string) string {
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
	golden(t, "doctor", steady(r.transcript("", "doctor", "doctor -q --max-oldest 1m --max-dead 2", "doctor --max-dead 3 -o json",
		"doctor --max-oldest 0s", "doctor --max-dead -2", "doctor --max-oldest 1m --max-dead 2 --accept paused:reports --accept cause:3bixdebokt98e",
		"doctor --accept paused", "doctor --accept ''", "doctor --accept damaged:mail", "stats", "stats -o json")))
}

// TestKnownFindingsAreAccepted accepts findings in a profile, under the names that a report gives them.
func TestKnownFindingsAreAccepted(t *testing.T) {
	r := newRig(t)
	r.night()
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "none", ID: "x"}, Kind: "k"})
	r.env["XDG_CONFIG_HOME"] = t.TempDir()
	delete(r.env, connect.EnvStorage)
	file := filepath.Join(r.env["XDG_CONFIG_HOME"], "midge", "config.toml")
	profile := func(accept string) {
		text := "default = \"p\"\n[profiles.p]\nstorage = \"redis://localhost:6379\"\naccept = [" + accept + "]\n"
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	profile("")
	var report Report
	if got := r.run("doctor -o json"); got.code != Failed || json.Unmarshal([]byte(got.out), &report) != nil {
		t.Fatalf("got %+v", got)
	}
	var names []string
	for _, f := range report.Findings {
		names = append(names, strconv.Quote(f.Accept))
	}
	want := `"no-runner:none" "orphaned:reports/nightly" "cause:3bixdebokt98e" "paused:reports"`
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("the findings are accepted by %s, want %s", got, want)
	}
	profile(strings.Join(names, ", "))
	if got := r.run("doctor --quiet --max-dead 0"); got != (answer{}) {
		t.Errorf("all is accepted: got %+v, want silence and 0", got)
	}
	if got := r.ok("doctor"); strings.Count(got, "accepted: ") != 4 || !strings.Contains(got, "All clear.") {
		t.Errorf("got %s, want what is accepted", got)
	}
	profile(`"nonsense"`)
	if got := r.run("doctor"); got.code != BadInput || !strings.Contains(got.err, `accept of profile p "nonsense": want one of paused:QUEUE`) {
		t.Errorf("got %+v", got)
	}
}

// TestNothingIsWellWithoutARunner asks for the state of a storage whose only runner has crashed.
func TestNothingIsWellWithoutARunner(t *testing.T) {
	r := newRig(t)
	r.night()
	for _, line := range []string{"queue resume reports", "task cancel state:live --yes", "task rm state:dead --yes"} {
		r.ok(line)
	}
	r.now = r.now.Add(2 * time.Hour) // beyond the last heartbeat
	said := "problem  No runner is alive. 2 schedules not ticking.\n         next: start the program that runs the jobs"
	for line, code := range map[string]int{"": Done, "doctor": Failed, "doctor --quiet": Failed} {
		got := r.run(line)
		first := strings.Index(got.out, "problem ")
		if first < 0 || !strings.HasPrefix(got.out[first:], said) || strings.Contains(got.out, "schedule rm") ||
			got.code != code {
			t.Errorf("midge %s: got %+v, want %d and first %q", line, got, code, said)
		}
	}
	got := r.run("doctor --quiet --accept no-runners")
	if got != (answer{}) {
		t.Errorf("all is accepted: got %+v, want silence and 0", got)
	}
}

// TestAQuietDoctorIsSilentWithoutAProblem looks over a storage that has notices alone.
func TestAQuietDoctorIsSilentWithoutAProblem(t *testing.T) {
	r := newRig(t)
	r.night()
	r.ok("schedule rm reports/nightly --yes")
	if got := r.run("doctor"); got.code != Done || strings.Count(got.out, "notice ") != 2 {
		t.Errorf("got %+v, want two notices", got)
	}
	if got := r.run("doctor --quiet"); got != (answer{}) {
		t.Errorf("got %+v, want silence and 0", got)
	}
	if got := r.run("doctor --quiet --max-oldest 1m"); got.code != Failed ||
		strings.Count(got.out, "problem ") != 2 || strings.Count(got.out, "notice ") != 1 {
		t.Errorf("got %+v, want the old tasks of both queues, the paused one among them, and a notice", got)
	}
	if got := r.ok("doctor --quiet -o json"); !json.Valid([]byte(got)) {
		t.Errorf("got %q, want JSON", got)
	}
}

// TestManyCausesAreToldInPart lets tasks die of more causes than doctor reports.
func TestManyCausesAreToldInPart(t *testing.T) {
	r := newRig(t)
	for i := range 8 {
		for j := range 9 - i {
			r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%d%d", i, j)}, Kind: fmt.Sprint("k", j%4)})
		}
		r.work("mail", storage.Settle{Outcome: storage.Bury, Error: "cause " + string(rune('a'+i))})
	}
	got := r.ok("doctor")
	for _, want := range []string{
		"cause a. 9 tasks died: k0 (3), k1 (2), k2 (2) and 1 more kind. Since 0ms ago.\n",
		"cause e. 5 tasks died: k0 (2), k1 (1), k2 (1) and 1 more kind. Since 0ms ago.\n",
		"9 tasks died of 3 other causes.\n         next: midge task ls --by cause",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %q", got, want)
		}
	}
	if strings.Contains(got, "cause f") {
		t.Errorf("a sixth cause is told:\n%s", got)
	}
}

func TestWhatIsWrongWithALineIsSaid(t *testing.T) {
	r := newRig(t)
	golden(t, "usage", r.transcript("que", "queue", "queue ls -o yaml", "queue ls -o json --columns queue", "queue ls --nope",
		"queue ls --storage redis://x --profile y", "queue ls --profile y", "queue ls --timeout -1s", "queue ls a b",
		"stats --watch=1ms", "queue pause bad/name", "queue ls '['", "queue ls --schema x", "version x"))
}

func TestWithoutAStorageMidgeSaysHowToNameOne(t *testing.T) {
	r := newRig(t)
	delete(r.env, connect.EnvStorage)
	got := r.run("")
	if got.code != BadInput || !strings.Contains(got.err, "midge --storage redis://") {
		t.Errorf("got %d and %q, want 2 and a line to type", got.code, got.err)
	}
}

func TestAnAnswerIsAskedForAndHeard(t *testing.T) {
	r := newRig(t)
	r.night()
	r.person = true
	for _, c := range []struct {
		in   string
		code int
	}{{"", Failed}, {"n\n", Failed}, {"\n", Failed}, {"y\n", Done}} {
		r.in = c.in
		if got := r.run("queue rm mail"); got.code != c.code || !strings.Contains(got.err, "on redis://db.example:6379/0\n") {
			t.Errorf("the answer %q: got %d and %q, want %d and the storage named", c.in, got.code, got.err, c.code)
		}
	}
	if got := r.run("queue show mail"); got.code != NotFound {
		t.Errorf("got %d, want the queue gone", got.code)
	}
}

// TestACommandThatAsksKnowsADryRun because the question mentions the flag where nobody can be asked.
func TestACommandThatAsksKnowsADryRun(t *testing.T) {
	r := newRig(t)
	asks := 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("yes") != nil {
			asks++
			if cmd.Flags().Lookup("dry-run") == nil {
				t.Errorf("%s has --yes, but no --dry-run", cmd.CommandPath())
			}
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look((&app{std: r.std(nil, nil, nil)}).root())
	if asks < 10 {
		t.Errorf("%d commands have --yes, want at least 10", asks)
	}
	r.night()
	before := r.ok("schedule ls")
	r.says(Done, "reports/nightly would be removed\nnothing was changed", "schedule rm reports/nightly --dry-run")
	if after := r.ok("schedule ls"); after != before {
		t.Errorf("after --dry-run the schedules are\n%s, want\n%s", after, before)
	}
}

func TestMain(m *testing.M) {
	time.Local = time.UTC //nolint:gosmopolitan // moments are shown where the reader is
	os.Exit(m.Run())
}

// TestManyTasksOfAnAcceptedCauseAreNotDead lets more tasks die than one read covers.
func TestManyTasksOfAnAcceptedCauseAreNotDead(t *testing.T) {
	r := newRig(t)
	for _, queue := range []string{"a", "b", "c"} {
		for range 8 {
			var tx storage.Tx
			for range 1000 {
				tx.Inserts = append(tx.Inserts, storage.Insert{
					Ref: storage.Ref{Queue: queue, ID: storage.NewID()}, Kind: "k", Encoding: "json", Payload: []byte("{}"), CrashLimit: 1,
				})
			}
			if _, err := r.session.ApplyOne(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		for range 80 {
			r.work(queue, storage.Settle{Outcome: storage.Bury, Error: "the disk is full"})
		}
	}
	cause := strings.Fields(r.ok("task ls --by cause -o ids"))[0]
	if got := r.run("doctor -q --max-dead 10 --accept " + cause); got.code != Done {
		t.Errorf("got %+v, want nothing to do", got)
	}
	if got := r.run("doctor -q --max-dead 10"); got.code != Failed || !strings.Contains(got.out, "24,000 tasks died") {
		t.Errorf("got %+v, want too many", got)
	}
}
