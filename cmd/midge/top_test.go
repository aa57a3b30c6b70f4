package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/cli"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// terminal is a real terminal of 80 columns and 24 lines, in tmux.
type terminal struct {
	t      *testing.T
	socket string
}

// startTerminal runs a command in a terminal.
func startTerminal(t *testing.T, env []string, command ...string) *terminal {
	t.Helper()
	dir, err := os.MkdirTemp("", "midge-top") //nolint:usetesting // short: the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, socket: filepath.Join(dir, "s")}
	cmd := exec.CommandContext(t.Context(), "tmux", append([]string{
		"-S", term.socket, "-f", os.DevNull, "new-session", "-d", "-x", "80", "-y", "24",
	}, command...)...)
	cmd.Env = append(os.Environ(), append(env, "TERM=xterm-256color", "LC_ALL=C.UTF-8")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() // the server may have ended already
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return term
}

// tmux runs a command of the tmux of this terminal.
func (term *terminal) tmux(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(term.t.Context(), "tmux", append([]string{"-S", term.socket}, args...)...)
	cmd.Stdout = &out
	err := cmd.Run()
	return out.String(), err
}

// keys sends keys.
func (term *terminal) keys(keys ...string) {
	term.t.Helper()
	if _, err := term.tmux(append([]string{"send-keys"}, keys...)...); err != nil {
		term.t.Fatalf("send %v: %v", keys, err)
	}
}

// clears clears the screen of a shell, so that the next wait does not match old text.
func (term *terminal) clears() {
	term.t.Helper()
	term.keys("clear", "Enter")
	testserver.Await(term.t, "the screen is clear", func() bool {
		screen, err := term.tmux("capture-pane", "-p")
		return err == nil && !strings.Contains(strings.TrimSpace(screen), "\n")
	})
}

// wants waits for a screen that contains texts, and returns the screen.
func (term *terminal) wants(texts ...string) string {
	term.t.Helper()
	var screen string
	testserver.Await(term.t, "the screen shows "+strings.Join(texts, ", "), func() bool {
		var err error
		if screen, err = term.tmux("capture-pane", "-p"); err != nil {
			return false
		}
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
	return screen
}

// built is the path of the command. All tests share one build.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "midge")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, err
})

// build returns the path of the command.
func build(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// kitchen opens a storage for top behind a proxy, with waiting tasks, a dead task, and a queue with a long
// name.
func kitchen(t *testing.T) (store *redis.Storage, proxy *testserver.Proxy) {
	t.Helper()
	testserver.Require(t)
	server := testserver.Redis(t)
	store, err := redis.Open(t.Context(), redis.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	session := storage.NewSession(store, 0)
	for _, ref := range []storage.Ref{
		{Queue: "reports", ID: "dead"},
		{Queue: "mail", ID: "a1"},
		{Queue: "mail", ID: "a2"},
		{Queue: "mail", ID: "a3"},
		{Queue: "transactional-mail-of-europe", ID: "x"},
	} {
		_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: ref, Kind: "send_mail", Encoding: "json", Payload: []byte(`{"to":"ann"}`), CrashLimit: 3,
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "reports"}}, Start: 1, Lease: 30e9,
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("got %+v, %v", claimed, err)
	}
	settle := storage.Settle{Fence: claimed.Fences[0], Outcome: storage.Bury, Error: "smtp: timeout after 30s"}
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
		t.Fatal(err)
	}
	return store, testserver.NewProxy(t, server.Addr())
}

// steady replaces the parts of a screen that differ between runs: the address, the time and ages.
func steady(screen string) string {
	for _, of := range [][2]string{ // replaced in this order
		{`redis://127\.0\.0\.1:\d+ +\d\d:\d\d:\d\dZ`, "STORAGE TIME"},
		{`redis://127\.0\.0\.1.*`, "STORAGE"},
		{` +\d+(ms|s|m \d+s|m\d+s|m)\b`, " AGE"},
		{`(?m) ▁+$`, ""}, // seconds without work, which a screen has from its second reading on
	} {
		screen = regexp.MustCompile(of[0]).ReplaceAllString(screen, of[1])
	}
	return strings.TrimRight(screen, "\n") + "\n"
}

