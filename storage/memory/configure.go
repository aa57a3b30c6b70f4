package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// configured is the outcome of a Configure: its error, or nil.
type configured struct{ err error }

// Configure changes the settings of a queue, or removes it.
func (s *Storage) Configure(
	ctx context.Context, call storage.Call, queue string, settings storage.Settings,
) error {
	if err := storage.CheckCall(call); err != nil {
		return err
	}
	if err := storage.CheckSettings(queue, &settings); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("memory: configure %s: %w", queue, err)
	}
	defer s.mu.Unlock()
	ln, repeated, err := s.admit(call)
	if err != nil {
		return fmt.Errorf("memory: configure %s: %w", queue, err)
	}
	if repeated {
		first, ok := ln.outcome.(configured)
		if !ok {
			return fmt.Errorf("memory: configure %s: repeats another call: %w", queue, storage.ErrUnknown)
		}
		return first.err
	}
	if err := s.configure(queue, &settings); err != nil {
		err = fmt.Errorf("memory: configure %s: %w", queue, err)
		ln.remember(configured{err})
		return err
	}
	ln.remember(configured{})
	return nil
}

func (s *Storage) configure(name string, settings *storage.Settings) error {
	q := s.queues[name]
	switch {
	case settings.Remove && q != nil && len(q.records) > 0:
		return storage.ErrNotEmpty
	case settings.Remove:
		s.removeQueue(name)
		return nil
	case settings.Create:
		ours((*records)(s).Queue(name)).touched = s.step.Now
		return nil
	case q == nil && !settings.Pause.On:
		return nil // a queue that does not exist is not paused
	}
	q = ours((*records)(s).Queue(name))
	q.Paused, q.PausedUntil = settings.Pause.On, 0
	if settings.Pause.For > 0 {
		q.PausedUntil = s.step.Now + settings.Pause.For.Microseconds()
	}
	q.touched = s.step.Now
	s.ring(q, wakeup.Alert)
	return nil
}

func (s *Storage) removeQueue(name string) {
	delete(s.queues, name)
	s.events.Forget(name)
	if i, found := slices.BinarySearch(s.names, name); found {
		s.names = slices.Delete(s.names, i, i+1)
	}
}

// queueLife is how long a queue outlives its last record and setting.
const queueLife = 24 * time.Hour

// inspectQueue inspects one queue, the next in order at each call, and removes it where it
// is abandoned. It also sweeps the queue's windows, since no Claim may ever name the queue
// again.
func (s *Storage) inspectQueue() {
	if len(s.names) == 0 {
		return
	}
	s.inspect = (s.inspect + 1) % len(s.names)
	q := s.queues[s.names[s.inspect]]
	for _, h := range q.windows.until(s.step.Come, batchLeast) {
		q.drop(h.key)
	}
	if q.isAbandoned(s.step.Come) {
		s.removeQueue(q.Name)
	}
}

// isAbandoned reports whether a queue was empty, without settings and untouched for
// queueLife. A unique window keeps its queue until it is swept, since it must hold for
// exactly as long as was asked.
func (q *queue) isAbandoned(now int64) bool {
	return len(q.records) == 0 && q.windows.size == 0 && !q.IsPaused(now) &&
		now >= q.touched+queueLife.Microseconds()
}
