package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const limitsMemory = true

// executable returns the path of this program, also if its file was replaced or removed meanwhile.
func executable() (string, error) { return "/proc/self/exe", nil }

// group makes the process the leader of a group of its own, which ends with the thread that starts it.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// resourceData is RLIMIT_DATA, which package syscall lacks on some architectures.
const resourceData = 2

// become bounds the data of this process and of the processes that it will start, and then replaces this
// program by another one. RLIMIT_AS would also count address space that is only reserved, as many runtimes
// do.
//
// Under the bound the runtime may end the process as soon as it needs memory, also for records of its own
// or for a thread. So nothing happens between the bound and the other program: two calls of the system, of
// which the scheduler does not know.
func become(path string, args []string, most uint64) error {
	file, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return err
	}
	env, err := syscall.SlicePtrFromStrings(os.Environ())
	if err != nil {
		return err
	}
	bound := &syscall.Rlimit{Cur: most, Max: most}
	_ = syscall.Exec("", nil, nil) // fails, but first restores the bound of open files, which package os raised
	// If the program cannot be started, the error finds room in these bytes.
	runtime.KeepAlive(make([]byte, 8<<20))
	runtime.GC()
	// The thread of the call becomes the process, and others than the first have lost this signal.
	runtime.LockOSThread()
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	if errno != 0 {
		return fmt.Errorf("set the signal at the end of the worker: %w", errno)
	}
	if err := syscall.Setrlimit(resourceData, bound); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	_, _, errno = syscall.RawSyscall(syscall.SYS_EXECVE,
		uintptr(unsafe.Pointer(file)),     //nolint:gosec // as syscall.Exec does
		uintptr(unsafe.Pointer(&argv[0])), //nolint:gosec // as syscall.Exec does
		uintptr(unsafe.Pointer(&env[0])))  //nolint:gosec // as syscall.Exec does
	return errno
}

// killMarked kills the processes of a worker whose tasks are over, and returns how many it found. It finds
// them by the mark in their environment, whatever their session and their parent are.
func killMarked(worker string, over func(task int64) bool) (found int) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	mark := []byte("\x00" + markName + "=" + worker + ".")
	for _, folder := range folders {
		pid, _ := strconv.Atoi(filepath.Base(folder))
		process, err := os.FindProcess(pid) // from here on the process is meant, even if its number is given away
		if err != nil {
			continue
		}
		if task, ok := taskOf(folder, mark); ok && over(task) {
			found++
			_ = process.Kill()
		}
		_ = process.Release()
	}
	return found
}

// taskOf returns the number of the task that the mark in the environment of a process names.
func taskOf(folder string, mark []byte) (task int64, ok bool) {
	all, err := os.ReadFile(filepath.Join(folder, "environ")) // empty for a zombie
	if err != nil {
		return 0, false
	}
	_, after, ok := bytes.Cut(append([]byte{0}, all...), mark)
	if !ok {
		return 0, false
	}
	number, _, _ := bytes.Cut(after, []byte{0})
	task, err = strconv.ParseInt(string(number), 10, 64)
	return task, err == nil
}

// groupFiles are the files from which oomKills reads.
type groupFiles struct{ own, root string }

// oomKills returns how many processes of this process's control group were killed because its memory was
// used up. The children belong to the same group. It returns 0 if the system does not report it.
func (f groupFiles) oomKills() (n int) {
	text, _ := os.ReadFile(f.own)
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		events, _ := os.ReadFile(filepath.Join(f.root, path, "memory.events"))
		for event := range strings.Lines(string(events)) {
			if count, ok := strings.CutPrefix(strings.TrimSpace(event), "oom_kill "); ok {
				n, _ = strconv.Atoi(count)
			}
		}
	}
	return n
}

func oomKills() int { return groupFiles{own: "/proc/self/cgroup", root: "/sys/fs/cgroup"}.oomKills() }
