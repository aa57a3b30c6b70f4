package storage

import (
	"maps"
	"strings"
	"time"
)

// Change alters a task that is not pending, or asks for the cancel of a pending task. It makes
// one or more of these operations; fields that none of them names stay as they are. CheckTxs
// refuses combinations that are not in the table:
//
//	operation    fields                      goes with
//	edit:        Encoding, Payload, Headers, prioritise, reschedule, requeue, move, tick
//	             Cost
//	prioritise:  Priority, Partition         edit, reschedule, requeue, move, tick
//	reschedule:  Now, Delay or At            edit, prioritise, requeue
//	requeue:     Requeue                     edit, prioritise, reschedule
//	forget:      FromStart                   only with requeue, or with Now
//	move:        Queue                       edit, prioritise
//	cancel:      Cancel                      nothing
//	tick:        Cursor                      edit, prioritise
//
// Cursors take edit, prioritise and tick, other tasks all but tick.
type Change struct {
	Ref Ref
	// Version is the version of the task as it was read. A cancel may leave it 0, for any version.
	Version int64

	// Encoding and Payload are replaced together if Encoding is set.
	Encoding string
	Payload  []byte
	// Headers replaces all headers if it is not nil.
	Headers map[string]string

	// Cost is the new cost of a start. The task keeps its place.
	Cost *Cost

	// Priority is the new priority. A waiting task joins the tail of it.
	Priority *int

	// Partition is the key of the new partition, "" for none. A waiting task joins the tail of it.
	Partition *string

	// Now, Delay and At set a new moment of a task; a change has at most one of them.
	// Now, or a moment that has come, leads to the tail of waiting. A later moment keeps
	// a task in retry there, and leads any other task to scheduled. Now leaves a waiting
	// task in its place, unless the task was declined.
	Now   bool
	Delay time.Duration // from now
	At    time.Time     // the moment itself

	// Requeue brings back a task that has ended, due now unless Delay or At is set. Retries,
	// Crashes, Snoozes, SnoozedSince, Reason and Result are cleared. Attempts and Stack
	// stay, and an Attempt with outcome AttemptRequeued joins the history. Progress and
	// Checkpoint stay too, unless the task had completed: see Forgets. The task takes its
	// UniqueLife key again.
	Requeue bool

	// FromStart clears Progress and Checkpoint, so that the job of the task begins at its
	// start. It goes only with Requeue or Now.
	FromStart bool

	// Queue moves the task to that queue, in its present state: the old ref is gone, and a
	// waiting task joins the tail. Its id may collide in the target, and so may a
	// UniqueLife key, which moves along.
	Queue string

	// Cancel ends the task at once, or asks the runner of a pending task to stop it. If an open transaction
	// keeps the pending task locked, a storage may refuse the cancel with a DependencyError in whose Barred
	// the task is pending: it acknowledges no cancel that a rollback would lose.
	Cancel bool

	// Cursor replaces the moments and the declaration of a cursor.
	Cursor *Cursor
}

// Target returns the state to which the change leads a task in state from. That is from itself if the
// change neither names a moment nor ends the task or brings it back. Target takes each moment but Now
// for a later one: a moment that has come leads to Waiting instead.
func (ch *Change) Target(from State) State {
	switch {
	case ch.Cancel:
		return Cancelled
	case ch.timed() && from == Retry:
		return Retry
	case ch.timed():
		return Scheduled
	case ch.Now, ch.Requeue:
		return Waiting
	}
	return from
}

// FirstQueue returns the queue of a task before its first move, from its ref and its headers.
func FirstQueue(ref Ref, headers map[string]string) string {
	if first := headers[QueueHeader]; first != "" && CheckName("queue", first) == nil { // else it is damaged
		return first
	}
	return ref.Queue
}

// CompleteHeaders adds to the change of t, as it was read, its effect on the headers that midge itself
// keeps: a move stores the first queue of the task, and a new moment replaces the stored moment. A delay
// counts from now by the storage's clock alone, so that the moment is not known then. Call it once the
// change is complete. A Requeue must not call it: the task was due when it was due first.
func (ch *Change) CompleteHeaders(t *Task) {
	_, due := t.Headers[DueHeader]
	due = due && ch.Now || ch.timed()
	first := FirstQueue(t.Ref, t.Headers)
	moved := ch.Queue != "" && ch.Queue != t.Queue && t.Headers[QueueHeader] != first
	if !due && !moved {
		return
	}
	from := ch.Headers
	if from == nil {
		from = t.Headers
	}
	ch.Headers = make(map[string]string, len(from)+1)
	maps.Copy(ch.Headers, from)
	if moved {
		ch.Headers[QueueHeader] = first
	}
	if due {
		ch.Headers[DueHeader] = "unknown"
		if !ch.At.IsZero() {
			ch.Headers[DueHeader] = ch.At.UTC().Format(time.RFC3339Nano)
		}
	}
}

// CompleteHeaders returns the insert with [DueHeader] if it is of a task for later. Call it once the insert
// is complete.
func (in Insert) CompleteHeaders() Insert {
	var due string
	switch {
	case !in.At.IsZero():
		due = in.At.UTC().Format(time.RFC3339Nano)
	case in.Delay > 0:
		due = in.Delay.String()
	default:
		return in
	}
	all := make(map[string]string, len(in.Headers)+1)
	maps.Copy(all, in.Headers)
	all[DueHeader] = due
	in.Headers = all
	return in
}

