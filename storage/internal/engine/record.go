package engine

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// Record is a task or cursor.
//
// It is not a storage.Task because there may be millions of records: the garbage collector scans a
// record of this size several times faster, and most tasks never need a Side.
type Record struct {
	storage.Ref

	Queue *Queue

	Spec
	Past
	Place // in the line of its state

	State    State
	Flags    Flags
	Priority int16
	// Locked means that another transaction has locked the record: a step that writes or
	// relies on it has to wait for that transaction.
	Locked bool
	// Touched names the parts that steps have written since the record was loaded.
	Touched Parts

	Version int64
	At      int64         // when it ended or, while it is pending, when it was claimed
	Token   storage.Token // while it is pending
	Runner  string        // while it is pending

	Side *Side // nil for most records
}

// Spec is the content of an insert, which seldom changes later.
type Spec struct {
	Kind, Encoding string
	Partition      string
	Payload        []byte
	Headers        map[string]string

	MaxRetries, CrashLimit int

	Cost    storage.Cost
	Timeout time.Duration
	Keep    storage.Keep
	Unique  storage.Unique
	Cursor  *storage.Cursor
}

// Past holds the counters of a task since its creation.
type Past struct {
	Created          int64
	Retries, Crashes int
	Snoozes          int
	SnoozedSince     int64
	Reason           string // why the task was snoozed, or is dead; of a kept completed task see success
}

// Place is a place in a line. Lines are ordered by Sort, and by Turn if two Sorts are equal. Sort is
// the moment at which a task is due, its lease or its record expires, or a cursor is handed out. For
// waiting tasks Sort is made of priority and turn; see Band. The Turn of a declined task is the moment
// at which it was declined.
type Place struct{ Sort, Turn int64 }

// Before reports whether p comes before o.
func (p Place) Before(o Place) bool { return p.Sort < o.Sort || p.Sort == o.Sort && p.Turn < o.Turn }

// Side holds the parts that few tasks have.
type Side struct {
	Attempts                     []storage.Attempt
	Stack                        string
	Result, Progress, Checkpoint []byte
}

// SpecOf returns the content of an insert. It shares the insert's memory.
func SpecOf(in *storage.Insert) Spec {
	sp := Spec{
		Kind: in.Kind, Encoding: in.Encoding, Partition: in.Partition, Payload: in.Payload, Headers: in.Headers,
		MaxRetries: in.MaxRetries, CrashLimit: in.CrashLimit, Timeout: in.Timeout.Truncate(time.Microsecond),
		Keep: in.Keep, Unique: in.Unique, Cursor: in.Cursor, Cost: in.Cost,
	}
	sp.Keep.For = in.Keep.For.Truncate(time.Microsecond)
	sp.Unique.For = in.Unique.For.Truncate(time.Microsecond)
	return sp
}

// isInsertOf reports whether in inserts the same task again.
func (sp *Spec) isInsertOf(in *storage.Insert) bool {
	if sp.Kind != in.Kind || sp.Encoding != in.Encoding || !bytes.Equal(sp.Payload, in.Payload) {
		return false
	}
	return in.Cursor == nil || sp.Cursor != nil && sp.Cursor.Declaration == in.Cursor.Declaration
}

// Proves reports whether a fence proves the lease on r.
func (r *Record) Proves(f *storage.Fence) bool {
	return r.State.IsPending() && r.Version == f.Version && r.Token == f.Token
}

// IsForAnyClaim reports whether r waits, and each claim may take it.
func (r *Record) IsForAnyClaim() bool {
	return r.State == Waiting || r.State == Keyed && r.Flags&(StartOnly|IsSuspect) == 0
}

// CopyTo fills t with the task as a listing shows it. t shares payload, headers, cursor and attempts
// with r.
func (r *Record) CopyTo(t *storage.Task) {
	*t = storage.Task{
		Ref: r.Ref, Kind: r.Kind, Encoding: r.Encoding, Payload: r.Payload, Headers: r.Headers,
		State: r.State.Public(), Version: r.Version, Priority: int(r.Priority), Partition: r.Partition,
		Cost:       r.Cost,
		MaxRetries: r.MaxRetries, Retries: r.Retries, CrashLimit: r.CrashLimit, Crashes: r.Crashes,
		Snoozes: r.Snoozes, SnoozedSince: Time(r.SnoozedSince), Timeout: r.Timeout, Keep: r.Keep,
		Unique: r.Unique, Created: Time(r.Created), Reason: r.Reason, Cursor: r.Cursor,
	}
	if r.Side != nil {
		t.Attempts = r.Side.Attempts
	}
	if r.State == Completed {
		t.Reason = ""
		if a, ok := r.success(); ok {
			t.Attempts = withAttempt(slices.Clone(t.Attempts), a)
		}
	}
	switch {
	case r.State == Declined:
		t.PassedOver, t.Declined = storage.PassedOverKind, Time(r.Turn)
	case t.State == storage.Waiting:
		t.PassedOver = storage.PassedOver(r.Crashes, r.CrashLimit, r.Flags&StartOnly != 0)
	case r.State == Scheduled || r.State == Retry:
		t.Due = Time(r.Sort)
	case r.State.IsPending():
		t.LeaseUntil, t.Runner = Time(r.Sort), r.Runner
		t.Claimed = Time(r.At)
		t.Started, t.CancelAsked = r.Flags&Started != 0, r.State == Asked
	case r.State.HasEnded():
		t.Ended, t.Expires = Time(r.At), Time(r.Sort)
	}
}

