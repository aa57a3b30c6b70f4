package ledger

import "time"

// clock watches the storage's clock. A clock that is ahead for a few minutes must not delete the history of
// months, so nothing is deleted until the clock is steady.
type clock struct {
	last  time.Time // the storage's time at the last reading
	since time.Time // the storage's time at the first reading after which the clock did not jump
}

const (
	// maxStep is how far the clock may go between two readings, which are a minute apart. A smaller jump deletes
	// pages at most an hour too early.
	maxStep = time.Hour
	// steadyAfter is how long the clock must go on without a jump until it is steady, also after the first
	// reading of a process. A storage itself believes a jump sooner, after storage.JumpWait. Pages can wait.
	steadyAfter = 10 * time.Minute
)

// steady notes a reading of the clock, and reports whether the clock has gone on for long enough.
func (c *clock) steady(now time.Time) bool {
	if now.Before(c.last) || now.Sub(c.last) > maxStep {
		c.since = now
	}
	c.last = now
	return now.Sub(c.since) >= steadyAfter
}
