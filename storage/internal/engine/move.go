package engine

import (
	"math"

	"github.com/midgehq/midge/storage"
)

// Never is the Sort of a cursor that is never due. It comes after all others.
const Never = math.MaxInt64

// Band returns the middle of the Sorts of a priority in the lines of waiting tasks: tasks at the head
// stand before it, and tasks at the tail after it.
func Band(priority int16) int64 { return int64(storage.MaxPriority-priority) << 56 }

// beforeHead is how far before the middle of a band the declined tasks of a priority stand, so that
// they come before the tasks that were put at the head of that priority.
const beforeHead = 1 << 55

// DeclinedBand returns the place before all declined tasks of a priority in the line of a kind.
func DeclinedBand(priority int16) Place { return Place{Sort: Band(priority) - beforeHead} }

// decline puts r into the line of its kind.
func (s *Step) decline(r *Record) {
	r.waitingLine() // notes whether r is a suspect, for a later claim
	s.put(r, Declined, Place{Band(r.Priority) - beforeHead + s.turn(), s.Now})
	s.Store.Ring(r, false)
}

// waitAtTail puts r after all tasks that wait in its line with its priority.
func (s *Step) waitAtTail(r *Record) { s.wait(r, s.turn()) }

// waitAtHead puts r before all tasks that wait in its line with its priority.
func (s *Step) waitAtHead(r *Record) { s.wait(r, -s.turn()) }

func (s *Step) wait(r *Record, turn int64) {
	s.put(r, r.waitingLine(), Place{Band(r.Priority) + turn, 0})
	if r.State == Keyed && s.Local != nil && !s.Local.Line(r.Queue, Keyed, r.Partition).IsReady() {
		return // no claim could take it
	}
	s.Store.Ring(r, false)
}

// waitingLine returns the line in which r waits, and notes whether r is a suspect.
func (r *Record) waitingLine() State {
	r.Flags &^= IsSuspect
	if storage.Suspect(r.Crashes, r.CrashLimit) {
		r.Flags |= IsSuspect
	}
	switch {
	case r.Partition != "":
		return Keyed
	case r.Flags&IsSuspect != 0:
		return Suspect
	case r.Flags&StartOnly != 0:
		return Prompt
	}
	return Waiting
}

// Sub returns the name of the line in which r stands in a state with several lines.
func (r *Record) Sub(state State) string {
	if state == Keyed {
		return r.Partition
	}
	return r.Kind
}

// schedule puts r into scheduled or retry.
func (s *Step) schedule(r *Record, to State, due int64) {
	r.waitingLine() // notes whether r is a suspect, for its promotion
	s.put(r, to, Place{due, s.turn()})
	s.Store.Ring(r, false)
}

// arm puts a cursor at the place of its next moment, from where a claim hands it out when it is due.
func (s *Step) arm(r *Record) {
	at := Place{Never, s.turn()}
	if !r.Cursor.Next.IsZero() {
		at.Sort = r.Cursor.Next.UnixMicro()
	}
	s.put(r, Cursor, at)
	if at.Sort != Never {
		s.Store.Ring(r, false)
	}
}

// end puts r into an ended state, or removes it from the storage if it is not kept.
func (s *Step) end(r *Record, to State) {
	r.At = s.Now
	keep := r.Keep.Of(to.Public(), r.Side != nil && r.Side.Result != nil)
	if to == Dead {
		keep = s.Limits.DeadFor
	}
	if keep > 0 {
		s.put(r, to, Place{s.after(keep), s.turn()})
		return
	}
	s.count(r, to)
	s.Store.Remove(r)
	r.touch(PartRest)
	r.State = to
}

// Remove removes r from the storage.
func (s *Step) Remove(r *Record) {
	s.count(r, None)
	s.Store.Remove(r)
	r.touch(PartRest)
}

// transfer moves r to another queue, in its present state.
func (s *Step) transfer(r *Record, to *Queue) {
	s.count(r, None)
	s.Store.Transfer(r, to)
	state := r.State
	r.State, r.Queue, r.Ref.Queue = None, to, to.Name
	switch {
	case state.Public() == storage.Waiting:
		s.waitAtTail(r)
	case state.IsTimed():
		s.schedule(r, state, r.Sort)
	default: // ended: pending tasks and cursors do not move
		s.put(r, state, Place{r.Sort, s.turn()})
	}
}

// put moves r from the line in which it stands to a place in another. Every transition between
// states passes through put, or through end and Remove if the record goes.
func (s *Step) put(r *Record, to State, at Place) {
	s.count(r, to)
	r.Queue.Sizes[to]++
	if to.HasSubs() {
		s.Join(r.Queue, to, r.Sub(to))
	}
	s.Store.Move(r, to, at)
	r.State, r.Place = to, at
	r.touch(PartRest)
	if to == Dead && s.Local != nil && s.hasTooManyDead(r.Queue) {
		s.overfull = append(s.overfull, r.Queue)
	}
	if !to.IsPending() {
		r.Token, r.Runner = storage.Token{}, ""
		r.Flags &^= Started
	}
	if !to.HasEnded() && !to.IsPending() {
		r.At = 0
	}
}

// count counts that r leaves its line for another, or for good, and takes or frees the unique key
// that a task holds for its life. Only a transition into the live states or out of them counts in
// the totals. Therefore at any moment
// Enqueued + Requeued = Completed + Dead + Cancelled + Deleted + live tasks.
func (s *Step) count(r *Record, to State) {
	q, from := r.Queue, r.State
	if from != None {
		q.Sizes[from]--
		if from.HasSubs() {
			s.Leave(q, from, r.Sub(from))
		}
	}
	if r.Flags&Counted != 0 && !to.IsPending() {
		r.Flags &^= Counted
		s.free(q, r.Partition)
	}
	life := r.Unique.Mode == storage.UniqueLife
	switch {
	case to.isLive() && !from.isLive():
		if from == None {
			q.Totals.Enqueued++
		} else {
			q.Totals.Requeued++
		}
		if life {
			s.Store.Hold(q, r.Unique.Key, Hold{ID: r.ID})
		}
	case from.isLive() && !to.isLive():
		switch to {
		case Completed:
			q.Totals.Completed++
		case Dead:
			q.Totals.Dead++
		case Cancelled:
			q.Totals.Cancelled++
		default:
			q.Totals.Deleted++
		}
		if life {
			s.Store.Free(q, r.Unique.Key, r.ID)
		}
	}
}
