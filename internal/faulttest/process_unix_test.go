//go:build unix && !linux

package faulttest

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tieToParent does nothing: a worker also ends when its standard input is closed.
func tieToParent(*exec.Cmd) {}

// cpuTime returns the processor time that a process has used.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	out, err := exec.Command("ps", "-o", "time=", "-p", strconv.Itoa(pid)).Output()
	must(t, err)
	var used time.Duration // minutes:seconds, with or without hours before them
	for _, part := range strings.Split(strings.TrimSpace(string(out)), ":") {
		n, err := strconv.ParseFloat(part, 64)
		must(t, err)
		used = 60*used + time.Duration(n*float64(time.Second))
	}
	return used
}
