package runner

import (
	"context"
	"sync"
	"sync/atomic"
)

// inFlight holds the attempts under a runner's leases. Its mutex is its own, because workers need
// that of the slots for each job: if a thousand settles were handled under that one, all workers
// would wait for it, and be woken one by one.
type inFlight struct {
	mu  sync.Mutex // guards all
	all []*Attempt // each attempt knows its index, place

	n    atomic.Int64  // length of all, readable without the mutex
	some chan struct{} // capacity 1; signals that all is no longer empty
}

// wait waits until something is in flight. It returns false if ctx ended. It must not be called
// concurrently.
func (f *inFlight) wait(ctx context.Context) bool {
	for f.count() == 0 {
		select {
		case <-f.some:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (f *inFlight) add(attempts []*Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == 0 && len(attempts) > 0 {
		defer kick(f.some)
	}
	for _, a := range attempts {
		a.place = int32(len(f.all))
		f.all = append(f.all, a)
	}
	f.n.Store(int64(len(f.all)))
}

// remove removes attempts and returns how many are left.
func (f *inFlight) remove(attempts []*Attempt) (left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range attempts {
		if int(a.place) < len(f.all) && f.all[a.place] == a {
			last := f.all[len(f.all)-1]
			last.place, f.all[a.place] = a.place, last
			f.all[len(f.all)-1] = nil
			f.all = f.all[:len(f.all)-1]
		}
	}
	f.n.Store(int64(len(f.all)))
	return len(f.all)
}

func (f *inFlight) count() int { return int(f.n.Load()) }

// snapshot returns the attempts in flight, of one shard or, with nil, of all.
func (f *inFlight) snapshot(of *shard) []*Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Attempt, 0, len(f.all))
	for _, a := range f.all {
		if of == nil || a.shard == of {
			all = append(all, a)
		}
	}
	return all
}

// forget removes all attempts and returns how many there were.
func (f *inFlight) forget() (left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left = len(f.all)
	clear(f.all)
	f.all = nil
	f.n.Store(0)
	return left
}
