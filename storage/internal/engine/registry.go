package engine

import (
	"slices"

	"github.com/midgehq/midge/internal/states"
	"github.com/midgehq/midge/storage"
)

// Storages keep the numbers in this file, and later programs read them: no number ever changes its
// meaning, and a new number is added here first.

// State is a state as a storage keeps it. Callers know fewer states: see [State.Public]. The table of all
// states stands in package states.
type State int16

// The states; see package states.
const (
	None      = State(states.None)
	Waiting   = State(states.Waiting)
	Prompt    = State(states.Prompt)
	Suspect   = State(states.Suspect)
	Pending   = State(states.Pending)
	Asked     = State(states.Asked)
	Scheduled = State(states.Scheduled)
	Retry     = State(states.Retry)
	Cursor    = State(states.Cursor)
	Damaged   = State(states.Damaged)
	Completed = State(states.Completed)
	Cancelled = State(states.Cancelled)
	Dead      = State(states.Dead)
	Declined  = State(states.Declined)
	Keyed     = State(states.Keyed)
	States    = State(states.Count)
)

func (s State) declared() *states.State { return states.Of(states.Number(s)) }

// Public returns the state that callers know, "" for None, for a damaged record, and for unknown numbers.
func (s State) Public() storage.State { return storage.State(s.declared().Name) }

// IsPending reports whether a task in s is under a lease.
func (s State) IsPending() bool { return s == Pending || s == Asked }

// Line returns the state in whose line a task in s is found: a task whose cancel was asked stays among the
// pending ones.
func (s State) Line() State {
	if s == Asked {
		return Pending
	}
	return s
}

// HasEnded reports whether a task in s has ended.
func (s State) HasEnded() bool { return s.declared().Ended }

// IsTimed reports whether a task or cursor in s is due at a moment.
func (s State) IsTimed() bool { return s.declared().Timed }

// isLive reports whether a task in s has not ended. Cursors do not count.
func (s State) isLive() bool { return s.declared().Live }

// StatesOf returns the states that callers know as state.
func StatesOf(state storage.State) []State {
	return StatesWhere(func(s State) bool { return s.Public() == state })
}

// StatesWhere returns the states for which is returns true.
func StatesWhere(is func(State) bool) (some []State) {
	for _, s := range states.All() {
		if is(State(s.Number)) {
			some = append(some, State(s.Number))
		}
	}
	return some
}

var (
	// waitingStates are the states of waiting tasks with one line in a queue.
	waitingStates = StatesWhere(func(s State) bool { return s.Public() == storage.Waiting && !s.HasSubs() })
	endedStates   = StatesWhere(State.HasEnded)
	timedStates   = StatesWhere(State.IsTimed)
	// dueStates are the states of records for which there is something to do at a moment, except for leases.
	dueStates = append(slices.Clone(timedStates), endedStates...)
)

// The numbers of a queue's counters. The size of each state has the number of the state; the totals have
// the numbers below.
const (
	CountEnqueued = 16 + iota
	CountRequeued
	CountCompleted
	CountDead
	CountCancelled
	CountDeleted
	CountFailed
	CountCrashed
	CountEvicted
	Counters // one more than the last number
)

// Flags are facts of a record apart from its state.
type Flags int16

// The flags. PostgreSQL's clients pass over a task with a flag that they do not know.
const (
	Special   Flags = 1 << iota // the end of the task needs more than a delete
	Started                     // pending, and not only claimed ahead
	StartOnly                   // its lease expired while it was only claimed ahead
	IsSuspect                   // it is one crash short of its limit
	HasSide                     // it has a Side
	Counted                     // pending, and counted in Running of its partition
)

// Parts is a set of parts of a record. The low bits are the fields of Side, in its order.
type Parts uint8

// The parts.
const (
	PartAttempts Parts = 1 << iota
	PartStack
	PartResult
	PartProgress
	PartCheckpoint
	PartSpec
	PartRest // any other field

	SideParts = PartAttempts | PartStack | PartResult | PartProgress | PartCheckpoint
)

// The flags in the first byte of a packed record (storage/internal/record).
const (
	RecordKeep byte = 1 << iota
	RecordParts
	RecordTimeout
	RecordUniqueLife
	RecordUniqueWindow
	RecordHeaders
	RecordCursor
	IsRecord // always set; no ASCII text begins with this bit
)

// Encodings lists the encodings that take one byte in a packed record: their index here. Of any other
// encoding the record has the length of the name plus len(Encodings), and the name.
var Encodings = [...]string{"msgpack", "json"}
