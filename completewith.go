package midge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// ErrCompleted is returned by what belongs to a running task once [CompleteWith] has
// completed it.
var ErrCompleted = errors.New("midge: the task was completed with a transaction")

// errNotCommitted is what a job failed with that called CompleteWith, committed nothing
// and returned nil.
var errNotCommitted = errors.New(
	"midge: the job returned nil, and the transaction that completes its task was not committed")

// CompleteWith completes the task of the running job as a part of a transaction of the
// job's own: with the storage on PostgreSQL, CompleteWith(ctx, store.Within(tx)). What the
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
	at, _ := ctx.Value(attemptKey{}).(*attempt)
	if at == nil {
		return wrap(ErrNotInJob, "complete with")
	}
	tx, again, err := at.join()
	if err != nil {
		return wrap(err, "complete with")
	}
	applied, err := a.Apply(ctx, storage.Call{}, tx)
	if err == nil {
		err = refusedFollowUp(tx.Inserts, applied[0].Err)
	}
	if err == nil {
		return nil
	}
	if !again && !errors.Is(err, storage.ErrUnknown) { // else it may have happened: finish looks
		at.part()
		if errors.Is(err, storage.ErrLeaseLost) {
			at.r.leaseLost(at)
		}
	}
	if again && errors.Is(err, storage.ErrLeaseLost) {
		err = fmt.Errorf("%w before, or %w", ErrCompleted, err)
	}
	return wrap(err, "complete %s with", at.fence.Ref)
}

// join gives what completes the task and hands its lease to a transaction; again says that
// it was handed to one before.
func (a *attempt) join() (tx storage.Tx, again bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	again, a.joined = a.joined, false
	if err := a.mayWriteLocked(); err != nil {
		a.joined = again
		return tx, again, err
	}
	a.joined = true
	sm := settlement{attempt: a}
	return storage.Tx{Inserts: slices.Clone(sm.follow()), Settles: []storage.Settle{sm.settle()}}, again, nil
}

// part takes the lease back from a transaction that came to nothing.
func (a *attempt) part() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.joined = false
}

// hasJoined reports whether the lease is a transaction's.
func (a *attempt) hasJoined() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joined
}

// partPatience bounds how long the settle of a task is tried whose transaction was not
// committed. One that the job left open keeps it locked for longer.
const partPatience = 5 * time.Second

// finishJoined ends an attempt whose lease was handed to a transaction, in its worker: it
// looks whether that was committed.
func (r *Runner) finishJoined(a *attempt, err error, took time.Duration) {
	ctx, cancel := context.WithTimeout(a.domain.hard, r.cfg.Lease)
	defer cancel()
	done := settlement{attempt: a, took: took}
	switch t, failed := r.look(ctx, a.fence.Ref); {
	case errors.Is(failed, storage.ErrNotFound), failed == nil && t.State == storage.Completed:
		// Nobody else has ended it while the lease held: neither a settle nor a delete gets
		// by its fence. Behind that another run may have, where this one was rolled back.
		if a.unextended() > r.cfg.Lease {
			r.log.overdue(a, err, took)
		} else {
			if err != nil {
				r.log.dropped(a, err)
			}
			r.log.settled(&done, storage.Completed)
		}
		r.slots.settled(a)
	case failed != nil:
		a.domain.settle.giveUp([]settlement{done}, failed)
	case t.Version != a.fence.Version:
		r.slots.settled(a)
		r.log.lost(a, took)
	default:
		if err == nil {
			err = errNotCommitted
		}
		a.part()
		r.settleApart(ctx, a, err, took)
	}
}

// look reads a task, again for as long as the storage does not answer.
func (r *Runner) look(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, slowScan) {
		t, err := r.store.Task(ctx, ref)
		if !unanswered(err) || !rest(ctx, jitter(pause)) {
			return t, err
		}
	}
}

// settleApart settles what err asks for in a call of its own: a transaction that the job
// left open must not hold up the settles of others.
func (r *Runner) settleApart(ctx context.Context, a *attempt, err error, took time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, partPatience)
	defer cancel()
	alone := []settlement{r.judged(a, err, took)} //nolint:contextcheck // what it asks ends with the domain
	applied, failed := r.jobs.Apply(ctx, storage.Tx{Settles: []storage.Settle{alone[0].settle()}})
	if failed != nil {
		a.domain.settle.giveUp(alone, failed)
		return
	}
	a.domain.settle.settled(alone, applied)
}
