package midge

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// ErrNotInJob is returned by functions for running jobs if the context is not the context of a
// job, or the job has returned.
var ErrNotInJob = runner.ErrNotInJob

// inJob calls do for the job of a context while the job runs, and wraps its error with action.
func inJob(ctx context.Context, action string, do func(a *runner.Attempt) error) error {
	a := runner.FromContext(ctx)
	if a == nil {
		return wrap(ErrNotInJob, "%s", action)
	}
	if err := a.MayAdd(); err != nil {
		return wrap(err, "%s", action)
	}
	return wrap(do(a), "%s of %s", action, a.Fence.Ref)
}

// RunInfo describes a task to its running job. [Current] returns it.
type RunInfo struct {
	Ref  storage.Ref
	Kind string
	// Job is the job itself, a pointer to the registered type, also for a [Middleware]. It is nil
	// if the parameters of the task do not fit the type.
	Job any
	// Attempt is the number of this attempt, 1 for the first. It counts failures and crashes; a
	// snooze and a release do not count.
	Attempt int
	// Retries is how often the job failed before, of the MaxRetries that are allowed. Crashes is
	// how often a runner died while it ran the job. Snoozes is how often it was snoozed in a row.
	Retries, MaxRetries, Crashes, Snoozes int
	// Fence grows with every run of the task. It is a fencing token for other systems, which refuse
	// a smaller token than they have seen.
	Fence int64
	// IdempotencyKey is the same for every run of the task, also after a move to another queue, and differs
	// between tasks.
	IdempotencyKey string
	// Headers are the headers of the task. A job must not change them.
	Headers map[string]string
	// Partition is the key of the task's partition, "" if it has none.
	Partition string
	// Cost is how much of the rate of its queue the start of the task uses up, 1 by default.
	Cost    int
	Created time.Time
	// Due is when the task was due: the moment for which it was enqueued or to which it was changed, its
	// tick, or its creation. It is zero if that is not known, as is usual after the first attempt and
	// once the task was delayed, or made due, by a change without a moment.
	Due time.Time
	// Tick is the scheduled moment of a periodic task. For a task of [Queue.RunSchedule] it is the
	// moment of that call. It is zero for other tasks.
	Tick time.Time
}

// Current returns information about the running job of ctx. ok is false if ctx is not the
// context of a job.
func Current(ctx context.Context) (info RunInfo, ok bool) {
	a := runner.FromContext(ctx)
	if a == nil {
		return RunInfo{}, false
	}
	var tick time.Time
	if text := a.Headers[schedule.TickHeader]; text != "" {
		tick, _ = time.Parse(time.RFC3339Nano, text) // the zero time for a damaged header
	}
	ref := a.Fence.Ref // a claimed task's ref is valid, so that it prints as it is
	first := storage.FirstQueue(ref, a.Headers)
	key := append(append(append(make([]byte, 0, 2*storage.MaxName), first...), '/'), ref.ID...)
	key = strconv.AppendInt(append(key, '@'), a.Created, 10)
	return RunInfo{
		Ref: ref, Kind: a.Kind, Job: a.Job, Attempt: a.Number(),
		Retries: int(a.Retries), MaxRetries: a.MaxRetries, Crashes: int(a.Crashes), Snoozes: a.Snoozes,
		Fence:          a.Fence.Version,
		IdempotencyKey: string(key),
		Headers:        a.Headers, Partition: a.Partition, Cost: a.Cost.N(),
		Created: time.UnixMicro(a.Created).UTC(), Due: a.Due(), Tick: tick,
	}, true
}

// FollowUp enqueues a job together with the completion of the running job: both happen when the
// running job returns nil, or neither. FollowUp checks the new task now. A follow-up whose unique
// key turns out to be taken is left out; the running task itself holds its own key until the step
// is over. If the id of the follow-up is taken, the completion stands if the existing task is of
// the same job and parameters, whether that task lives or has ended; otherwise the attempt fails
// with an error that names the follow-up. FollowUp refuses what can never commit together with this
// task: a queue that shares no transaction with this one (storage.ErrSpan), or too many follow-ups
// for one transaction. A follow-up that the runner's [EnqueueMiddleware] does not pass on is left
// out without an error, because the job has not failed. To await the task, set its [ID]. With the
// context of a [Step]'s function FollowUp returns an *[InvalidError]: call it outside the step.
func FollowUp(ctx context.Context, follow any, opts ...Option) error {
	return inJob(ctx, "follow up", func(a *runner.Attempt) error {
		if err := outsideStep(ctx, a, "FollowUp"); err != nil {
			return err
		}
		d, err := definitionsOf(a).of(follow)
		if err != nil {
			return err
		}
		if follow, err = d.prepare(ctx, follow); err != nil {
			return err
		}
		in, err := newInsert(d, follow, opts)
		if err != nil {
			return err
		}
		in.OnConflict = storage.Skip
		passed, err := a.Jobs().Enqueue(ctx, []storage.Insert{in})
		switch {
		case err != nil:
			return err
		case len(passed) == 0:
			return nil
		}
		in = passed[0]
		if !a.Spans(in.Ref.Queue) {
			return fmt.Errorf("in queue %s: %w", in.Ref.Queue, storage.ErrSpan)
		}
		return a.FollowUp(in)
	})
}

