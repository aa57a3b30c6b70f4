package process

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPU gives the processor time that a process has used, all its threads together, those
// that ended too, to the nanosecond.
func CPU(pid int) (time.Duration, error) {
	// The kernel's number of the processor clock of another process: its id inverted,
	// above three bits of which these say "all threads, as scheduled".
	clock := int32(^pid)<<3 | 2
	var used unix.Timespec
	if err := unix.ClockGettime(clock, &used); err != nil {
		return 0, fmt.Errorf("read the processor clock of %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// Pause waits until a moment, far closer than a timer does, whose grain is a millisecond.
// It holds a thread meanwhile.
func Pause(until time.Time) {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return
	}
	left := time.Until(until)
	if left <= 0 {
		return
	}
	// As a moment and not a time, because signals of the runtime interrupt it.
	at := unix.NsecToTimespec(now.Nano() + left.Nanoseconds())
	for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil), unix.EINTR) {
		continue
	}
}
