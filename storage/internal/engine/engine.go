// Package engine holds the rules of a storage: the checks of a transaction, the effects of its
// operations, which tasks a claim takes and how a claim ends, and the life of a unique key. Each
// rule is decided here once, in memory and for one record at a time. A [Store] finds records and
// keeps them.
//
// The memory storage hands out the records themselves. PostgreSQL loads records: its Store
// answers "none" for a record that is not loaded, and notes the ref; the driver then loads the
// record and carries out the same step again, on fresh copies. Therefore a [Step] is
// deterministic, and reads nothing but its fields and its Store.
//
// Redis decides in scripts on the server, beside its data, and PostgreSQL's functions carry out plain
// claims, inserts and completions. They are the second and the third expression of these rules, and the
// differential test proves that all decide alike.
//
// # The files
//
//	engine.go   Store and Step
//	registry.go the states, and the numbers of totals, flags and parts
//	record.go   a record, and the Task that callers get of it
//	queue.go    a queue: its counts, its settings, and when it is abandoned
//	limit.go    the limit of a queue: how many of its tasks may start now
//	call.go     whether a call is new, a repeat or too old
//	apply.go    Apply: each Tx checked whole, then carried out
//	check.go    the checks of a Tx
//	write.go    inserts and changes
//	claim.go    which tasks a claim takes, and whether another claim would find work
//	maintain.go the maintenance that a claim carries out
//	lease.go    the ends of a claim, and the extension of a lease
//	list.go     listings of tasks, page by page
//	lines.go    the lines of declined tasks, one for each kind
//	ring.go     the partitions of a queue: whose turn it is, and which are paused
//	move.go     the transitions between states: lines, sizes, totals and keys for life
package engine

import (
	"time"

	"github.com/midgehq/midge/storage"
)

// Store keeps the records that a Step works on. The Step itself changes the fields of a record;
// the Store keeps the lines in which records stand, and finds records.
type Store interface {
	// Queue returns the queue of a name, which it makes if there is none.
	Queue(name string) *Queue
	// Find returns the record of a ref, nil if there is none.
	Find(ref storage.Ref) *Record
	// Holder returns the hold on a unique key of a queue, false if there is none. The hold
	// may be a window that is over.
	Holder(queue, key string) (Hold, bool)
	// Hold replaces the hold on a unique key.
	Hold(q *Queue, key string, h Hold)
	// Free ends the hold that a task has on a unique key for its life.
	Free(q *Queue, key, id string)
	// Add makes the record of an insert. It stands in no line yet: its state is None.
	Add(q *Queue, in *storage.Insert) *Record
	// Move moves a record from the line in which it stands, if any, to another line. When it is
	// called the record still has its old state and place.
	Move(r *Record, to State, at Place)
	// Transfer moves a record from its line and its queue to another queue, where it stands
	// in no line yet. When it is called the record still has its old queue, state and place.
	Transfer(r *Record, to *Queue)
	// Remove removes a record from its line and its queue for good.
	Remove(r *Record)
	// Ring notes an event of a record's queue: new work or an earlier due moment. An alert
	// concerns runners without a free slot too. A Store may ignore a due moment that is not
	// the first of its line.
	Ring(r *Record, alert bool)
}

// Lines is a Store that knows the order in which records stand.
type Lines interface {
	// First returns the first record in the line of a state, nil if there is none. Tasks
	// whose cancel was asked may stand in the line of the state Pending.
	First(q *Queue, line State) *Record
	// LinesNamed returns the lines of these kinds, which are sorted and distinct.
	LinesNamed(q *Queue, kinds []string) []*Line
	// LinesFrom returns up to n lines of a state at a name or after it, by name.
	LinesFrom(q *Queue, state State, sub string, n int) []*Line
	// Partition returns a partition, nil if the storage has nothing of it. If the limit of a queue bounds
	// partitions, a Store that is not Local returns one even then.
	Partition(q *Queue, key string) *Line
	// Turns returns up to n partitions that stand at a place of the ring of a queue or after it, in order.
	Turns(q *Queue, from Place, n int) []*Line
	// SetTurn moves a partition to another place of the ring. When it is called the line still has its old
	// place.
	SetTurn(l *Line, to Place)
	// Size returns the bytes of a record's payload, which need not be loaded.
	Size(r *Record) int
}

// Local is a Store of which the engine decides everything, in this process.
type Local interface {
	// Lookup returns the queue of a name, nil if there is none.
	Lookup(name string) *Queue
	// IsEmpty reports whether a queue has no records.
	IsEmpty(q *Queue) bool
	// DeleteQueue removes a queue that is empty.
	DeleteQueue(q *Queue)
	// Configured keeps the settings of a queue, and notes an event that concerns all runners if alert is set.
	Configured(q *Queue, alert bool)

	// Line returns the line of a state and name, nil if there is none.
	Line(q *Queue, state State, sub string) *Line
	// InsertLine keeps a new line.
	InsertLine(l Line) *Line
	// DeleteLine removes a line that is empty.
	DeleteLine(l *Line)
	// LinesByLook returns up to n lines of declined tasks by the moment Look: those whose moment is at or before
	// it, or after it.
	LinesByLook(q *Queue, after bool, at int64, n int) []*Line
	// Due returns the first records in the line of a state, at most n, whose Sort is at a moment or before.
	Due(q *Queue, state State, at int64, n int) []*Record
	// Page returns up to n records that stand after a mark in a line or, with newest, those before it, from the
	// last on. The line may be that of a state with one line.
	Page(l *Line, after Mark, newest bool, n int) []*Record
	// MarkOf returns the mark of a record in a listing.
	MarkOf(r *Record) Mark
	// SortAfter returns the first Sort in the line of a state that is greater than another, 0 if there is
	// none.
	SortAfter(q *Queue, state State, sort int64) int64
}

