package midge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// Ref is a task's identity, a queue and an id. It prints as "queue/id"; see [ParseRef].
type Ref = storage.Ref

// Task is an enqueued job: what [Client.Enqueue] gives, and what [Client.Task] and the lists of
// a [Queue] read. With %v it prints as its Ref, with %+v as its fields.
type Task = storage.Task

// State is where a task stands.
type State = storage.State

// The states of a task.
const (
	Waiting   = storage.Waiting   // for a runner
	Pending   = storage.Pending   // a runner has it
	Scheduled = storage.Scheduled // until its moment, or snoozed
	Retry     = storage.Retry     // failed, until its next attempt
	Completed = storage.Completed // kept as its Keep says
	Cancelled = storage.Cancelled // kept as its Keep says
	Dead      = storage.Dead      // out of retries, or refused; kept for long
)

// ParseRef reads what Ref.String printed, "queue/id": the id is behind the last slash. Its
// errors are *[InvalidError].
func ParseRef(text string) (Ref, error) {
	at := strings.LastIndexByte(text, '/')
	if at < 0 {
		return Ref{}, wrap(storage.Invalid("ref", text, "a queue and an id, as in mail/7"), "parse ref")
	}
	ref := Ref{Queue: text[:at], ID: text[at+1:]}
	if err := storage.CheckRef(ref); err != nil {
		return Ref{}, wrap(err, "parse ref")
	}
	return ref, nil
}

// Task reads a task: its state, history, last stack, progress, checkpoint and result.
// [ErrNotFound]; [ErrDamaged].
func (c *Client) Task(ctx context.Context, ref Ref) (Task, error) {
	if err := storage.CheckRef(ref); err != nil {
		return Task{}, ofTask(err, "read task", ref)
	}
	t, err := c.reader().Task(ctx, ref)
	return t, ofTask(err, "read task", ref)
}

// Verdict says why a task is where it is: its Cause is one of the constants of package storage whose names
// begin with Cause. It prints as a sentence.
type Verdict = storage.Verdict

// Why says why a task does not run, or where: the first cause that holds, in the order of [storage.Causes].
// It reads and changes nothing. [ErrNotFound]; [ErrDamaged].
func (c *Client) Why(ctx context.Context, ref Ref) (Verdict, error) {
	if err := storage.CheckRef(ref); err != nil {
		return Verdict{}, ofTask(err, "why", ref)
	}
	v, err := storage.Why(ctx, c.store, ref)
	return v, ofTask(err, "why", ref)
}

// Cancel cancels a task and gives its state now: cancelled, or pending where it runs
// and its job's context is about to end. A running job that completes all the same has
// completed. A task that has ended otherwise is a *[DependencyError] that names its
// state; [ErrNotFound].
func (c *Client) Cancel(ctx context.Context, ref Ref) (State, error) {
	if err := checkRef(ref); err != nil {
		return "", ofTask(err, "cancel", ref)
	}
	applied, err := c.apply(ctx, storage.Tx{Changes: []storage.Change{{Ref: ref, Cancel: true}}})
	if err == nil {
		err = applied[0].Err
	}
	if err != nil {
		return "", ofTask(err, "cancel", ref)
	}
	return applied[0].Changed[0].State, nil
}

// Requeue makes a task wait for a runner, due now. A task that ended starts anew, with its
// retries and crashes reset. Its history is kept, and the requeue is added to it; its
// checkpoint and its idempotency key stay too, so that a job resumes where it was. A task
// that is scheduled or in retry comes forward.
// [ErrNotFound]; a *[DependencyError] where it runs or its unique key is taken.
func (c *Client) Requeue(ctx context.Context, ref Ref) error {
	if err := checkRef(ref); err != nil {
		return ofTask(err, "requeue", ref)
	}
	return ofTask(c.session.Requeue(ctx, ref), "requeue", ref)
}

