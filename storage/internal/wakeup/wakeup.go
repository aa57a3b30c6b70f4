// Package wakeup numbers the wake-ups of a storage, so that nothing is lost between a Claim and the Wait
// that follows.
//
// A [Stream] numbers events through the whole storage and knows the last of each queue. A Claim gives the
// number of the last event from before it looked; a Wait from there finds every later one, however long it
// took to come. Events come from the storage's own steps, and from a channel on which a server tells of
// those of other processes. Each time the channel begins to be heard counts as an event of what is heard
// on it: whatever was missed until then, a Wait from before it returns at once. While the channel is away
// wake-ups are missed; callers bound their Wait, and look by themselves.
package wakeup

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// Stream is a storage's stream of wake-ups. Its zero value is ready for use. It is safe for concurrent use,
// and never waits for anybody but in Wait.
type Stream struct {
	mu     sync.Mutex // guards the fields below; no I/O under it
	closed bool
	last   storage.Since // the number of the last event
	all    storage.Since // the last event that concerned every queue
	queues map[string]*queue

	silent time.Time // since when the channel is away; zero where it is heard
	why    error
}

// queue is what a stream knows of a queue: its last event, and the last one that concerns those too who
// cannot take work (an alert).
type queue struct {
	work, alert storage.Since
	waiters     []*waiter
}

// waiter is one Wait under way. It stands under each of its queues.
type waiter struct {
	woken  chan struct{} // closed under the stream's lock
	done   bool          // so that it is closed once
	alerts bool          // it waits for alerts alone
}

func (w *waiter) wake(alert bool) {
	if !w.done && (alert || !w.alerts) {
		w.done = true
		close(w.woken)
	}
}

// Since is the number of the last event.
func (s *Stream) Since() storage.Since {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Ring numbers an event of queues: new work, an earlier due moment or, as an alert, a cancel or changed
// settings.
func (s *Stream) Ring(alert bool, queues ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	for _, name := range queues {
		q := s.queue(name)
		q.work = s.last
		if alert {
			q.alert = s.last
		}
		for _, w := range q.waiters {
			w.wake(alert)
		}
	}
}

// queue gives the queue of a name. The caller holds mu.
func (s *Stream) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		if s.queues == nil {
			s.queues = make(map[string]*queue)
		}
		q = new(queue)
		s.queues[name] = q
	}
	return q
}

// Forget drops the events of a queue.
func (s *Stream) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		q.work, q.alert = 0, 0
		s.tidy(name, q)
	}
}

// tidy drops a queue without events for which nobody waits. The caller holds mu.
func (s *Stream) tidy(name string, q *queue) {
	if q.work == 0 && len(q.waiters) == 0 {
		delete(s.queues, name)
	}
}

// Heard notes that the channel is heard from now on. What was missed may concern every queue.
func (s *Stream) Heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent, s.why = time.Time{}, nil
	s.last++
	s.all = s.last
	s.wakeAll()
}

// Silent notes that the channel is away, and why if that is known.
func (s *Stream) Silent(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why = why; s.silent.IsZero() {
		s.silent = time.Now()
	}
}

// Silence says since when the channel is away, zero where it is heard, and why.
func (s *Stream) Silence() (since time.Time, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent, s.why
}

// wakeAll ends every Wait. The caller holds mu.
func (s *Stream) wakeAll() {
	for _, q := range s.queues {
		for _, w := range q.waiters {
			w.wake(true)
		}
	}
}

// Close ends every Wait, with storage.ErrClosed.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wakeAll()
}

// Wait returns once there is an event after req.Since in one of the queues. Its error is that of ctx, or
// storage.ErrClosed.
func (s *Stream) Wait(ctx context.Context, req storage.WaitRequest) error {
	w := &waiter{woken: make(chan struct{}), alerts: req.CancelsOnly}
	if happened, err := s.join(w, &req); happened || err != nil {
		return err
	}
	select {
	case <-w.woken:
	case <-ctx.Done():
	}
	return s.leave(ctx, w, req.Queues)
}

// join has a waiter wait, unless the event has happened.
func (s *Stream) join(w *waiter, req *storage.WaitRequest) (happened bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, storage.ErrClosed
	}
	happened = s.all > req.Since || slices.ContainsFunc(req.Queues, func(name string) bool {
		q := s.queues[name]
		return q != nil && (q.alert > req.Since || q.work > req.Since && !req.CancelsOnly)
	})
	if happened {
		return true, nil
	}
	for _, name := range req.Queues {
		q := s.queue(name)
		q.waiters = append(q.waiters, w)
	}
	return false, nil
}

// leave takes a waiter away and says why its Wait ended.
func (s *Stream) leave(ctx context.Context, w *waiter, queues []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range queues {
		if q := s.queues[name]; q != nil {
			q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
			s.tidy(name, q)
		}
	}
	switch {
	case s.closed:
		return storage.ErrClosed
	case w.done:
		return nil
	}
	return ctx.Err()
}
