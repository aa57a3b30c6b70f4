package memory

import (
	"math"

	"github.com/midgehq/midge/storage"
)

// queue is a named set of tasks. Each task stands in exactly one of its orders, the
// one of its state.
type queue struct {
	name  string
	tasks map[string]*task // every record, by id

	ready     [kinds]sorted[*task] // waiting, by priority and turn: three kinds, one order
	scheduled sorted[*task]        // by when they are due
	retry     sorted[*task]        // by when they are due
	pending   sorted[*task]        // by the end of their lease
	completed sorted[*task]        // by when they expire
	cancelled sorted[*task]        // by when they expire
	dead      sorted[*task]        // by when they expire
	cursors   sorted[*task]        // by when they are handed out next

	keys    map[string]*hold // the unique keys that are held
	windows sorted[*hold]    // those held for a time, by its end

	asked  int // pending tasks whose cancel was asked
	totals storage.Totals

	paused      bool
	pausedUntil moment // 0: until it is resumed

	touched     moment        // when a step last wrote here
	rang, alert storage.Since // the last event, and the last that is not new work
}

// hold is a unique key that is taken.
type hold struct {
	key, id string
	until   moment // 0: for the life of the task
	place   place  // in queue.windows
}

// turn numbers what joins the tail of an order.
func (s *Storage) turn() int64 {
	s.last++
	return s.last
}

// at is a place in an order of moments, behind all others of that moment.
func (s *Storage) at(m moment) place { return place{int64(m), s.turn()} }

// version gives the next version, of a record that no other has.
func (s *Storage) version() int64 {
	s.mark++
	return int64(s.mark)
}

// waitAtTail puts t behind all that wait with its priority.
func (s *Storage) waitAtTail(t *task) { s.wait(t, s.turn()) }

// waitAtHead puts t before all that wait with its priority.
func (s *Storage) waitAtHead(t *task) {
	s.first--
	s.wait(t, s.first)
}

func (s *Storage) wait(t *task, turn int64) {
	t.Due = 0
	s.put(t, storage.Waiting, place{-int64(t.Priority), turn})
	s.ring(t.queue, false)
}

// schedule puts t into scheduled or retry.
func (s *Storage) schedule(t *task, state storage.State, due moment) {
	t.Due = due
	s.put(t, state, s.at(due))
	if _, head, _ := t.queue.order(t).head(); head == t {
		s.ring(t.queue, false) // an earlier due moment than others know of
	}
}

// never is the place of a cursor that is never due, behind all others.
const never = math.MaxInt64

// tickAt is where a cursor stands that is handed out at its next moment, but not before
// hidden.
func (s *Storage) tickAt(t *task, hidden moment) place {
	if t.more.Cursor.Next.IsZero() {
		return place{never, s.turn()}
	}
	return s.at(max(momentOf(t.more.Cursor.Next), hidden))
}

// end puts t into an ended state, or out of the storage where it is not kept.
func (s *Storage) end(t *task, state storage.State) {
	t.Due, t.Ended = 0, s.now
	keep := t.Keep.Of(state, t.more != nil && t.more.Result != nil)
	if state == storage.Dead {
		keep = s.limits.DeadFor
	}
	if keep == 0 {
		q, from := t.queue, t.State
		q.lift(t)
		t.State = state
		q.count(t, from, state)
		delete(q.tasks, t.ID)
		q.touched = s.now
		return
	}
	t.Expires = s.now.after(keep)
	s.put(t, state, s.at(t.Expires))
	s.noteDead(t)
}

// noteDead remembers a queue that may keep too many dead tasks. They are trimmed at
// the end of the step, because the step may yet have to do with one of them.
func (s *Storage) noteDead(t *task) {
	if t.State == storage.Dead && t.queue.dead.size > s.limits.DeadMax {
		s.overfull = append(s.overfull, t.queue)
	}
}

// trimDead lets the oldest dead tasks go where there are too many.
func (s *Storage) trimDead() {
	for _, q := range s.overfull {
		for q.dead.size > s.limits.DeadMax {
			_, t, _ := q.dead.head()
			s.remove(t)
		}
	}
	clear(s.overfull)
	s.overfull = s.overfull[:0]
}

// remove takes t out of the storage, its indexes with it.
func (s *Storage) remove(t *task) {
	q := t.queue
	q.lift(t)
	q.count(t, t.State, "")
	delete(q.tasks, t.ID)
	q.touched = s.now
}

