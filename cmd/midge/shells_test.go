package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// completes maps a line before the Tab to the line that the shell makes of it.
var completes = map[string]string{
	"midge queue show rep":              "midge queue show reports",
	"midge queue pause rep":             "midge queue pause reports",
	"midge task ls --queue rep":         "midge task ls --queue reports",
	"midge task ls --state de":          "midge task ls --state dead",
	"midge task ls state:d":             "midge task ls state:dead",
	"midge task ls queue:rep":           "midge task ls queue:reports",
	"midge task add send_m":             "midge task add send_mail",
	"midge task ls kind:send_m":         "midge task ls kind:send_mail",
	"midge schedule run reports/n":      "midge schedule run reports/nightly",
	"midge runner show web-1:47":        "midge runner show web-1:4711:x7",
	"midge queue ls -o wi":              "midge queue ls -o wide",
	"midge schedule sh":                 "midge schedule show",
	"midge history rep":                 "midge history reports",
	"midge stats rep":                   "midge stats reports",
	"midge queue ls --sort ol":          "midge queue ls --sort oldest",
	"midge doctor --accept orph":        "midge doctor --accept orphaned:reports/nightly",
	"midge serve ma":                    "midge serve ma",                    // not main.go
	"midge queue resume reports/nothin": "midge queue resume reports/nothin", // the queue does not exist
}

// busy fills a storage on Redis with all that completion knows: queues, kinds, a schedule and a runner.
func busy(t *testing.T, url string) {
	t.Helper()
	store, err := redis.Open(t.Context(), redis.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, 0)
	declared := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h"}
	for _, in := range []storage.Insert{
		{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send_mail"},
		{Ref: storage.Ref{Queue: "reports", ID: "b"}, Kind: "nightly"},
		{Ref: storage.Ref{Queue: "reports", ID: storage.CursorPrefix + "nightly"}, Kind: "nightly", Cursor: &storage.Cursor{
			Next: time.Now().Add(time.Hour), Declaration: declared.Encode(),
		}},
	} {
		in.Encoding, in.Payload, in.CrashLimit = "json", []byte("{}"), 3
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
		ID: "web-1:4711:x7", Host: "web-1", PID: 4711, Queues: []string{"mail", "reports"}, Kinds: []string{"send_mail", "nightly"},
		Concurrency: 10, Started: time.Now(), For: time.Hour,
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCompletionInLivingShells types lines into bash and zsh in a terminal, and asks fish for its
// completions.
func TestCompletionInLivingShells(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	if runtime.GOOS != "linux" {
		t.Skip("the shells are installed on Linux: tools/need-servers.sh")
	}
	server := testserver.Redis(t)
	busy(t, server.URL())
	env := []string{
		"MIDGE_STORAGE=" + server.URL(), "XDG_CONFIG_HOME=" + t.TempDir(), "HOME=" + t.TempDir(), "PS1=$ ",
		"PATH=" + filepath.Dir(build(t)) + ":" + os.Getenv("PATH"),
	}
	t.Run("bash", func(t *testing.T) {
		t.Parallel()
		typed(t, env, []string{"bash", "--norc", "--noprofile", "-i"},
			". /usr/share/bash-completion/bash_completion; . <(midge completion bash)")
	})
	t.Run("zsh", func(t *testing.T) {
		t.Parallel()
		typed(t, env, []string{"zsh", "-f", "-i"}, "PS1='$ '; autoload -U compinit; compinit -u -D; . <(midge completion zsh)")
	})
	t.Run("fish", func(t *testing.T) {
		t.Parallel()
		asked(t, env)
	})
}

// typed types the lines into a shell in a terminal.
func typed(t *testing.T, env, shell []string, begin string) {
	t.Helper()
	term := startTerminal(t, env, shell...)
	term.wants("$")
	term.keys(begin+"; echo rea''dy", "Enter")
	term.wants("ready")
	lines := 0
	line := func(typed, want string) {
		t.Helper()
		var got string
		// On a busy machine the storage may answer too late for a completion, which then offers nothing.
		testserver.Await(t, fmt.Sprintf("%q becomes %q", typed, want), func() bool {
			lines++
			mark := fmt.Sprintf("#%d#", lines)
			term.keys("C-u", "C-l", typed, "Tab", mark)
			// The shell reads the keys after the Tab only after the completion.
			got, _, _ = strings.Cut(term.wants(mark), mark)
			got = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(got), "$"))
			return got != typed || want == typed
		})
		if got != want {
			t.Errorf("%q becomes %q, want %q", typed, got, want)
		}
	}
	for before, after := range completes {
		line(before, after)
	}
	testserver.Await(t, "both queues are offered", func() bool {
		lines++
		mark := fmt.Sprintf("#%d#", lines)
		term.keys("C-u", "C-l", "midge queue show ", "Tab", "Tab", mark)
		screen := term.wants(mark)
		return strings.Contains(screen, "mail") && strings.Contains(screen, "reports")
	})
	term.keys("C-u", "export MIDGE_STORAGE=redis://127.0.0.1:1; echo mo''ved", "Enter")
	term.wants("moved")
	for _, quiet := range []string{"midge queue show rep", "midge task add send_m", "midge runner show web-1:47", "midge schedule run rep"} {
		line(quiet, quiet)
	}
}

// asked asks fish for its completions.
func asked(t *testing.T, env []string) {
	t.Helper()
	offers := func(line, url string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "fish", "--no-config", "-c", "midge completion fish | source; complete -C '"+line+"'")
		cmd.Env = append(append(os.Environ(), env...), "MIDGE_STORAGE="+url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	url := strings.TrimPrefix(env[0], "MIDGE_STORAGE=")
	for before, after := range completes {
		begin, want := before[:strings.LastIndexByte(before, ' ')+1], after
		var got string
		testserver.Await(t, fmt.Sprintf("%q becomes %q", before, want), func() bool { // see typed
			got, _, _ = strings.Cut(offers(before, url), "\t") // a tab separates the description
			return got != "" || want == before
		})
		if got != "" || want != before {
			got = begin + got
		} else {
			got = before
		}
		if got != want {
			t.Errorf("%q becomes %q, want %q", before, got, want)
		}
	}
	var got string
	testserver.Await(t, "fish offers queues", func() bool { got = offers("midge queue show ", url); return got != "" })
	if got != "mail\nreports" {
		t.Errorf("fish offers %q, want both queues", got)
	}
	if got := offers("midge queue show ", "redis://127.0.0.1:1"); got != "" {
		t.Errorf("fish offers %q, want silence", got)
	}
}
