package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/midgehq/midge/storage"
)

// Events are numbered through the whole storage, and each queue knows the number of
// its last one. A Claim gives the number of the last event before it returns; a Wait
// from there finds every later one, however long it took to come.

// waiter is one Wait under way. It stands in Storage.waiters under each of its
// queues, those included that are not there yet.
type waiter struct {
	woken       chan struct{} // closed under the storage's lock
	done        bool          // so that it is closed once
	cancelsOnly bool
}

// wake ends the wait. Closing a channel waits for nobody.
func (w *waiter) wake() {
	if !w.done {
		w.done = true
		close(w.woken)
	}
}

// Wait returns once there is an event in one of the queues after req.Since.
func (s *Storage) Wait(ctx context.Context, req storage.WaitRequest) error {
	if err := storage.CheckWait(&req); err != nil {
		return err
	}
	w, err := s.startWait(ctx, &req)
	if err != nil {
		return fmt.Errorf("memory: wait: %w", err)
	}
	select {
	case <-w.woken:
	case <-ctx.Done():
	}
	if err := s.endWait(ctx, w, &req); err != nil {
		return fmt.Errorf("memory: wait: %w", err)
	}
	return nil
}

// startWait begins a wait, which has ended already where there is an event.
func (s *Storage) startWait(ctx context.Context, req *storage.WaitRequest) (*waiter, error) {
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	w := &waiter{woken: make(chan struct{}), cancelsOnly: req.CancelsOnly}
	for _, name := range req.Queues {
		q := s.queues[name]
		if q != nil && (q.alert > req.Since || q.rang > req.Since && !req.CancelsOnly) {
			w.wake()
			return w, nil
		}
	}
	for _, name := range req.Queues {
		s.waiters[name] = append(s.waiters[name], w)
	}
	return w, nil
}

// endWait takes a waiter away and says why it ended.
func (s *Storage) endWait(ctx context.Context, w *waiter, req *storage.WaitRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range req.Queues {
		s.keepWaiters(name, func(other *waiter) bool { return other != w })
	}
	switch {
	case s.closed:
		return storage.ErrClosed
	case w.done:
		return nil
	}
	return ctx.Err()
}

// ring notes an event of a queue: new work or an earlier due moment, or what also
// those want to know who have no room for work (alert).
func (s *Storage) ring(q *queue, alert bool) {
	s.events++
	q.rang = s.events
	if alert {
		q.alert = s.events
	}
	if len(s.waiters) > 0 {
		s.wake(q.Name, alert)
	}
}

// wake ends the waits for a queue.
func (s *Storage) wake(name string, alert bool) {
	s.keepWaiters(name, func(w *waiter) bool {
		if w.cancelsOnly && !alert {
			return true
		}
		w.wake()
		return false
	})
}

// keepWaiters leaves those that keep accepts under a queue's name.
func (s *Storage) keepWaiters(name string, keep func(*waiter) bool) {
	waiters, ok := s.waiters[name]
	if !ok {
		return
	}
	waiters = slices.DeleteFunc(waiters, func(w *waiter) bool { return !keep(w) })
	if len(waiters) == 0 {
		delete(s.waiters, name)
		return
	}
	s.waiters[name] = waiters
}
