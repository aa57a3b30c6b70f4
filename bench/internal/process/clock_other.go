//go:build !linux

package process

import (
	"errors"
	"time"
)

// CPU returns an error: it needs Linux.
func CPU(int) (time.Duration, error) {
	return 0, errors.New("reading another process's processor time needs Linux")
}

// Pause waits until a moment, as exactly as a timer.
func Pause(until time.Time) { <-time.After(time.Until(until)) }
