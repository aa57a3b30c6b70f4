package memory

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// task is the record of a task or cursor. What it holds is the storage's own: copied
// when it comes in, copied when it goes out. The fields that share a name with one of
// storage.Task mean the same.
//
// It is no storage.Task itself because there may be millions: the collector passes
// over a record of this size, which most tasks never outgrow, several times faster.
type task struct {
	queue *queue
	ID    string

	Kind, Encoding string
	Payload        []byte
	Headers        map[string]string

	State    storage.State
	Version  int64
	Priority int

	MaxRetries, Retries int
	CrashLimit, Crashes int

	Timeout time.Duration
	Keep    storage.Keep
	Unique  storage.Unique

	Created, Due, Ended, Expires moment

	lease // while it is pending

	// place is where it stands among the tasks of its state.
	place place
	// prompt is set once its lease expired while it was only claimed ahead: from
	// then on it is claimed only to start at once.
	prompt bool

	more *more // nil while there is nothing of it
}

// lease is what a record says only while its task is pending.
type lease struct {
	token                storage.Token
	Runner               string
	LeaseUntil           moment
	Started, CancelAsked bool
}

// more is what most tasks never have.
type more struct {
	Cursor *storage.Cursor

	Snoozes      int
	SnoozedSince moment

	Reason   string
	Attempts []storage.Attempt
	Stack    string

	Result, Progress, Checkpoint []byte
}

// moment is a time in whole microseconds since the Unix epoch; 0 is none.
type moment int64

// momentOf rounds t down to whole microseconds.
func momentOf(t time.Time) moment {
	if t.IsZero() {
		return 0
	}
	return moment(t.UnixMicro())
}

func (m moment) after(d time.Duration) moment { return m + moment(d.Microseconds()) }

// time gives m as callers know it: in UTC, the zero time for none.
func (m moment) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(m)).UTC()
}

// The kinds of waiting tasks, by what a Claim may do with them.
const (
	plain   = iota // claim it, to start at once or ahead
	prompt         // claim it to start at once
	suspect        // claim one of them, to start at once
	kinds
)

func (t *task) kind() int {
	switch {
	case storage.Suspect(t.Crashes, t.CrashLimit):
		return suspect
	case t.prompt:
		return prompt
	}
	return plain
}

// newTask makes the record that an insert into q asks for. Its state is still none.
func newTask(q *queue, in *storage.Insert, now moment) *task {
	t := &task{
		queue: q, ID: in.Ref.ID, Kind: in.Kind, Encoding: in.Encoding,
		Payload: bytes.Clone(in.Payload), Headers: maps.Clone(in.Headers),
		Priority: in.Priority, MaxRetries: in.MaxRetries, CrashLimit: in.CrashLimit,
		Timeout: in.Timeout.Truncate(time.Microsecond), Keep: in.Keep, Unique: in.Unique,
		Created: now,
	}
	t.Keep.For = t.Keep.For.Truncate(time.Microsecond)
	t.Unique.For = t.Unique.For.Truncate(time.Microsecond)
	if in.Cursor != nil {
		t.rest().Cursor = copyCursor(in.Cursor)
	}
	return t
}

// rest gives what most tasks never have, for writing.
func (t *task) rest() *more {
	if t.more == nil {
		t.more = new(more)
	}
	return t.more
}

func (t *task) ref() storage.Ref { return storage.Ref{Queue: t.queue.name, ID: t.ID} }

// isInsertOf reports whether in would insert what is there already.
func (t *task) isInsertOf(in *storage.Insert) bool {
	if t.Kind != in.Kind || t.Encoding != in.Encoding || !bytes.Equal(t.Payload, in.Payload) {
		return false
	}
	return in.Cursor == nil || t.more.Cursor.Declaration == in.Cursor.Declaration
}

// placed says where t is now.
func (t *task) placed() storage.Placed {
	return storage.Placed{Ref: t.ref(), Version: t.Version, State: t.State}
}

// attempt appends to the history of a pending task how its claim ended.
func (t *task) attempt(now moment, outcome, text, stack string) {
	t.append(storage.Attempt{
		At: now.time(), Version: t.Version, Runner: t.Runner, Outcome: outcome,
		Error: storage.CleanText(text, storage.MaxAttemptError),
	})
	t.more.Stack = fullText(text, stack)
}

// append adds to the history, of which the oldest go.
func (t *task) append(a storage.Attempt) {
	r := t.rest()
	if n := len(r.Attempts); n >= storage.MaxAttempts {
		r.Attempts = slices.Delete(r.Attempts, 0, n-storage.MaxAttempts+1)
	}
	r.Attempts = append(r.Attempts, a)
}

// fullText joins the stack with what the history cuts off of the error.
func fullText(text, stack string) string {
	stack = storage.CleanText(stack, storage.MaxText)
	if len(text) <= storage.MaxAttemptError {
		return stack
	}
	text = storage.CleanText(text, storage.MaxText)
	if stack == "" {
		return text
	}
	return text + "\n\n" + stack
}

// whole gives a copy of everything but the token.
func (t *task) whole() storage.Task {
	c := t.listed()
	if r := t.more; r != nil {
		c.Stack = r.Stack
		c.Result = bytes.Clone(r.Result)
		c.Progress = bytes.Clone(r.Progress)
		c.Checkpoint = bytes.Clone(r.Checkpoint)
	}
	return c
}

// listed gives a copy without stack, result, progress and checkpoint.
func (t *task) listed() storage.Task {
	var c storage.Task
	t.copyTo(&c, bytes.Clone(t.Payload))
	if r := t.more; r != nil {
		c.Attempts = slices.Clone(r.Attempts)
	}
	return c
}

// copyTo fills c with a copy as a Claim gives it, the payload's copy included.
func (t *task) copyTo(c *storage.Task, payload []byte) {
	*c = storage.Task{
		Ref: t.ref(), Kind: t.Kind, Encoding: t.Encoding,
		Payload: payload, Headers: maps.Clone(t.Headers),
		State: t.State, Version: t.Version, Priority: t.Priority,
		MaxRetries: t.MaxRetries, Retries: t.Retries, CrashLimit: t.CrashLimit, Crashes: t.Crashes,
		Timeout: t.Timeout, Keep: t.Keep, Unique: t.Unique,
		Created: t.Created.time(), Due: t.Due.time(), Ended: t.Ended.time(), Expires: t.Expires.time(),
		Runner: t.Runner, LeaseUntil: t.LeaseUntil.time(), Started: t.Started, CancelAsked: t.CancelAsked,
	}
	if r := t.more; r != nil {
		c.Snoozes, c.SnoozedSince = r.Snoozes, r.SnoozedSince.time()
		c.Reason = r.Reason
		c.Cursor = copyCursor(r.Cursor)
	}
}

func copyCursor(c *storage.Cursor) *storage.Cursor {
	if c == nil {
		return nil
	}
	copied := *c
	copied.Next, copied.Last = micros(c.Next), micros(c.Last)
	copied.Replaced = slices.Clone(c.Replaced)
	return &copied
}

// micros rounds t down to whole microseconds, in UTC. The zero time stays zero.
func micros(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}
