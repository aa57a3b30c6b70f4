package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// idling knows in which queues this process is marked as idle, so that claims write a mark only now and then.
// A mark is a row of the table idle. A step that makes work takes one, the newest, and notifies its process
// alone. If it finds none, it notifies all processes, so that a mark which is missing costs no wake-up. Any
// other mark is lost with its process, for which it stands for markFor at most: the task is then found by the
// slow scan of another process.
type idling struct {
	mu sync.Mutex           // guards at
	at map[string]time.Time // by queue: when a claim last marked the process
}

const (
	// markFor is how long a mark counts, and markEvery how old it is when a claim makes another.
	markFor   = 10 * time.Second
	markEvery = markFor / 2
	// markQueues is how many queues a claim marks: all that it names, or none if it names more.
	markQueues = 50
)

// due reports whether a claim is to mark the process, and counts that as done.
func (m *idling) due(req *storage.ClaimRequest) bool {
	if req.Most() == 0 || len(req.Queues) > markQueues {
		return false
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	due := false
	for i := range req.Queues {
		due = due || req.Queues[i].Max >= 0 && now.Sub(m.at[req.Queues[i].Name]) > markEvery
	}
	if !due {
		return false
	}
	if m.at == nil {
		m.at = make(map[string]time.Time)
	}
	for i := range req.Queues {
		if req.Queues[i].Max >= 0 {
			m.at[req.Queues[i].Name] = now
		}
	}
	return true
}

// drop notes that the process is not marked in these queues any more.
func (m *idling) drop(queues ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range queues {
		delete(m.at, q)
	}
}

// clear notes that the process may not be marked in any queue.
func (m *idling) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.at)
}

// any reports whether the process may be marked in a queue.
func (m *idling) any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at) > 0
}

// passOn wakes another process for work of queues, in place of this one. It is a hint.
func (s *Storage) passOn(ctx context.Context, queues []string) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	_ = s.askSoon(ctx, query{
		text: "SELECT {schema}.rouse(q.queue, 1, {schema}.told(), $2) FROM {schema}.queues q " +
			"WHERE q.name = ANY ($1)",
		args: []any{queues, s.notes.sender},
	})
}

// unmarkTime bounds how long Close waits for unmark.
const unmarkTime = 250 * time.Millisecond

// unmark removes the marks of this process, which is about to close.
func (s *Storage) unmark() {
	if s.wake == nil || !s.wake.idling.any() {
		return
	}
	ctx, cancel := context.WithTimeout(s.wake.ctx, unmarkTime)
	defer cancel()
	_ = s.ask(ctx, s.pool, query{
		text: "DELETE FROM {schema}.idle WHERE process = $1", args: []any{s.notes.sender},
	})
}

// sweepMarks removes the marks that no longer count.
func (s *Storage) sweepMarks(ctx context.Context) error {
	return s.askAside(ctx, query{
		text: "DELETE FROM {schema}.idle WHERE at < {schema}.told() - $1", args: []any{markFor.Microseconds()},
	})
}
