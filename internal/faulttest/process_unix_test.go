//go:build unix && !linux

package faulttest

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tieToParent does nothing: a worker also ends where its standard input does.
func tieToParent(*exec.Cmd) {}

// cpuTime is how long a process has computed.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	out, err := exec.Command("ps", "-o", "time=", "-p", strconv.Itoa(pid)).Output()
	must(t, err)
	var used time.Duration // minutes:seconds, with hours in front of them or not
	for _, part := range strings.Split(strings.TrimSpace(string(out)), ":") {
		n, err := strconv.ParseFloat(part, 64)
		must(t, err)
		used = 60*used + time.Duration(n*float64(time.Second))
	}
	return used
}
