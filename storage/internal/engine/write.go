package engine

import "github.com/midgehq/midge/storage"

// The writing half of a Tx. Step.check has checked everything, so that nothing here fails.

// insert adds a task or cursor. A moment that is not in the future is due now.
func (s *Step) insert(in *storage.Insert) storage.Placed {
	q := s.Store.Queue(in.Ref.Queue)
	r := s.Store.Add(q, in)
	r.Ref, r.Queue, r.Priority, r.Created = in.Ref, q, int16(in.Priority), s.Now
	s.grow(r)
	if r.Unique.Mode == storage.UniqueWindow {
		s.Store.Hold(q, r.Unique.Key, Hold{r.ID, s.after(r.Unique.For)})
	}
	due := s.due(in.Delay, in.At)
	switch {
	case in.Cursor != nil:
		s.arm(r)
	case due > s.Now:
		s.schedule(r, Scheduled, due)
	default:
		s.waitAtTail(r)
	}
	placed := r.placed()
	if r.Version-s.Now >= SetBack {
		placed.Created = Time(s.Now)
	}
	return placed
}

// existing returns the task that an insert found as the step left it, or the holder for which the insert
// was skipped. The holder may have ended, and only its window be left.
func (s *Step) existing(ref storage.Ref) storage.Placed {
	placed := storage.Placed{Ref: ref}
	if r := s.Store.Find(ref); r != nil {
		placed = r.placed()
	}
	placed.Existing = true
	return placed
}

// change alters a task that is not pending, or asks for the cancel of a pending task.
func (s *Step) change(r *Record, ch *storage.Change) storage.Placed {
	switch {
	case r.State.IsPending():
		s.askCancel(r)
		return r.placed()
	case r.State == Cancelled && !ch.Requeue: // a second cancel does nothing
		return r.placed()
	}
	s.edit(r, ch)
	if q := TargetQueue(ch); q != r.Queue.Name {
		s.transfer(r, s.Store.Queue(q))
	} else {
		s.changeState(r, ch)
	}
	return r.placed()
}

// askCancel marks a pending task and wakes the runners, one of which may run it.
func (s *Step) askCancel(r *Record) {
	if r.State == Asked {
		return
	}
	s.put(r, Asked, r.Place)
	s.Store.Ring(r, true)
}

// edit replaces the content that a change names. It leaves a task in its place, and arms a cursor anew.
func (s *Step) edit(r *Record, ch *storage.Change) {
	s.grow(r)
	r.touch(PartRest)
	if ch.Encoding != "" {
		r.Encoding, r.Payload = ch.Encoding, ch.Payload
		r.touch(PartSpec)
	}
	if ch.Headers != nil {
		r.Headers = ch.Headers
		r.touch(PartSpec)
	}
	if ch.Cost != nil {
		r.Cost = *ch.Cost
		r.touch(PartSpec)
	}
	if ch.Priority != nil {
		r.Priority = int16(*ch.Priority)
	}
	if ch.Partition != nil {
		s.rekey(r, *ch.Partition)
	}
	if ch.Cursor != nil {
		r.Cursor = ch.Cursor
		r.touch(PartSpec)
		s.arm(r)
	}
}

// changeState puts r into the state to which a change leads it. A task that stays in its state keeps
// its place, unless the change names a new priority or moment.
func (s *Step) changeState(r *Record, ch *storage.Change) {
	if ch.Forgets(r.State.Public()) {
		r.forget()
	}
	if ch.Requeue {
		s.requeue(r)
	}
	switch from := r.State.Public(); ch.Target(from) {
	case storage.Cancelled:
		s.end(r, Cancelled)
	case storage.Waiting:
		if from != storage.Waiting || ch.Priority != nil || ch.Partition != nil || ch.Now && r.State == Declined {
			s.waitAtTail(r)
		}
	case storage.Scheduled:
		s.reschedule(r, ch, Scheduled)
	case storage.Retry:
		s.reschedule(r, ch, Retry)
	default: // a dead task or a cursor stays where it is
	}
}

// reschedule puts r into scheduled or retry, until the moment that a change names, or into waiting
// if that moment has come. A change that names no moment leaves r in its place.
func (s *Step) reschedule(r *Record, ch *storage.Change, to State) {
	if ch.Delay == 0 && ch.At.IsZero() {
		return
	}
	due := s.due(ch.Delay, ch.At)
	switch {
	case due <= s.Now:
		s.waitAtTail(r)
	case r.State != to || due != r.Sort:
		s.schedule(r, to, due)
	}
}

// requeue resets the counters of an ended task, and keeps its history.
func (s *Step) requeue(r *Record) {
	if a, ok := r.success(); ok {
		r.addAttempt(a)
	}
	r.Past = Past{Created: r.Created}
	r.Flags &^= StartOnly | IsSuspect
	r.beside(PartResult).Result = nil
	r.addAttempt(storage.Attempt{At: Time(s.Now), Outcome: storage.AttemptRequeued})
}
