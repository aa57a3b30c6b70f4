package postgres

import (
	"context"
	"slices"
	"sync"
	"time"
)

// notes sends wake-ups to other processes. A notification takes a lock of the whole
// server when its transaction commits, so that a busy queue is notified now and then: the
// first wake-up goes with the commit that caused it, those of the next few milliseconds
// with one notification at their end.
type notes struct {
	channel string
	sender  string
	local   func(queues []int32, alert bool)
	send    func(ctx context.Context, kind string, queues []int32) error
	ctx     context.Context //nolint:containedctx // of what is sent later; ended by Close

	mu     sync.Mutex // guards what follows; no I/O under it
	closed bool
	quiet  map[int32]*pause
	later  sync.WaitGroup // goroutines that send what waited; each ends within quietFor
}

// pause is a time in which a queue's wake-ups wait.
type pause struct{ work, alert bool }

// quietFor is how long the wake-ups of a queue wait after one was sent.
const quietFor = 5 * time.Millisecond

// loud gives those of the queues whose wake-up may go with the commit.
func (n *notes) loud(queues []int32) []int32 {
	loud := []int32{}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range queues {
		if n.quiet[q] == nil && !slices.Contains(loud, q) {
			loud = append(loud, q)
		}
	}
	return loud
}

// rung tells those in this process who wait, and notes what other processes are to be
// told: a wake-up that went with the commit, as those of told did, begins a pause, one
// that did not is sent at the end of the pause. Where that has come meanwhile, it begins
// another.
func (n *notes) rung(_ context.Context, queues, told []int32, alert bool) {
	if len(queues) == 0 {
		return
	}
	n.local(queues, alert)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range queues {
		p := n.quiet[q]
		if p == nil {
			if p = n.begin(q); slices.Contains(told, q) {
				continue
			}
		}
		p.work, p.alert = true, p.alert || alert
	}
}

// begin begins a pause of a queue. The caller holds mu.
func (n *notes) begin(queue int32) *pause {
	p := &pause{}
	if n.closed {
		return p
	}
	n.quiet[queue] = p
	n.later.Go(func() {
		rest(n.ctx, quietFor)
		n.end(queue)
	})
	return p
}

// end ends a pause, and sends what waited for that.
func (n *notes) end(queue int32) {
	n.mu.Lock()
	p := n.quiet[queue]
	delete(n.quiet, queue)
	if p.work {
		n.begin(queue)
	}
	n.mu.Unlock()
	if !p.work {
		return
	}
	kind := "w"
	if p.alert {
		kind = "c"
	}
	_ = n.send(n.ctx, kind, []int32{queue}) // a hint: who misses it looks by himself
}

// close waits for what is being sent; its context has ended.
func (n *notes) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.later.Wait()
}

// ringing gives the statement that wakes those whom a work concerns, and what is to be
// done once it was committed.
func (s *Storage) ringing(w *work) (queries []query, rung func(context.Context)) {
	all, alerts := make([]int32, 0, len(w.rings)), make([]int32, 0, len(w.rings))
	for name, alert := range w.rings {
		q := w.ids(name)
		all = append(all, q)
		if alert {
			alerts = append(alerts, q)
		}
	}
	told := s.notes.loud(all)
	for _, kind := range []struct {
		letter string
		queues []int32
	}{{"w", without(told, alerts)}, {"c", without(told, without(all, alerts))}} {
		if len(kind.queues) > 0 {
			queries = append(queries, query{
				text: "SELECT {schema}.ring($1, $2, $3, $4)",
				args: []any{s.notes.channel, s.notes.sender, kind.letter, kind.queues},
			})
		}
	}
	return queries, func(ctx context.Context) {
		s.notes.rung(ctx, without(all, alerts), told, false)
		s.notes.rung(ctx, alerts, told, true)
	}
}

func without(all, some []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(all), func(q int32) bool { return slices.Contains(some, q) })
}

// late has queues looked at whole by the next claims of this storage.
func (s *Storage) late(queues []int32) {
	for _, q := range queues {
		if name := s.numbers.name(q); name != "" {
			s.hints.forget(name)
		}
	}
}

// lateSince says to all who claim that a step took long from its beginning to its commit,
// if it did: they may have passed the places of its tasks.
func (s *Storage) lateSince(ctx context.Context, begun time.Time, queues map[string]int32) {
	if time.Since(begun) < lateAfter {
		return
	}
	numbers := make([]int32, 0, len(queues))
	for _, q := range queues {
		numbers = append(numbers, q)
	}
	s.late(numbers)
	_ = s.tell(ctx, "l", numbers) // a hint
}

// tellTime bounds the sending of a notification: it is a hint.
const tellTime = time.Second

// tell sends a notification of its own. It need not survive a crash. Its connection is none
// of the reserve, whose few are for what cannot wait.
func (s *Storage) tell(ctx context.Context, kind string, queues []int32) error {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return s.ask(ctx, s.pool, query{
		text: "SELECT {schema}.ring($1, $2, $3, $4), set_config('synchronous_commit', 'off', true)",
		args: []any{s.notes.channel, s.notes.sender, kind, queues},
	})
}
