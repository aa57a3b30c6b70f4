package postgres

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// letters are the kinds of events in notifications.
var letters = [...]string{wakeup.Work: "w", wakeup.News: "n", wakeup.Alert: "c"}

// notes sends wake-ups to other processes. A transaction with a notification takes a lock of the
// whole server when it commits, so that a busy queue is notified only now and then: the first wake-up
// goes with the commit that caused it, and those of the next few milliseconds follow in one
// notification at their end.
type notes struct {
	channel string
	sender  string
	local   func(queues []int32, event wakeup.Event)
	send    func(ctx context.Context, kind string, queues []int32) error
	ctx     context.Context //nolint:containedctx // of what is sent later; ended by Close

	mu      sync.Mutex // guards the fields below; no I/O under it
	closed  bool
	quiet   map[int32]*pause
	order   []int32 // queues with a pause, in the order in which the pauses end
	sending bool
	later   sync.WaitGroup // one goroutine that ends pauses; it ends with ctx, or with the last pause
}

// pause is a time in which a queue's wake-ups wait, with the highest kind of those that wait.
type pause struct {
	until time.Time
	some  bool
	event wakeup.Event
}

// quietFor is how long the wake-ups of a queue wait after one was sent.
const quietFor = 5 * time.Millisecond

// loud returns the queues whose wake-up may go with the commit.
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

// rung wakes those who wait in this process, and notes the wake-ups for other processes. A wake-up
// that went with the commit (told) begins a pause. Any other wake-up is sent at the end of the
// current pause; if that has ended meanwhile, it begins another.
func (n *notes) rung(_ context.Context, queues, told []int32, event wakeup.Event) {
	if len(queues) == 0 {
		return
	}
	n.local(queues, event)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range queues {
		p := n.quiet[q]
		if p == nil {
			if p = n.begin(q); slices.Contains(told, q) {
				continue
			}
		}
		p.some, p.event = true, max(p.event, event)
	}
}

// begin begins a pause of a queue. The caller holds mu.
func (n *notes) begin(queue int32) *pause {
	p := &pause{}
	if n.closed {
		return p
	}
	n.quiet[queue] = p
	n.extend(queue)
	if !n.sending {
		n.sending = true
		n.later.Go(n.sendLater)
	}
	return p
}

// extend lets a queue's wake-ups wait from now on. The caller holds mu.
func (n *notes) extend(queue int32) {
	n.quiet[queue].until = time.Now().Add(quietFor)
	n.order = append(n.order, queue)
}

// sendLater sends the wake-ups that wait, as their pauses end, until no pause is left. It sends for
// all queues, one notification after the other: on a slow or dead connection the wake-ups gather, and
// take no further connection.
func (n *notes) sendLater() {
	for {
		until, some := n.next()
		if !some || !sleep.For(n.ctx, time.Until(until)) {
			return
		}
		waited := n.over()
		for event, queues := range waited {
			_ = n.send(n.ctx, letters[event], queues) // a hint: a process that misses it searches by itself
		}
		n.again(waited[:]...)
	}
}

// next returns the end of the first pause; some is false if there is none.
func (n *notes) next() (until time.Time, some bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.order) == 0 {
		n.sending = false
		return until, false
	}
	return n.quiet[n.order[0]].until, true
}

// over ends the pauses whose time is over, except for the queues that it returns, by the kind of event. The
// wake-ups of these queues are to be sent, and until then new ones wait.
func (n *notes) over() (waited [len(letters)][]int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for now := time.Now(); len(n.order) > 0; n.order = n.order[1:] {
		q := n.order[0]
		p := n.quiet[q]
		switch {
		case p.until.After(now):
			return waited
		case p.some:
			waited[p.event] = append(waited[p.event], q)
		default:
			delete(n.quiet, q)
		}
		p.some, p.event = false, wakeup.Work
	}
	return waited
}

// again begins new pauses for queues whose wake-ups were sent.
func (n *notes) again(queues ...[]int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range slices.Concat(queues...) {
		n.extend(q)
	}
}

// close waits for the notification being sent, whose context has ended.
func (n *notes) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.later.Wait()
}

// ringing returns the statements that wake the processes which a work concerns, and the function to
// call after the commit.
func (s *Storage) ringing(w *work) (queries []query, rung func(context.Context)) {
	var by [len(letters)][]int32
	for name, event := range w.rings {
		by[event] = append(by[event], w.ids(name))
	}
	told := s.notes.loud(slices.Concat(by[:]...))
	for event, queues := range by {
		loud := slices.DeleteFunc(slices.Clone(queues), func(q int32) bool { return !slices.Contains(told, q) })
		if len(loud) > 0 {
			queries = append(queries, query{
				text: "SELECT {schema}.ring($1, $2, $3, $4)",
				args: []any{s.notes.channel, s.notes.sender, letters[event], loud},
			})
		}
	}
	return queries, func(ctx context.Context) {
		for event, queues := range by {
			s.notes.rung(ctx, queues, told, wakeup.Event(event))
		}
	}
}

// late makes the next claims of this storage read everything in these queues.
func (s *Storage) late(queues []int32) {
	for _, q := range queues {
		if name := s.numbers.name(q); name != "" {
			s.hints.forget(name)
		}
	}
}

// lateSince notifies every process that claims if a step took long from its beginning to its
// commit: their claims may have passed the places of its tasks.
func (s *Storage) lateSince(ctx context.Context, begun time.Time, queues map[string]int32) {
	if time.Since(begun) < lateAfter {
		return
	}
	numbers := numbersIn(queues)
	s.late(numbers)
	_ = s.tell(ctx, "l", numbers) // a hint
}

func numbersIn(queues map[string]int32) []int32 { return slices.Collect(maps.Values(queues)) }

// tellTime bounds the sending of a notification, which is only a hint.
const tellTime = time.Second

// tell sends a notification in a transaction of its own, which need not survive a crash. It does not
// use the reserve, whose few connections are for calls that cannot wait.
func (s *Storage) tell(ctx context.Context, kind string, queues []int32) error {
	if len(queues) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return s.askSoon(ctx, query{
		text: "SELECT {schema}.ring($1, $2, $3, $4), set_config('synchronous_commit', 'off', true)",
		args: []any{s.notes.channel, s.notes.sender, kind, queues},
	})
}
