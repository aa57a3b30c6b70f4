//go:build linux || darwin

package cli

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// newWorkRig makes a rig on a storage whose clock runs.
func newWorkRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r.store, r.session = unclosed{store}, storage.NewSession(store, 0)
	return r
}

// TestWorkRunsAProgram runs a program for a task that succeeds and for a task that fails, and then ends as by
// a signal.
func TestWorkRunsAProgram(t *testing.T) {
	t.Setenv("COMMAND_DATABASE", "redis://u:s3cret@db.example:6379/0")
	t.Setenv("PGPASSWORD", "s3cret")
	r := newWorkRig(t)
	good := strings.TrimSpace(r.ok(`task add greet --queue hall --keep 1h --params '{"name":"ann"}'`))
	bad := strings.TrimSpace(r.ok(`task add part --queue hall --retries none --params '{"name":"bob"}'`))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r.ctx = ctx
	ended := make(chan answer, 1)
	go func() {
		ended <- r.run(`work --kind greet --kind part --queue hall --result stdout --drain 0s --env HOME -- /bin/sh -c ` +
			`'cat; env | grep -c s3cret; [ $MIDGE_KIND = greet ] || { echo private words >&2; exit 3; }'`)
	}()
	state := func(ref string) (task storage.Task) {
		queue, id, _ := strings.Cut(ref, "/")
		task, err := r.store.Task(t.Context(), storage.Ref{Queue: queue, ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return task
	}
	testserver.Await(t, "both tasks have ended", func() bool {
		return state(good).State == storage.Completed && state(bad).State == storage.Dead
	})
	stop()
	got := <-ended
	if got.code != Done {
		t.Errorf("exit %d, want 0:\n%s", got.code, got.err)
	}
	if result := string(state(good).Result); result != `"{\"name\":\"ann\"}0\n"` {
		t.Errorf("the result is %s", result)
	}
	if text := state(bad).LastError(); text != "exit status 3: private words" {
		t.Errorf("the error is %q", text)
	}
	if strings.Contains(got.err, "private") || !strings.Contains(got.err, "msg=failed") {
		t.Errorf("want a line about the failure without its text, got\n%s", got.err)
	}
}

// TestWorkRefusesAWrongLine checks that each wrong command line ends with the exit code of bad input.
func TestWorkRefusesAWrongLine(t *testing.T) {
	r := newWorkRig(t)
	for line, want := range map[string]string{
		"work --kind x": "wants the program behind --", "work --kind x cat": "wants the program behind --",
		"work -- cat": "--kind", "work --kind x -- no-such-program": "no-such-program",
		"work --kind x --result file -- cat": "--result", "work --kind x --memory lots -- cat": "--memory",
		"work --kind x --memory 1K -- cat": "--memory", "work --kind x --queue '' -- cat": "queue",
		"work --kind x --concurrency 0 -- cat": "oncurrency", "work --kind x --dir /no/folder -- cat": "folder",
		"work --kind x --env TOKEN=s3cret -- cat": "--env", "work --kind x --env '' -- cat": "--env",
	} {
		if got := r.run(line); got.code != BadInput || !strings.Contains(got.err, want) || strings.Contains(got.err, "s3cret") {
			t.Errorf("midge %s: exit %d and %q, want %d and %q", line, got.code, got.err, BadInput, want)
		}
	}
}

// TestNumbersAreCheckedBeforeTheStorage has numbers and times that are too small, too large, or no numbers, on a storage
// that is not there.
func TestNumbersAreCheckedBeforeTheStorage(t *testing.T) {
	r := newRig(t)
	r.real, r.env[connect.EnvStorage] = true, "sqlite:///no/folder/tasks.db"
	file := filepath.Join(t.TempDir(), "rows.txt")
	if err := os.WriteFile(file, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	work, callback := "work --kind x %s -- cat", "callback --kind x --url https://h.example/ --unsigned %s"
	load := "load " + file + " --kind x %s"
	for _, c := range []struct{ line, flag, given, want string }{
		{work, "concurrency", "-1 0 10001 1000000 9223372036854775807", "1 to 10000"},
		{callback, "concurrency", "-1 10001 9223372036854775807", "1 to 10000"},
		{callback, "concurrency", "0", "more than 0"},
		{callback, "per-host", "0", "more than 0"},
		{work, "memory", "1 1K", "want 0"},
		{work, "memory", "-1 0 NaN 1e9 99999999999999999999", "such as 512M"},
		{work, "run-timeout", "1ns 999us", "1ms or more"},
		{work, "grace", "36500d", "at most"},
		{callback, "request-timeout", "0s", "more than 0"},
		{load, "cost", "-1 1000001", "0 to 1000000"},
		{load, "high-water", "-1 0", "1 or more"},
		{load, "retries", "-1 0 10000 NaN", "1 to 9999, or none"},
		{load, "crash-limit", "-1 0 10000", "1 to 9999"},
		{load, "run-timeout", "1ns", "1ms to"},
		{load, "keep", "1ns", "1ms to"},
	} {
		for value := range strings.FieldsSeq(c.given) {
			r.refuses(fmt.Sprintf(c.line, "--"+c.flag+" "+value), "invalid --"+c.flag, c.want)
		}
	}
	for line, flags := range map[string]string{
		work: "concurrency", callback: "concurrency per-host", load: "cost high-water priority crash-limit",
	} {
		for flag := range strings.FieldsSeq(flags) {
			for _, value := range []string{"NaN", "Inf", "1e3", "''", "99999999999999999999"} {
				r.refuses(fmt.Sprintf(line, "--"+flag+" "+value), "invalid --"+flag, "number")
			}
		}
	}
	for line, flags := range map[string]string{
		work: "run-timeout grace drain timeout", callback: "request-timeout timeout", load: "run-timeout keep timeout",
	} {
		for flag := range strings.FieldsSeq(flags) {
			for _, value := range []string{"-1s", "0", "5", "NaN", "Infs", "''", "99999999d", "9223372036854775807ns"} {
				r.refuses(fmt.Sprintf(line, "--"+flag+" "+value), "invalid --"+flag, "a number with its unit")
			}
		}
	}
	r.refuses(fmt.Sprintf(callback, "--per-host -1"), "requests at once for a host -1", "1 to 10000")
	r.refuses(fmt.Sprintf(callback, "--request-timeout 36500d"), "timeout of a request", "1ms to 1h")
	r.refuses(fmt.Sprintf(load, "--priority 10"), "priority 10", "-9 to 9")
}

// refuses checks that a line ends with the exit code of bad input and prints the reasons.
func (r *rig) refuses(line string, why ...string) {
	r.t.Helper()
	got := r.run(line)
	for _, part := range why {
		if got.code != BadInput || !strings.Contains(got.err, part) {
			r.t.Errorf("midge %s: exit %d and %q, want %d and %q", line, got.code, got.err, BadInput, part)
		}
	}
}

// TestASizeHasAUnit parses sizes.
func TestASizeHasAUnit(t *testing.T) {
	for text, want := range map[string]size{
		"1": 1, "2K": 2048, "3m": 3 << 20, "512MiB": 512 << 20, "2GB": 2 << 30, "": 0, "M": 0, "-1M": 0, "1T": 0, "1KK": 0,
		"99999999999G": 0, "5iB": 0, "5i": 0, "5iK": 0, "5BK": 0, "5KiBB": 0, "5KK": 0, "5 G": 0, "+5G": 0, "5.5G": 0,
		"5_0": 0, "0G": 0, "G5": 0, "5G5": 0, "0x5": 0, "5e3": 0, "5B": 5, "5kib": 5 << 10, "5gb": 5 << 30, "007k": 7 << 10,
		"8589934591G": 8589934591 << 30, "8589934592G": 0, "9223372036854775807": math.MaxInt64,
	} {
		var got size
		if err := got.Set(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
}
