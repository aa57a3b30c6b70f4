package runner

import (
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/storage"
)

// Clocked is a storage of a test kit whose clock sets the times of the lines of the log, instead of
// this machine's.
type Clocked interface {
	Clock() time.Time
}

// WallClock returns the clock of the lines of the log of a runner on store.
func WallClock(store storage.Storage) func() time.Time {
	if s, ok := store.(Clocked); ok {
		return s.Clock
	}
	return time.Now
}

// clock measures the time since a runner was made.
type clock struct {
	made time.Time
	skew func() time.Duration // added to the wall clock, in tests; nil for none
}

// moment is a time since the runner was made, by two clocks: the monotonic clock stands still while
// the machine is suspended, and the wall clock may be set.
type moment struct{ mono, wall time.Duration }

// since returns the time since an earlier moment, by the clock that shows more of it: a lease ends
// by the storage's clock, also while this machine is suspended. A wall clock that was set forward
// has the same effect. It costs one start, and the lease is given back.
func (m moment) since(earlier moment) time.Duration {
	return max(m.mono-earlier.mono, m.wall-earlier.wall)
}

// now returns the current moment.
func (c *clock) now() moment {
	t := time.Now()
	m := moment{mono: t.Sub(c.made), wall: time.Duration(t.UnixNano() - c.made.UnixNano())}
	if c.skew != nil {
		m.wall += c.skew()
	}
	return m
}

// elapsed returns the time since the runner was made, by the monotonic clock only. Goroutines read
// it for each job.
func (c *clock) elapsed() time.Duration { return time.Since(c.made) }

// belief is a caller's estimate of the storage's clock. As in the storage itself, a clock that is
// more than storage.JumpAfter ahead of the estimate is believed only once it has been ahead for
// storage.JumpWait. Before the storage has reported its time, the runner estimates by its own
// clock. The zero belief accepts the first time that it receives. A belief must not be used concurrently.
type belief struct {
	told   time.Time // the last accepted time
	at     moment    // when it was accepted
	jumped *moment   // since when the storage's clock has been ahead; nil if it is not
}

// time returns the storage's time at the moment at, when the storage reported its time.
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

// slowScan is how often an actor checks without being woken, ± 20 %.
const slowScan = time.Second

// jitter spreads d by ± 20 %, so that the runners of a fleet do not scan in step.
func jitter(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5) }
