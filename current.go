package midge

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// ErrNotInJob is returned by what belongs to a running task where the context is not
// a job's, or the job has returned.
var ErrNotInJob = runner.ErrNotInJob

// inJob does something for the job of a context while it runs, and says what where that fails.
func inJob(ctx context.Context, act string, do func(a *runner.Attempt) error) error {
	a := runner.FromContext(ctx)
	if a == nil {
		return wrap(ErrNotInJob, "%s", act)
	}
	if err := a.MayAdd(); err != nil {
		return wrap(err, "%s", act)
	}
	return wrap(do(a), "%s of %s", act, a.Fence.Ref)
}

// RunInfo tells a running job about itself.
type RunInfo struct {
	Ref  storage.Ref
	Kind string
	// Job is the job itself, a pointer to the registered type, also for a [Middleware]; nil where
	// the parameters of the task do not fit the type.
	Job any
	// Attempt is which attempt this is, 1 for the first. It counts failures and crashes; a snooze
	// and a release cost no attempt.
	Attempt int
	// Retries is how often it failed before, of MaxRetries that are allowed, Crashes how often
	// its runner died with it, and Snoozes how often it was snoozed in a row.
	Retries, MaxRetries, Crashes, Snoozes int
	// Fence grows with every run of the task: a fencing token for other systems,
	// which refuse what comes with a smaller one than they have seen.
	Fence int64
	// IdempotencyKey is the same for every run of the task, and no other task's.
	IdempotencyKey string
	Headers        map[string]string
	Created        time.Time
	// Due is when the task was due: its tick, the moment that it was enqueued for, or its
	// creation. It is zero where that is not known, which is so behind the first attempt.
	Due time.Time
	// Tick is the moment that a periodic task stands for, zero for others.
	Tick time.Time
}

// Current tells a running job about itself. ok is false where ctx is not that of a
// job.
func Current(ctx context.Context) (info RunInfo, ok bool) {
	a := runner.FromContext(ctx)
	if a == nil {
		return RunInfo{}, false
	}
	var tick time.Time
	if text := a.Headers[schedule.TickHeader]; text != "" {
		tick, _ = time.Parse(time.RFC3339Nano, text) // the zero time of a damaged header
	}
	ref := a.Fence.Ref // of a claimed task, so that it prints as it is
	key := append(append(append(make([]byte, 0, 2*storage.MaxName), ref.Queue...), '/'), ref.ID...)
	key = strconv.AppendInt(append(key, '@'), a.Created, 10)
	return RunInfo{
		Ref: ref, Kind: a.Kind, Job: a.Job, Attempt: a.Number(),
		Retries: int(a.Retries), MaxRetries: a.MaxRetries, Crashes: int(a.Crashes), Snoozes: a.Snoozes,
		Fence:          a.Fence.Version,
		IdempotencyKey: string(key),
		Headers:        a.Headers, Created: time.UnixMicro(a.Created).UTC(), Due: a.Due(), Tick: tick,
	}, true
}

// FollowUp enqueues a job together with the completion of the running one: both happen
// when it returns nil, or neither. The task it would make is checked now; one whose
// unique key turns out to be taken is left out, also where the running task itself holds
// it, as it does until the step is over. Where the follow-up has an id that is taken, the
// completion stands if that task is of the same job and parameters, whether it lives or has
// ended; otherwise the attempt fails with an error that names the follow-up. What can never
// commit with this task is refused: another queue that shares no transaction with this one
// (storage.ErrSpan), or too many for one transaction. One that the runner's [EnqueueMiddleware]
// does not pass on is left out, without an error: that is no failure of the job. Who wants to
// await the task names it with [ID].
func FollowUp(ctx context.Context, follow any, opts ...Option) error {
	return inJob(ctx, "follow up", func(a *runner.Attempt) error {
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

// definitionsOf gives the job types that the attempt's runner knows.
func definitionsOf(a *runner.Attempt) *definitions {
	j, _ := a.Jobs().(*jobs) // no others are made
	return &j.definitions
}

// SetResult sets the result that is stored with the completion of the running job, for
// [Client.Await]. The last one counts. The task is then kept for an hour unless its
// options say otherwise.
func SetResult(ctx context.Context, v any) error {
	return inJob(ctx, "set result", func(a *runner.Attempt) error {
		b, err := encodeFor(a, v)
		if err != nil {
			return err
		}
		return a.SetResult(b)
	})
}

// Progress stores how far the running job is, for those who look at it, at once and
// under its lease. v is stored as JSON. Its errors are those of [Checkpoint].
func Progress(ctx context.Context, v any) error {
	return inJob(ctx, "progress", func(a *runner.Attempt) error {
		b, err := json.Marshal(v)
		if err != nil {
			return storage.Invalid("value", fmt.Sprintf("of type %T", v), "one that JSON can hold: %v", err)
		}
		return a.Store(ctx, b, nil)
	})
}

// Checkpoint stores v, at once and under the lease, for a later run of the task to
// begin from; see [LoadCheckpoint]. It stays with the task for as long as the task is kept, and
// a requeue keeps it: to run a task from its beginning, delete it and enqueue it again.
//
// While the storage is away Checkpoint waits for it, for as long as the lease at most, and then
// returns an [ErrUnavailable] or [ErrUnknown]. A job that can go on without it ignores those.
func Checkpoint(ctx context.Context, v any) error {
	return inJob(ctx, "checkpoint", func(a *runner.Attempt) error {
		b, err := encodeFor(a, v)
		if err != nil {
			return err
		}
		return a.Store(ctx, nil, b)
	})
}

// LoadCheckpoint reads the last checkpoint of the running task into v, a pointer. ok is
// false where there is none.
func LoadCheckpoint(ctx context.Context, v any) (ok bool, err error) {
	err = inJob(ctx, "load checkpoint", func(a *runner.Attempt) error {
		if err := checkPointer(v); err != nil {
			return err
		}
		t, err := a.Task(ctx)
		if err != nil || len(t.Checkpoint) == 0 {
			return err
		}
		ok = true
		return codec.Decode(t.Encoding, t.Checkpoint, v)
	})
	return ok && err == nil, err
}

// encodeFor encodes v as the task's payload is, and checks its size.
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

// ErrCompleted is returned by what belongs to a running task once [CompleteWith] has
// completed it.
var ErrCompleted = runner.ErrCompleted

// CompleteWith completes the task of the running job as a part of a transaction of the
// job's own: with the storage on PostgreSQL or SQLite, CompleteWith(ctx, store.Within(tx)). What the
// job wrote in that transaction happens exactly once: it commits together with the
// completion, or neither does. The follow-ups and the result that were set before are part
// of it; what comes after is refused with [ErrCompleted].
//
// The job commits before it returns. Where it has, the task is completed whatever it
// returns; where it has not, its error counts as ever, and nil is a failure. It may roll
// back and call CompleteWith again with another transaction.
//
// From the call on the transaction's lock on the task is its lease. The runner no longer
// extends it, and nobody else touches the task before the transaction has ended: not even a
// cancel. So the transaction should end soon after, and a job that rolled back return or
// begin anew before the lease is over.
//
// Errors: [ErrNotInJob]; *[InvalidError], where a is nil or of another storage than the runner's;
// storage.ErrLeaseLost, where the task is another run's by now, and with it ErrCompleted where an
// earlier call of this job may have completed it; *storage.DependencyError, where a follow-up cannot
// be enqueued; and what a answers. After an error nothing of this has happened, and the transaction
// can be used on, unless the error is the transaction's.
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
