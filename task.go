package midge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// Ref is the identity of a task: a queue and an id. It prints as "queue/id"; see [ParseRef].
type Ref = storage.Ref

// Task is an enqueued job. [Client.Enqueue], [Client.Task] and the lists of a [Queue] return it. It
// prints as its Ref with %v, and as its fields with %+v.
type Task = storage.Task

// State is the stage of a task's life.
type State = storage.State

// A task is in one of these states.
const (
	Waiting   = storage.Waiting   // waits for a runner
	Pending   = storage.Pending   // claimed by a runner
	Scheduled = storage.Scheduled // waits for its moment, or snoozed
	Retry     = storage.Retry     // failed, waits for its next attempt
	Completed = storage.Completed // completed, kept for the time of its Keep
	Cancelled = storage.Cancelled // cancelled, kept for the time of its Keep
	Dead      = storage.Dead      // out of retries, or refused; kept for long
)

// ParseRef parses the text "queue/id" that Ref.String returns; the id follows the last slash. Its
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

// Task reads a task: its state, history, last stack, progress, checkpoint and result. Errors:
// [ErrNotFound]; [ErrDamaged].
func (c *Client) Task(ctx context.Context, ref Ref) (Task, error) {
	if err := storage.CheckRef(ref); err != nil {
		return Task{}, ofTask(err, "read task", ref)
	}
	t, err := c.reader().Task(ctx, ref)
	return t, ofTask(err, "read task", ref)
}

// Verdict is the reason why a task is in its state. Its Cause is one of the constants of package
// storage whose names begin with Cause. A Verdict prints as a sentence.
type Verdict = storage.Verdict

// Why returns the reason why a task does not run, or where it runs. This is the first cause that
// holds, in the order of [storage.Causes]. Why only reads, and changes nothing. Errors:
// [ErrNotFound]; [ErrDamaged].
func (c *Client) Why(ctx context.Context, ref Ref) (Verdict, error) {
	if err := storage.CheckRef(ref); err != nil {
		return Verdict{}, ofTask(err, "why", ref)
	}
	v, err := storage.Why(ctx, c.store, ref)
	if errors.Is(err, ErrNotFound) {
		return v, wrap(errNoTask, "why %s", ref)
	}
	return v, ofTask(err, "why", ref)
}

// Cancel cancels a task and returns its new state: Cancelled, or Pending if it is running and
// the context of its job is about to end. A running job that returns nil all the same completes the
// task. Errors: a *[DependencyError] that names the state of a task that has ended otherwise, or
// Pending if, on PostgreSQL, a transaction such as that of [CompleteWith] keeps the task locked for
// longer than about three seconds; [ErrNotFound].
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

// Requeue makes a task wait for a runner, due now. A task that has ended starts anew, with its
// counts of retries and crashes reset. Its history is kept, and the requeue is added to it. Its
// idempotency key stays too. A dead or cancelled task keeps its finished steps, its checkpoint and
// its progress, so that the job resumes where it was; a completed task forgets them, and with
// [FromStart] every task does. A task that is scheduled or in retry becomes due now. Errors:
// [ErrNotFound]; a *[DependencyError] if the task runs or its unique key is taken.
func (c *Client) Requeue(ctx context.Context, ref Ref, opts ...RequeueOption) error {
	err := checkRef(ref)
	if err == nil {
		err = checkRequeue(opts)
	}
	if err != nil {
		return ofTask(err, "requeue", ref)
	}
	return ofTask(c.session.Requeue(ctx, ref, opts...), "requeue", ref)
}

// RequeueOption decides how [Client.Requeue] and [Queue.RequeueAll] requeue tasks. [FromStart] is
// the only option.
type RequeueOption = storage.RequeueOption

// FromStart makes a requeue forget the finished steps, the checkpoint and the progress of a task, so
// that its job runs all of its steps again.
func FromStart() RequeueOption { return storage.FromStart() }

