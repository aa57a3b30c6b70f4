package process

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the processor time that all threads of a process have used, including
// threads that have ended, in nanoseconds.
func CPU(pid int) (time.Duration, error) {
	// The kernel's number of the processor clock of another process is its inverted id,
	// followed by three bits which here mean "all threads, as scheduled".
	clock := int32(^pid)<<3 | 2
	var used unix.Timespec
	if err := unix.ClockGettime(clock, &used); err != nil {
		return 0, fmt.Errorf("read the processor clock of %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// Pause waits until a moment. It is much more exact than a timer, whose precision is a
// millisecond. It blocks a thread meanwhile.
func Pause(until time.Time) {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return
	}
	left := time.Until(until)
	if left <= 0 {
		return
	}
	// Sleep until a moment, not for a duration, because signals of the runtime interrupt
	// the call.
	at := unix.NsecToTimespec(now.Nano() + left.Nanoseconds())
	for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil), unix.EINTR) {
		continue
	}
}
