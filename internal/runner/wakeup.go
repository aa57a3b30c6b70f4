package runner

import (
	"context"
	"sync"
)

// wakeUp interrupts a claimer that waits in the storage, for reasons of its own runner. It needs no
// second goroutine: each switch between goroutines counts if a task should start within a
// fraction of a millisecond.
type wakeUp struct {
	mu        sync.Mutex // guards the fields below
	interrupt context.CancelFunc
	bySlots   bool // a free slot wakes the claimer
	freed     bool // a slot may be free for a claim
	changed   bool // the queues have changed
}

// arm makes interrupt be called when the queues change or, with bySlots, when a slot is free. If
// that has happened since the last wait, arm calls it at once.
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

// forgetSlot forgets that a slot was free: the claim that is about to be sent asks for the slot.
func (w *wakeUp) forgetSlot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = false
}

// slotFree signals that a slot may be free.
func (w *wakeUp) slotFree() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = true
	if w.interrupt != nil && w.bySlots {
		w.interrupt()
	}
}

// queuesChanged signals that the queues have changed.
func (w *wakeUp) queuesChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = true
	if w.interrupt != nil {
		w.interrupt()
	}
}
