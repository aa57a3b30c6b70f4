package runner

import (
	"sync"
	"time"
)

// contact knows when the storage answered the claims of a shard, and from that which expired leases
// the next claim may recover. A storage cannot distinguish a runner that died from a runner that
// could not reach it. So that a lease which ends in an outage is not charged as a crash, its runner
// gets the time to extend or settle it first:
//
//   - A claim recovers only leases that had ended when a claim was answered at least recoveryDelay
//     before. A claim that was under way when the storage froze recovers none that ended meanwhile, nor
//     does a claim that is sent right after an outage too short to be noticed.
//   - After a time without answers, and after the start of the runner, claims recover for
//     recoveryPause only leases that had ended before that time.
//   - An answer does not count while the storage refuses the extensions or claims of this runner because it is
//     full: a claim that finds nothing to do writes nothing, and is answered all the same. After a claim that
//     was refused the runner begins as at its start, because answers before it may have been such answers.
//
// Each runner decides for itself, so that the storage need not note when it was last reached.
type contact struct {
	mu     sync.Mutex    // guards the fields below
	last   time.Time     // the storage's time in the last answer; zero before the first
	at     time.Duration // when that answer came, by the runner's clock
	bound  time.Time     // claims recover leases that ended before this moment
	next   time.Time     // the bound from recoveryDelay after it on: the time of an answer
	before time.Time     // the bound during a pause
	until  time.Time     // when the last pause ends, by the storage's clock
	gaps   int           // how often the last pause was prolonged
}

const (
	// silence is the time between two answers from which the storage counts as having been away. A
	// runner without work claims every slowScan.
	silence = 1500 * time.Millisecond
	// recoveryDelay is the time that the holder of a lease has to extend it after a shorter outage.
	recoveryDelay = time.Second
	// recoveryPause covers the time until all runners have reached the storage again: a call is repeated
	// every 1.5 s at least, and a pool of connections may dial once a second.
	recoveryPause = 3 * time.Second
	// gapsMost bounds how often other times without answers prolong a pause. So the leases of dead runners
	// are recovered within a minute or so if every answer takes long.
	gapsMost = 20
)

// longAgo returns a moment before the ends of all leases.
func longAgo() time.Time { return time.UnixMicro(1).UTC() }

// recoverBefore returns the bound for a claim that is sent at the time now.
func (c *contact) recoverBefore(now time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.last.Add(now - c.at)
	switch {
	case c.last.IsZero():
		return longAgo()
	case told.Before(c.until):
		return c.before
	}
	return c.boundAt(told)
}

// boundAt returns the bound at a time of the storage outside of a pause.
func (c *contact) boundAt(told time.Time) time.Time {
	if told.Before(c.next.Add(recoveryDelay)) {
		return c.bound
	}
	return c.next
}

// answered notes an answer that came at the time now and holds the storage's time.
func (c *contact) answered(told time.Time, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last
	c.last, c.at = told, now
	switch {
	case last.IsZero():
		c.pause(longAgo())
	case told.Before(last): // the clock was set back
		c.bound, c.next, c.until = longAgo(), told, time.Time{}
	case told.Sub(last) <= silence:
		if !told.Before(c.next.Add(recoveryDelay)) {
			c.bound, c.next = c.next, told
		}
	case !last.Before(c.until):
		c.pause(c.boundAt(last))
	case c.gaps == gapsMost:
		c.pause(last)
	default:
		gaps := c.gaps + 1
		c.pause(c.before)
		c.gaps = gaps
	}
}

// refused notes that a claim was refused because the storage is full.
func (c *contact) refused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Time{}
}

// pause begins a pause, in which claims recover leases that ended before a moment.
func (c *contact) pause(before time.Time) {
	c.before, c.until, c.gaps = before, c.last.Add(recoveryPause), 0
	c.bound, c.next = before, c.last
}
