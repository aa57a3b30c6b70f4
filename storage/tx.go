package storage

import (
	"fmt"
	"time"
)

// Lane is one caller's numbered sequence of calls: at most one is under way at a
// time. See the package documentation; [Session] makes them.
type Lane struct {
	ID [16]byte
	// Opened is the storage's time when the lane was opened.
	Opened time.Time
}

// LaneLife is how long after its opening a lane is accepted.
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

// Format hides the token from every verb but %p, which asks no value.
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
// before the step; a task may be named by one of them only, except that a cursor may
// be deleted and inserted anew under its id, which replaces it whole at its version.
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
	At         time.Time     // the moment itself; a past one is due now
	MaxRetries int           // 0 none
	CrashLimit int           // at least 1
	Timeout    time.Duration
	Keep       Keep
	Unique     Unique
	OnConflict Conflict
	// Cursor makes this a schedule. Its id begins with CursorPrefix; it has
	// neither Delay, At nor Unique.
	Cursor *Cursor
}

// Conflict says what becomes of an insert whose unique key is taken.
type Conflict string

// The choices. The zero Conflict is Refuse.
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
	Delay   time.Duration // of Fail and Snooze
	Reason  string        // of Bury and Snooze: a word or two, for Task.Reason
	// As says how the attempt ended, for Attempt.Outcome: of Fail, Bury and Cancel one of the
	// constants from AttemptFailed to AttemptCancelled, "" for AttemptFailed, AttemptDiscarded
	// and AttemptCancelled in this order.
	As     string
	Error  string // of Fail, Bury, Cancel
	Stack  string // likewise
	Result []byte // of Complete
}

// Applied is what one Tx did.
type Applied struct {
	// Inserted, Changed and Settled have one element per Insert, Change and
	// Settle, in order; nil where Err is set.
	Inserted []Placed
	Changed  []Placed
	Settled  []Placed
	// Err is nil, a *DependencyError, or an ErrSpan: the Tx was refused and changed
	// nothing.
	Err error
}

// Placed says where a step left a task.
type Placed struct {
	Ref     Ref
	Version int64
	// State it is in now. A settled or cancelled task that is not kept has the
	// state in which it ended. A pending task whose cancel was asked is Pending.
	State State
	// Existing is set on an insert that found the same task there, or was skipped
	// for the holder of its unique key: Ref, Version and State are that one's, the
	// last two zero where it is gone.
	Existing bool
}
