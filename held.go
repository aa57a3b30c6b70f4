package midge

import (
	"context"
	"sync"
	"sync/atomic"
)

// held is the attempts under a runner's leases. It has a mutex of its own because workers
// need that of the slots for each job: they would all have to wait, and be woken one by one,
// where a thousand settles are seen to under it.
type held struct {
	mu  sync.Mutex // guards what follows
	all []*attempt // each knows its place

	n    atomic.Int64  // how many they are, for those who cannot wait
	some chan struct{} // capacity 1: they were none, and are some
}

// wait waits until something is held, and reports false where ctx ended. It is for one caller.
func (h *held) wait(ctx context.Context) bool {
	for h.count() == 0 {
		select {
		case <-h.some:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (h *held) add(attempts []*attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) == 0 && len(attempts) > 0 {
		defer kick(h.some)
	}
	for _, a := range attempts {
		a.place = int32(len(h.all))
		h.all = append(h.all, a)
	}
	h.n.Store(int64(len(h.all)))
}

// remove forgets attempts and tells how many are left.
func (h *held) remove(attempts []*attempt) (left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range attempts {
		if int(a.place) < len(h.all) && h.all[a.place] == a {
			last := h.all[len(h.all)-1]
			last.place, h.all[a.place] = a.place, last
			h.all[len(h.all)-1] = nil
			h.all = h.all[:len(h.all)-1]
		}
	}
	h.n.Store(int64(len(h.all)))
	return len(h.all)
}

func (h *held) count() int { return int(h.n.Load()) }

// snapshot is what is held now, of one domain or, with nil, of all.
func (h *held) snapshot(of *domain) []*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*attempt, 0, len(h.all))
	for _, a := range h.all {
		if of == nil || a.domain == of {
			all = append(all, a)
		}
	}
	return all
}

// forget forgets all and tells how many they were.
func (h *held) forget() (left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left = len(h.all)
	clear(h.all)
	h.all = nil
	h.n.Store(0)
	return left
}
