//go:build !long

package pgfault

import "time"

const (
	// share is the part of each test that is done: one in so many.
	share = 10
	// promptly is how long a task that was heard of may wait. The race detector and a busy
	// machine count; one that was not heard of waits for a second.
	promptly = 500 * time.Millisecond
)