// Delete deletes a task that does not run. [ErrNotFound]; a *[DependencyError] where
// it runs.
func (c *Client) Delete(ctx context.Context, ref Ref) error {
	if err := checkRef(ref); err != nil {
		return ofTask(err, "delete", ref)
	}
	return ofTask(c.session.DeleteTask(ctx, ref), "delete", ref)
}

// Change alters a task that waits for a runner or for its moment. Of the options it
// takes [Priority], [In], [At], [Header] and [To], which moves it to another queue and goes
// with neither In nor At; the others are settled when a task is enqueued. [ErrNotFound]; a
// *[DependencyError] that names the task's state where it runs or has ended.
func (c *Client) Change(ctx context.Context, ref Ref, opts ...Option) error {
	return c.change(ctx, ref, nil, opts)
}

// ChangeJob is Change that replaces the parameters by those of job too, which is of
// the task's own kind. A unique key stays that of the old parameters. Of the tasks that have
// ended it takes a dead one, whose moment it cannot change: that stays dead, with its new
// parameters, until [Client.Requeue].
func (c *Client) ChangeJob(ctx context.Context, ref Ref, job any, opts ...Option) error {
	d, err := c.definitions.of(job)
	if err != nil {
		return ofTask(err, "change", ref)
	}
	payload, err := d.encode(job)
	if err != nil {
		return ofTask(err, "change", ref)
	}
	return c.change(ctx, ref, &replacement{d.kinds(), string(d.options.Encoding), payload}, opts)
}

// replacement is new parameters for a task of a kind.
type replacement struct {
	kinds    []string
	encoding string
	payload  []byte
}

func (c *Client) change(ctx context.Context, ref Ref, r *replacement, opts []Option) error {
	var asked call
	if err := checkRef(ref); err != nil {
		return ofTask(err, "change", ref)
	}
	if err := asked.checkChange(c.maxPayload, ref, r, opts); err != nil {
		return ofTask(err, "change", ref)
	}
	err := c.session.ChangeTask(ctx, ref, func(t Task) (storage.Change, error) {
		switch {
		case r != nil && !slices.Contains(r.kinds, t.Kind):
			return storage.Change{}, errOtherKind(r.kinds, t)
		case r == nil && t.State == Dead: // the storage refuses the others that have ended
			barred := []storage.Barred{{Ref: t.Ref, State: t.State}}
			return storage.Change{}, &DependencyError{Barred: barred}
		}
		return asked.change(t, r), nil
	})
	return ofTask(err, "change", ref)
}

// checkChange takes in the options of a change and checks them, before any I/O.
func (c *call) checkChange(maxPayload int, ref Ref, r *replacement, opts []Option) error {
	if err := c.read(opts); err != nil {
		return err
	}
	if c.enqueueOnly != "" {
		return storage.Invalid("option "+c.enqueueOnly, "in a change", "Priority, In, At, Header or To")
	}
	if c.queue != nil && c.timed != "" {
		return storage.Invalid("option To", "beside "+c.timed, "one change after the other")
	}
	sample := c.change(Task{}, r)
	sample.Ref, sample.Version = ref, 1
	limits := storage.Limits{MaxPayload: maxPayload}
	return storage.CheckTxs(limits, []storage.Tx{{Changes: []storage.Change{sample}}})
}

// change is what the options of a call make of an existing task.
func (c *call) change(t Task, r *replacement) storage.Change {
	ch := storage.Change{Priority: c.priority, Delay: c.delay, At: c.at}
	if c.queue != nil {
		ch.Queue = *c.queue
	}
	if c.timed != "" && c.delay == 0 && c.at.IsZero() {
		ch.Now = true
	}
	if len(c.options.Headers) > 0 {
		ch.Headers = merged(t.Headers, c.options.Headers)
	}
	if _, told := t.Headers[storage.DueHeader]; told && c.timed != "" { // it tells of the moment that was
		ch.Headers = merged(t.Headers, c.options.Headers)
		delete(ch.Headers, storage.DueHeader)
		if !c.at.IsZero() {
			ch.Headers[storage.DueHeader] = momentText(c.at)
		}
	}
	if r != nil {
		ch.Encoding, ch.Payload = r.encoding, r.payload
	}
	return ch
}

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

