// Package engine holds the rules of a storage: the checks of a transaction, the effects of its
// operations, the choice of a claim and its end, and the life of a unique key. Each rule is
// decided here once, in memory and for one record at a time. A [Store] finds records and keeps
// them.
//
// The memory storage hands out the records themselves. PostgreSQL loads records: its Store
// answers "none" for a record that is not loaded, and notes it; the driver then loads the
// record and carries out the same step again, on fresh copies. Therefore a [Step] is
// deterministic, and reads nothing but its fields and its Store.
//
// Redis decides in scripts beside its data. They are the second and only other expression of
// these rules, and the differential test holds the two together.
//
// # The files
//
//	engine.go   Store and Step
//	registry.go the numbers of states, flags and parts
//	record.go   a record, and the Task that callers get of it
//	apply.go    Apply: each Tx checked whole, then carried out
//	check.go    the checks of a Tx
//	write.go    inserts and changes
//	claim.go    which tasks a claim takes, and whether another would find work
//	lease.go    the ends of a claim, and the extension of one
//	move.go     the arrows between states: lines, sizes, totals and keys for life
package engine

import (
	"time"

	"github.com/midgehq/midge/storage"
)

// Store keeps the records that a Step is about. The Step changes the fields of a record itself;
// the Store keeps the lines in which records stand, and finds them.
type Store interface {
	// Queue gives the queue of a name, made where there is none.
	Queue(name string) *Queue
	// Find gives the record of a ref, nil where there is none.
	Find(ref storage.Ref) *Record
	// Holder gives the hold on a unique key of a queue, false where there is none. It may be
	// a window that is over.
	Holder(queue, key string) (Hold, bool)
	// Hold replaces the hold on a unique key.
	Hold(q *Queue, key string, h Hold)
	// Free ends the hold that a task has on a unique key for its life.
	Free(q *Queue, key, id string)
	// Add makes the record of an insert. It stands in no line yet: its state is None.
	Add(q *Queue, in *storage.Insert) *Record
	// Move takes a record from the line in which it stands, if any, to another. The record
	// still has the state and the place that it leaves.
	Move(r *Record, to State, at Place)
	// Transfer takes a record from its line and its queue to another queue, where it stands
	// in no line yet. The record still says where it was.
	Transfer(r *Record, to *Queue)
	// Remove takes a record from its line and its queue for good.
	Remove(r *Record)
	// Ring notes an event of a record's queue: new work or an earlier due moment. An alert
	// concerns runners without a free slot too. A Store may leave out a due moment that is
	// not the first of its line.
	Ring(r *Record, alert bool)
}

// Lines is a Store that knows the order in which records stand.
type Lines interface {
	// First gives the first record in the line of a state, nil where there is none. Tasks
	// whose cancel was asked may stand in the line of the pending ones.
	First(q *Queue, line State) *Record
	// KindLines gives those of the kinds, each once, whose lines hold declined tasks of the
	// queue. Where none is named it gives the first MaxKinds of all, by name.
	KindLines(q *Queue, kinds []string) []string
	// FirstDeclined gives the first task in the line of a kind at or behind a place that has none of
	// some flags, nil where there is none.
	FirstDeclined(q *Queue, kind string, from Place, without Flags) *Record
	// Size gives the bytes of a record's payload, which need not be loaded.
	Size(r *Record) int
}

// Hold is the hold on a unique key by a task: until a moment or, where that is 0, for the
// life of the task.
type Hold struct {
	ID    string
	Until int64
}

// Step is one atomic step of a storage.
type Step struct {
	Store  Store
	Lines  Lines // for claims; nil where a step is none
	Limits storage.Limits

	// Now is the moment of the step by the storage's clock. All moments are microseconds
	// since the Unix epoch, 0 for none.
	Now int64
	// Come is the moment up to which the step may find things due: Now, or 0 while a clock
	// that jumped ahead is not believed.
	Come int64
	// Mark is the last version that was given, and Turn the last place in the order of a
	// line. Both only grow, from step to step, and a step that writes begins no earlier than Now:
	// the turn of a task that joined the tail of a line is when it did.
	Mark, Turn int64
	// Busy is set where the step relies on a record that another transaction has locked.
	Busy bool

	plan plan // of the Tx under way
}

// turn gives the next place in the order of a line.
func (s *Step) turn() int64 {
	s.Turn++
	return s.Turn
}

// grow gives r its next version.
func (s *Step) grow(r *Record) {
	s.Mark = max(s.Mark, r.Version) + 1
	r.Version = s.Mark
}

// after gives the moment that long from now.
func (s *Step) after(d time.Duration) int64 { return s.Now + d.Microseconds() }

// due is the moment that an operation names by a delay or by itself; now where neither.
func (s *Step) due(delay time.Duration, at time.Time) int64 {
	if at.IsZero() {
		return s.after(delay)
	}
	return at.UnixMicro()
}
