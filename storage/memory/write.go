package memory

import (
	"bytes"
	"maps"
	"time"

	"github.com/midgehq/midge/storage"
)

// The writing half of a Tx. Everything was checked: nothing here can fail.

// insert adds a task or cursor. A moment that is not in the future is due now.
func (s *Storage) insert(in *storage.Insert) storage.Placed {
	q := s.open(in.Ref.Queue)
	t := newTask(q, in, s.now)
	t.Version = s.version()
	q.tasks[t.ID] = t
	s.holdForWindow(t)
	due := s.due(in.Delay, in.At)
	switch {
	case in.Cursor != nil:
		s.arm(t)
	case due > s.now:
		s.schedule(t, storage.Scheduled, due)
	default:
		s.waitAtTail(t)
	}
	return t.placed()
}

// existing says where the Tx left the task that an insert found, or was skipped for: of that
// only the window may be left.
func (s *Storage) existing(ref storage.Ref) storage.Placed {
	placed := storage.Placed{Ref: ref}
	if t := s.find(ref); t != nil {
		placed = t.placed()
	}
	placed.Existing = true
	return placed
}

// due is the moment that a step names by a delay or by itself; now where neither.
func (s *Storage) due(delay time.Duration, at time.Time) moment {
	if at.IsZero() {
		return s.now.after(delay)
	}
	return momentOf(at)
}

// arm has a cursor handed out at its next moment, and tells those who wait if that is
// earlier than they know.
func (s *Storage) arm(t *task) {
	s.put(t, storage.Cursors, s.tickAt(t, 0))
	if _, head, _ := t.queue.cursors.head(); head == t {
		s.ring(t.queue, false)
	}
}

// change alters a task that is not pending, or asks for the cancel of one that is.
func (s *Storage) change(t *task, ch *storage.Change) storage.Placed {
	switch {
	case t.State == storage.Pending:
		s.askCancel(t)
		return t.placed()
	case t.State == storage.Cancelled && !ch.Requeue:
		return t.placed()
	}
	s.edit(t, ch)
	switch q := targetQueue(ch); {
	case q != t.queue.name:
		s.transfer(t, s.open(q))
	default:
		s.changeState(t, ch)
	}
	return t.placed()
}

// askCancel marks a pending task and wakes those who may be running it.
func (s *Storage) askCancel(t *task) {
	if t.CancelAsked {
		return
	}
	t.CancelAsked = true
	t.queue.asked++
	t.queue.touched = s.now
	s.ring(t.queue, true)
}

// edit replaces what a change names, apart from where the task stands.
func (s *Storage) edit(t *task, ch *storage.Change) {
	t.Version = s.version()
	t.queue.touched = s.now
	if ch.Encoding != "" {
		t.Encoding, t.Payload = ch.Encoding, bytes.Clone(ch.Payload)
	}
	if ch.Headers != nil {
		t.Headers = maps.Clone(ch.Headers)
	}
	if ch.Priority != nil {
		t.Priority = *ch.Priority
	}
	if ch.Cursor != nil {
		t.rest().Cursor = copyCursor(ch.Cursor)
		s.arm(t)
	}
}

// changeState puts t where a change wants it. What stays in its state keeps its
// place, unless the change names a new priority or moment.
func (s *Storage) changeState(t *task, ch *storage.Change) {
	if ch.Requeue {
		t.requeued(s.now)
	}
	switch to := ch.Target(t.State); to {
	case storage.Cancelled:
		s.end(t, to)
	case storage.Waiting:
		if t.State != storage.Waiting || ch.Priority != nil {
			s.waitAtTail(t)
		}
	case storage.Scheduled, storage.Retry:
		s.reschedule(t, ch, to)
	default: // a dead task or a cursor, where it is
	}
}

// reschedule puts t into scheduled or retry, or into waiting where it is due now.
func (s *Storage) reschedule(t *task, ch *storage.Change, to storage.State) {
	due := t.Due // stays where the change names no moment; none in other states
	timed := ch.Delay != 0 || !ch.At.IsZero()
	if timed {
		due = s.due(ch.Delay, ch.At)
	}
	switch {
	case due <= s.now && (timed || t.Due == 0):
		s.waitAtTail(t)
	case t.State != to || due != t.Due:
		s.schedule(t, to, due)
	}
}

// requeued starts an ended task anew. Its history goes on.
func (t *task) requeued(now moment) {
	t.Retries, t.Crashes, t.prompt = 0, 0, false
	t.Ended, t.Expires = 0, 0
	r := t.rest()
	t.more = &more{Attempts: r.Attempts, Stack: r.Stack, Progress: r.Progress, Checkpoint: r.Checkpoint}
	t.append(storage.Attempt{At: now.time(), Outcome: storage.AttemptRequeue})
}
