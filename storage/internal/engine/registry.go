package engine

import "github.com/midgehq/midge/storage"

// Storages keep the numbers in this file, and later programs read them: no number ever changes its
// meaning, and a new number is added here first.

// State is a state as a storage keeps it. Callers know fewer states: see [State.Public].
type State int16

// The states. PostgreSQL keeps them in the low four bits of a line (schema/tables).
const (
	None      State = iota // in no line
	Waiting                // waiting: may be claimed to start at once or ahead
	Prompt                 // waiting, start-only: may be claimed only to start at once
	Suspect                // waiting, one crash short of its limit: starts at once, one at a time
	Pending                // under a lease
	Asked                  // under a lease, and its cancel was asked
	Scheduled              // enqueued for later, or snoozed
	Retry                  // failed, until its next attempt
	Cursor                 // a periodic schedule
	Damaged                // a record that cannot be read, set apart
	Completed
	Cancelled
	Dead
	_        // reserved for held tasks
	Declined // waiting for a claim that names its kind, in the line of that kind
	States   // one more than the last state
)

// public has the state that callers know for each State.
var public = [States]storage.State{
	Waiting: storage.Waiting, Prompt: storage.Waiting, Suspect: storage.Waiting, Pending: storage.Pending,
	Asked: storage.Pending, Scheduled: storage.Scheduled, Retry: storage.Retry, Cursor: storage.Cursors,
	Completed: storage.Completed, Cancelled: storage.Cancelled, Dead: storage.Dead, Declined: storage.Waiting,
}

// Public returns the state that callers know, "" for None, for a damaged record, and for unknown numbers.
func (s State) Public() storage.State {
	if s < 0 || s >= States {
		return ""
	}
	return public[s]
}

// IsPending reports whether a task in s is under a lease.
func (s State) IsPending() bool { return s == Pending || s == Asked }

// HasEnded reports whether a task in s has ended.
func (s State) HasEnded() bool { return s >= Completed && s <= Dead }

// isLive reports whether a task in s has not ended. Cursors do not count.
func (s State) isLive() bool { return s >= Waiting && s <= Retry || s == Declined }

// StatesOf returns the states that callers know as state.
func StatesOf(state storage.State) []State {
	var all []State
	for s := Waiting; s < States; s++ {
		if public[s] == state {
			all = append(all, s)
		}
	}
	return all
}

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
