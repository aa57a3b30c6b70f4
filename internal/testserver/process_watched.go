//go:build unix && !linux

package testserver

import (
	"os/exec"
	"strconv"
)

// tieToParent does nothing: watchParent's shell kills the child.
func tieToParent(*exec.Cmd) {}

// watchParent starts a shell that reads a pipe whose other end only this process holds.
// When this process dies, however it dies, the shell reads the end of the pipe and
// kills the child. release ends the shell. If the shell does not start, the child may
// outlive this process.
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
