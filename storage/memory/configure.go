package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// configured is the outcome of a Configure: its error, or nil.
type configured struct{ err error }

// Configure replaces the settings of a queue, or removes it.
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
	case settings.Remove && q != nil && len(q.tasks) > 0:
		return storage.ErrNotEmpty
	case settings.Remove:
		s.removeQueue(name)
		return nil
	case q == nil && !settings.Paused:
		return nil // no settings, and no queue that could have had some
	}
	q = s.open(name)
	q.paused, q.pausedUntil = settings.Paused, 0
	if settings.PauseFor > 0 {
		q.pausedUntil = s.now.after(settings.PauseFor)
	}
	q.touched = s.now
	s.ring(q, true)
	return nil
}

// open gives the queue of a name, which it makes where there is none.
func (s *Storage) open(name string) *queue {
	if q := s.queues[name]; q != nil {
		return q
	}
	q := &queue{name: name, touched: s.now, tasks: make(map[string]*task), keys: make(map[string]*hold)}
	s.queues[name] = q
	i, _ := slices.BinarySearch(s.names, name)
	s.names = slices.Insert(s.names, i, name)
	return q
}

func (s *Storage) removeQueue(name string) {
	delete(s.queues, name)
	if i, found := slices.BinarySearch(s.names, name); found {
		s.names = slices.Delete(s.names, i, i+1)
	}
}

// queueLife is how long a queue outlives its last record and setting.
const queueLife = 24 * time.Hour

// inspectQueue looks at one queue of all, the next one at each call, and removes it
// where nobody uses it any more. Nobody may name it in a Claim again, therefore its
// windows are swept here too.
func (s *Storage) inspectQueue() {
	if len(s.names) == 0 {
		return
	}
	s.inspect = (s.inspect + 1) % len(s.names)
	q := s.queues[s.names[s.inspect]]
	for _, h := range q.windows.until(s.come, batchLeast) {
		q.drop(h.key)
	}
	if q.isAbandoned(s.come) {
		s.removeQueue(q.name)
	}
}

// isAbandoned reports whether a queue was empty, without settings and untouched for
// a day. A unique window that is held is promised for exactly as long as it was
// asked for, and keeps its queue.
func (q *queue) isAbandoned(now moment) bool {
	return len(q.tasks) == 0 && q.windows.size == 0 && !q.isPaused(now) &&
		now >= q.touched.after(queueLife)
}

func (q *queue) isPaused(now moment) bool {
	return q.paused && (q.pausedUntil == 0 || now < q.pausedUntil)
}