// Hold is the hold on a unique key by a task: until a moment or, if that is 0, for the
// life of the task.
type Hold struct {
	ID    string
	Until int64
}

// Step is one atomic step of a storage.
type Step struct {
	Store  Store
	Lines  Lines // for claims; nil in other steps
	Local  Local // nil if a server does the maintenance and keeps the settings
	Limits storage.Limits

	// Now is the moment of the step by the storage's clock. All moments are microseconds
	// since the Unix epoch, 0 for none.
	Now int64
	// Come is the moment up to which moments count as past in this step: Now, or 0 while a clock
	// that jumped ahead is not trusted yet.
	Come int64
	// Jumped is when a wait began because the clock had jumped ahead, 0 if no wait is on.
	Jumped int64
	// Mark is the last version that was assigned, and Turn the last place in the order of a
	// line. Both only grow from step to step, and when a step that writes begins they are at least
	// Now: the turn of a task that joined the tail of a line is the time at which it joined.
	Mark, Turn int64
	// Busy is set if the step relies on a record that another transaction has locked.
	Busy bool
	// PassOver refuses a cancel of a pending task that another transaction has locked, which may settle it or
	// not. Otherwise such a cancel relies on the task.
	PassOver bool

	// Rests are the rests that throttled tasks have begun, if Local is nil.
	Rests []Rest

	plan     plan     // of the Tx under way
	overfull []*Queue // a queue for each task that died in it beyond the limit
}

// Begin begins a step that writes, at a moment. last is the moment of the last such step, 0 if it is not
// known. See storage.JumpAfter.
func (s *Step) Begin(now, last int64) {
	switch {
	case last != 0 && now > last+storage.JumpAfter.Microseconds():
		s.Jumped = now
	case !s.isWaiting(now):
		s.Jumped = 0
	}
	s.Now, s.Come = now, now
	if s.Jumped != 0 {
		s.Come = 0
	}
	s.Mark = max(s.Mark+1, now)
	s.Turn = max(s.Turn, now)
}

// isWaiting reports whether a wait after a jump of the clock is on at a moment.
func (s *Step) isWaiting(now int64) bool {
	return s.Jumped != 0 && now >= s.Jumped && now < s.Jumped+storage.JumpWait.Microseconds()
}

// come returns Come for a step that only reads: the last step that wrote may have set Come long ago.
func (s *Step) come() int64 {
	if s.isWaiting(s.Now) {
		return 0
	}
	return s.Now
}

// Configure changes the settings of a queue, or makes or removes it. It returns storage.ErrNotEmpty for a
// queue that is to be removed and holds a record.
func (s *Step) Configure(name string, named *storage.Settings) error {
	q := s.Local.Lookup(name)
	switch {
	case q == nil && !named.Makes():
		return nil // there is no queue to change
	case named.Remove && !s.Local.IsEmpty(q):
		return storage.ErrNotEmpty
	case named.Remove:
		s.Local.DeleteQueue(q)
		return nil
	}
	q = s.Store.Queue(name)
	if named.Partition != "" {
		s.configurePartition(q, named.Partition, named)
	} else {
		before := q.Limit.InForce().Partition
		q.Set(named, s.Now)
		if q.Limit.InForce().Partition != before {
			s.loosen(q)
		}
	}
	s.Local.Configured(q, !named.Create)
	return nil
}

// turn returns the next place in the order of a line.
func (s *Step) turn() int64 {
	s.Turn++
	return s.Turn
}

// grow sets the next version of r.
func (s *Step) grow(r *Record) {
	s.Mark = max(s.Mark, r.Version) + 1
	r.Version = s.Mark
}

// SetBack is how far a version has to be ahead of the clock to show that the clock was set back. A version
// that is closer may stand for the clock.
const SetBack = int64(time.Second / time.Microsecond)

// ClaimedAt returns when a task was claimed, by the version that the claim set and the clock. It is the
// moment of the version, which storages need not keep, unless the clock was set back.
func ClaimedAt(version, now int64) int64 {
	if version-now < SetBack {
		return version
	}
	return now
}

// after returns the moment that is d from now.
func (s *Step) after(d time.Duration) int64 { return s.Now + d.Microseconds() }

// due returns the moment at that an operation names, or the moment after its delay if at is zero.
func (s *Step) due(delay time.Duration, at time.Time) int64 {
	if at.IsZero() {
		return s.after(delay)
	}
	return at.UnixMicro()
}
