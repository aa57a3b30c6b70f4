package midge

import (
	"context"
	"sync"
)

// sleeper is what wakes a claim loop that waits in the storage for other reasons than the
// storage's: without a second goroutine, for each change of goroutines is felt where a
// task is to start within a fraction of a millisecond.
type sleeper struct {
	mu        sync.Mutex // guards what follows
	interrupt context.CancelFunc
	room      bool // a free slot wakes it
	freed     bool // there may be room for a claim
	changed   bool // the queues have
}

// begin has interrupt called when the queues change or, with room, a slot is free; at once
// where that happened since the last sleep.
func (s *sleeper) begin(interrupt context.CancelFunc, room bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt, s.room = interrupt, room
	if s.changed || room && s.freed {
		interrupt()
	}
}

// end reports whether the queues have changed.
func (s *sleeper) end() (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.changed
	s.interrupt, s.changed = nil, false
	if s.room {
		s.freed = false
	}
	return changed
}

// forget forgets that a slot was free: what is asked now takes it into account.
func (s *sleeper) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = false
}

// free tells that a slot may be free.
func (s *sleeper) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = true
	if s.interrupt != nil && s.room {
		s.interrupt()
	}
}

// change tells that the queues have changed.
func (s *sleeper) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = true
	if s.interrupt != nil {
		s.interrupt()
	}
}
