//go:build unix && !linux

package testserver

import (
	"os/exec"
	"strconv"
)

// tieToParent has nothing to do: watchParent's shell does it.
func tieToParent(*exec.Cmd) {}

// watchParent starts a shell that reads a pipe whose other end this process alone
// holds. When this process dies, however it does, the shell reads the end and
// kills the child. release ends the shell; without a shell the child is not tied.
func watchParent(pid int) (release func()) {
	shell := exec.Command("/bin/sh", "-c", "cat >/dev/null; kill -9 "+strconv.Itoa(pid))
	pipe, err := shell.StdinPipe()
	if err != nil {
		return func() {}
	}
	if err := shell.Start(); err != nil {
		return func() {}
	}
	return func() {
		_ = shell.Process.Kill()
		_ = pipe.Close()
		_ = shell.Wait()
	}
}
