//go:build unix

package testserver

import (
	"syscall"
	"testing"
	"time"
)

// ProcessorTime returns the processor time that this process has taken. Unlike the time that has passed, it
// does not depend on the other work of the machine, so that a test can bound the work of a computation with
// it. The calling test runs alone in its process.
func ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
