package memory

import (
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// lane remembers the last call of one storage.Lane, and the outcome of its verb, of which callers get
// copies. The next outcome uses the memory again.
type lane struct {
	engine.LastCall

	id  [16]byte
	age place // in Storage.laneAges

	applied    []storage.Applied
	placed     []storage.Placed // of applied
	fences     []storage.Fence  // of a claim
	extended   storage.Extended
	configured error
}

// admit decides whether a call may happen, and returns its lane: nil for a call without an
// identity. It reports repeated if the lane remembers this call. An admitted step always
// comes to an outcome, which it leaves in the lane before it unlocks the storage.
func (s *Storage) admit(call storage.Call, verb engine.Verb) (ln *lane, repeated bool, err error) {
	var last *engine.LastCall
	if ln = s.lanes[call.Lane.ID]; ln != nil {
		last = &ln.LastCall
	}
	if repeated, err = s.step.Admit(call, verb, last); err != nil || repeated || call.IsZero() {
		return ln, repeated, err
	}
	if ln == nil {
		s.sweepLanes(2) // a call opens at most one lane, so that sweeping keeps up
		ln = &lane{id: call.Lane.ID, age: s.at(engine.Moment(call.Lane.Opened))}
		s.lanes[ln.id] = ln
		s.laneAges.insert(ln.age, ln)
	}
	ln.LastCall = engine.LastCall{Opened: ln.age.Sort, Seq: call.Seq, Verb: verb}
	return ln, false, nil
}

// rememberApplied keeps a copy of an Apply's outcome.
func (ln *lane) rememberApplied(applied []storage.Applied) {
	if ln != nil {
		ln.applied, ln.placed = copyApplied(ln.applied[:0], ln.placed[:0], applied)
	}
}

// rememberFences keeps a copy of a Claim's fences.
func (ln *lane) rememberFences(fences []storage.Fence) {
	if ln != nil {
		ln.fences = append(ln.fences[:0], fences...)
	}
}

// sweepLanes forgets up to most lanes whose life is over: a new call on such a lane would
// be refused anyway.
func (s *Storage) sweepLanes(most int) {
	for _, ln := range s.laneAges.until(s.step.Come-storage.LaneLife.Microseconds()-1, most) {
		s.laneAges.remove(ln.age)
		delete(s.lanes, ln.id)
	}
}

// copyApplied appends to copied a copy of applied that shares no memory that could change. The
// places of the copy go into room, whose memory it grows if needed and returns.
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
