package runner

import (
	"context"
	"sync"
	"sync/atomic"
)

// inFlight is the attempts under a runner's leases. It has a mutex of its own because workers
// need that of the slots for each job: they would all have to wait, and be woken one by one,
// where a thousand settles are seen to under it.
type inFlight struct {
	mu  sync.Mutex // guards what follows
	all []*Attempt // each knows its place

	n    atomic.Int64  // how many they are, for those who cannot wait
	some chan struct{} // capacity 1: they were none, and are some
}

// wait waits until something is in flight, and reports false where ctx ended. It is for one caller.
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

// remove forgets attempts and tells how many are left.
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

// snapshot is what is in flight now, of one shard or, with nil, of all.
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

// forget forgets all and tells how many they were.
func (f *inFlight) forget() (left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left = len(f.all)
	clear(f.all)
	f.all = nil
	f.n.Store(0)
	return left
}