// Task returns the task as a listing shows it. It shares no memory with r.
func (r *Record) Task() storage.Task {
	var t storage.Task
	r.CopyTo(&t)
	t.Payload, t.Headers = bytes.Clone(t.Payload), maps.Clone(t.Headers)
	t.Cursor, t.Attempts = CopyCursor(t.Cursor), slices.Clone(t.Attempts)
	return t
}

// placed returns the ref, version and state of r.
func (r *Record) placed() storage.Placed {
	return storage.Placed{Ref: r.Ref, Version: r.Version, State: r.State.Public()}
}

// touch notes that parts of r were written.
func (r *Record) touch(parts Parts) {
	r.Touched |= parts
	if parts&SideParts != 0 {
		r.Flags |= HasSide
	}
}

// beside returns the Side of r for writing, makes it if r has none, and notes the parts to be written.
func (r *Record) beside(parts Parts) *Side {
	r.touch(parts)
	if r.Side == nil {
		r.Side = new(Side)
	}
	return r.Side
}

// endAttempt appends the end of a pending task's attempt to its history, and keeps its stack.
func (r *Record) endAttempt(now int64, outcome, text, stack string) {
	text, stack = storage.AttemptTexts(text, stack)
	r.addAttempt(storage.Attempt{
		At: Time(now), Version: r.Version, Claimed: Time(r.At), Runner: r.Runner, Outcome: outcome, Error: text,
	})
	r.beside(PartStack).Stack = stack
}

// runText packs the run that completed a task into a Reason: the version of its claim, the moment of the
// claim if that is not the moment of the version, and the runner.
func runText(version, claimed int64, runner string) string {
	text := strconv.FormatInt(version, 36)
	if claimed != version {
		text += "-" + strconv.FormatInt(claimed, 36)
	}
	return text + " " + runner
}

// success returns the attempt that completed r. ok is false if r has not completed or does not hold the
// attempt.
func (r *Record) success() (a storage.Attempt, ok bool) {
	times, runner, ok := strings.Cut(r.Reason, " ")
	if r.State != Completed || !ok {
		return a, false
	}
	made, at, set := strings.Cut(times, "-")
	version, err := strconv.ParseInt(made, 36, 64)
	claimed := version
	if set && err == nil {
		claimed, err = strconv.ParseInt(at, 36, 64)
	}
	sound := err == nil && claimed > 0 && claimed <= version && version < r.Version
	return storage.Attempt{
		At: Time(r.At), Version: version, Claimed: Time(claimed), Runner: runner, Outcome: storage.AttemptSucceeded,
	}, sound
}

// addAttempt appends an attempt to the history.
func (r *Record) addAttempt(a storage.Attempt) {
	side := r.beside(PartAttempts)
	side.Attempts = withAttempt(side.Attempts, a)
}

// withAttempt appends an attempt to a history, and drops the oldest beyond MaxAttempts. It may change the
// memory of the history.
func withAttempt(attempts []storage.Attempt, a storage.Attempt) []storage.Attempt {
	if n := len(attempts); n >= storage.MaxAttempts {
		attempts = slices.Delete(attempts, 0, n-storage.MaxAttempts+1)
	}
	return append(attempts, a)
}

// forget clears the progress and the checkpoint, if r may have any.
func (r *Record) forget() {
	if r.Flags&HasSide != 0 {
		side := r.beside(PartProgress | PartCheckpoint)
		side.Progress, side.Checkpoint = nil, nil
	}
}

// CopyCursor copies a cursor, with its times rounded down to microseconds; nil for nil.
func CopyCursor(c *storage.Cursor) *storage.Cursor {
	if c == nil {
		return nil
	}
	copied := *c
	copied.Next, copied.Last = Round(c.Next), Round(c.Last)
	return &copied
}

// CopyRunner copies a heartbeat, with its times and durations rounded down to microseconds.
func CopyRunner(r *storage.RunnerInfo) storage.RunnerInfo {
	c := *r
	c.Queues, c.Kinds, c.Schedules = slices.Clone(r.Queues), slices.Clone(r.Kinds), slices.Clone(r.Schedules)
	c.Running, c.Vitals, c.Slots = slices.Clone(r.Running), bytes.Clone(r.Vitals), slices.Clone(r.Slots)
	c.Limits = slices.Clone(r.Limits)
	for i := range c.Running {
		c.Running[i].Since, c.Running[i].Unstopped = Round(c.Running[i].Since), Round(c.Running[i].Unstopped)
	}
	c.Undecodable = slices.Clone(r.Undecodable)
	for i := range c.Undecodable {
		c.Undecodable[i].Since, c.Undecodable[i].Last = Round(c.Undecodable[i].Since), Round(c.Undecodable[i].Last)
	}
	c.Started, c.For = Round(r.Started), r.For.Truncate(time.Microsecond)
	return c
}

// KeepParts adds to a heartbeat the parts that it leaves out, from the heartbeat before.
func KeepParts(r, before *storage.RunnerInfo) {
	if r.Schedules == nil {
		r.Schedules = before.Schedules
	}
	if r.Vitals == nil {
		r.Vitals = before.Vitals
	}
}

// Time converts a moment to a time in UTC, and 0 to the zero time.
func Time(moment int64) time.Time {
	if moment == 0 {
		return time.Time{}
	}
	return time.UnixMicro(moment).UTC()
}

// Moment converts t to a moment, rounded down, and the zero time to 0.
func Moment(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Round rounds t down to whole microseconds, in UTC. The zero time stays zero.
func Round(t time.Time) time.Time { return Time(Moment(t)) }
