package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

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
	ln, repeated, err := s.begin(ctx, call, engine.VerbConfigure)
	if err != nil {
		return fmt.Errorf("memory: configure %s: %w", queue, err)
	}
	defer s.mu.Unlock()
	if repeated {
		return ln.configured
	}
	if err = s.step.Configure(queue, &settings); err != nil {
		err = fmt.Errorf("memory: configure %s: %w", queue, err)
	}
	if ln != nil {
		ln.configured = err
	}
	return err
}

// Lookup returns the queue of a name, nil if there is none.
func (s *records) Lookup(name string) *engine.Queue {
	if q := s.queues[name]; q != nil {
		return &q.Queue
	}
	return nil
}

// IsEmpty reports whether a queue has no records.
func (s *records) IsEmpty(q *engine.Queue) bool { return q.IsEmpty() }

// Configured notes an event of a queue whose settings changed.
func (s *records) Configured(q *engine.Queue, alert bool) {
	if alert {
		(*Storage)(s).ring(ours(q), wakeup.Alert)
	}
}

// DeleteQueue removes a queue.
func (s *records) DeleteQueue(q *engine.Queue) {
	delete(s.queues, q.Name)
	s.events.Forget(q.Name)
	if i, found := slices.BinarySearch(s.names, q.Name); found {
		s.names = slices.Delete(s.names, i, i+1)
	}
}

// inspectQueue inspects one queue, the next in order at each call, and removes it if it is
// abandoned. It also sweeps the queue's windows, since no Claim may ever name the queue
// again.
func (s *Storage) inspectQueue() {
	if len(s.names) == 0 {
		return
	}
	s.inspect = (s.inspect + 1) % len(s.names)
	q := s.queues[s.names[s.inspect]]
	q.sweepWindows(s.step.Come, engine.BatchLeast)
	if q.isAbandoned(s.step.Come) {
		(*records)(s).DeleteQueue(&q.Queue)
	}
}

// isAbandoned reports whether a queue may go. A unique window keeps its queue until it is swept, and a
// partition that is there for a moment until that has come.
func (q *queue) isAbandoned(now int64) bool {
	if q.windows.size > 0 || !q.IsAbandoned(now) {
		return false
	}
	for _, l := range q.parts {
		if l.Ring.Sort > now {
			return false
		}
	}
	return true
}

// sweepWindows forgets up to most unique windows that are over.
func (q *queue) sweepWindows(come int64, most int) {
	for _, h := range q.windows.until(come, most) {
		q.drop(h.key)
	}
}
