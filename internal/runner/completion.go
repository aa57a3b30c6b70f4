package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// ErrCompleted is returned if a transaction has completed the task. The root package documents it.
var ErrCompleted = errors.New("midge: the task was completed with a transaction")

// errNotCommitted is the failure of a job that called CompleteWith, did not commit, and returned
// nil.
var errNotCommitted = errors.New(
	"midge: the job returned nil, and the transaction that completes its task was not committed")

// CompleteWith completes the task within a transaction of the job.
func (a *Attempt) CompleteWith(ctx context.Context, with storage.Applier) error {
	if kit, ok := a.store.Storage.(Stepped); ok {
		with = kit.Within(with)
	} else if err := storage.CheckLocation(a.store.Storage, with); err != nil {
		return err
	}
	tx, again, err := a.join()
	if err != nil {
		return err
	}
	applied, err := with.Apply(ctx, storage.Call{}, tx)
	if err == nil {
		err = refusedFollowUp(tx.Inserts, applied[0].Err)
	}
	switch {
	case err == nil:
		a.tellLeftOut(a, tx.Inserts, applied[0].Inserted)
		return nil
	case again && errors.Is(err, storage.ErrLeaseLost):
		err = fmt.Errorf("%w before, or %w", ErrCompleted, err)
	case !again && !errors.Is(err, storage.ErrUnknown): // otherwise it may have happened: finishJoined checks
		a.part()
		if errors.Is(err, storage.ErrLeaseLost) {
			a.leaseLost(a)
		}
	}
	return fmt.Errorf("%s: %w", a.Fence.Ref, err)
}

// join returns the Tx that completes the task, and hands the lease to a transaction. again means
// that an earlier transaction had it.
func (a *Attempt) join() (tx storage.Tx, again bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	again, a.joined = a.joined, false
	err = a.mayAddLocked()
	if err == nil {
		err = a.owes() // such as a snooze, which a completion would undo
	}
	if err != nil {
		a.joined = again
		return tx, again, err
	}
	a.joined = true
	sm := settlement{attempt: a}
	return storage.Tx{Inserts: slices.Clone(sm.followUps()), Settles: []storage.Settle{sm.settle()}}, again, nil
}

// part takes the lease back from a transaction that did not commit.
func (a *Attempt) part() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.joined = false
}

// hasJoined reports whether a transaction has the lease.
func (a *Attempt) hasJoined() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joined
}

// partPatience bounds how long a settle is tried, while the storage answers, for a task whose
// transaction was not committed. A transaction that the job left open keeps the task locked for longer.
const partPatience = 5 * time.Second

// finishJoined ends an attempt whose lease was handed to a transaction. Its worker calls it. It
// reads the task to learn whether the transaction was committed, and waits for a storage that does not
// answer.
func (j *judge) finishJoined(a *Attempt, err error, took time.Duration) {
	j.slots.checks(a)
	ctx := a.shard.hard
	done := settlement{attempt: a, took: took}
	t, failed := j.look(ctx, a.Fence.Ref)
	for refuses(failed) && sleep.For(ctx, jitter(slowScan)) {
		j.log.trouble("read a task", failed)
		t, failed = j.look(ctx, a.Fence.Ref)
	}
	switch {
	case errors.Is(failed, storage.ErrNotFound), failed == nil && t.State == storage.Completed:
		// While the lease held, nobody else can have ended the task: no settle and no delete passes
		// the fence. After the lease, another run may have ended it, if this transaction was
		// rolled back.
		if a.unextended() > j.lease {
			j.log.overdue(a, err, took)
		} else {
			if err != nil {
				j.log.dropped(a, err)
			}
			done.count()
			j.log.settled(&done, storage.Completed)
			placed := storage.Placed{Ref: a.Fence.Ref, Version: t.Version, State: storage.Completed}
			j.tell(j.settledEnds(nil, &done, &placed))
		}
		j.slots.settled(a)
	case failed != nil:
		a.shard.settler.giveUp([]settlement{done}, failed)
	case t.Version != a.Fence.Version:
		j.log.lost(a, err, took)
		j.tellLost(a, err, took)
		j.slots.settled(a)
	default:
		if err == nil {
			err = errNotCommitted
		}
		a.part()
		j.settleApart(a, err, took)
	}
}

// refuses reports whether a storage that answers has refused a call, and may carry it out later.
func refuses(err error) bool {
	return errors.Is(err, storage.ErrRefused) || errors.Is(err, storage.ErrFull)
}

// look reads a task, and tries again while the storage does not answer.
func (s *shared) look(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, slowScan) {
		t, err := s.store.Task(ctx, ref)
		if !Unanswered(err) || !sleep.For(ctx, jitter(pause)) {
			return t, err
		}
	}
}

// settleApart settles what err asks for in its own call, because a transaction that the job left
// open must not delay the settles of other tasks.
func (j *judge) settleApart(a *Attempt, err error, took time.Duration) {
	ctx, cancel := context.WithCancel(a.shard.hard)
	defer cancel()
	go j.endLocked(ctx, cancel, a.Fence.Ref)
	alone := []settlement{j.settlement(a, err, took)}
	if alone[0].as == OutcomeThrottled {
		j.releaseAll(j.slots.throttle(a))
	}
	tx := storage.Tx{Settles: []storage.Settle{alone[0].settle()}}
	applied, failed := a.shard.settler.apply(ctx, []storage.Tx{tx})
	switch {
	case failed != nil && ctx.Err() != nil:
		a.shard.settler.giveUp(alone, failed)
	case failed != nil, mayComeLater(applied[0].Err): // only the settler keeps settlements for another try
		a.shard.settler.add(alone[0])
	default:
		alone[0].count()
		a.shard.settler.report(alone, applied, nil)
	}
}

// endLocked cancels the settle of a task that seems to be locked: the storage has answered two reads,
// which pass a lock, and not yet the settle. A storage that is away answers neither. It ends with ctx.
func (j *judge) endLocked(ctx context.Context, cancel context.CancelFunc, ref storage.Ref) {
	for answered := 0; answered < 2 && sleep.For(ctx, partPatience/2); answered++ {
		if _, err := j.store.Task(ctx, ref); Unanswered(err) {
			answered = -1
		}
	}
	cancel()
}
