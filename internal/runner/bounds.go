package runner

import "github.com/midgehq/midge/storage"

// bound limits the attempts of one queue within a runner, by slots of the queue and by a gate. No attempt comes
// before the runner has stored the limit over all runners that it declares.
type bound struct {
	most   int  // attempts that run or wait ahead; 0 for no limit
	closed bool // by its gate: no other attempt may start
	taken  int  // attempts that run or wait ahead

	undeclared bool // the limit that the runner declares is not stored yet
}

// free returns how many more attempts may come, -1 for any number.
func (b *bound) free() int {
	switch {
	case b.closed, b.undeclared:
		return 0
	case b.most == 0:
		return -1
	}
	return max(b.most-b.taken, 0)
}

// takes counts an attempt. The mutex is held.
func (b *bound) takes(a *Attempt) {
	a.inBound = true
	b.taken++
}

// boundOf returns the bound of a queue, and makes it if the queue has none. A new bound does not count an
// attempt that is settled and whose worker has not yet asked for the next. The mutex is held.
func (s *slots) boundOf(queue string) *bound {
	b := s.bounds[queue]
	if b != nil {
		return b
	}
	b = &bound{}
	for _, a := range s.inFlight.snapshot(nil) {
		if a.inSlots && a.Fence.Queue == queue {
			b.takes(a)
		}
	}
	if s.bounds == nil {
		s.bounds = make(map[string]*bound)
	}
	s.bounds[queue] = b
	return b
}

// bind sets how many attempts of a queue run or wait ahead, 0 for no limit of its own. More attempts than
// that go on.
func (s *slots) bind(queue string, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boundOf(queue).most = most
	s.roomChanged()
}

// declares keeps a queue from being claimed until its limit is declared.
func (s *slots) declares(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boundOf(queue).undeclared = true
}

// declared lets a queue be claimed whose limit is stored, or overruled.
func (s *slots) declared(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boundOf(queue); b.undeclared {
		b.undeclared = false
		s.roomChanged()
	}
}

// shut closes or opens the gate of a queue, and reports whether that is a change. It returns the attempts ahead
// of a queue that it has closed, to be given back.
func (s *slots) shut(queue string, closed bool) (changed bool, back []*Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boundOf(queue)
	if b.closed == closed {
		return false, nil
	}
	b.closed = closed
	s.roomChanged()
	if closed {
		back = s.removeAhead(0, func(a *Attempt) bool { return a.Fence.Queue == queue })
	}
	return true, back
}

// roomChanged makes the shards claim: a queue may have new room, or no room any more, so that the runner must
// not wait for its tasks. The mutex is held.
func (s *slots) roomChanged() {
	for _, d := range s.shards {
		d.wakeUp.queuesChanged()
	}
}

// admits reports whether a claimed attempt may start, and counts it then. The mutex is held.
func (s *slots) admits(a *Attempt) bool {
	b := s.bounds[a.Fence.Queue]
	if b != nil && b.closed {
		return false
	}
	a.inSlots = true
	if b != nil {
		b.takes(a)
	}
	return true
}

// leaves notes that an attempt no longer runs or waits ahead. If all slots of its queue were taken, the shard
// of the queue claims. The mutex is held.
func (s *slots) leaves(a *Attempt) {
	a.inSlots = false
	if !a.inBound {
		return
	}
	a.inBound = false
	b := s.bounds[a.Fence.Queue]
	if b.taken--; b.taken == b.most-1 {
		a.shard.wakeUp.queuesChanged()
	}
}

// restrict lowers the number of tasks that a claim asks of each queue to the room of the queue.
func (s *slots) restrict(queues []storage.ClaimQueue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bounds) == 0 {
		return
	}
	for i := range queues {
		q := &queues[i]
		b := s.bounds[q.Name]
		if b == nil || q.Max < 0 {
			continue
		}
		switch free := b.free(); {
		case free == 0:
			q.Max = storage.MaxFull
		case free > 0 && (q.Max == 0 || q.Max > free):
			q.Max = free
		}
	}
}

// bounded lists the slots of queues with a bound, for the heartbeat, in the order of names.
func (s *slots) bounded(names []string) (list []storage.QueueSlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if b := s.bounds[name]; b != nil && (b.most > 0 || b.closed) {
			list = append(list, storage.QueueSlots{Queue: name, Slots: b.most, Taken: b.taken, Closed: b.closed})
		}
	}
	return list
}
