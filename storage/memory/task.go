package memory

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// task is the record of a task or cursor. What it holds is the storage's own: copied
// when it comes in, copied when it goes out.
type task struct {
	storage.Task

	queue *queue
	token storage.Token // while it is pending
	// place is where it stands among the tasks of its state.
	place place
	// alarm is where it stands in a second order: a pending task in
	// queue.deadlines, a cursor in queue.ticks. Zero where it stands in none.
	alarm place
	// prompt is set once its lease expired while it was only claimed ahead: from
	// then on it is claimed only to start at once.
	prompt bool
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

// newTask makes the record that an insert asks for. Its state is still none.
func newTask(in *storage.Insert, now time.Time, version int64) *task {
	t := &task{Task: storage.Task{
		Ref: in.Ref, Kind: in.Kind, Encoding: in.Encoding,
		Payload: bytes.Clone(in.Payload), Headers: maps.Clone(in.Headers),
		Version: version, Priority: in.Priority,
		MaxRetries: in.MaxRetries, CrashLimit: in.CrashLimit,
		Timeout: in.Timeout.Truncate(time.Microsecond), Keep: in.Keep, Unique: in.Unique,
		Created: now, Cursor: copyCursor(in.Cursor),
	}}
	t.Keep.For = t.Keep.For.Truncate(time.Microsecond)
	t.Unique.For = t.Unique.For.Truncate(time.Microsecond)
	return t
}

// isInsertOf reports whether in would insert what is there already.
func (t *task) isInsertOf(in *storage.Insert) bool {
	if t.Kind != in.Kind || t.Encoding != in.Encoding || !bytes.Equal(t.Payload, in.Payload) {
		return false
	}
	return t.Cursor == nil || t.Cursor.Declaration == in.Cursor.Declaration
}

// placed says where t is now.
func (t *task) placed() storage.Placed {
	return storage.Placed{Ref: t.Ref, Version: t.Version, State: t.State}
}

// attempt appends to the history of a pending task how its claim ended.
func (t *task) attempt(now time.Time, outcome, text, stack string) {
	if n := len(t.Attempts); n >= storage.MaxAttempts {
		t.Attempts = slices.Delete(t.Attempts, 0, n-storage.MaxAttempts+1)
	}
	t.Attempts = append(t.Attempts, storage.Attempt{
		At: now, Version: t.Version, Runner: t.Runner, Outcome: outcome,
		Error: storage.CleanText(text, storage.MaxAttemptError),
	})
	t.Stack = fullText(text, stack)
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
	c.Stack = t.Stack
	c.Result = bytes.Clone(t.Result)
	c.Progress = bytes.Clone(t.Progress)
	c.Checkpoint = bytes.Clone(t.Checkpoint)
	return c
}

// listed gives a copy without stack, result, progress and checkpoint.
func (t *task) listed() storage.Task {
	c := t.Task
	c.Payload = bytes.Clone(t.Payload)
	c.Headers = maps.Clone(t.Headers)
	c.Attempts = slices.Clone(t.Attempts)
	c.Cursor = copyCursor(t.Cursor)
	c.Stack, c.Result, c.Progress, c.Checkpoint = "", nil, nil, nil
	return c
}

// claimed fills c with a copy as a Claim gives it. The payloads of one claim share
// the room that is passed on from task to task.
func (t *task) claimed(c *storage.Task, room []byte) []byte {
	*c = t.Task
	c.Attempts, c.Stack, c.Result, c.Progress, c.Checkpoint = nil, "", nil, nil, nil
	c.Headers = maps.Clone(t.Headers)
	n := len(t.Payload)
	if n == 0 {
		return room
	}
	c.Payload = room[:n:n]
	copy(c.Payload, t.Payload)
	return room[n:]
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

// micros rounds t down to whole microseconds, in UTC and without the reading of the
// monotonic clock. The zero time stays zero.
func micros(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}