// definitionsOf returns the job types that the attempt's runner knows.
func definitionsOf(a *runner.Attempt) *definitions {
	j, _ := a.Jobs().(*jobs) // *jobs is the only implementation
	return &j.definitions
}

// SetResult sets the result that is stored with the completion of the running job, for
// [Client.Await]. The last call counts. The task is then kept for an hour unless its options set another
// time. SetResult returns an *[InvalidError] for a value that would not come back as it was, as [Encoding]
// describes, for a result that is too large for one transaction together with the follow-ups, and for the
// context of a [Step]'s function: call SetResult outside the step. If a result is refused, an earlier result
// stays.
func SetResult(ctx context.Context, v any) error {
	return inJob(ctx, "set result", func(a *runner.Attempt) error {
		if err := outsideStep(ctx, a, "SetResult"); err != nil {
			return err
		}
		b, err := encodeFor(a, v)
		if err != nil {
			return err
		}
		return a.SetResult(b)
	})
}

// Progress stores the progress of the running job at once, under its lease, for people who read
// the task. v is stored as JSON; text that is not UTF-8 shows U+FFFD. Its errors are those of
// [Checkpoint].
func Progress(ctx context.Context, v any) error {
	return inJob(ctx, "progress", func(a *runner.Attempt) error {
		b, err := codec.EncodeShown(v)
		if err != nil {
			return storage.Invalid("value", fmt.Sprintf("of type %T", v), "one that JSON can hold: %v", err)
		}
		return a.Store(ctx, storage.Call{}, b, nil)
	})
}

// Checkpoint stores v at once, under the lease, so that a later run of the task can continue from
// it; see [LoadCheckpoint]. The checkpoint is kept as long as the task, also through a requeue of a
// task that is dead or cancelled. A requeue of a completed task, and one with [FromStart], forgets
// it. A value that would not come back as it was is an *[InvalidError], as [Encoding] describes.
//
// While the storage is away, Checkpoint waits for it, at most for the duration of the lease, and
// then returns an [ErrUnavailable] or [ErrUnknown]. A job that can go on without the checkpoint
// ignores these errors. A write of unknown outcome may still happen, until a later Checkpoint has
// returned nil.
func Checkpoint(ctx context.Context, v any) error {
	return inJob(ctx, "checkpoint", func(a *runner.Attempt) error {
		b, err := encodeFor(a, v)
		if err != nil {
			return err
		}
		return a.Checkpoint(ctx, b)
	})
}

// LoadCheckpoint decodes the last checkpoint of the running task into v, a pointer. ok is false
// if there is none.
func LoadCheckpoint(ctx context.Context, v any) (ok bool, err error) {
	err = inJob(ctx, "load checkpoint", func(a *runner.Attempt) error {
		if err := checkPointer(v); err != nil {
			return err
		}
		b, err := a.LoadCheckpoint(ctx)
		if err != nil || len(b) == 0 {
			return err
		}
		ok = true
		return codec.Decode(a.Encoding, b, v)
	})
	return ok && err == nil, err
}

// encodeFor encodes v in the encoding of the task's payload, and checks its size.
func encodeFor(a *runner.Attempt, v any) ([]byte, error) {
	b, err := codec.Encode(a.Encoding, v)
	if err != nil {
		return nil, storage.Invalid("value", fmt.Sprintf("of type %T", v), "one that can be encoded: %v", err)
	}
	if most := a.MaxPayload(); len(b) > most {
		return nil, storage.Invalid("value", fmt.Sprintf("of %d bytes", len(b)), "at most %d bytes", most)
	}
	return b, nil
}

// ErrCompleted is returned by functions for running jobs once [CompleteWith] has completed the
// task.
var ErrCompleted = runner.ErrCompleted

// CompleteWith completes the task of the running job within a transaction of the job. With the
// storage on PostgreSQL or SQLite, call CompleteWith(ctx, store.Within(tx)). The writes of the job in
// that transaction happens exactly once: it commits together with the completion, or neither does.
// The follow-ups and the result that were set before are part of the completion; later ones are
// refused with [ErrCompleted].
//
// The job commits before it returns. After a commit the task is completed, whatever the job
// returns. Without a commit, an error counts as usual, and a nil is a failure. The job may roll
// back and call CompleteWith again with another transaction.
//
// From the call on, the transaction's lock on the task takes the place of its lease. The runner no
// longer extends the lease, and nobody else changes the task before the transaction has ended, not
// even a cancel. The transaction should therefore end soon, and a job that rolled back should
// return or begin another transaction before the lease is over.
//
// Errors: [ErrNotInJob]; *[InvalidError] if a is nil or belongs to another storage than the
// runner's; storage.ErrLeaseLost if another run owns the task by now, joined with ErrCompleted
// if an earlier call of this job may have completed it; *storage.DependencyError if a
// follow-up cannot be enqueued; and the errors of a. After an error this call has done nothing,
// and the transaction can still be used, unless the error is the transaction's own.
func CompleteWith(ctx context.Context, a Applier) error {
	if isNil(a) {
		return wrap(errNoApplier(), "complete with")
	}
	at := runner.FromContext(ctx)
	if at == nil {
		return wrap(ErrNotInJob, "complete with")
	}
	return wrap(at.CompleteWith(ctx, a), "complete with")
}
