package testserver

import (
	"os/exec"
	"syscall"
)

// tieToParent makes the kernel kill the child when this process dies.
func tieToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// watchParent has nothing to do: the kernel watches.
func watchParent(int) (release func()) { return func() {} }
