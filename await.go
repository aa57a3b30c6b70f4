package midge

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// How often Await looks: soon for what takes no time, and each second for what does.
const (
	awaitFirst = 20 * time.Millisecond
	awaitMost  = time.Second
)

// Await waits until a task has ended and decodes its result into result, a pointer;
// nil only waits. The result is what the job gave to [SetResult]; of a task kept
// [UntilRead] it is deleted when it was read into result.
//
// Await returns a *[DeadError], [ErrCancelled], [ErrNoResult], [ErrNotKept] where the task was
// seen alive and is gone, [ErrNotFound] where it was not seen at all: it never was, or had ended
// and was not kept. Others are [ErrDamaged] and the cause of ctx's end. A result
// that does not fit result's type is an error that names both and leaves the task. The
// storage being away for a while is waited out. Results wake nobody: Await reads the
// task after 20 ms, then ever more rarely, at last each second.
func (c *Client) Await(ctx context.Context, ref Ref, result any) error {
	if v := reflect.ValueOf(result); result != nil && (v.Kind() != reflect.Pointer || v.IsNil()) {
		given := fmt.Sprintf("%T", result)
		if v.Kind() == reflect.Pointer {
			given = "nil " + given
		}
		return ofTask(storage.Invalid("result", given, "nil, or a pointer"), "await", ref)
	}
	if err := storage.CheckRef(ref); err != nil {
		return ofTask(err, "await", ref)
	}
	pause, seen := awaitFirst, false
	for {
		t, err := c.store.Task(ctx, ref)
		switch {
		case ctx.Err() != nil:
			return wrap(context.Cause(ctx), "await %s", ref)
		case err == nil && t.State.Ended():
			return c.taken(ctx, t, result)
		case errors.Is(err, ErrNotFound) && seen:
			return wrap(ErrNotKept, "await %s", ref)
		case errors.Is(err, ErrNotFound):
			none := &notFoundError{"there is no such task: it never was, or has ended and was not kept, see KeepFor"}
			return wrap(none, "await %s", ref)
		case err != nil && !runner.Unanswered(err):
			return wrap(err, "await %s", ref)
		}
		seen = seen || err == nil
		sleep.For(ctx, pause)
		pause = min(pause+pause/2, awaitMost)
	}
}

// resultError is a result that does not fit what it was to be read into. Its text quotes
// nothing of the result.
type resultError struct {
	kind  string
	into  any
	cause error
}

func (e *resultError) Error() string {
	text := fmt.Sprintf("the result of %s is of another shape than %T", e.kind, e.into)
	if u := (*codec.DecodeError)(nil); errors.As(e.cause, &u) {
		text += fmt.Sprintf(": %s: %s", u.Encoding, u.Problem)
	}
	return text
}

func (e *resultError) Unwrap() error { return e.cause }

// resultInto decodes the result of a task.
func resultInto(t Task, v any) error {
	if err := codec.Decode(t.Encoding, t.Result, v); err != nil {
		return &resultError{kind: t.Kind, into: v, cause: err}
	}
	return nil
}

// taken gives what an ended task came to.
func (c *Client) taken(ctx context.Context, t Task, result any) error {
	switch {
	case t.State == storage.Cancelled:
		return wrap(ErrCancelled, "await %s", t.Ref)
	case t.State == storage.Dead:
		dead := &DeadError{Ref: t.Ref, Reason: t.Reason}
		if n := len(t.Attempts); n > 0 {
			dead.Last = t.Attempts[n-1].Error
		}
		return dead
	case result == nil:
		return nil
	case t.Result == nil:
		return wrap(ErrNoResult, "await %s", t.Ref)
	}
	if err := resultInto(t, result); err != nil {
		return wrap(err, "await %s", t.Ref)
	}
	if t.Keep.UntilRead {
		// The reader has what it asked for. What cannot be deleted now, or was by
		// another reader, goes when Keep's time is over.
		_, _ = c.session.Apply(ctx, storage.Tx{Deletes: []storage.Delete{{Ref: t.Ref, Version: t.Version}}})
	}
	return nil
}
