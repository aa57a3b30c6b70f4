package testserver

import (
	"os/exec"
	"syscall"
)

// tieToParent makes the kernel kill the child when this process dies.
func tieToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// watchParent does nothing: tieToParent has told the kernel to kill the child.
func watchParent(int) (release func()) { return func() {} }