// Permitted reports whether a task in state from takes the change. Only an ended task takes a
// requeue. A pending task takes only a cancel. A cancelled task may be cancelled again, which does
// nothing. A dead task may be edited and moved, and stays dead.
func (ch *Change) Permitted(from State) bool {
	waits := from.Live() && from != Pending
	switch {
	case ch.Requeue:
		return from.Ended()
	case ch.Cancel:
		return waits || from == Pending || from == Cancelled
	case ch.Now, ch.timed():
		return waits
	}
	return waits || from == Dead || from == Cursors
}

// Forgets reports whether the change clears Progress and Checkpoint of a task in state from. A job that
// completed has used up its checkpoint, so that its requeue runs all of the job again.
func (ch *Change) Forgets(from State) bool {
	return ch.FromStart || ch.Requeue && from == Completed
}

// timed reports whether the change names a moment other than now.
func (ch *Change) timed() bool { return ch.Delay != 0 || !ch.At.IsZero() }

// moves reports whether the change leads to another queue.
func (ch *Change) moves() bool { return ch.Queue != "" && ch.Queue != ch.Ref.Queue }

// The operations of a change.
const (
	opEdit = 1 << iota
	opPrioritise
	opReschedule
	opRequeue
	opMove
	opCancel
	opTick
)

// combinations lists the operations of a change that do not go with all others, each with the
// operations with which it goes.
var combinations = []struct {
	operation, with int
	want            string
}{
	{opReschedule, opEdit | opPrioritise | opRequeue, "a moment only with new content, a priority or a requeue"},
	{opRequeue, opEdit | opPrioritise | opReschedule, "a requeue only with new content, a priority or a moment"},
	{opMove, opEdit | opPrioritise, "a move only with new content or a priority"},
	{opCancel, 0, "a cancel alone"},
	{opTick, opEdit | opPrioritise, "a cursor only with new content or a priority"},
}

// operations returns the operations that the change makes, as a set of the op constants.
func (ch *Change) operations() (made int) {
	add := func(operation int, makes bool) {
		if makes {
			made |= operation
		}
	}
	add(opEdit, ch.Encoding != "" || ch.Payload != nil || ch.Headers != nil || ch.Cost != nil)
	add(opPrioritise, ch.Priority != nil || ch.Partition != nil)
	add(opReschedule, ch.Now || ch.timed())
	add(opRequeue, ch.Requeue)
	add(opMove, ch.Queue != "")
	add(opCancel, ch.Cancel)
	add(opTick, ch.Cursor != nil)
	return made
}

func checkChange(limits Limits, ch *Change, once func(Ref) error) error {
	if err := once(ch.Ref); err != nil {
		return err
	}
	if ch.moves() {
		if err := once(Ref{Queue: ch.Queue, ID: ch.Ref.ID}); err != nil {
			return err
		}
	}
	if ch.Version < 1 && (ch.Version != 0 || !ch.Cancel) {
		return Invalid("Change.Version", ch.Version, "the version that was read (0 only to cancel)")
	}
	if ch.Priority != nil {
		if err := checkPriority(*ch.Priority); err != nil {
			return err
		}
	}
	if ch.Cost != nil {
		if err := checkCost("Change.Cost", *ch.Cost); err != nil {
			return err
		}
	}
	if ch.Partition != nil && *ch.Partition != "" {
		if err := CheckPartition(*ch.Partition); err != nil {
			return err
		}
	}
	if ch.Cursor != nil {
		if err := checkCursor(ch.Cursor); err != nil {
			return err
		}
	}
	return firstError(
		checkOperations(ch),
		checkRecode(ch),
		checkBytes("payload", ch.Payload, limits.MaxPayload),
		checkHeaders(ch.Headers),
		checkDuration("Change.Delay", ch.Delay),
		checkTime("Change.At", ch.At),
	)
}

// checkOperations checks that the operations of a change go together.
func checkOperations(ch *Change) error {
	made := ch.operations()
	invalid := func(want string) error {
		return Invalid("change", "of "+ch.Ref.String()+", of operations that do not go together", "%s", want)
	}
	for _, c := range combinations {
		if made&c.operation != 0 && made&^(c.operation|c.with) != 0 {
			return invalid(c.want)
		}
	}
	isCursor := strings.HasPrefix(ch.Ref.ID, CursorPrefix)
	switch {
	case isCursor && made&^(opEdit|opPrioritise|opTick) != 0:
		return invalid("new content, a priority or a cursor, of what is a cursor")
	case !isCursor && made&opTick != 0:
		return invalid("a cursor of what is a cursor alone")
	case ch.FromStart && !ch.Requeue && !ch.Now:
		return invalid("FromStart only with a requeue or with Now")
	case ch.Now && ch.timed(), ch.Delay != 0 && !ch.At.IsZero():
		return invalid("one of Now, Delay and At")
	}
	return nil
}

// checkRecode checks that a new payload comes with its encoding.
func checkRecode(ch *Change) error {
	if ch.Encoding != "" {
		return CheckName("encoding", ch.Encoding)
	}
	if ch.Payload != nil {
		return Invalid("Change.Encoding", "", "the encoding of the new payload")
	}
	return nil
}
