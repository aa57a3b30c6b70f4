package command_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/work/command"
)

// startWorker starts a worker process. Its processes have a variable with the name of the test in their
// environment.
func startWorker(t *testing.T, script string, tasks int) *exec.Cmd {
	t.Helper()
	worker := exec.Command("/proc/self/exe")
	worker.Env = append(os.Environ(), envPart+"="+partWorker, envScript+"="+script, envTasks+"="+strconv.Itoa(tasks),
		"COMMAND_TEST_NAME="+t.Name())
	worker.Stderr = os.Stderr
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
	return worker
}

// running returns the processes with a variable in their environment, besides one.
func running(variable string, besides int) (pids []int) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		env, _ := os.ReadFile(filepath.Join(folder, "environ"))
		pid, _ := strconv.Atoi(filepath.Base(folder))
		if pid != besides && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// family is a script with a child, a child in a session of its own, and one of these that ignores signals.
const family = `sleep 300 & setsid sleep 300 & setsid sh -c 'trap "" TERM HUP; sleep 300 & sleep 300; :' & wait`

// TestAKilledWorkerLeavesNoProcess kills a worker with children, grandchildren and sessions.
func TestAKilledWorkerLeavesNoProcess(t *testing.T) {
	const each = 6 // processes of a task
	tasks, err := strconv.Atoi(cmp.Or(os.Getenv("MIDGE_TEST_CHILDREN"), "20"))
	if err != nil {
		t.Fatal(err)
	}
	worker := startWorker(t, family, tasks)
	variable := "COMMAND_TEST_NAME=" + t.Name()
	testserver.Await(t, "all processes run", func() bool {
		return len(running(variable, worker.Process.Pid)) == tasks*each
	})
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "no process is left", func() bool { return len(running(variable, worker.Process.Pid)) == 0 })
}

// TestTheKernelKillsThePrograms kills a worker whose reaper is stopped. The programs have a bound of their memory, or none.
func TestTheKernelKillsThePrograms(t *testing.T) {
	for _, memory := range []string{"", "268435456"} {
		t.Setenv(envMemory, memory)
		const tasks = 20
		worker := startWorker(t, `exec sleep 300`, tasks)
		pid, variable := worker.Process.Pid, "COMMAND_TEST_NAME="+t.Name()
		testserver.Await(t, "all programs run", func() bool {
			pids := running(variable, pid)
			return len(pids) == tasks && !slices.ContainsFunc(pids, func(pid int) bool {
				name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				return string(name) != "sleep\n"
			})
		})
		all := reapers(pid)
		if len(all) != 1 || syscall.Kill(all[0], syscall.SIGSTOP) != nil {
			t.Fatalf("the reaper among %v cannot be stopped", all)
		}
		t.Cleanup(func() { _ = syscall.Kill(all[0], syscall.SIGCONT) })
		if err := worker.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		testserver.Await(t, "no program is left", func() bool { return len(running(variable, pid)) == 0 })
	}
}

// TestAnEndedTaskLeavesNoProcess ends a program that has left a process in a session of its own.
func TestAnEndedTaskLeavesNoProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	r := newRig(t, shell(`setsid sleep 300 & echo $! > `+file+`; sleep 0.1`))
	if err := r.client.Await(t.Context(), r.add(packed{}), nil); err != nil {
		t.Fatal(err)
	}
	gone(t, awaitFile(t, file))
}

// TestAProcessThatHasLeftDoesNotHoldItsTask leaves a process that no longer has the mark of its task, and that writes
// lines until nobody reads them any more.
func TestAProcessThatHasLeftDoesNotHoldItsTask(t *testing.T) {
	left := filepath.Join(t.TempDir(), "left")
	r := newRig(t, shell(`env -i setsid sh -c '>`+left+`; while echo "{\"progress\":1}"; do sleep 0.02; done' >&3 &
		until [ -e `+left+` ]; do sleep 0.02; done; echo '{"result":7}' >&3`))
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var got int
	if err := r.client.Await(ctx, r.add(packed{}), &got); err != nil || got != 7 {
		t.Errorf("got %d, %v; want the result of the program", got, err)
	}
}

