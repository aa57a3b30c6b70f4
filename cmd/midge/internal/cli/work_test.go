//go:build linux || darwin

package cli

import (
	"context"
	"math"
	"strings"
	"testing"

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

// TestWorkRunsAProgram runs a program for a task that succeeds and for one that fails, and then ends as by a
// signal.
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
		"work --kind x --memory 1K -- cat": "Memory", "work --kind x --queue '' -- cat": "queue",
		"work --kind x --concurrency 0 -- cat": "oncurrency", "work --kind x --dir /no/folder -- cat": "folder",
	} {
		if got := r.run(line); got.code != BadInput || !strings.Contains(got.err, want) {
			t.Errorf("midge %s: exit %d and %q, want %d and %q", line, got.code, got.err, BadInput, want)
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
