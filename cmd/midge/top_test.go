package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// build builds the command.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "midge")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
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
