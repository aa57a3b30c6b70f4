// Package wakeup numbers the wake-ups of a storage, so that nothing is lost between a Claim and the Wait
// that follows.
//
// A [Stream] numbers the events of the whole storage and knows the last event of each queue. A Claim returns
// the number of the last event before it looked for tasks; a Wait from that number finds every later event,
// however late the Wait begins. Events come from the storage's own steps, and from a channel on which a
// server tells of the steps of other processes. Each time that a connection to the channel begins counts as
// an event of every queue: a Wait from an earlier number returns at once, whatever was missed until then.
// While the channel is lost wake-ups are missed; therefore callers bound their Wait, and look for work by
// themselves.
package wakeup

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// Stream is a storage's stream of wake-ups. Its zero value is ready for use. It is safe for concurrent use.
// Only Wait blocks.
type Stream struct {
	mu     sync.Mutex // guards the fields below; no I/O under it
	closed bool
	last   storage.Since // the number of the last event
	all    storage.Since // the last event that concerned every queue
	queues map[string]*queue

	silent time.Time // when the channel was lost; zero while it is heard
	why    error     // why it was lost
}

// queue holds the number of a queue's last event, the number of its last alert, and its waiters. An alert is
// an event that also concerns runners which cannot take work.
type queue struct {
	work, alert storage.Since
	waiters     []*waiter
}

// waiter is one Wait under way. Each of its queues lists it.
type waiter struct {
	woken  chan struct{} // closed under the stream's lock
	done   bool          // woken is closed
	alerts bool          // it waits only for alerts
}

func (w *waiter) wake(alert bool) {
	if !w.done && (alert || !w.alerts) {
		w.done = true
		close(w.woken)
	}
}

// Since returns the number of the last event.
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

// queue returns the queue of a name, which it makes where there is none. The caller holds mu.
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

// Heard notes that the channel is heard from now on. It counts as an event of every queue, since events of
// any queue may have been missed.
func (s *Stream) Heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent, s.why = time.Time{}, nil
	s.last++
	s.all = s.last
	s.wakeAll()
}

// Silent notes that the channel is lost, and why if that is known.
func (s *Stream) Silent(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why = why; s.silent.IsZero() {
		s.silent = time.Now()
	}
}

// Silence returns when the channel was lost and why, or the zero time while it is heard.
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

// Wait returns nil once there is an event after req.Since in one of the queues. Otherwise it returns the
// error of ctx when ctx ends, or storage.ErrClosed.
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

// join adds a waiter to its queues, unless an event that it waits for has happened already.
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

// leave removes a waiter from its queues and returns the result of its Wait.
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
