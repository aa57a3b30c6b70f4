package memory

import (
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// lane remembers the last call of one storage.Lane.
type lane struct {
	storage.Lane

	seq uint64
	// outcome is the outcome of the call seq: []storage.Applied, []storage.Fence of
	// a claim, storage.Extended, or configured. Callers get copies of it.
	outcome any
	age     place // in Storage.laneAges

	// The memory of outcomes, which the next outcome uses again.
	applied []storage.Applied
	placed  []storage.Placed
	fences  []storage.Fence
}

// admit decides whether a call may happen, and returns its lane: nil for a call without an
// identity. It reports repeated where the lane remembers this call. An admitted step always
// comes to an outcome, which it leaves in the lane before it unlocks the storage. A call whose
// number is too small gives an ErrUnknown, a call on a lane past its life an ErrLaneExpired.
func (s *Storage) admit(call storage.Call) (ln *lane, repeated bool, err error) {
	if call.IsZero() {
		return nil, false, nil
	}
	ln = s.lanes[call.Lane.ID]
	if ln != nil && call.Seq == ln.seq {
		return ln, true, nil
	}
	if ln != nil && call.Seq < ln.seq {
		return nil, false, storage.ErrUnknown
	}
	opened := call.Lane.Opened
	if ln != nil {
		opened = ln.Opened
	}
	if far := s.step.Now - engine.Moment(opened); max(far, -far) > storage.LaneLife.Microseconds() {
		return nil, false, storage.ErrLaneExpired
	}
	if ln == nil {
		s.sweepLanes(2) // a call opens at most one lane, so that sweeping keeps up
		ln = &lane{Lane: call.Lane, age: s.at(engine.Moment(opened))}
		s.lanes[ln.ID] = ln
		s.laneAges.insert(ln.age, ln)
	}
	ln.seq = call.Seq
	return ln, false, nil
}

// remember keeps the outcome of a call that was admitted on ln.
func (ln *lane) remember(outcome any) {
	if ln != nil {
		ln.outcome = outcome
	}
}

// rememberApplied keeps a copy of an Apply's outcome.
func (ln *lane) rememberApplied(applied []storage.Applied) {
	if ln != nil {
		ln.applied, ln.placed = copyApplied(ln.applied[:0], ln.placed[:0], applied)
		ln.outcome = ln.applied
	}
}

// rememberFences keeps a copy of a Claim's fences.
func (ln *lane) rememberFences(fences []storage.Fence) {
	if ln != nil {
		ln.fences = append(ln.fences[:0], fences...)
		ln.outcome = ln.fences
	}
}

// sweepLanes forgets up to most lanes whose life is over: a new call on such a lane would
// be refused anyway.
func (s *Storage) sweepLanes(most int) {
	for range most {
		_, ln, ok := s.laneAges.head()
		if !ok || s.step.Come <= engine.Moment(ln.Opened)+storage.LaneLife.Microseconds() {
			return
		}
		s.laneAges.remove(ln.age)
		delete(s.lanes, ln.ID)
	}
}

// copyApplied appends to copied a copy of applied that shares no memory that could change. The
// places of the copy go into room, whose memory it grows where needed and returns.
func copyApplied(
	copied []storage.Applied, room []storage.Placed, applied []storage.Applied,
) ([]storage.Applied, []storage.Placed) {
	n := 0
	for i := range applied {
		n += len(applied[i].Inserted) + len(applied[i].Changed) + len(applied[i].Settled)
	}
	room = slices.Grow(room, n)
	left := room[:n]
	copied = append(copied, applied...)
	for i := range copied {
		a := &copied[i]
		a.Inserted, left = copyInto(left, a.Inserted)
		a.Changed, left = copyInto(left, a.Changed)
		a.Settled, left = copyInto(left, a.Settled)
		if dep, ok := a.Err.(*storage.DependencyError); ok { //nolint:errorlint // made here, never wrapped
			a.Err = &storage.DependencyError{
				Missing:   slices.Clone(dep.Missing),
				Stale:     slices.Clone(dep.Stale),
				Colliding: slices.Clone(dep.Colliding),
				Lost:      slices.Clone(dep.Lost),
				Barred:    slices.Clone(dep.Barred),
			}
		}
	}
	return copied, room
}

// copyInto copies placed to the beginning of room, and returns the copy and the rest of room.
func copyInto(room, placed []storage.Placed) (copied, rest []storage.Placed) {
	copied, rest = engine.Cut(room, len(placed))
	copy(copied, placed)
	return copied, rest
}

func copyExtended(e storage.Extended) storage.Extended {
	e.Lost = slices.Clone(e.Lost)
	e.CancelAsked = slices.Clone(e.CancelAsked)
	return e
}
