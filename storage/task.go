package storage

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
)

// TickHeader names the header that holds the moment of the tick, or of the run by hand, that made a
// task.
const TickHeader = "midge.tick"

// DeadlineHeader names the header that holds the deadline of a task.
const DeadlineHeader = "midge.deadline"

// DueHeader names the header of a task that was enqueued for later, or whose moment was changed. It holds the
// moment at which the task was due, or the time from the creation of the task to that moment, or "unknown".
const DueHeader = "midge.due"

// QueueHeader names the header of a task that was moved. It holds the first queue of the task: see
// [FirstQueue].
const QueueHeader = "midge.queue"

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
// whole microseconds. A storage neither keeps nor changes the slices and maps passed to
// it, except that a call whose outcome is unknown may go on reading them for a while. The
// slices and maps that it returns belong to the caller.
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
	// Existing means that a task with the same id or unique key was there already, so that
	// an enqueue enqueued nothing. Only midge's client sets it. It fills Ref, Kind, State
	// and Version of the existing task, and no other fields.
	Existing bool
	Cost     Cost // how much of the rate of its queue a start uses up
	Priority int  // -9 to 9, higher first
	// Partition is the key of the task's partition, "" if it has none.
	Partition string

	MaxRetries int // failures that are retried; one more makes it dead
	Retries    int // failures, so that a task out of retries has one more than MaxRetries
	CrashLimit int // charged crashes that make it dead
	Crashes    int // how often its lease expired after it had been started

	Snoozes      int       // uncharged snoozes in a row
	SnoozedSince time.Time // when the first of them was, zero if none

	Timeout time.Duration // of one attempt: 0 that of its runner, or NoTimeout; the runner enforces it
	Keep    Keep
	Unique  Unique

	Created time.Time // when it was inserted
	Due     time.Time // scheduled and retry: when it is promoted; cursor: see Cursor
	Ended   time.Time // completed, cancelled, dead: when it ended
	Expires time.Time // completed, cancelled, dead: when its record may go

	// PassedOver is why Claims may pass over the task while it waits, one of the PassedOver
	// constants, or "".
	PassedOver string
	// Declined is when the task joined the line of its kind, zero if every Claim may take
	// it.
	Declined time.Time

	// While it is pending:
	Runner      string    // the runner that holds the lease; RunnerHost returns where it runs
	Claimed     time.Time // when it was claimed
	LeaseUntil  time.Time // when it expires
	Started     bool      // false while it is only claimed ahead
	CancelAsked bool      // a cancel waits for the attempt to end

	// Reason is in a word why the task is dead, as one of the Reason constants or the text
	// of Settle.Reason, or why it was snoozed. It lasts until the next settle, recovery or
	// requeue: see CurrentReason.
	Reason string
	// Attempts is the history, oldest first, at most MaxAttempts.
	Attempts []Attempt

	// Cursor is set only on cursors.
	Cursor *Cursor

	// Only [Storage.Task] fills these.
	Stack      string // of the last attempt that failed, after its full error if Attempts has that cut
	Result     []byte
	Progress   []byte
	Checkpoint []byte
}

// CurrentReason returns Reason if it still holds, else "". The reason of a snooze is past once the task is
// due: it does not hold of a task that waits, runs, or has ended. A waiting task stays undecodable until a
// runner has tried it again.
func (t Task) CurrentReason() string {
	if t.State == Dead || t.State == Scheduled || t.State == Waiting && Undecodable(t.Reason) {
		return t.Reason
	}
	return ""
}

// StartedAt returns when the running task was claimed, zero if the task does not run. A task that
// was claimed ahead started later than that.
func (t Task) StartedAt() time.Time {
	if t.State != Pending || !t.Started {
		return time.Time{}
	}
	return t.Claimed
}

// Success returns the attempt that completed the task. ok is false if the task has not completed,
// or was completed by a version of midge that did not keep the attempt.
func (t Task) Success() (a Attempt, ok bool) {
	if n := len(t.Attempts); t.State == Completed && n > 0 && t.Attempts[n-1].Outcome == AttemptSucceeded {
		return t.Attempts[n-1], true
	}
	return Attempt{}, false
}

// Deadline returns the moment after which no runner starts the task, zero for none.
func (t Task) Deadline() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, t.Headers[DeadlineHeader]) // zero where there is none
	return at
}

// LastError returns the error of the last attempt that has one, at most [MaxAttemptError] bytes, "" if
// no attempt has one.
func (t Task) LastError() string {
	for _, a := range slices.Backward(t.Attempts) {
		if a.Error != "" {
			return a.Error
		}
	}
	return ""
}

// Tick returns the moment of the tick that made the task, or of the run of its schedule by hand;
// zero if no schedule made it.
func (t Task) Tick() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, t.Headers[TickHeader]) // zero where there is none
	return at
}

