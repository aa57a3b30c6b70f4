package ledger

import "time"

// clock is what a process has seen of the storage's clock. A clock that is ahead for a few minutes must not
// delete the history of months, so that nothing is deleted before the clock is steady.
type clock struct {
	last  time.Time // the storage's time at the last look
	since time.Time // the storage's time at the first look after which the clock did not jump
}

const (
	// maxStep is how far the clock may go between two looks. Looks are a minute apart. A jump of less deletes
	// pages an hour before their time at most.
	maxStep = time.Hour
	// steadyAfter is how long the clock goes on after a jump, and after the first look of a process, until it
	// is steady. A storage itself believes a jump sooner, after storage.JumpWait. A page can wait.
	steadyAfter = 10 * time.Minute
)

// steady takes in a look at the clock, and reports whether the clock has gone on for long enough.
func (c *clock) steady(now time.Time) bool {
	if now.Before(c.last) || now.Sub(c.last) > maxStep {
		c.since = now
	}
	c.last = now
	return now.Sub(c.since) >= steadyAfter
}
