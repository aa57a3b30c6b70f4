// Package wakeup numbers the wake-ups of a storage, so that nothing is lost between a Claim and the Wait
// that follows, and chooses whom a wake-up wakes.
//
// A [Stream] numbers the events of the whole storage and knows the last events of each queue. A Claim
// returns the number of the last event before it read tasks; a Wait from that number finds every later
// event, however late the Wait begins, except work that others are to claim. Events come from the
// storage's own steps, and from a channel on which a server reports the steps of other processes. Each
// time that a connection to the channel begins counts as an event of every queue: a Wait from an earlier
// number returns at once, whatever was missed until then. While the channel is lost wake-ups are missed;
// therefore callers bound their Wait, and claim from time to time without a wake-up.
//
// New work wakes one of the waiting callers, the one that has waited longest. The next is woken by a Claim
// that leaves work behind ([Stream.Left]), so that wake-ups follow the work and end with it. Until a Claim
// begins after a wake-up, further work wakes nobody else: that Claim will see it. A caller that was woken
// may leave without a Claim, however: after passAfter the next caller is woken in its place. Work for which
// nobody waits is kept for the next Wait that began its Claim before, unless another Claim begins until
// then.
package wakeup

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// Event is the kind of an event. A kind wakes all whom the kinds before it may wake.
type Event int

// The kinds of events.
const (
	// Shared is work of which other processes hear too. It wakes one caller here and finds none elsewhere.
	Shared Event = iota - 1
	// Work is a task that any Claim may take. It wakes one caller that takes tasks from the queue.
	Work
	// News is an earlier due moment, or a task that not every Claim takes. It wakes all callers except
	// the callers that wait for alerts only.
	News
	// Alert is a cancel or changed settings. It wakes all callers.
	Alert
)

// Of returns the kind of an event: an alert or not, and of a task that any Claim may take or not.
func Of(work, alert bool) Event {
	switch {
	case alert:
		return Alert
	case work:
		return Work
	}
	return News
}

// passAfter is how long after a wake-up the next caller is woken, if no Claim has begun until then.
const passAfter = 10 * time.Millisecond

// spread is how many callers a Claim wakes that leaves work behind: as each of them may do the same, many
// callers are woken in a few rounds.
const spread = 2

// Stream is a storage's stream of wake-ups. Its zero value is ready for use. It is safe for concurrent use.
// Only Wait blocks.
type Stream struct {
	// Elsewhere, if it is set, finds a caller in another process for work of a queue for which nobody waits
	// here. It is called under the stream's lock, must not block, and is not called after Close.
	Elsewhere func(queue string)

	mu     sync.Mutex // guards the fields below; no I/O under it
	closed bool
	last   storage.Since // the number of the last event
	all    storage.Since // the last event that concerned every queue
	queues map[string]*queue

	silent time.Time // when the channel was lost; zero while it is heard
	why    error     // why it was lost
}

// queue holds the number of a queue's last event, of its last work for which no Claim has begun yet, of
// its last event of News or Alert and of its last Alert, and its waiters.
type queue struct {
	last, work, news, alert storage.Since

	takers []*waiter // they wait for work, in the order of their arrival
	others []*waiter // they wait for news or alerts only

	known bool        // somebody has waited for the queue
	owed  bool        // a taker was woken for work, and no Claim has begun since
	late  *time.Timer // wakes another if no Claim begins for long; nil until first needed
}

// waiter is one Wait under way. Each of its queues lists it.
type waiter struct {
	storage.WaitRequest

	woken chan struct{} // closed under the stream's lock
	done  bool          // woken is closed
}

func (w *waiter) wake() {
	if !w.done {
		w.done = true
		close(w.woken)
	}
}

// next returns the taker that has waited longest, nil if nobody waits for work.
func (q *queue) next() *waiter {
	for _, w := range q.takers {
		if !w.done {
			return w
		}
	}
	return nil
}

// give wakes the next taker of a queue for work, and has another woken if no Claim begins then. It reports
// whether there was a taker. The caller holds mu.
func (s *Stream) give(name string, q *queue) bool {
	w := q.next()
	if q.owed = w != nil; !q.owed {
		return false
	}
	w.wake()
	if s.Elsewhere != nil || q.next() != nil {
		s.passLater(name, q)
	}
	return true
}

// passLater has another caller woken if no Claim begins. The caller holds mu.
func (s *Stream) passLater(name string, q *queue) {
	if q.late == nil {
		q.late = time.AfterFunc(passAfter, func() { s.pass(name, q) })
		return
	}
	q.late.Reset(passAfter)
}

// miss keeps work for which nobody waits, and finds a caller in another process. The caller holds mu.
func (s *Stream) miss(name string, q *queue) {
	q.work = s.last
	s.elsewhere(name, q)
}

// wakeAll ends every Wait for a kind of event.
func (q *queue) wakeAll(event Event) {
	for _, w := range q.takers {
		w.wake()
	}
	for _, w := range q.others {
		if event == Alert || !w.CancelsOnly {
			w.wake()
		}
	}
}

// happened reports whether a caller that takes tasks from the queue, or only maintains it, has to learn of
// an event after req.Since. Work is for one caller.
func (q *queue) happened(req *storage.WaitRequest, takes bool) bool {
	switch {
	case req.CancelsOnly:
		return q.alert > req.Since
	case takes && q.news <= req.Since && q.work > req.Since:
		q.work, q.owed = 0, true // this caller claims
		return true
	}
	return q.news > req.Since
}

