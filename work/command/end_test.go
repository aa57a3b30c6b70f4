//go:build linux || darwin

package command_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/work/command"
)

// stubborn is a script that ignores SIGTERM, as does its own child. It writes the numbers of both to a file.
func stubborn(file string) command.Config {
	cfg := shell(`trap 'echo got TERM >&2' TERM; (trap '' TERM; exec sleep 60) & echo $$ $! > ` + file +
		`; while :; do wait; done`)
	cfg.Grace = 200 * time.Millisecond
	return cfg
}

// gone waits until the processes of a file have ended.
func gone(t *testing.T, numbers string) {
	t.Helper()
	for number := range strings.FieldsSeq(numbers) {
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		testserver.Await(t, "process "+number+" is gone", func() bool { return !alive(pid) })
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// TestACancelKillsTheGroup cancels a program that ignores SIGTERM.
func TestACancelKillsTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	r := newRig(t, stubborn(file), func(c *midge.RunnerConfig) { c.Lease = time.Second })
	ref := r.add(packed{})
	pids := awaitFile(t, file)
	if _, err := r.client.Cancel(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Await(t.Context(), ref, nil); !errors.Is(err, midge.ErrCancelled) {
		t.Errorf("the task ended with %v, want ErrCancelled", err)
	}
	gone(t, pids)
}

// TestATimeoutKillsTheGroup names the timeout and the signal.
func TestATimeoutKillsTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	cfg := stubborn(file)
	cfg.Grace = 2 * time.Second // for its trap
	r := newRig(t, cfg)
	text, timeout := r.timedOut(packed{}, time.Second, file)
	r.contains(text, "timed out after "+timeout.String(), "SIGKILL", "got TERM")
	gone(t, awaitFile(t, file))
}

// slowReads is a storage that answers a read of a task only once the context of the read has ended.
type slowReads struct{ storage.Storage }

func (s slowReads) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	<-ctx.Done()
	return s.Storage.Task(context.WithoutCancel(ctx), ref) //nolint:wrapcheck // as the storage has it
}

// TestNoProgramStartsAfterTheEnd has a timeout end the context of a job while the last checkpoint is read.
func TestNoProgramStartsAfterTheEnd(t *testing.T) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // after the runner has ended
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "started")
	r := &rig{T: t, store: slowReads{store}, client: client}
	r.start(shell(`: > ` + file))
	r.contains(r.dead(r.add(packed{}, midge.Timeout(50*time.Millisecond))), "timed out after 50ms: the program was not started")
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program was started: %v", err)
	}
}

// TestAnExitAfterTheEndCompletesNothing has a program that ends with 0 when it is asked to end.
func TestAnExitAfterTheEndCompletesNothing(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	r := newRig(t, shell(`trap 'echo bye >&2; exit 0' TERM; echo '{"result":1}' >&3; : > `+ready+
		`; while :; do sleep 0.02; done`))
	text, _ := r.timedOut(packed{}, 300*time.Millisecond, ready)
	r.contains(text, "timed out", "exit status 0", "bye")
}

// TestADrainedTaskGoesOnElsewhere stops the runner of a program that stores a checkpoint at SIGTERM. The
// next runner goes on from there, and nothing was charged.
func TestADrainedTaskGoesOnElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	cfg := shell(`
		if [ -n "$MIDGE_CHECKPOINT" ]; then printf '{"result":%s}\n' "$(cat $MIDGE_CHECKPOINT)" >&3; exit; fi
		trap 'sleep 4; echo "{\"checkpoint\":\"saved\"}" >&3; exit 0' TERM
		echo $$ > ` + file + `; while :; do sleep 0.02; done`)
	r := newRig(t, cfg, func(c *midge.RunnerConfig) { c.Lease = 3 * time.Second })
	ref := r.add(packed{})
	pid := awaitFile(t, file)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	gone(t, pid)
	if task := r.task(ref); task.State != storage.Waiting || task.Retries+task.Crashes != 0 {
		t.Errorf("the task is %s with %d retries and %d crashes, want it waiting, uncharged",
			task.State, task.Retries, task.Crashes)
	}
	r.start(cfg)
	var got string
	if err := r.client.Await(t.Context(), ref, &got); err != nil || got != "saved" {
		t.Errorf("got %q, %v; want the checkpoint", got, err)
	}
}

// TestADrainKillsInTime stops the runner of a program that ignores SIGTERM, though its grace is longer than
// the time in which the job has to return. On a busy machine the job may return too late all the same, but not in
// each of several drains.
func TestADrainKillsInTime(t *testing.T) {
	for try := 1; ; try++ {
		file := filepath.Join(t.TempDir(), "pids")
		cfg := stubborn(file)
		cfg.Grace = time.Minute
		r := newRig(t, cfg, func(c *midge.RunnerConfig) { c.ReturnWithin = time.Second })
		ref := r.add(packed{})
		pids := awaitFile(t, file)
		err := r.stop()
		gone(t, pids)
		if errors.Is(err, midge.ErrGraceExceeded) && try < 5 {
			continue
		}
		if err != nil {
			t.Errorf("the runner ended with %v, want no job left", err)
		}
		if task := r.task(ref); task.State != storage.Waiting || task.Retries+task.Crashes != 0 {
			t.Errorf("the task is %s with %d retries and %d crashes, want it waiting, uncharged",
				task.State, task.Retries, task.Crashes)
		}
		return
	}
}

