package storage

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"
)

// TickHeader is the header of a task that a tick made: the moment of the tick.
const TickHeader = "midge.tick"

// DeadlineHeader is the header of a task with a deadline: that moment.
const DeadlineHeader = "midge.deadline"

// DueHeader is the header of a task that was enqueued for later: that moment, or how long after the
// creation of the task it was.
const DueHeader = "midge.due"

// Ref is a task's identity.
type Ref struct {
	Queue string
	ID    string
}

// String prints the ref as "queue/id". Names that no ref may have are made printable, so
// that an error may quote a ref before it is checked.
func (r Ref) String() string {
	if CheckRef(r) != nil {
		return PrintableText(r.Queue, MaxName) + "/" + PrintableText(r.ID, MaxName)
	}
	return r.Queue + "/" + r.ID
}

// Task is one enqueued job, or a cursor. Durations and times are rounded down to
// whole microseconds. A storage neither keeps nor changes the slices and maps
// given to it, but that a call whose outcome is unknown may go on reading them for a
// while; those it returns belong to the caller.
type Task struct {
	Ref

	// Kind is the job's stable name.
	Kind string
	// Encoding names the codec of Payload, such as "msgpack".
	Encoding string
	Payload  []byte
	Headers  map[string]string

	State   State
	Version int64
	// Existing says that the task was there already, by its id or unique key, so that an
	// enqueue enqueued nothing. midge's client alone sets it. Of an existing task it fills Ref,
	// Kind, State and Version.
	Existing bool
	Priority int // -9 to 9, higher first

	MaxRetries int // failures that are retried; one more is dead
	Retries    int // failures, so that a task out of retries has one more than MaxRetries
	CrashLimit int // charged crashes that make it dead
	Crashes    int // how often its lease expired after it had been started

	Snoozes      int       // uncharged snoozes in a row
	SnoozedSince time.Time // when the first of them was, zero if none

	Timeout time.Duration // of one attempt, 0 none, at least MinSpan; the runner's to enforce
	Keep    Keep
	Unique  Unique

	Created time.Time // when it was inserted
	Due     time.Time // scheduled and retry: when it is promoted; cursor: see Cursor
	Ended   time.Time // completed, cancelled, dead: since when
	Expires time.Time // completed, cancelled, dead: when its record may go

	// PassedOver says why Claims may pass over the task while it waits, one of the
	// PassedOver constants, or "".
	PassedOver string
	// Declined is since when the task waits in the line of its kind, zero where every
	// Claim may take it.
	Declined time.Time

	// While it is pending:
	Runner      string    // who holds the lease; RunnerHost tells where it runs
	LeaseUntil  time.Time // when it expires
	Started     bool      // false while it is only claimed ahead
	CancelAsked bool      // a cancel waits for the attempt to end

	// Reason says in a word why it is dead, one of the Reason constants or what
	// Settle.Reason said, or why it was snoozed, until its next settle, recovery or
	// requeue.
	Reason string
	// Attempts is the history, oldest first, at most MaxAttempts.
	Attempts []Attempt

	// Cursor is set on cursors alone.
	Cursor *Cursor

	// Only [Storage.Task] fills these.
	Stack      string // of the last attempt, behind its full error where Attempts cut that
	Result     []byte
	Progress   []byte
	Checkpoint []byte
}

// StartedAt is since when the task runs, zero where it does not. A task that was claimed ahead
// began so much later than its claim, which this tells.
func (t Task) StartedAt() time.Time {
	if t.State != Pending || !t.Started {
		return time.Time{}
	}
	return time.UnixMicro(t.Version).UTC()
}

// Deadline is the moment behind which no runner starts the task, zero for none.
func (t Task) Deadline() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, t.Headers[DeadlineHeader]) // zero where there is none
	return at
}

// LastError is the text of the last attempt that has one, of at most [MaxAttemptError] bytes, "" where none
// has.
func (t Task) LastError() string {
	for _, a := range slices.Backward(t.Attempts) {
		if a.Error != "" {
			return a.Error
		}
	}
	return ""
}

// Tick is the moment of its schedule that the task stands for, zero where no tick made it.
func (t Task) Tick() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, t.Headers[TickHeader]) // zero where there is none
	return at
}

