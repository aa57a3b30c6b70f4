//go:build long

package pgfault

import "time"

const (
	// share is the part of each test that is done: the whole.
	share = 1
	// promptly is how long a task that was heard of may wait.
	promptly = 100 * time.Millisecond
)