// reapers returns the reapers of a process.
func reapers(of int) (pids []int) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		stat, _ := os.ReadFile(filepath.Join(folder, "stat"))
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if strings.HasPrefix(string(line), "midge-reaper\x00") && len(fields) > 1 && fields[1] == strconv.Itoa(of) {
			pid, _ := strconv.Atoi(filepath.Base(folder))
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestAKilledReaperIsReplaced kills the reaper, and later the worker.
func TestAKilledReaperIsReplaced(t *testing.T) {
	worker := startWorker(t, `setsid sleep 300 & sleep 300`, 1)
	variable := "COMMAND_TEST_NAME=" + t.Name()
	pid := worker.Process.Pid
	testserver.Await(t, "the processes run", func() bool { return len(running(variable, pid)) == 3 })
	before := reapers(pid)
	if len(before) != 1 {
		t.Fatalf("%d reapers, want one", len(before))
	}
	reaperProcess, err := os.FindProcess(before[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := reaperProcess.Kill(); err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "another reaper runs", func() bool {
		now := reapers(pid)
		return len(now) == 1 && now[0] != before[0]
	})
	testserver.Await(t, "it ignores signals", func() bool { return ignoresTerm(reapers(pid)) })
	if len(running(variable, pid)) != 3 {
		t.Error("the processes of the task were killed")
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "no process is left", func() bool { return len(running(variable, pid)) == 0 })
}

// TestATaskWaitsForTheNextReaper starts a task while the reaper, which was killed twice, has not been started again.
func TestATaskWaitsForTheNextReaper(t *testing.T) {
	own := command.Main()
	defer func() { _ = own.Close() }()
	cfg := shell(`exit 0`)
	cfg.Reaper = own
	before := reapers(os.Getpid())
	r := newRig(t, cfg)
	killNew := func(besides ...int) (killed int) {
		testserver.Await(t, "another reaper is killed", func() bool {
			for _, pid := range reapers(os.Getpid()) {
				if !slices.Contains(besides, pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
					killed = pid
				}
			}
			return killed > 0
		})
		return killed
	}
	second := killNew(append(before, killNew(before...))...)
	testserver.Await(t, "the second one is gone", func() bool { return !slices.Contains(reapers(os.Getpid()), second) })
	ref := r.add(packed{})
	if err := r.client.Await(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	if task := r.task(ref); task.Retries+task.Crashes != 0 {
		t.Errorf("the task has %d retries and %d crashes, want none", task.Retries, task.Crashes)
	}
}

// stop stops the reaper of this process that is not among others.
func stop(t *testing.T, others []int) (pid int) {
	t.Helper()
	for _, pid := range reapers(os.Getpid()) {
		if !slices.Contains(others, pid) && syscall.Kill(pid, syscall.SIGSTOP) == nil {
			return pid
		}
	}
	t.Fatal("no other reaper")
	return 0
}

// smallPipe makes the pipe of a reaper as small as the system allows, one page.
func smallPipe(t *testing.T, reaper int) {
	t.Helper()
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", reaper), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	const setSize = 1031 // F_SETPIPE_SZ
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, pipe.Fd(), setSize, 1); errno != 0 {
		t.Fatal(errno)
	}
}

// TestAStoppedReaperIsReplaced stops the reaper. The tasks of the worker, whose lines nobody reads, still complete,
// and the next reaper ends the processes that they have left.
func TestAStoppedReaperIsReplaced(t *testing.T) {
	others := reapers(os.Getpid())
	own := command.Main()
	file := filepath.Join(t.TempDir(), "pids")
	cfg := shell(`[ $MIDGE_KIND = plain ] && { setsid sleep 300 & echo $! >>` + file + `; }; exit 0`)
	cfg.Reaper = own
	r := newRig(t, cfg)
	defer func() { _ = own.Close() }()
	own.AnswersWithin(2 * time.Second)
	first := stop(t, others)
	smallPipe(t, first)
	refs := []midge.Ref{r.add(plain{})}
	for range 400 {
		refs = append(refs, r.add(packed{}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, ref := range refs {
		if err := r.client.Await(ctx, ref, nil); err != nil {
			t.Fatal(err)
		}
		if task := r.task(ref); task.Retries+task.Crashes != 0 {
			t.Errorf("%s has %d retries and %d crashes, want none", ref, task.Retries, task.Crashes)
		}
	}
	if slices.Contains(reapers(os.Getpid()), first) {
		t.Error("the stopped reaper lives")
	}
	gone(t, awaitFile(t, file))
}

// TestCloseDoesNotWaitForAStoppedReaper leaves a program that runs, with a process in a session of its own.
func TestCloseDoesNotWaitForAStoppedReaper(t *testing.T) {
	others := reapers(os.Getpid())
	own := command.Main()
	file := filepath.Join(t.TempDir(), "pids")
	cfg := shell(`setsid sleep 300 & echo $! $$ >` + file + `; wait`)
	cfg.Reaper = own
	r := newRig(t, cfg)
	r.add(packed{})
	pids := awaitFile(t, file)
	own.AnswersWithin(2 * time.Second)
	stopped := stop(t, others)
	if err := own.Close(); err != nil {
		t.Error(err)
	}
	gone(t, pids+" "+strconv.Itoa(stopped))
}

// ignoresTerm reports whether processes ignore SIGTERM, which is the 15th bit.
func ignoresTerm(pids []int) bool {
	for _, pid := range pids {
		status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return false
		}
		for in := bufio.NewScanner(status); in.Scan(); {
			if mask, ok := strings.CutPrefix(in.Text(), "SigIgn:"); ok {
				bits, _ := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
				if bits&(1<<14) == 0 {
					_ = status.Close()
					return false
				}
			}
		}
		_ = status.Close()
	}
	return true
}

// TestMemoryIsBounded runs a program that takes 4 GiB.
func TestMemoryIsBounded(t *testing.T) {
	cfg := shell(`exec dd if=/dev/zero of=/dev/null bs=512M count=1`)
	cfg.Memory, cfg.Reaper = 256<<20, reaper
	r := newRig(t, cfg)
	r.contains(r.dead(r.add(packed{}, midge.Timeout(time.Minute))), "exit status 1", "memory exhausted")
}

// TestMemoryIsBoundedFromTheStart runs programs whose first step is to start another process.
func TestMemoryIsBoundedFromTheStart(t *testing.T) {
	cfg := shell(`printf '{"result":"%s KiB, %s files"}\n' "$(ulimit -d)" "$(ulimit -n)" >&3`)
	files, err := exec.Command("/bin/sh", "-c", "ulimit -n").Output()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Memory = 1 << 20 // less than this program itself has
	r := newRig(t, cfg, func(c *midge.RunnerConfig) { c.Concurrency = 8 })
	var refs []midge.Ref
	for range 50 {
		refs = append(refs, r.add(packed{}))
	}
	want := fmt.Sprintf("1024 KiB, %s files", bytes.TrimSpace(files))
	for _, ref := range refs {
		var got string
		if err := r.client.Await(t.Context(), ref, &got); err != nil || got != want {
			t.Errorf("got bounds of %s, %v; want %s", got, err, want)
		}
	}
}

// TestABoundedProgramThatIsGone removes the program before its task.
func TestABoundedProgramThatIsGone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, command.Config{Path: file, Reaper: reaper, Memory: 256 << 20})
	if err := r.client.Await(t.Context(), r.add(packed{}), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.contains(r.dead(r.add(packed{})), "exit status 127: the program "+file+" cannot be started", "no such file")
}

// TestAProgramThatLeavesItsGroupIsEnded moves the program to the group of its worker.
func TestAProgramThatLeavesItsGroupIsEnded(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]string{partMoves: "SIGTERM", partStays: "SIGKILL"} {
		ready := filepath.Join(t.TempDir(), "ready")
		cfg := command.Config{
			Path: self, Env: append(command.Environment(os.Environ()), envPart+"="+part, envReady+"="+ready),
			Grace: 10 * time.Second, Reaper: reaper,
		}
		if part == partStays {
			cfg.Grace = 200 * time.Millisecond
		}
		text, _ := newRig(t, cfg).timedOut(plain{}, time.Second, ready)
		if !strings.Contains(text, "timed out") || !strings.Contains(text, "ended with "+want) {
			t.Errorf("a program that %s: got %q, want that it timed out and ended with %s", part, text, want)
		}
	}
}

// TestAnyFolderForCheckpoints has a relative one, whose name is a pattern that does not match itself.
func TestAnyFolderForCheckpoints(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", "folder[1]")
	if err := os.Mkdir("folder[1]", 0o700); err != nil {
		t.Fatal(err)
	}
	own := command.Main()
	cfg := shell(`[ -z "$MIDGE_CHECKPOINT" ] && { echo '{"checkpoint":1}' >&3; exit 1; }
		cp "$MIDGE_CHECKPOINT" "$MIDGE_CHECKPOINT-left"`)
	cfg.Dir, cfg.Reaper = "/", own
	r := newRig(t, cfg)
	if err := r.client.Await(t.Context(), r.add(plain{}, midge.Retries(1)), nil); err != nil {
		t.Error(err)
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir("folder[1]"); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