func checkRequeue(opts []RequeueOption) error {
	for _, o := range opts {
		if o == nil {
			return storage.Invalid("option", "nil", "an option")
		}
	}
	return nil
}

// Delete deletes a task that is not running. Errors: [ErrNotFound]; a *[DependencyError] if it
// runs.
func (c *Client) Delete(ctx context.Context, ref Ref) error {
	if err := checkRef(ref); err != nil {
		return ofTask(err, "delete", ref)
	}
	return ofTask(c.session.DeleteTask(ctx, ref), "delete", ref)
}

// Change alters a task that waits for a runner or for its moment. It accepts the options
// [Priority], [Partition], [Cost], [In], [At], [Header], [Deadline] and [To]; the others are fixed when a
// task is enqueued. A waiting task that gets a priority or another partition joins the end of its
// new line. To moves the task to another queue and is refused beside In and At. Errors:
// [ErrNotFound]; a *[DependencyError] that names the task's state if it runs or has ended.
func (c *Client) Change(ctx context.Context, ref Ref, opts ...Option) error {
	return c.change(ctx, ref, nil, opts)
}

// ChangeJob is Change that also replaces the parameters by those of job, which must be of the
// task's own kind. They are written in the task's encoding, because its checkpoint and the results of its
// steps are. The method BeforeEnqueue of job is called first, and changes nothing if it fails. The task's
// unique key does not change. Its partition and its cost become those that the methods Partition and Cost of
// job name; they stay if the type has no such method.
// ChangeJob also accepts a dead task, but cannot change its moment: the task stays dead, with its new
// parameters, until [Client.Requeue].
func (c *Client) ChangeJob(ctx context.Context, ref Ref, job any, opts ...Option) error {
	d, err := c.definitions.of(job)
	if err != nil {
		return ofTask(err, "change", ref)
	}
	if job, err = d.prepare(ctx, job); err != nil {
		return ofTask(err, "change", ref)
	}
	r := &replacement{definition: d, job: job, encoding: string(d.options.Encoding)}
	if d.names {
		key, err := d.partitionOf(job)
		if err != nil {
			return ofTask(err, "change", ref)
		}
		r.partition = &key
	}
	if d.costs {
		cost, err := d.costOf(job)
		if err != nil {
			return ofTask(err, "change", ref)
		}
		r.cost = &cost
	}
	return c.change(ctx, ref, r, opts)
}

// replacement holds new parameters for a task of the kinds of a definition.
type replacement struct {
	definition *definition
	job        any
	encoding   string // that of the kind, or that of the payload
	payload    []byte // nil until in has encoded it
	// partition is the partition that the job names, nil if its type has no method Partition.
	partition *string
	// cost is the cost that the job names, nil if its type has no method Cost.
	cost *storage.Cost
}

// as returns the replacement in the encoding of a task. A task in an encoding that midge does not know gets
// that of its kind, unless it has a checkpoint: that would become unreadable.
func (r *replacement) as(t *Task) (*replacement, error) {
	if r == nil {
		return r, nil
	}
	encoding := t.Encoding
	if err := codec.CheckEncoding("encoding of the task", encoding); err != nil {
		if len(t.Checkpoint) > 0 {
			return nil, err
		}
		encoding = r.encoding
	}
	return r.in(encoding)
}

// in returns the replacement with a payload.
func (r *replacement) in(encoding string) (*replacement, error) {
	if err := r.definition.codec.Check(encoding); err != nil { // it was checked in that of the kind
		return nil, err
	}
	encoded := *r
	var err error
	encoded.encoding = encoding
	encoded.payload, err = r.definition.encode(encoding, r.job)
	return &encoded, err
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
		case r != nil && !slices.Contains(r.definition.kinds(), t.Kind):
			return storage.Change{}, errOtherKind(r.definition.kinds(), t)
		case r == nil && t.State == Dead: // the storage refuses the others that have ended
			barred := []storage.Barred{{Ref: t.Ref, State: t.State}}
			return storage.Change{}, &DependencyError{Barred: barred}
		}
		replaced, err := r.as(&t)
		if err != nil {
			return storage.Change{}, err
		}
		ch := asked.change(t, replaced)
		return ch, checkLimits(c.maxPayload, ref, ch)
	})
	return ofTask(err, "change", ref)
}

