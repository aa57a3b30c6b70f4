package midge

import (
	"context"

	"github.com/midgehq/midge/internal/runner"
)

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
// Errors: [ErrNotInJob]; *[InvalidError], where a is nil; storage.ErrLeaseLost, where the
// task is another run's by now, and with it ErrCompleted where an earlier call of this job
// may have completed it; *storage.DependencyError, where a follow-up cannot be
// enqueued; and what a answers. After an error nothing of this has happened, and the
// transaction can be used on, unless the error is the transaction's.
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
