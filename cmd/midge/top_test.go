package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/cli"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// terminal is a real terminal of 80 columns and 24 lines, by tmux.
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
		_ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() // it may have ended
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return term
}

// tmux gives a command to the terminal's own tmux.
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

// wants awaits a screen with texts, and gives it.
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

// built is the path of the command, which is built once for all tests.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "midge")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, err
})

// build gives the path of the command.
func build(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTopInATerminal(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	store, err := redis.Open(t.Context(), redis.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, 0)
	for _, id := range []string{"a1", "a2", "a3"} {
		_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "send_mail", Encoding: "json", Payload: []byte(`{"to":"ann"}`), CrashLimit: 3,
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	term := startTerminal(t, []string{"MIDGE_STORAGE=" + server.URL(), "NO_COLOR=1"}, build(t), "top", "--every", "200ms")

	screen := term.wants("midge top  on redis://127.0.0.1", "> mail", "3 waiting", "q quit")
	if lines := strings.Split(strings.TrimRight(screen, "\n"), "\n"); len(lines) > 24 {
		t.Errorf("the screen has %d lines", len(lines))
	}
	term.keys("Enter")
	term.wants("mail: [waiting 3]", "> a1", "a3")
	term.keys("Down", "Enter")
	term.wants("mail/a2", `{"to":"ann"}`)
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
	term.wants("2 waiting", "> mail")
	term.keys("p")
	term.wants("Pause queue mail?")
	term.keys("y")
	term.wants("paused mail")
	stats, err := store.Stats(t.Context(), "mail")
	if err != nil || !stats[0].Paused || stats[0].Waiting != 2 {
		t.Errorf("the storage says %+v, %v; want a paused queue with two tasks", stats, err)
	}
	term.keys("q")
	testserver.Await(t, "top ends", func() bool {
		_, err := term.tmux("has-session")
		return err != nil
	})
}

// TestAPipeOnATerminalAsks pipes refs from one command into another, in the shell of a terminal.
func TestAPipeOnATerminalAsks(t *testing.T) {
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
	term.keys("clear", "Enter", line+"; echo ended with $?", "Enter")
	term.wants("Cancel 3 tasks? [y/N]")
	term.keys("C-c")
	term.wants("interrupted")
	waiting(3)
	term.keys("clear", "Enter", "setsid -w sh -c '"+line+"; echo ended with $?'", "Enter") // without a terminal of its own
	term.wants("nobody is here to confirm this: give --yes", "ended with 2")
	waiting(3)
	term.keys("clear", "Enter", line+" 2>/dev/null; echo ended with $?", "Enter") // what was told is lost, the question is not
	term.wants("Cancel 3 tasks? [y/N]")
	term.keys("y", "Enter")
	term.wants("cancelled 3", "ended with 0")
	waiting(0)
}