// checkChange applies the options of a change and checks them, before any I/O.
func (c *call) checkChange(maxPayload int, ref Ref, r *replacement, opts []Option) error {
	if err := c.read(opts); err != nil {
		return err
	}
	if c.enqueueOnly != "" {
		return storage.Invalid("option "+c.enqueueOnly, "in a change",
			"Priority, Partition, Cost, In, At, Deadline, Header or To")
	}
	if c.queue != nil && c.timed != "" {
		return storage.Invalid("option To", "beside "+c.timed, "one change after the other")
	}
	if r == nil {
		return checkLimits(maxPayload, ref, c.change(Task{}, nil))
	}
	var first error
	for _, encoding := range []string{r.encoding, codec.JSON, codec.MessagePack} { // the task may have any
		encoded, err := r.in(encoding)
		if err == nil {
			err = checkLimits(maxPayload, ref, c.change(Task{}, encoded))
		}
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

// checkLimits checks a change of a task at whatever version.
func checkLimits(maxPayload int, ref Ref, ch storage.Change) error {
	ch.Ref, ch.Version = ref, 1
	limits := storage.Limits{MaxPayload: maxPayload}
	return storage.CheckTxs(limits, []storage.Tx{{Changes: []storage.Change{ch}}})
}

// change returns the changes that the options of a call make in an existing task.
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
	ch.CompleteHeaders(&t)
	if r != nil {
		ch.Encoding, ch.Payload, ch.Partition, ch.Cost = r.encoding, r.payload, r.partition, r.cost
	}
	if c.cost != nil {
		ch.Cost = c.cost
	}
	if c.partition != nil {
		ch.Partition = c.partition
	}
	if ch.Partition != nil && *ch.Partition == t.Partition { // the task keeps its place in the line
		ch.Partition = nil
	}
	return ch
}

// Await reads soon, for tasks that take no time, and later once a second, for the others.
const (
	awaitFirst = 20 * time.Millisecond
	awaitMost  = time.Second
)

// Await waits until a task has ended and decodes its result into result, a pointer. With a nil
// result it only waits. The result is the value that the job passed to [SetResult]. A task that is
// kept [UntilRead] is deleted once Await has decoded its result.
//
// Await returns a *[DeadError], [ErrCancelled] or [ErrNoResult]; [ErrNotKept] if it had seen the
// task alive and the task is gone; [ErrNotFound] if it never saw the task, which never existed
// or had ended and was not kept; [ErrDamaged]; or the cause of ctx's end. A result that does not
// fit the type of result is an error that names both and leaves the task as it is. Await waits
// while the storage is away. The storage does not notify Await: it reads the task after 20 ms, then
// ever more rarely, at last once a second.
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
			return wrap(errNoTask, "await %s", ref)
		case err != nil && !runner.Unanswered(err):
			return wrap(err, "await %s", ref)
		}
		seen = seen || err == nil
		sleep.For(ctx, pause)
		pause = min(pause+pause/2, awaitMost)
	}
}

// resultError reports a result that does not fit the value it was decoded into. Its text does not
// quote the result.
type resultError struct {
	kind  string
	step  string // "" for the result of the task
	into  any
	cause error
}

func (e *resultError) Error() string {
	of := e.kind
	if e.step != "" {
		of = fmt.Sprintf("step %q of %s", e.step, e.kind)
	}
	text := fmt.Sprintf("the result of %s is of another shape than %T", of, e.into)
	if u := (*codec.DecodeError)(nil); errors.As(e.cause, &u) {
		text += fmt.Sprintf(": %s: %s", u.Encoding, u.Problem)
	}
	return text
}

