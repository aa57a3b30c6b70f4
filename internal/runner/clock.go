package runner

import (
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/storage"
)

// clock tells the time since a runner was made.
type clock struct {
	made time.Time
	skew func() time.Duration // of the wall clock, in tests; nil for none
}

// moment is a time since the runner was made, by two clocks: the monotonic one stands still
// while the machine is suspended, and the wall clock may be set.
type moment struct{ mono, wall time.Duration }

// since is how long ago an earlier moment was, by the clock that says longer: a lease ends by
// the storage's clock, also while this machine is suspended. A wall clock that was set forward
// looks the same and costs a start; the lease is given back.
func (m moment) since(earlier moment) time.Duration {
	return max(m.mono-earlier.mono, m.wall-earlier.wall)
}

// now is the moment that it is.
func (c *clock) now() moment {
	t := time.Now()
	m := moment{mono: t.Sub(c.made), wall: time.Duration(t.UnixNano() - c.made.UnixNano())}
	if c.skew != nil {
		m.wall += c.skew()
	}
	return m
}

// elapsed is the time since the runner was made by the monotonic clock alone: what a goroutine
// reads for each job.
func (c *clock) elapsed() time.Duration { return time.Since(c.made) }

// belief is what a storage's clock is believed to say, by one caller at a time. As in the storage itself,
// a clock that is more than storage.JumpAfter ahead of what was reckoned is believed only once it has been
// for storage.JumpWait. Before the storage has told its time the runner reckons by its own clock. The zero
// belief believes what it is told first.
type belief struct {
	told   time.Time // what was believed last
	at     moment    // when that was
	jumped *moment   // since when the clock has been ahead; nil where it is not
}

// time gives the storage's time at a moment, at which it told its own.
func (b *belief) time(told time.Time, at moment) time.Time {
	reckoned := b.told.Add(at.since(b.at))
	ahead := !b.told.IsZero() && told.Sub(reckoned) > storage.JumpAfter
	if ahead && b.jumped == nil {
		b.jumped = &at
	}
	if ahead && at.since(*b.jumped) < storage.JumpWait {
		return reckoned
	}
	b.told, b.at, b.jumped = told, at, nil
	return told
}

// slowScan is how often an actor looks that nothing wakes, ± 20 %.
const slowScan = time.Second

// jitter spreads d by ± 20 %, so that the runners of a fleet do not scan in step.
func jitter(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5) }