// Format prints the task's Ref, and for %+v all fields that are set. Of the payload, result,
// progress and checkpoint it prints only the length: they may be secret, and long.
func (t Task) Format(f fmt.State, verb rune) {
	if verb != 'v' || !f.Flag('+') {
		_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), t.Ref.String())
		return
	}
	_, _ = fmt.Fprintf(f, "{%s", t.Ref)
	for v, i := reflect.ValueOf(t), 1; i < v.NumField(); i++ { // all fields but the Ref
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
	// From then on a Claim takes it only among the tasks that are started at once, and
	// never ahead.
	PassedOverStartOnly = "start-only"
	// PassedOverSuspect: the next crash makes the task dead. A Claim takes it only if
	// ClaimRequest.Suspect is set, among the tasks that are started at once.
	PassedOverSuspect = "suspect"
	// PassedOverKind: a runner declined the task, so that a Claim takes it only if
	// ClaimRequest.Kinds names its kind or is empty. Such a task may be start-only or a
	// suspect too.
	PassedOverKind = "kind"
)

// Attempt is one run of a task, or a requeue between two runs. The history has no runs that were snoozed,
// released or declined.
type Attempt struct {
	At      time.Time // when it ended
	Version int64     // the claim's version; 0 of a requeue
	Claimed time.Time `json:",omitzero"` // when the claim was made; zero of a requeue
	Runner  string    // "" of a requeue; RunnerHost returns where it ran
	// Outcome is how it ended, one of the Attempt constants.
	Outcome string
	// Error is the text, at most MaxAttemptError bytes.
	Error string
}

// Took returns how long the attempt took from its claim to its end, 0 for a requeue.
func (a Attempt) Took() time.Duration {
	if a.Claimed.IsZero() {
		return 0
	}
	return max(0, a.At.Sub(a.Claimed))
}

// How a Settle ended an attempt of the history: Settle.As, or a default that depends on the outcome.
const (
	AttemptFailed      = "failed"
	AttemptTimedOut    = "timed-out"
	AttemptPanicked    = "panicked"
	AttemptDiscarded   = "discarded"
	AttemptExpired     = "expired" // the deadline of the task was over
	AttemptUndecodable = "undecodable"
	AttemptCancelled   = "cancelled"
)

// Entries of the history that no Settle names.
const (
	AttemptSucceeded = "succeeded"  // the task completed, and is kept
	AttemptCrashed   = "crashed"    // the lease of a started task expired
	AttemptLeaseLost = "lease-lost" // the lease of a task that was claimed ahead expired
	AttemptRequeued  = "requeued"   // the task was brought back after its end
)

// Why a task is dead, if the storage decided so.
const (
	ReasonRetries = "out of retries"
	ReasonCrashes = "crash loop"
	ReasonKind    = "unknown kind"
)

// ReasonUndecodable begins the reason of a task whose parameters a runner could not decode.
const ReasonUndecodable = "undecodable payload"

// Undecodable reports whether the reason of a task means that a runner could not decode its parameters when
// it last tried.
func Undecodable(reason string) bool { return strings.HasPrefix(reason, ReasonUndecodable) }

// ReasonSleeps begins the reason of a task whose job sleeps between two steps. The moment at which the
// sleep ends follows.
const ReasonSleeps = "sleeps until"

// Sleeps reports whether a reason is that of a task whose job sleeps. A requeue does not end a sleep.
func Sleeps(reason string) bool { return strings.HasPrefix(reason, ReasonSleeps) }

// Keep is how long a task is kept after it completed or was cancelled. With the zero
// Keep the task is gone at once, unless it completed with a result: then it is kept for
// DefaultResultKeep.
type Keep struct {
	// For is how long the task is kept, whether it completed or was cancelled: 0, or at
	// least MinSpan.
	For time.Duration
	// UntilRead makes the reader of a completed task's result delete the task. An unread
	// task is kept for For, or for DefaultUnreadKeep if For is 0.
	UntilRead bool
}

// How long results are kept if Keep sets no time.
const (
	DefaultResultKeep = time.Hour
	DefaultUnreadKeep = 7 * 24 * time.Hour
)

// Of returns how long to keep a task that ends in state; result is whether it has a result.
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

// UniqueMode decides how long a unique key is held.
type UniqueMode string

// The modes of a unique key. The zero mode holds no key.
const (
	UniqueLife   UniqueMode = "life"
	UniqueWindow UniqueMode = "window"
)

// Unique keeps an insert out while another task of the queue holds the same key:
// Insert.OnConflict decides how. [UniqueKey] makes keys.
type Unique struct {
	Key  string // as a hash of parameters it confirms guesses of them, so it is shown to nobody
	Mode UniqueMode
	For  time.Duration // of UniqueWindow, at least a millisecond
}