func (e *resultError) Unwrap() error { return e.cause }

// resultInto decodes the result of a task into v.
func resultInto(t Task, v any) error {
	if err := codec.Decode(t.Encoding, t.Result, v); err != nil {
		return &resultError{kind: t.Kind, into: v, cause: err}
	}
	return nil
}

// taken returns the outcome of an ended task, decodes its result, and deletes a task that is kept
// until read.
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
		// The caller has its result. A task that cannot be deleted now, or that another reader has
		// deleted, is gone at the latest when the time of its Keep is over.
		_, _ = c.session.Apply(ctx, storage.Tx{Deletes: []storage.Delete{{Ref: t.Ref, Version: t.Version}}})
	}
	return nil
}

// Decode decodes the parameters of a task into job, by the encoding recorded with the task. It is
// for code that inspects tasks, such as the match functions of [Queue.RequeueAll] or a page for
// operators. job is a pointer to the job's type; a struct of another kind is an *[InvalidError]. A
// pointer to a value that is not a struct, such as a map, accepts the parameters of any kind. The
// error names the part that does not fit and quotes nothing of the payload.
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

// errOtherKind refuses a job for a task of another kind; the last of kinds is the job's current
// one.
func errOtherKind(kinds []string, t Task) error {
	return storage.Invalid("kind", kinds[len(kinds)-1], "the task's own, %q", t.Kind)
}

// DecodeResult decodes the result of a task that [Client.Task] returned into v, a pointer. It is
// for callers that do not use [Client.Await]. It returns [ErrNoResult] if there is no result.
func DecodeResult(t Task, v any) error {
	err := checkPointer(v)
	switch {
	case err != nil:
	case t.Result == nil && t.State == storage.Completed:
		err = ErrNoResult
	case t.Result == nil:
		err = errNoneStored
	default:
		err = resultInto(t, v)
	}
	return wrap(err, "decode result of %s", t.Ref)
}

// DecodeProgress decodes the progress of a task that [Client.Task] returned into v, a pointer. It
// returns [ErrNoResult], and leaves v as it is, if the job has stored no progress yet or the
// task was listed without it.
func DecodeProgress(t Task, v any) error {
	err := checkPointer(v)
	switch {
	case err != nil:
	case len(t.Progress) == 0:
		err = errNoneStored
	default:
		err = codec.DecodeShown(t.Progress, v)
	}
	return wrap(err, "decode progress of %s", t.Ref)
}

// DecodeCheckpoint decodes the checkpoint of a task that [Client.Task] returned into v, a pointer.
// It returns [ErrNoResult], and leaves v as it is, if the job has stored no checkpoint yet or
// the task was listed without it. Within a job, [LoadCheckpoint] does this for the running task.
func DecodeCheckpoint(t Task, v any) error {
	err := checkPointer(v)
	if err == nil {
		err = checkpointInto(t, v)
	}
	return wrap(err, "decode checkpoint of %s", t.Ref)
}

func checkpointInto(t Task, v any) error {
	kept, err := steps.Decode(t.Checkpoint)
	switch {
	case err != nil:
		return err
	case len(kept.Checkpoint) == 0:
		return errNoneStored
	}
	return codec.Decode(t.Encoding, kept.Checkpoint, v)
}

// errNoneStored reports a value that a job has not stored.
var errNoneStored error = &noneStoredError{}

// noneStoredError is an [ErrNoResult] with a text of its own.
type noneStoredError struct{}

func (*noneStoredError) Error() string { return "the job has stored none" }
func (*noneStoredError) Unwrap() error { return ErrNoResult }

// checkPointer refuses a value into which nothing can be decoded.
func checkPointer(v any) error {
	if p := reflect.ValueOf(v); p.Kind() != reflect.Pointer || p.IsNil() {
		return storage.Invalid("value", fmt.Sprintf("of type %T", v), "a pointer that is not nil")
	}
	return nil
}
