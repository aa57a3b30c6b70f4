package storage

import (
	"fmt"
	"time"
)

// Lane is one caller's numbered sequence of calls: at most one is under way at a
// time. See the package documentation; [Session] makes lanes.
type Lane struct {
	ID [16]byte
	// Opened is the storage's time when the lane was opened.
	Opened time.Time
}

// LaneLife is how long a storage accepts calls on a lane after the lane was opened.
const LaneLife = 10 * time.Minute

// Call identifies one mutating call. The zero Call has no identity.
type Call struct {
	Lane Lane
	Seq  uint64 // from 1, growing within the lane
}

// MaxSeq is the largest number of a Call.
const MaxSeq = 1 << 53

// IsZero reports whether c has no identity.
func (c Call) IsZero() bool { return c.Seq == 0 }

// Token is the 128-bit nonce of a Claim call. It is a secret: no read returns it
// and it prints as "***".
type Token [16]byte

// String hides the token.
func (Token) String() string { return "***" }

// Format hides the token from every verb but %p, which does not print the value.
func (Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("***")) }

// MarshalText hides the token.
func (Token) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Fence proves the lease of one claimed task. It is compared for equality.
type Fence struct {
	Ref
	Version int64
	Token   Token
}

// Tx is one atomic step: everything in it happens, or nothing does. All of its
// inserts, changes, deletes, depends and settles are checked against the state
// before the step. Only one of them may name a task, except that a Tx may delete a
// cursor and insert it anew under its id, which replaces the cursor of that version whole.
type Tx struct {
	Inserts []Insert
	Changes []Change
	Deletes []Delete
	Depends []Depend
	Settles []Settle
}

// Insert adds a task, or a cursor.
type Insert struct {
	Ref        Ref
	Kind       string
	Encoding   string
	Payload    []byte
	Headers    map[string]string
	Priority   int
	Delay      time.Duration // from the storage's now; with At zero
	At         time.Time     // the moment itself; a past moment is due now
	MaxRetries int           // 0 none
	CrashLimit int           // at least 1
	Timeout    time.Duration // of an attempt; 0 that of its runner, or NoTimeout
	Keep       Keep
	Unique     Unique
	OnConflict Conflict
	Cost       Cost // how much of the rate of its queue a start uses up
	// Partition is the key of the task's partition within its queue, "" for none: see CheckPartition.
	Partition string
	// Cursor makes the insert that of a schedule. Its id begins with CursorPrefix; it has
	// neither Delay, At nor Unique.
	Cursor *Cursor
}

// Conflict decides what happens to an insert whose unique key is taken.
type Conflict string

// The values of a Conflict. The zero Conflict is Refuse.
const (
	Refuse Conflict = "refuse" // the whole Tx fails
	Skip   Conflict = "skip"   // this insert is left out
)

// Delete removes a task that is not pending, or a cursor, at its version.
type Delete struct {
	Ref     Ref
	Version int64
}

// Depend requires that a task is there at a version, whatever its state.
type Depend struct {
	Ref     Ref
	Version int64
}

// Settle ends a claim.
type Settle struct {
	Fence   Fence
	Outcome Outcome
	// Delay is of Fail and Snooze. With Release it is how long the partition of the task rests: no task of it is
	// claimed. If the task has none, all tasks of the queue without a partition rest.
	Delay  time.Duration
	Reason string // of Bury and Snooze: a word or two, for Task.Reason
	// As is how the attempt ended, for Attempt.Outcome: with Fail, Bury and Cancel it is one of
	// the constants from AttemptFailed to AttemptCancelled. "" means AttemptFailed with Fail,
	// AttemptDiscarded with Bury, and AttemptCancelled with Cancel.
	As     string
	Error  string // of Fail, Bury, Cancel
	Stack  string // of Fail, Bury, Cancel
	Result []byte // of Complete
}

// Applied is the result of one Tx.
type Applied struct {
	// Inserted, Changed and Settled have one element per Insert, Change and
	// Settle, in order; they are nil if Err is set.
	Inserted []Placed
	Changed  []Placed
	Settled  []Placed
	// Err is nil, or the reason why the Tx was refused and changed nothing: a
	// *DependencyError, an ErrSpan, or the storage's error if a queue that the Tx names is
	// damaged.
	Err error
}

// Placed is a task as a step left it: its ref, version and state.
type Placed struct {
	Ref     Ref
	Version int64
	// State is the state of the task after the step. A settled or cancelled task that is
	// not kept has the state in which it ended. A pending task whose cancel was asked is
	// Pending.
	State State
	// Existing is set on an insert that found the same task there, or was skipped because
	// another task holds its unique key. Ref, Version and State are then of the task that
	// is there after the step, Version and State zero if its record is gone.
	Existing bool
	// Created is set on an insert that made a task while the mark was a second or more ahead of
	// the clock, so that Version is not the moment of Task.Created. It is zero otherwise.
	Created time.Time `json:",omitzero"`
}

// CreatedAt returns the Task.Created of a task that an insert made: Created, or else the moment of Version.
func (p Placed) CreatedAt() time.Time {
	if p.Created.IsZero() {
		return time.UnixMicro(p.Version).UTC()
	}
	return p.Created
}