// transfer moves t to another queue, in the state in which it is.
func (s *Storage) transfer(t *task, to *queue) {
	state := t.State
	s.remove(t)
	t.queue, t.State = to, ""
	to.tasks[t.ID] = t
	switch state {
	case storage.Waiting:
		s.waitAtTail(t)
	case storage.Scheduled, storage.Retry:
		s.schedule(t, state, t.Due)
	default: // ended: pending tasks and cursors do not move
		s.put(t, state, s.at(t.Expires))
		s.noteDead(t)
	}
}

// put takes t from the state in which it is to another, at a place in that one's
// order. Every arrow between states passes here, or through end and remove where the
// record goes.
func (s *Storage) put(t *task, to storage.State, at place) {
	q, from := t.queue, t.State
	q.lift(t)
	t.State, t.place = to, at
	q.order(t).insert(at, t)
	q.count(t, from, to)
	q.touched = s.now
}

// lift takes t out of the orders in which it stands. What a record says only while
// it is pending ends here.
func (q *queue) lift(t *task) {
	if t.State == "" {
		return // it is new here
	}
	q.order(t).remove(t.place)
	if t.CancelAsked {
		q.asked--
	}
	t.lease = lease{}
}

// order is where t stands.
func (q *queue) order(t *task) *sorted[*task] {
	if t.State == storage.Waiting {
		return &q.ready[t.kind()]
	}
	return q.orderOf(t.State)
}

// orderOf is the order of a state other than waiting.
func (q *queue) orderOf(state storage.State) *sorted[*task] {
	switch state {
	case storage.Scheduled:
		return &q.scheduled
	case storage.Retry:
		return &q.retry
	case storage.Pending:
		return &q.pending
	case storage.Completed:
		return &q.completed
	case storage.Cancelled:
		return &q.cancelled
	case storage.Dead:
		return &q.dead
	default:
		return &q.cursors
	}
}

// count keeps the totals, and the unique key that a task holds for its life. Only
// what crosses the border of the live states counts, therefore at any moment
// Enqueued + Requeued = Completed + Dead + Cancelled + Deleted + live tasks.
func (q *queue) count(t *task, from, to storage.State) {
	switch {
	case live(to) && !live(from):
		if from == "" {
			q.totals.Enqueued++
		} else {
			q.totals.Requeued++
		}
		q.holdForLife(t)
	case live(from) && !live(to):
		switch to {
		case storage.Completed:
			q.totals.Completed++
		case storage.Dead:
			q.totals.Dead++
		case storage.Cancelled:
			q.totals.Cancelled++
		default:
			q.totals.Deleted++
		}
		q.release(t)
	}
}

// live reports whether a task in a state has not ended. Cursors do not count.
func live(state storage.State) bool {
	return state != "" && state != storage.Cursors && !state.Ended()
}

// holder gives the id of the task that holds a unique key. A window that is over
// holds nothing, swept or not.
func (q *queue) holder(key string, now moment) (string, bool) {
	h := q.keys[key]
	if h == nil || h.until != 0 && now >= h.until {
		return "", false
	}
	return h.id, true
}

// holdForLife gives t its key in mode life. Whoever comes here has checked that it
// is free.
func (q *queue) holdForLife(t *task) {
	if t.Unique.Mode == storage.UniqueLife {
		q.drop(t.Unique.Key)
		q.keys[t.Unique.Key] = &hold{key: t.Unique.Key, id: t.ID}
	}
}

// holdForWindow gives the new task t its key in mode window.
func (s *Storage) holdForWindow(t *task) {
	if t.Unique.Mode != storage.UniqueWindow {
		return
	}
	q := t.queue
	q.drop(t.Unique.Key)
	h := &hold{key: t.Unique.Key, id: t.ID, until: s.now.after(t.Unique.For)}
	h.place = s.at(h.until)
	q.keys[h.key] = h
	q.windows.insert(h.place, h)
}

// release ends the hold that t has for its life.
func (q *queue) release(t *task) {
	if t.Unique.Mode == storage.UniqueLife {
		delete(q.keys, t.Unique.Key)
	}
}

// drop forgets what a key was held by: a window that is over.
func (q *queue) drop(key string) {
	if h := q.keys[key]; h != nil {
		q.windows.remove(h.place)
		delete(q.keys, key)
	}
}
