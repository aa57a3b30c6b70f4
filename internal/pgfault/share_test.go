//go:build !long

package pgfault

import "time"

const (
	// share is the divisor of the work of each test: here a tenth of it is done.
	share = 10
	// promptly is how long a task may wait after its notification. It allows for the race
	// detector and a busy machine. A task without a notification waits for a second.
	promptly = 500 * time.Millisecond
)

// pooledTopics are the topics of the contract that are tested behind a proxy: the topics of the statements
// that nearly all transactions consist of.
var pooledTopics = []string{"insert", "bulk", "claim", "kind", "settle"}
