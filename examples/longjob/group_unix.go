//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a child into a process group of its own, which is killed whole when its
// context ends: what the child has started dies with it.
func ownGroup(child *exec.Cmd) {
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	child.Cancel = func() error { return syscall.Kill(-child.Process.Pid, syscall.SIGKILL) }
}