// Format prints the task's Ref, and for %+v all fields that are set. Of the parameters and of
// what else a job wrote it prints the length alone: those may be secret, and long.
func (t Task) Format(f fmt.State, verb rune) {
	if verb != 'v' || !f.Flag('+') {
		_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), t.Ref.String())
		return
	}
	_, _ = fmt.Fprintf(f, "{%s", t.Ref)
	for v, i := reflect.ValueOf(t), 1; i < v.NumField(); i++ { // behind the Ref
		field := reflect.Indirect(v.Field(i))
		switch name := v.Type().Field(i).Name; {
		case v.Field(i).IsZero():
		case field.Type() == reflect.TypeFor[[]byte]():
			_, _ = fmt.Fprintf(f, " %s:(%d bytes)", name, field.Len())
		default:
			value := field.Interface()
			if at, ok := value.(time.Time); ok {
				value = at.UTC().Format(time.RFC3339Nano)
			}
			_, _ = fmt.Fprintf(f, " %s:%+v", name, value)
		}
	}
	_, _ = io.WriteString(f, "}")
}

// Why a Claim may pass over a waiting task.
const (
	// PassedOverStartOnly: the lease of the task expired while it was only claimed ahead.
	// No Claim takes it ahead any more, but only among the tasks that are started at once.
	PassedOverStartOnly = "start-only"
	// PassedOverSuspect: the next crash makes the task dead. A Claim takes it only where
	// ClaimRequest.Suspect is set, among the tasks that are started at once.
	PassedOverSuspect = "suspect"
	// PassedOverKind: a runner declined the task, so that a Claim takes it only where
	// ClaimRequest.Kinds names its kind or is empty. Such a task may be start-only or a
	// suspect too.
	PassedOverKind = "kind"
)

// Attempt is one run that did not complete, or a requeue between two of them.
type Attempt struct {
	At      time.Time // when it ended
	Version int64     // the claim's version; 0 of a requeue
	Runner  string    // none of a requeue; RunnerHost tells where it ran
	// Outcome is how it ended, one of the Attempt constants.
	Outcome string
	// Error is the text, at most MaxAttemptError bytes.
	Error string
}

// Took is how long the attempt took from its claim to its end, 0 of a requeue.
func (a Attempt) Took() time.Duration {
	if a.Version == 0 {
		return 0
	}
	return max(0, a.At.Sub(time.UnixMicro(a.Version)))
}

// How an attempt ended that the history tells of. A Settle names it, else its outcome does.
const (
	AttemptFailed      = "failed"
	AttemptTimedOut    = "timed-out"
	AttemptPanicked    = "panicked"
	AttemptDiscarded   = "discarded"
	AttemptExpired     = "expired" // the deadline of the task was over
	AttemptUndecodable = "undecodable"
	AttemptCancelled   = "cancelled"
)

// What the history tells of that no Settle ended.
const (
	AttemptCrashed   = "crashed"    // the lease of a started task expired
	AttemptLeaseLost = "lease-lost" // the lease of a task that was claimed ahead did
	AttemptRequeued  = "requeued"   // the task was brought back after its end
)

// Why a task is dead, where the storage decided it.
const (
	ReasonRetries = "out of retries"
	ReasonCrashes = "crash loop"
	ReasonKind    = "unknown kind"
)

// Keep says for how long a task is kept after it completed or was cancelled. With the zero
// Keep the task is gone at once, unless it completed with a result: then it is kept for
// DefaultResultKeep.
type Keep struct {
	// For is how long the task is kept, whether it completed or was cancelled: 0, or at
	// least MinSpan.
	For time.Duration
	// UntilRead has whoever reads the result of a completed task delete the task. Unread it
	// is kept for For, or where that is 0 for DefaultUnreadKeep.
	UntilRead bool
}

// How long results are kept when Keep does not say.
const (
	DefaultResultKeep = time.Hour
	DefaultUnreadKeep = 7 * 24 * time.Hour
)

// Of gives how long to keep a task that ends in state, having a result or not.
func (k Keep) Of(state State, result bool) time.Duration {
	switch {
	case k.For > 0:
		return k.For
	case k.UntilRead && state == Completed:
		return DefaultUnreadKeep
	case result && state == Completed:
		return DefaultResultKeep
	}
	return 0
}

// UniqueMode says how long a unique key is held.
type UniqueMode string

// The modes. The zero mode holds no key.
const (
	UniqueLife   UniqueMode = "life"
	UniqueWindow UniqueMode = "window"
)

// Unique makes an insert refuse or skip while another task of the queue holds
// the same key. [UniqueKey] makes keys.
type Unique struct {
	Key  string
	Mode UniqueMode
	For  time.Duration // of UniqueWindow, at least a millisecond
}
