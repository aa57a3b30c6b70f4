package redis

import (
	"sync"
	"time"
)

// upkeepEvery is how often the claims of a runner maintain all of its queues, although they have all tasks
// that they want before they come to the last ones.
const upkeepEvery = 250 * time.Millisecond

// upkeep holds for each runner when a claim last maintained all queues that it named.
type upkeep struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

// due reports whether a claim of the runner should maintain all of its queues.
func (u *upkeep) due(runner string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Since(u.last[runner]) >= upkeepEvery
}

// done notes that a claim of the runner has maintained all of its queues.
func (u *upkeep) done(runner string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if _, known := u.last[runner]; !known {
		for other, at := range u.last {
			if now.Sub(at) > time.Minute {
				delete(u.last, other) // a runner that has ended, or rests
			}
		}
	}
	if u.last == nil {
		u.last = make(map[string]time.Time)
	}
	u.last[runner] = now
}
