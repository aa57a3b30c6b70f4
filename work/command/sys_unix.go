//go:build linux || darwin

package command

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// These are the features of the system.
const (
	hasReports = true // a child inherits file descriptor 3
	hasGroups  = true // a task is a process group
	reaps      = true // a reaper kills the children of a dead worker
)

// ignoreSignals makes the reaper outlive the signals that end its worker.
func ignoreSignals() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
}

// apart puts a process into a session of its own, so that no signal of a terminal reaches it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// terminateGroup asks all processes of a group to end, also stopped ones.
func terminateGroup(leader *os.Process) {
	signalLeader(leader, syscall.SIGTERM)
	_ = syscall.Kill(-leader.Pid, syscall.SIGTERM)
	signalLeader(leader, syscall.SIGCONT)
	_ = syscall.Kill(-leader.Pid, syscall.SIGCONT)
}

func killProcess(leader *os.Process) {
	signalLeader(leader, syscall.SIGKILL)
	killGroup(leader.Pid)
}

// signalLeader signals a leader that has moved to another group, because the signal for its own group does
// not reach it.
func signalLeader(leader *os.Process, signal syscall.Signal) {
	if group, err := syscall.Getpgid(leader.Pid); err == nil && group != leader.Pid {
		_ = syscall.Kill(leader.Pid, signal)
	}
}

func killGroup(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }

// The arguments and results of waitid, which are the same on all systems of this file.
const (
	idOfProcess = 1 // P_PID
	exited      = 1 // CLD_EXITED
	dumped      = 3 // CLD_DUMPED, and CLD_KILLED is 2
)

// awaitEnd waits until a child has ended, and leaves it as a zombie, which keeps its number. Darwin's waitid
// also returns for a stopped child.
func awaitEnd(pid int) {
	for {
		var info struct {
			signal, errno, code int32
			rest                [29]int32
		}
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idOfProcess, uintptr(pid),
			uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOWAIT, 0, 0) //nolint:gosec // no waitid either
		switch {
		case errors.Is(errno, syscall.EINTR):
		case errno != 0 || info.code >= exited && info.code <= dumped:
			return
		default:
			<-time.After(10 * time.Millisecond)
		}
	}
}

// readNow reads what a pipe holds at this moment. It returns io.EOF if the pipe is empty.
func readNow(pipe *os.File, p []byte) (n int, err error) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	if err = raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), p) }); err == nil && n <= 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

// signalled returns the name of the signal that has ended a process, "" if none has.
func signalled(state *os.ProcessState) string {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return ""
	}
	if name := signalNames[status.Signal()]; name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(status.Signal()))
}

var signalNames = map[syscall.Signal]string{
	syscall.SIGABRT: "SIGABRT", syscall.SIGALRM: "SIGALRM", syscall.SIGBUS: "SIGBUS",
	syscall.SIGFPE: "SIGFPE", syscall.SIGHUP: "SIGHUP", syscall.SIGILL: "SIGILL",
	syscall.SIGINT: "SIGINT", syscall.SIGKILL: "SIGKILL", syscall.SIGPIPE: "SIGPIPE",
	syscall.SIGQUIT: "SIGQUIT", syscall.SIGSEGV: "SIGSEGV", syscall.SIGSYS: "SIGSYS",
	syscall.SIGTERM: "SIGTERM", syscall.SIGTRAP: "SIGTRAP", syscall.SIGUSR1: "SIGUSR1",
	syscall.SIGUSR2: "SIGUSR2", syscall.SIGXCPU: "SIGXCPU", syscall.SIGXFSZ: "SIGXFSZ",
}
