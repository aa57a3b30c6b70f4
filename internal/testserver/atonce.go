package testserver

import (
	"os/exec"
	"strconv"
	"sync"
	"time"
)

const (
	// slowStart is the most processor time that a small program takes to start on a machine that is not
	// slow. On a virtual machine in which a page fault takes 24 µs, a program takes 4 ms.
	slowStart = 3 * time.Millisecond
	// slowTimes is how many times as long all work may take on a slow machine as on others.
	slowTimes = 2
)

// isSlow reports whether the machine is slow.
var isSlow = sync.OnceValue(func() bool { return startTime() > slowStart })

// AtOnce returns how many tests may run in parallel, as a value of the flag test.parallel: n, or a third of it
// on a machine that is slow to start processes, on which the leases of running tests would run out while others
// start their servers and processes. n is meant for tests that wait for most of their time.
func AtOnce(n int) string { return strconv.Itoa(atOnce(n, isSlow())) }

func atOnce(n int, slow bool) int {
	if slow {
		return min(n, max(n/3, 2))
	}
	return n
}

// startTime returns the least processor time that the start of a small program took, which other programs on the
// machine hardly change. It is 0 if there is no such program.
func startTime() time.Duration {
	least := time.Duration(0)
	for range 5 {
		cmd := exec.Command("true")
		if cmd.Run() != nil {
			return 0
		}
		if took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); least == 0 || took < least {
			least = took
		}
	}
	return least
}
