package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/cli"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// answer is the output and the exit code of a command.
type answer struct {
	out, err string
	code     int
}

// run runs a command line of midge in an environment.
func run(t *testing.T, env map[string]string, in string, args ...string) answer {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Run(t.Context(), args, cli.Std{
		In: strings.NewReader(in), Out: &out, Err: &errs, Env: func(name string) string { return env[name] },
	})
	return answer{out: out.String(), err: errs.String(), code: code}
}

// on returns an environment that names a storage.
func on(t *testing.T, url string) map[string]string {
	return map[string]string{"MIDGE_STORAGE": url, "XDG_CONFIG_HOME": t.TempDir()}
}

// TestTheNightOnEveryStorage lets tasks die, and repairs them only by commands.
func TestTheNightOnEveryStorage(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	testserver.RequirePostgres(t)
	pg := testserver.Postgres(t, testserver.PostgresOptions{}).URL()
	for name, url := range map[string]string{
		"redis": testserver.Redis(t).URL(), "postgres": pg, "sqlite": "sqlite:" + filepath.Join(t.TempDir(), "jobs.db"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := on(t, url)
			if got := run(t, env, "", "migrate"); got.code != cli.Done {
				t.Fatalf("migrate: %+v", got)
			}
			for i := range 12 {
				got := run(t, env, "", "task", "add", "send_mail", "--queue", "mail", "--id", fmt.Sprintf("m%02d", i), "--params", fmt.Sprintf(`{"n":%d}`, i))
				if got.code != cli.Done || got.out != fmt.Sprintf("mail/m%02d\n", i) {
					t.Fatalf("add: %+v", got)
				}
			}
			die(t, url)
			repair(t, env)
		})
	}
}

// TestDoctorReportsAStorageThatRefuses lets Redis evict keys, and lets its user lack commands: one for
// reading, and scripts, without which the storage opens and cannot be read.
func TestDoctorReportsAStorageThatRefuses(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	evicting := testserver.Redis(t, "maxmemory 1gb", "maxmemory-policy allkeys-lru")
	server := testserver.Redis(t)
	for what, refused := range map[string]struct{ url, lacks, want string }{
		"evicts keys":        {url: evicting.URL(), want: "maxmemory-policy is allkeys-lru, want noeviction"},
		"may not read":       {url: "redis://app:secret@" + server.Addr(), lacks: "-hget", want: "the server refuses HGET"},
		"may run no scripts": {url: "redis://app:secret@" + server.Addr(), lacks: "-eval -evalsha", want: "the server refuses EVAL, EVALSHA"},
	} {
		if refused.lacks != "" {
			rules := strings.Fields("ACL SETUSER app reset on >secret ~* &* +@all " + refused.lacks)
			if _, err := server.Do(rules...); err != nil {
				t.Fatal(err)
			}
		}
		got := run(t, on(t, refused.url), "", "doctor", "-o", "json")
		var report struct {
			Findings []struct{ Level, Code, Detail string }
		}
		if err := json.Unmarshal([]byte(got.out), &report); err != nil {
			t.Fatalf("%s: %+v: %v", what, got, err)
		}
		f := report.Findings
		if got.code != cli.Failed || len(f) != 1 || f[0].Level != "problem" || f[0].Code != "refused" ||
			!strings.Contains(f[0].Detail, refused.want) {
			t.Errorf("%s: exit %d and %+v; want %d and one finding refused with %q", what, got.code, f, cli.Failed, refused.want)
		}
		got = run(t, on(t, refused.url), "", "doctor", "--quiet")
		if got.code != cli.Failed || !strings.HasPrefix(got.out, "problem  The storage refuses midge. ") || got.err != "" {
			t.Errorf("%s: %+v; want exit %d and the finding alone", what, got, cli.Failed)
		}
	}
}

// die lets all tasks of the queue mail die, of two causes.
func die(t *testing.T, url string) {
	t.Helper()
	store := open(t, url)
	session := storage.NewSession(store, 0)
	claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 100, Lease: 30e9,
	})
	if err != nil || len(claimed.Fences) != 12 {
		t.Fatalf("%d tasks were claimed, %v", len(claimed.Fences), err)
	}
	for i, fence := range claimed.Fences {
		settle := storage.Settle{Fence: fence, Outcome: storage.Bury, Error: []string{"smtp: timeout after 30s", "no such user"}[i%2]}
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
			t.Fatal(err)
		}
	}
}

