//go:build unix

package redis_test

import (
	"syscall"
	"testing"
	"time"
)

// ownTime returns the processor time that this process has taken.
func ownTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
