package storage

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that storages return, alone or wrapped.
var (
	// ErrUnknown: whether the call happened is not known. The reply was lost, the
	// context ended while the call was under way, or the call is older than the last call
	// that its lane remembers. ErrUnknown is never returned for a call that was refused
	// before any I/O.
	ErrUnknown = errors.New("storage: outcome unknown")
	// ErrLaneExpired is an ErrUnknown: the call's lane is past its LaneLife. This
	// call did nothing; whether an earlier try of it did is not known.
	ErrLaneExpired = fmt.Errorf("%w: lane expired", ErrUnknown)
	// ErrLeaseLost: a fence is no longer valid. Nothing was changed.
	ErrLeaseLost = errors.New("storage: lease lost")
	// ErrNotFound: there is no such task.
	ErrNotFound = errors.New("storage: task not found")
	// ErrDamaged: the record of the task cannot be read, and no repeat helps. Its id stays
	// taken, and Stats.Damaged counts it once the storage has set it apart.
	ErrDamaged = errors.New("storage: damaged record")
	// ErrFull: the storage has no room for the insert. Nothing was changed.
	ErrFull = errors.New("storage: full")
	// ErrSpan: the queues of the Tx cannot share one atomic step here. The Tx changed
	// nothing; the other Txs of the call happen. See Spanner.
	ErrSpan = errors.New("storage: queues cannot share a transaction")
	// ErrNotEmpty: the queue to be removed holds tasks or cursors.
	ErrNotEmpty = errors.New("storage: queue is not empty")
	// ErrClosed: the storage was closed.
	ErrClosed = errors.New("storage: closed")
	// ErrUnavailable: the storage cannot be reached, and no try of this call got past
	// dialling: nothing was sent, so nothing happened. It is not an ErrUnknown.
	ErrUnavailable = errors.New("storage: unavailable")
	// ErrTransactionOver: the application's transaction in which the call was to happen is over. It was
	// committed or rolled back, one of its statements failed before, or its connection is lost. The
	// call changed nothing in it. It is not an ErrUnknown.
	ErrTransactionOver = errors.New("storage: the transaction is over")
	// ErrRefused: the storage cannot be used with its present configuration or
	// permissions, such as a Redis that evicts keys, a replica, or wrong credentials.
	// Nothing was changed.
	ErrRefused = errors.New("storage: refused")
)

// InvalidError is the error for bad input, found before any I/O.
type InvalidError struct {
	What string // the bad input, such as "queue name"
	Got  string // its value, shortened
	Want string // what is wanted
}

// Error names the input, its value, and the valid values.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s %s: want %s", e.What, e.Got, e.Want)
}

// NotEmptyError names why [Session.RemoveQueue] did not remove a queue;
// errors.Is(err, ErrNotEmpty) holds.
type NotEmptyError struct {
	Queue   string
	Pending int64 // claimed tasks, which run or start next
	Others  int64 // tasks and schedules that came during the removal; the earlier ones are deleted
}

// Is makes errors.Is(err, ErrNotEmpty) hold.
func (e *NotEmptyError) Is(target error) bool { return target == ErrNotEmpty }

// Error names the contents of the queue and the remedy.
func (e *NotEmptyError) Error() string {
	switch {
	case e.Pending == 1:
		return fmt.Sprintf("1 task of %s is running: pause the queue and wait, or cancel the task", e.Queue)
	case e.Pending > 1:
		return fmt.Sprintf("%d tasks of %s are running: pause the queue and wait, or cancel them",
			e.Pending, e.Queue)
	}
	return fmt.Sprintf("%s got %d new tasks and schedules while it was removed: "+
		"stop what enqueues there, and remove it again", e.Queue, e.Others)
}

// noQueueError is an ErrNotFound about a queue.
type noQueueError struct{}

func (noQueueError) Is(target error) bool { return target == ErrNotFound }
func (noQueueError) Error() string        { return "there is no such queue" }

// DependencyError names why a Tx was refused. It lists all failed conditions, not only
// the first. errors.Is(err, ErrLeaseLost) holds if Lost is not empty, and errors.Is(err,
// ErrNotFound) if Missing is not.
type DependencyError struct {
	// Missing lists the tasks to be changed, deleted or depended upon that do not exist.
	Missing []Ref
	// Stale lists the tasks that exist in another version.
	Stale []Stale
	// Colliding lists the inserts, moves and requeues whose id or unique key is taken.
	Colliding []Collision
	// Lost lists the tasks of settles whose fence is not valid.
	Lost []Ref
	// Barred lists the changes and deletes that the task's state does not permit:
	// deletes of pending tasks, and changes that Change.Permitted rules out.
	Barred []Barred
}

// Stale is a task that has another version than the operation names.
type Stale struct {
	Ref  Ref
	Want int64
	Have int64
}

// Collision is an insert, a move or a requeue whose id, or unique key, is taken. A move can
// have two collisions: one by id, one by key.
type Collision struct {
	// Ref is the ref that the operation names: for a move, the ref before the move.
	Ref Ref
	// Holder is the task that has the id or the unique key in the queue where the task would be.
	Holder Ref
	// Unique means that the unique key is taken, not the id.
	Unique bool
}

// Barred is a change that the task's state does not permit.
type Barred struct {
	Ref   Ref
	State State
}

// Is makes errors.Is(err, ErrLeaseLost) and errors.Is(err, ErrNotFound) hold if Lost or
// Missing is not empty.
func (e *DependencyError) Is(target error) bool {
	return target == ErrLeaseLost && len(e.Lost) > 0 || target == ErrNotFound && len(e.Missing) > 0
}

// Error lists all failed conditions.
func (e *DependencyError) Error() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for _, r := range e.Lost {
		add("%s: lease lost", r)
	}
	for _, r := range e.Missing {
		add("%s: task not found", r)
	}
	for _, s := range e.Stale {
		add("%s: is at version %d, not %d", s.Ref, s.Have, s.Want)
	}
	for _, c := range e.Colliding {
		if c.Unique {
			add("%s: unique key is held by %s", c.Ref, c.Holder)
		} else {
			add("%s: another task has this id", c.Holder)
		}
	}
	for _, b := range e.Barred {
		add("%s: is %s", b.Ref, b.State)
	}
	return "storage: " + strings.Join(parts, "; ")
}
