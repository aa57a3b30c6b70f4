package runner

import (
	"sync"
	"time"
)

// contact knows when the storage answered the claims of a shard, and from that which expired leases
// the next claim may recover. A storage cannot tell a runner that died from a runner that could not
// reach it. So that a lease which ends in an outage is not charged as a crash, its runner gets the
// time to extend or settle it first:
//
//   - A claim recovers only leases that had ended when the claim before it was answered. A claim
//     that was under way when the storage froze recovers none that ended meanwhile.
//   - After a time without answers, and after the start of the runner, claims recover for
//     recoveryPause only leases that had ended before that time.
//
// Each runner decides for itself, so that the storage need not note when it was last reached.
type contact struct {
	mu     sync.Mutex    // guards the fields below
	last   time.Time     // the storage's time in the last answer; zero before the first
	at     time.Duration // when that answer came, by the runner's clock
	before time.Time     // during a pause, claims recover only leases that ended before this moment
	until  time.Time     // when the last pause ends, by the storage's clock
	gaps   int           // how often the last pause was prolonged
}

const (
	// silence is the time between two answers from which the storage counts as having been away. A
	// runner without work claims every slowScan.
	silence = 1500 * time.Millisecond
	// recoveryPause covers the time until all runners have reached the storage again: a call is repeated
	// every 1.5 s at least, and a pool of connections may dial once a second.
	recoveryPause = 3 * time.Second
	// gapsMost bounds how often other times without answers prolong a pause. So the leases of dead runners
	// are recovered within a minute or so where every answer takes long.
	gapsMost = 20
)

// longAgo returns a moment before the ends of all leases.
func longAgo() time.Time { return time.UnixMicro(1).UTC() }

// recoverBefore returns the bound for a claim that is sent at the time now.
func (c *contact) recoverBefore(now time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.last.IsZero():
		return longAgo()
	case c.last.Add(now - c.at).Before(c.until):
		return c.before
	}
	return c.last
}

// answered notes an answer that came at the time now and tells the storage's time.
func (c *contact) answered(told time.Time, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last
	c.last, c.at = told, now
	switch {
	case last.IsZero():
		c.before, c.until = longAgo(), told.Add(recoveryPause)
	case told.Before(last): // the clock was set back
		c.until = time.Time{}
	case told.Sub(last) <= silence:
	case last.Before(c.until) && c.gaps < gapsMost:
		c.until = told.Add(recoveryPause)
		c.gaps++
	default:
		c.before, c.until, c.gaps = last, told.Add(recoveryPause), 0
	}
}