// repair finds and repairs the dead tasks, as scripts would.
func repair(t *testing.T, env map[string]string) {
	t.Helper()
	wants := func(code int, out string, in string, args ...string) answer {
		t.Helper()
		got := run(t, env, in, args...)
		if got.code != code || !strings.Contains(got.out, out) {
			t.Errorf("midge %v: got %d, %q and %q; want %d and %q", args, got.code, got.out, got.err, code, out)
		}
		return got
	}
	wants(cli.Failed, "12 tasks died", "", "doctor", "--max-dead", "10")
	listed := wants(cli.Done, "mail/m", "", "task", "ls", "state:dead error:timeout", "-o", "ids")
	if n := strings.Count(listed.out, "\n"); n != 6 || !strings.Contains(listed.err, "listed 6 tasks") {
		t.Errorf("%d tasks were listed, and %q said; want 6", n, listed.err)
	}
	wants(cli.BadInput, "", "", "task", "requeue", "error:timeout")
	wants(cli.Done, "matched 6, requeued 6", listed.out, "task", "requeue", "-", "--yes", "--rate", "1000")
	wants(cli.Done, "nothing to do", listed.out, "task", "requeue", strings.Fields(listed.out)[0])
	backup := filepath.Join(t.TempDir(), "dead.jsonl")
	wants(cli.Done, "matched 6, deleted 6", "", "task", "rm", "state:dead", "--yes", "--backup", backup)
	wants(cli.Done, "enqueued 6, 0 there already", "", "task", "restore", backup, "--yes")
	wants(cli.Done, "", "", "queue", "pause", "mail")
	var queues []map[string]any
	if err := json.Unmarshal([]byte(wants(cli.Done, "", "", "queue", "ls", "-o", "json").out), &queues); err != nil || len(queues) != 1 ||
		queues[0]["paused"] != true || !reflect.DeepEqual(queues[0]["waiting"], 12.0) || queues[0]["dead"] != 0.0 {
		t.Errorf("the queues are %v, %v; want one with 12 waiting tasks, paused", queues, err)
	}
	wants(cli.Done, "matched 12, moved 12", "", "task", "move", "--to", "letters", "queue:mail", "--yes")
	wants(cli.Done, "", "", "queue", "rm", "mail", "--yes")
	wants(cli.NotFound, "", "", "queue", "show", "mail")
	wants(cli.Done, `"n": 7`, "", "task", "show", "letters/m07", "-o", "json")
	wants(cli.NotFound, "", "", "task", "why", "letters/none")
	wants(cli.Done, "no live runner serves queue letters", "", "task", "why", "letters/m07")
	wants(cli.Done, "matched 1, cancelled 1", "", "task", "cancel", "letters/m07")
}

func TestWhatIsAwayOrRefusesIsToldByTheCode(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	server := testserver.Redis(t)
	if _, err := server.Do("CONFIG", "SET", "requirepass", "right"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url  string
		args string
		code int
	}{
		{"redis://:right@" + server.Addr(), "queue ls", cli.Done},
		{"redis://:wr0ng@" + server.Addr(), "queue ls", cli.Refused},
		{"redis://:wr0ng@127.0.0.1:1", "queue ls", cli.Unreachable},
		{"redis://:wr0ng@127.0.0.1:1", "queue pause mail", cli.Unreachable},
		{"postgres://u:wr0ng@127.0.0.1:1/x", "queue ls", cli.Unreachable},
		{"nosuch://u:wr0ng@x", "queue ls", cli.BadInput},
		{"memory:", "queue ls", cli.BadInput},
		{"sqlite:" + filepath.Join(t.TempDir(), "none.db"), "queue ls", cli.BadInput},
		{"sqlite:" + t.TempDir(), "migrate --print-sql", cli.BadInput},
	} {
		got := run(t, on(t, c.url), "", strings.Fields(c.args)...)
		if got.code != c.code || strings.Contains(got.out+got.err, "wr0ng") {
			t.Errorf("%s on %s: got %+v, want %d and no password", c.args, c.url, got, c.code)
		}
	}
}

func TestALostReplyIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	server := testserver.Redis(t)
	if got := run(t, on(t, server.URL()), "", "task", "add", "x", "--queue", "mail"); got.code != cli.Done {
		t.Fatalf("%+v", got)
	}
	proxy := testserver.NewProxy(t, server.Addr())
	fault := proxy.HoldReply(func(request []byte) bool { // the reply about the task, not about the audit
		return bytes.Contains(request, []byte("zzlost")) && !bytes.Contains(request, []byte("midge.action"))
	})
	defer fault.Release()
	got := run(t, on(t, "redis://"+proxy.Addr()), "", "task", "add", "x", "--queue", "mail", "--id", "zzlost", "--timeout", "5s")
	if got.code != cli.Unknown || !strings.Contains(got.err, "--id zzlost") {
		t.Errorf("got %+v, want 6 and how to repeat it", got)
	}
}

// TestAStorageThatIsCutOffInTheMiddle loses the storage while tasks are cancelled, and then repeats the
// command.
func TestAStorageThatIsCutOffInTheMiddle(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	server := testserver.Redis(t)
	backup := filepath.Join(t.TempDir(), "tasks")
	var lines strings.Builder
	for i := range 450 {
		fmt.Fprintf(&lines, `{"queue":"bulk","id":"t%04d","kind":"x","encoding":"json","payload":"e30=","max_retries":20,"crash_limit":3,"state":"waiting"}`+"\n", i)
	}
	if err := os.WriteFile(backup, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, on(t, server.URL()), "", "task", "restore", backup, "--yes"); got.code != cli.Done {
		t.Fatalf("%+v", got)
	}
	proxy := testserver.NewProxy(t, server.Addr())
	fault := proxy.HoldReply(testserver.Containing("t0250")) // the reply to the second call
	defer fault.Release()
	go func() {
		<-fault.Struck()
		proxy.Refuse()
	}()
	env := on(t, "redis://"+proxy.Addr())
	line := []string{"task", "cancel", "--queue", "bulk", "--yes"}
	got := run(t, env, "", append(line, "--timeout", "6s")...)
	if got.code != cli.Unknown || !strings.Contains(got.out, "cancelled 200\n") || !strings.Contains(got.err, "next: the same command again") {
		t.Errorf("got %+v, want 6, what was done, and how to do the rest", got)
	}
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	fault.Release()
	got = run(t, env, "", line...)
	left := run(t, env, "", "task", "ls", "--queue", "bulk", "-o", "ids")
	if got.code != cli.Done || left.out != "" {
		t.Errorf("repeated: got %+v, and %q is left", got, left.out)
	}
}

func TestAStorageThatHangsTimesOut(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	server := testserver.Redis(t)
	proxy := testserver.NewProxy(t, server.Addr())
	proxy.Blackhole()
	if got := run(t, on(t, "redis://"+proxy.Addr()), "", "queue", "ls", "--timeout", "300ms"); got.code != cli.TimedOut && got.code != cli.Unreachable {
		t.Errorf("got %+v, want 124 or 7", got)
	}
}

func TestPostgresIsMigratedByTheCommand(t *testing.T) {
	t.Parallel()
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	env := on(t, server.URL())
	if got := run(t, env, "", "queue", "ls"); got.code != cli.Refused || !strings.Contains(got.err, "next: midge migrate") {
		t.Errorf("without tables: got %+v, want 4 and the next command", got)
	}
	if got := run(t, env, "", "migrate", "--check"); got.code != cli.Failed {
		t.Errorf("--check: got %+v, want 1", got)
	}
	text := run(t, env, "", "migrate", "--print-sql")
	if text.code != cli.Done || !strings.HasPrefix(text.out, "BEGIN;") {
		t.Fatalf("--print-sql: got %d and %.100q", text.code, text.out)
	}
	if err := server.Exec(t.Context(), text.out); err != nil {
		t.Fatal(err)
	}
	if got := run(t, env, "", "migrate", "--check"); got.code != cli.Done {
		t.Errorf("--check behind it: got %+v, want 0", got)
	}
	if got := run(t, env, "", "migrate"); got.code != cli.Done || !strings.Contains(got.err, "up to date") {
		t.Errorf("migrate behind it: got %+v", got)
	}
}

