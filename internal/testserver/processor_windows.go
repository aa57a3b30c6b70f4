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
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		t.Fatal(err)
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &exited, &kernel, &user); err != nil {
		t.Fatal(err)
	}
	ticks := func(f syscall.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) } // of 100 ns
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}