// TestADrainShortensTheGraceOfAnEndedTask stops the runner of a program that ignores SIGTERM after a cancel.
func TestADrainShortensTheGraceOfAnEndedTask(t *testing.T) {
	folder := t.TempDir()
	file, asked := filepath.Join(folder, "pids"), filepath.Join(folder, "asked")
	cfg := shell(`trap 'echo yes > ` + asked + `' TERM; echo $$ > ` + file + `; while :; do sleep 0.02; done`)
	cfg.Grace = time.Hour
	r := newRig(t, cfg, func(c *midge.RunnerConfig) { c.Lease, c.ReturnWithin = 3*time.Second, time.Second })
	ref := r.add(packed{})
	pids := awaitFile(t, file)
	if _, err := r.client.Cancel(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, asked)
	if err := r.stop(); err != nil && !errors.Is(err, midge.ErrGraceExceeded) { // that of a slow machine
		t.Error(err)
	}
	gone(t, pids)
	if task := r.task(ref); task.State != storage.Cancelled {
		t.Errorf("the task is %s, want it cancelled", task.State)
	}
}

// deaf is a storage that loses the extensions of leases once it is cut.
type deaf struct {
	storage.Storage

	cut chan struct{}
}

func (d deaf) Extend(ctx context.Context, request storage.ExtendRequest) (storage.Extended, error) {
	select {
	case <-d.cut:
		return storage.Extended{}, storage.ErrUnavailable
	default:
		return d.Storage.Extend(ctx, request)
	}
}

// TestALostLeaseKillsTheGroup cuts a runner off from its storage.
func TestALostLeaseKillsTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cut := make(chan struct{})
	r := newRigOn(t, deaf{store, cut}, stubborn(file), func(c *midge.RunnerConfig) { c.Lease = time.Second })
	r.add(packed{})
	pids := awaitFile(t, file)
	close(cut)
	gone(t, pids)
}

// blind is a storage that reads no task until its channel is closed.
type blind struct {
	storage.Storage

	back chan struct{}
}

func (b blind) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	select {
	case <-b.back:
		return b.Storage.Task(ctx, ref)
	default:
		return storage.Task{}, storage.ErrUnavailable
	}
}

// TestATaskWaitsForItsCheckpoint cannot read the checkpoint of a task at first, for which the task is not to blame.
func TestATaskWaitsForItsCheckpoint(t *testing.T) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	back := make(chan struct{})
	r := newRigOn(t, blind{store, back}, shell(`exit 0`), func(c *midge.RunnerConfig) { c.Lease = 3 * time.Second })
	ref := r.add(packed{})
	var task storage.Task
	testserver.Await(t, "the attempt has ended", func() bool {
		task, err = store.Task(t.Context(), ref)
		return err != nil || task.State != storage.Waiting && task.State != storage.Pending
	})
	if err != nil || task.State != storage.Scheduled || !strings.Contains(task.Reason, "checkpoint") {
		t.Errorf("the task is %s, %q, %v; want it put off because of its checkpoint", task.State, task.Reason, err)
	}
	close(back)
	if err := r.client.Await(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	if task := r.task(ref); task.Retries+task.Crashes != 0 || len(task.Attempts) != 1 {
		t.Errorf("%d retries, %d crashes and %d attempts, want one attempt", task.Retries, task.Crashes, len(task.Attempts))
	}
}

// TestALongTaskKeepsItsLease runs a program for several leases, or for the time in MIDGE_TEST_CHILD_TIME.
func TestALongTaskKeepsItsLease(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("MIDGE_TEST_CHILD_TIME"), "7s"))
	if err != nil {
		t.Fatal(err)
	}
	seconds := strconv.FormatFloat(length.Seconds(), 'f', -1, 64)
	r := newRig(t, shell(`sleep `+seconds), func(c *midge.RunnerConfig) { c.Lease = 3 * time.Second })
	ref := r.add(packed{})
	if err := r.client.Await(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	if task := r.task(ref); task.Crashes != 0 || len(task.Attempts) != 1 {
		t.Errorf("%d crashes and %d attempts, want one attempt", task.Crashes, len(task.Attempts))
	}
}

// TestTheRestOfAGroupIsKilled has a program that leaves a child, which holds all its pipes.
func TestTheRestOfAGroupIsKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	r := newRig(t, shell(`sleep 60 & echo $! > `+file+`; echo '{"result":"done"}' >&3`))
	var got string
	begun := time.Now()
	if err := r.client.Await(t.Context(), r.add(packed{}), &got); err != nil || got != "done" {
		t.Errorf("got %q, %v", got, err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	gone(t, awaitFile(t, file))
}

// TestAProcessThatOthersWaitFor lets another part of the worker take the exit status of the program. The
// attempt fails, because nobody knows the status.
func TestAProcessThatOthersWaitFor(t *testing.T) {
	folder := t.TempDir()
	cfg := shell(`echo $$ > "$0/$MIDGE_ID"; until [ -e "$0/end" ]; do sleep 0.01; done`)
	cfg.Args = append(cfg.Args, folder)
	r := newRig(t, cfg)
	taken := false
	for range 50 { // the worker may be faster
		_ = os.Remove(filepath.Join(folder, "end")) // there may be none
		ref := r.add(packed{})
		pid, err := strconv.Atoi(strings.TrimSpace(awaitFile(t, filepath.Join(folder, ref.ID))))
		if err != nil {
			t.Fatal(err)
		}
		status := make(chan error, 1)
		go func() { // ends with the process
			_, err := syscall.Wait4(pid, nil, 0, nil)
			status <- err
		}()
		if err := os.WriteFile(filepath.Join(folder, "end"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if taken = <-status == nil; taken {
			r.contains(r.dead(ref), "an unknown status, because other code of this worker has waited")
			break
		}
		if err := r.client.Await(t.Context(), ref, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !taken {
		t.Error("the status was never taken")
	}
}
