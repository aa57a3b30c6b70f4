//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a child into a process group of its own. When the context ends, the
// whole group is killed, so that processes which the child has started die with it.
func ownGroup(child *exec.Cmd) {
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	child.Cancel = func() error { return syscall.Kill(-child.Process.Pid, syscall.SIGKILL) }
}
