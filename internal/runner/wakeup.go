package runner

import (
	"context"
	"sync"
)

// wakeUp is what wakes a claimer that waits in the storage for other reasons than the
// storage's: without a second goroutine, for each change of goroutines is felt where a
// task is to start within a fraction of a millisecond.
type wakeUp struct {
	mu        sync.Mutex // guards what follows
	interrupt context.CancelFunc
	bySlots   bool // a free slot wakes the claimer
	freed     bool // a slot may be free for a claim
	changed   bool // the queues have changed
}

// arm has interrupt called when the queues change or, with bySlots, a slot is free; at once
// where that happened since the last wait.
func (w *wakeUp) arm(interrupt context.CancelFunc, bySlots bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt, w.bySlots = interrupt, bySlots
	if w.changed || bySlots && w.freed {
		interrupt()
	}
}

// disarm ends the wait, and reports whether the queues have changed.
func (w *wakeUp) disarm() (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = w.changed
	w.interrupt, w.changed = nil, false
	if w.bySlots {
		w.freed = false
	}
	return changed
}

// forgetSlot forgets that a slot was free: the claim that is about to be sent asks for it.
func (w *wakeUp) forgetSlot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = false
}

// slotFree tells that a slot may be free.
func (w *wakeUp) slotFree() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = true
	if w.interrupt != nil && w.bySlots {
		w.interrupt()
	}
}

// queuesChanged tells that the queues have changed.
func (w *wakeUp) queuesChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = true
	if w.interrupt != nil {
		w.interrupt()
	}
}