// TestCompletionIsSilent asks for completions as the scripts for shells do.
func TestCompletionIsSilent(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	server := testserver.Redis(t)
	env := on(t, server.URL())
	run(t, env, "", "task", "add", "x", "--queue", "mail")
	for _, c := range []struct{ url, line, want string }{
		{server.URL(), "queue show ", "mail\n"},
		{server.URL(), "queue show x", ""},
		{server.URL(), "task ls --state de", "dead\n"},
		{server.URL(), "task ls --queue m", "mail\n"},
		{server.URL(), "task ls state:d", "state:dead\n"},
		{server.URL(), "-o js", "json\njsonl\n"},
		{server.URL(), "history m", "mail\n"},
		{server.URL(), "stats m", "mail\n"},
		{server.URL(), "stats x", ""},
		{server.URL(), "queue ls --sort o", "oldest\n"},
		{server.URL(), "queue ls --sort de", "dead\n"},
		{server.URL(), "doctor --accept no", "no-runners\n"},
		{server.URL(), "doctor --accept x", ""},
		{server.URL(), "doctor m", ""},
		{server.URL(), "doctor --max-dead ", ""},
		{server.URL(), "serve m", ""},
		{server.URL(), "serve --listen m", ""},
		{server.URL(), "serve --storage m", ""},
		{server.URL(), "queue none m", ""},
		{"redis://127.0.0.1:1", "queue show ", ""},
		{"", "queue show ", ""},
	} {
		words := strings.Split(c.line, " ")
		var got answer
		var names string
		// On a busy machine the storage may answer too late for a completion, which then offers nothing.
		testserver.Await(t, fmt.Sprintf("%q offers %q", c.line, c.want), func() bool {
			got = run(t, on(t, c.url), "", append([]string{"__complete"}, words...)...)
			names, _, _ = strings.Cut(got.out, ":4")
			return names != "" || c.want == ""
		})
		if names != c.want || strings.Contains(got.err, "refused") {
			t.Errorf("%q on %q: got %+v, want %q", c.line, c.url, got, c.want)
		}
	}
	for _, line := range []string{"serve --users ", "task rm --backup ", "import river --kinds ", "task restore "} {
		got := run(t, env, "", append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if !strings.HasPrefix(got.out, ":0") {
			t.Errorf("%q: got %+v, want the names of files", line, got)
		}
	}
	proxy := testserver.NewProxy(t, server.Addr())
	proxy.Blackhole()
	// TestACompletionWaitsForNoStorage bounds the time that this takes.
	if got := run(t, on(t, "redis://"+proxy.Addr()), "", "__complete", "queue", "show", ""); !strings.HasPrefix(got.out, ":4") {
		t.Errorf("a storage that hangs: got %+v, want silence", got)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := run(t, env, "", "completion", shell); got.code != cli.Done || !strings.Contains(got.out, "__complete") {
			t.Errorf("%s: got %d and %.100q", shell, got.code, got.out)
		}
	}
}

// TestServeDrainsOnSIGTERM stops a process that serves a live page.
func TestServeDrainsOnSIGTERM(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), build(t), "serve", "--listen", "127.0.0.1:0", "--storage", "memory:")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(said)
	line, err := lines.ReadString('\n')
	site := regexp.MustCompile(`http://\S+/`).FindString(line)
	if err != nil || site == "" {
		t.Fatalf("it says %q, %v", line, err)
	}
	line, err = lines.ReadString('\n')
	address, readErr := os.ReadFile(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]))
	if err != nil || readErr != nil {
		t.Fatalf("it says %q, %v, %v", line, err, readErr)
	}
	browser := &http.Client{}
	if browser.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	login, err := browser.Get(strings.TrimSpace(string(address)))
	if err != nil {
		t.Fatal(err)
	}
	_ = login.Body.Close()
	live, err := browser.Get(site + "events")
	if err != nil || live.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", live, err)
	}
	defer func() { _ = live.Body.Close() }()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, live.Body); err != nil {
		t.Errorf("the page that was live was cut off: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v, want 0", err)
	}
}

// folder is the temporary folder of all tests.
var folder string

func TestMain(m *testing.M) {
	_ = os.Unsetenv("MIDGE_STORAGE") // the storage of the user who runs the tests
	os.Exit(func() int {
		var err error
		if folder, err = os.MkdirTemp("", "midge"); err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(folder) }()
		return m.Run()
	}())
}
