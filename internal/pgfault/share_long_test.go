//go:build long

package pgfault

import "time"

const (
	// share is the divisor of the work of each test: here all of it is done.
	share = 1
	// promptly is how long a task may wait after its notification.
	promptly = 100 * time.Millisecond
)

// pooledTopics are the topics of the contract that are tested behind a proxy: nil for all.
var pooledTopics []string