// Decode reads the parameters of a task into job, by the encoding recorded with the task: for
// those who look at tasks, such as the match functions of [Queue.RequeueAll] or a page for
// operators. job is a pointer to the job's type; a struct of another kind is an *[InvalidError].
// A pointer to what is no struct, such as a map, takes the parameters of any kind. The error
// says what does not fit; nothing of the payload is quoted.
func Decode(t Task, job any) error {
	err := checkPointer(job)
	if err == nil {
		err = decodeParameters(t, job)
	}
	return wrap(err, "decode %s", t.Ref)
}

func decodeParameters(t Task, job any) error {
	typ := reflect.TypeOf(job)
	if typ.Elem().Kind() == reflect.Struct {
		d := definition{}
		var err error
		if d.kind, err = kindOf(typ.Elem(), job); err == nil {
			d.aliases, err = aliasesOf(typ.Elem(), job, d.kind)
		}
		if err == nil && !slices.Contains(d.kinds(), t.Kind) {
			err = errOtherKind(d.kinds(), t)
		}
		if err != nil {
			return err
		}
	}
	return codec.ParametersOf(typ).Decode(t.Encoding, t.Payload, job)
}

// errOtherKind refuses a job whose kinds, the last of today, are not that of a task.
func errOtherKind(kinds []string, t Task) error {
	return storage.Invalid("kind", kinds[len(kinds)-1], "the task's own, %q", t.Kind)
}

// DecodeResult reads the result of a task, as [Client.Task] gives it, into v, a pointer: for
// those who do not [Client.Await] it. [ErrNoResult] where there is none.
func DecodeResult(t Task, v any) error {
	err := checkPointer(v)
	switch {
	case err != nil:
	case t.Result == nil:
		err = ErrNoResult
	default:
		err = resultInto(t, v)
	}
	return wrap(err, "decode result of %s", t.Ref)
}

// DecodeProgress reads the progress of a task, as [Client.Task] gives it, into v, a pointer.
// [ErrNoResult] where its job has told none yet, or the task was listed without it; v is not
// touched then.
func DecodeProgress(t Task, v any) error {
	err := checkPointer(v)
	switch {
	case err != nil:
	case len(t.Progress) == 0:
		err = errNoneStored
	default:
		err = json.Unmarshal(t.Progress, v)
	}
	return wrap(err, "decode progress of %s", t.Ref)
}

// DecodeCheckpoint reads the checkpoint of a task, as [Client.Task] gives it, into v, a
// pointer. [ErrNoResult] where its job has stored none yet, or the task was listed without it; v
// is not touched then. In a job [LoadCheckpoint] does so for the running task.
func DecodeCheckpoint(t Task, v any) error {
	err := checkPointer(v)
	switch {
	case err != nil:
	case len(t.Checkpoint) == 0:
		err = errNoneStored
	default:
		err = codec.Decode(t.Encoding, t.Checkpoint, v)
	}
	return wrap(err, "decode checkpoint of %s", t.Ref)
}

// errNoneStored is the error of what a job has not stored.
var errNoneStored error = &noneStoredError{}

// noneStoredError is an [ErrNoResult] in words of its own.
type noneStoredError struct{}

func (*noneStoredError) Error() string { return "the job has stored none" }
func (*noneStoredError) Unwrap() error { return ErrNoResult }

// checkPointer refuses a value that nothing can be decoded into.
func checkPointer(v any) error {
	if p := reflect.ValueOf(v); p.Kind() != reflect.Pointer || p.IsNil() {
		return storage.Invalid("value", fmt.Sprintf("of type %T", v), "a pointer that is not nil")
	}
	return nil
}