// Since returns the number of the last event.
func (s *Stream) Since() storage.Since {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Looking notes that a Claim begins, and returns the number of the last event. The Claim sees all work for
// which callers were woken until now.
func (s *Stream) Looking(req *storage.ClaimRequest) storage.Since {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range req.Queues {
		if q := s.queues[req.Queues[i].Name]; q != nil && takes(req, i) {
			q.work = 0
			if q.owed && q.late != nil {
				q.late.Stop()
			}
			q.owed = false
		}
	}
	return s.last
}

// takes reports whether a Claim may take tasks from its i-th queue.
func takes(req *storage.ClaimRequest, i int) bool { return req.Most() > 0 && req.Queues[i].Max >= 0 }

// Left wakes callers for the work that a Claim has left behind.
func (s *Stream) Left(req *storage.ClaimRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	var woken []*waiter
	for i := range req.Queues {
		name := req.Queues[i].Name
		q := s.queues[name]
		if q == nil || !takes(req, i) {
			continue
		}
		here := 0
		for _, w := range woken {
			if slices.Contains(w.Queues, name) {
				here++
			}
		}
		for w := q.next(); w != nil && here < spread; w = q.next() {
			s.give(name, q)
			woken = append(woken, w)
			here++
		}
		if here < spread {
			q.work = s.last
		}
	}
}

// Ring numbers an event of queues.
func (s *Stream) Ring(event Event, queues ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	for _, name := range queues {
		q := s.queue(name)
		q.last = s.last
		if event >= News {
			q.news = s.last
		}
		if event == Alert {
			q.alert = s.last
		}
		switch {
		case event >= News:
			q.wakeAll(event)
		case q.owed || s.give(name, q):
		case event == Work:
			s.miss(name, q)
		default:
			q.work = s.last
		}
	}
}

// queue returns the queue of a name, which it makes if there is none. The caller holds mu.
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

// Alone notes that no other process hears of the Shared work of a queue. If no Claim here begins within
// passAfter, a caller elsewhere is found.
func (s *Stream) Alone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil && q.known {
		s.passLater(name, q)
	}
}

// pass wakes the next taker of a queue, or one elsewhere, if no Claim has begun since the last wake-up.
func (s *Stream) pass(name string, q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (q.owed || q.work > 0) && !s.give(name, q) {
		s.miss(name, q)
	}
}

// elsewhere finds a caller in another process, in place of one that waited here before. The caller holds mu.
func (s *Stream) elsewhere(name string, q *queue) {
	if s.Elsewhere != nil && q.known && !s.closed {
		s.Elsewhere(name)
	}
}

// Forget drops the events of a queue.
func (s *Stream) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		q.last, q.work, q.news, q.alert = 0, 0, 0, 0
		s.tidy(name, q)
	}
}

// tidy drops a queue without events for which nobody waits. The caller holds mu.
func (s *Stream) tidy(name string, q *queue) {
	if q.last == 0 && len(q.takers)+len(q.others) == 0 {
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
		q.wakeAll(Alert)
	}
}

// Close ends every Wait, with storage.ErrClosed.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wakeAll()
}

// Wait returns nil once there is an event after req.Since in one of the queues that concerns the caller.
// If that is work, it may have woken another caller instead. Otherwise Wait returns the error of ctx when
// ctx ends, or storage.ErrClosed.
func (s *Stream) Wait(ctx context.Context, req storage.WaitRequest) error {
	w := &waiter{WaitRequest: req, woken: make(chan struct{})}
	if happened, err := s.join(w); happened || err != nil {
		return err
	}
	select {
	case <-w.woken:
	case <-ctx.Done():
	}
	return s.leave(ctx, w)
}

// join adds a waiter to its queues, unless an event that it waits for has happened already.
func (s *Stream) join(w *waiter) (happened bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, storage.ErrClosed
	}
	if s.all > w.Since {
		return true, nil
	}
	for i, names := range [...][]string{w.Queues, w.Maintained} {
		for _, name := range names {
			q := s.queues[name]
			if q == nil || !q.happened(&w.WaitRequest, i == 0) {
				continue
			}
			if q.owed && q.next() != nil {
				s.passLater(name, q)
			}
			return true, nil
		}
	}
	for _, name := range w.Queues {
		q := s.queue(name)
		q.known = true
		if w.CancelsOnly {
			q.others = append(q.others, w)
			continue
		}
		q.takers = append(q.takers, w)
		switch {
		case w.Since >= q.last: // its Claim began after that
			q.owed = false
		case q.owed: // by a caller who may have left
			s.passLater(name, q)
		}
	}
	for _, name := range w.Maintained {
		q := s.queue(name)
		q.others = append(q.others, w)
	}
	return false, nil
}

// leave removes a waiter from its queues and returns the result of its Wait.
func (s *Stream) leave(ctx context.Context, w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := func(other *waiter) bool { return other == w }
	for _, names := range [...][]string{w.Queues, w.Maintained} {
		for _, name := range names {
			if q := s.queues[name]; q != nil {
				q.takers, q.others = slices.DeleteFunc(q.takers, is), slices.DeleteFunc(q.others, is)
				s.tidy(name, q)
			}
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
