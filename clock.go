package midge

import "time"

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
func (r *Runner) now() moment {
	t := time.Now()
	m := moment{mono: t.Sub(r.made), wall: time.Duration(t.UnixNano() - r.made.UnixNano())}
	if r.skew != nil {
		m.wall += r.skew()
	}
	return m
}

// clock is the time since the runner was made by the monotonic clock alone: what a goroutine
// reads for each job.
func (r *Runner) clock() time.Duration { return time.Since(r.made) }