func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	store, proxy := kitchen(t)
	term := startTerminal(t, []string{"MIDGE_STORAGE=redis://" + proxy.Addr(), "NO_COLOR=1"}, build(t), "top", "--every", "200ms")
	draws := func(want string, marks ...string) {
		t.Helper()
		if got := steady(term.wants(marks...)); got != want {
			t.Errorf("the screen is\n%s\nwant\n%s", got, want)
		}
	}
	draws(queues80, "> mail", "q quit")
	term.keys("Enter")
	term.wants("mail: [waiting 3]", "> a1", "a3")
	term.keys("Down", "Enter")
	term.wants("mail/a2", `{"to":"ann"}`, "no live runner serves queue mail")
	term.keys("c")
	term.wants("Cancel mail/a2?  [y/N]")
	term.keys("n")
	term.wants("nothing was changed")
	term.keys("c")
	term.wants("Cancel mail/a2?")
	term.keys("y")
	term.wants("cancelled 1 task")
	term.keys("Escape")
	term.wants("mail: [waiting 2]")
	term.keys("/")
	term.wants("Enter search")
	term.keys("id:a3", "Enter")
	term.wants("filter: id:a3  (matches 1)", "> a3")
	term.keys("Escape")
	term.wants("3 waiting", "> mail")
	term.keys("p")
	term.wants("Pause queue mail?")
	term.keys("y")
	term.wants("paused mail", "paused")

	term.keys("Down", "r") // asks about the dead tasks of reports
	term.wants("Requeue")
	term.keys("y")
	term.wants("requeued 1 task", "4 waiting")

	proxy.Refuse()
	term.wants("The storage does not answer; trying again", "> reports")
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "top says that the storage is back", func() bool {
		screen, err := term.tmux("capture-pane", "-p")
		return err == nil && strings.Contains(screen, "4 waiting") && !strings.Contains(screen, "does not answer")
	})

	term.resize(40, 10)
	draws(queues40, "Enter / search s sort p pause ? q")
	term.keys("Up", "Enter")
	term.wants("mail: [waiting 2]", "> a1", "Enter ←→ / filter r c Esc ? keys q")
	term.keys("Escape")
	term.resize(80, 24)
	term.wants("CLEARS IN", "↑↓ choose  Enter tasks")
	stats, err := store.Stats(t.Context(), "mail", "reports")
	if err != nil || !stats[0].Paused || stats[0].Waiting != 2 || stats[1].Dead != 0 || stats[1].Waiting != 1 {
		t.Errorf("the storage says %+v, %v; want a paused queue with two tasks, and no dead one", stats, err)
	}
	term.keys("q")
	testserver.Await(t, "top ends", func() bool {
		_, err := term.tmux("has-session")
		return err != nil
	})
}

// resize changes the size of the terminal.
func (term *terminal) resize(width, height int) {
	term.t.Helper()
	if _, err := term.tmux("resize-window", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height)); err != nil {
		term.t.Fatalf("resize: %v", err)
	}
}

// TestAPipeOnATerminalAsks pipes refs from one command into another in the shell of a terminal.
func TestAPipeOnATerminalAsks(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	server := testserver.Redis(t)
	env := on(t, server.URL())
	for _, id := range []string{"a1", "a2", "a3"} {
		if got := run(t, env, "", "task", "add", "send_mail", "--queue", "mail", "--id", id); got.code != cli.Done {
			t.Fatalf("%+v", got)
		}
	}
	path := "PATH=" + filepath.Dir(build(t)) + ":" + os.Getenv("PATH")
	term := startTerminal(t, []string{"MIDGE_STORAGE=" + server.URL(), "NO_COLOR=1", path, "PS1=$ "}, "sh")
	const line = "midge task ls queue:mail -o ids | midge task cancel -"
	state := func() string {
		return run(t, env, "", "task", "ls", "--state", "all", "-o", "jsonl").out
	}
	waiting := func(n int) {
		t.Helper()
		if got := strings.Count(state(), `"state":"waiting"`); got != n {
			t.Errorf("%d tasks wait, want %d", got, n)
		}
	}

	term.keys(line+"; echo ended with $?", "Enter")
	term.wants("Cancel 3 tasks? [y/N]")
	term.keys("n", "Enter")
	term.wants("nothing was changed", "ended with 1")
	waiting(3)
	term.clears()
	term.keys(line+"; echo ended with $?", "Enter")
	term.wants("Cancel 3 tasks? [y/N]")
	term.keys("C-c")
	term.wants("interrupted")
	waiting(3)
	term.clears()
	term.keys("setsid -w sh -c '"+line+"; echo ended with $?'", "Enter") // without a controlling terminal
	term.wants("nobody is here to confirm this: give --yes", "ended with 2")
	waiting(3)
	term.clears()
	// The messages are lost, but the question appears.
	term.keys(line+" 2>/dev/null; echo ended with $?", "Enter")
	term.wants("Cancel 3 tasks? [y/N]")
	term.keys("y", "Enter")
	term.wants("cancelled 3", "ended with 0")
	waiting(0)
}

// The screens of queues on a terminal of 80 × 24 and on a terminal of 40 × 10.
const (
	queues80 = `No runner is alive, and 2 more: midge doctor
midge top  on STORAGE TIME
4 waiting  0 running  0 retry  1 dead  in 0/s  done 0/s  failed 0/s  0 runners
  QUEUE         WAITING  RUNNING   DEAD  OLDEST  IN/S  DONE/S CLEARS IN DONE
> mail                3        0      0 AGE     0       0 no runner
  reports             0        0      1       -     0       0         -
  transa…urope        1        0      0 AGE     0       0 no runner
















↑↓ choose  Enter tasks  / search  s sort  p pause/resume  ? keys  q quit
`
	queues40 = `No runner is alive, and 2 more: midge d…
midge top  on STORAGE
4 waiting  0 dead  done 0/s  0 runners
  QUEUE         WAITING   DEAD CLEARS IN
  mail                2      0    paused
> reports             1      0 no runner
  transa…urope        1      0 no runner

requeued 1 task
Enter / search s sort p pause ? q
`
)
