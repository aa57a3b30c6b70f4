package engine

import (
	"fmt"

	"github.com/midgehq/midge/storage"
)

// Verb is a kind of calls that change a storage. A storage remembers it with the last call of a lane.
type Verb string

// The verbs.
const (
	VerbApply     Verb = "a"
	VerbClaim     Verb = "c"
	VerbExtend    Verb = "e"
	VerbConfigure Verb = "s"
)

// LastCall is the last call on a lane.
type LastCall struct {
	Opened int64 // when the lane was opened
	Seq    uint64
	Verb   Verb
}

// Admit decides whether a call may happen after the last call on its lane; last is nil if the storage
// remembers no such call. Admit returns true if the call repeats the last call: then the remembered outcome
// is its answer. A call without an identity may always happen. The error is an ErrUnknown for a call whose
// number is too small, or is that of a call of another verb, and an ErrLaneExpired for a call on a lane past
// its life.
func (s *Step) Admit(call storage.Call, verb Verb, last *LastCall) (repeated bool, err error) {
	opened := Moment(call.Lane.Opened)
	switch {
	case call.IsZero():
		return false, nil
	case last == nil:
	case call.Seq < last.Seq:
		return false, fmt.Errorf("%w: older than the last call of its lane", storage.ErrUnknown)
	case call.Seq == last.Seq && verb != last.Verb:
		return false, fmt.Errorf("repeats another call: %w", storage.ErrUnknown)
	case call.Seq == last.Seq:
		return true, nil
	default:
		opened = last.Opened
	}
	if far := s.Now - opened; max(far, -far) > storage.LaneLife.Microseconds() {
		return false, storage.ErrLaneExpired
	}
	return false, nil
}
