package engine

import "github.com/midgehq/midge/storage"

// The numbers in this file are kept by storages and read by later programs: none changes its
// meaning, and a new one is added here first.

// State is a state as a storage keeps it. Callers know fewer: see [State.Public].
type State int16

// The states. PostgreSQL keeps them in the low four bits of a line (schema/tables).
const (
	None      State = iota // in no line
	Waiting                // to be claimed, to start at once or ahead
	Prompt                 // waiting, to start at once and not ahead
	Suspect                // waiting, one crash short of its limit: to start at once, one at a time
	Pending                // under a lease
	Asked                  // under a lease, and its cancel was asked
	Scheduled              // until its moment, or snoozed
	Retry                  // failed, until its next attempt
	Cursor                 // a periodic schedule
	Damaged                // a record that cannot be read, set apart
	Completed
	Cancelled
	Dead
	_        // kept for held tasks
	Declined // waiting for a claim that names its kind, in the line of that kind
	States   // how many there are
)

// public are the states that callers know.
var public = [States]storage.State{
	Waiting: storage.Waiting, Prompt: storage.Waiting, Suspect: storage.Waiting, Pending: storage.Pending,
	Asked: storage.Pending, Scheduled: storage.Scheduled, Retry: storage.Retry, Cursor: storage.Cursors,
	Completed: storage.Completed, Cancelled: storage.Cancelled, Dead: storage.Dead, Declined: storage.Waiting,
}

// Public gives the state that callers know, "" for none and for a damaged record.
func (s State) Public() storage.State {
	if s < 0 || s >= States {
		return ""
	}
	return public[s]
}

// IsPending reports whether a lease is on a task in s.
func (s State) IsPending() bool { return s == Pending || s == Asked }

// HasEnded reports whether a task in s has come to its end.
func (s State) HasEnded() bool { return s >= Completed && s <= Dead }

// isLive reports whether a task in s has not ended. Cursors do not count.
func (s State) isLive() bool { return s >= Waiting && s <= Retry || s == Declined }

// StatesOf gives the states that callers know as one.
func StatesOf(state storage.State) []State {
	var all []State
	for s := Waiting; s < States; s++ {
		if public[s] == state {
			all = append(all, s)
		}
	}
	return all
}

// The numbers of a queue's counters: the size of each state has the number of the state, and the totals
// follow.
const (
	CountEnqueued = 16 + iota
	CountRequeued
	CountCompleted
	CountDead
	CountCancelled
	CountDeleted
	CountFailed
	CountCrashed
	Counters // one more than the last number
)

// Flags are facts of a record apart from its state.
type Flags int16

// The flags. PostgreSQL's clients pass over a task with a flag that they do not know.
const (
	Special   Flags = 1 << iota // its end needs more than a delete
	Started                     // pending, and not claimed ahead
	StartOnly                   // its lease expired once while it was claimed ahead
	IsSuspect                   // it is one crash short of its limit
	HasSide                     // it has a Side
)

// Parts name the parts of a record that a Step touched. The low ones are those of Side, in its
// order.
type Parts uint8

// The parts.
const (
	PartAttempts Parts = 1 << iota
	PartStack
	PartResult
	PartProgress
	PartCheckpoint
	PartSpec
	PartRest // anything else

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
	IsRecord // always set: no text begins so
)

// Encodings lists the encodings that take one byte in a packed record, which is their place here.
// The length of any other encoding's name is written with so many added.
var Encodings = [...]string{"msgpack", "json"}
