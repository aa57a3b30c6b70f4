package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// ErrNotInJob is returned if the job has returned. The root package documents it.
var ErrNotInJob = errors.New("midge: the context is not that of a running job")

// MayAdd returns nil if the job can still add to its completion, and otherwise why it cannot.
func (a *Attempt) MayAdd() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mayAddLocked()
}

func (a *Attempt) mayAddLocked() error {
	switch {
	case a.phase == runs && a.joined:
		return fmt.Errorf("%w: %s", ErrCompleted, a.Fence.Ref)
	case a.phase == runs:
		return nil
	case a.phase == lost:
		return fmt.Errorf("%s: %w", a.Fence.Ref, storage.ErrLeaseLost)
	case a.ran && !a.returned && a.endedByLocked() != nil: // its task was given back, and the job runs on
		return a.endedByLocked()
	default:
		return ErrNotInJob
	}
}

// HookFailed logs that a hook of the job panicked. That does not change the outcome.
func (a *Attempt) HookFailed(hook string, err error) {
	a.log.hookFailed(hook, a.Kind, a.Fence.Ref, err)
}

// OutputLost logs that a writer that was to receive the output of the job's program failed.
func (a *Attempt) OutputLost(writer string, err error) {
	a.log.outputLost(writer, a.Kind, a.Fence.Ref, err)
}

// AfterRun calls call, which calls the job's AfterRun. end is what the job returned, which a
// runtime.Goexit in call does not change.
func (a *Attempt) AfterRun(end error, call func() error) {
	a.mu.Lock()
	x := a.extra()
	a.mu.Unlock()
	x.end = &end
	if err := call(); err != nil {
		a.HookFailed("AfterRun", err)
	}
	x.end = nil
}

// Unread logs that the parameters of the task hold a field that its job does not read.
func (a *Attempt) Unread(field string) { a.log.unread(a, field) }

// Jobs returns the Jobs that run the attempt.
func (a *Attempt) Jobs() Jobs { return a.jobs }

// MaxPayload returns the storage's bound of encoded values, in bytes.
func (a *Attempt) MaxPayload() int { return a.limits.Load().MaxPayload }

// ReturnWithin returns how long the job may take to return after a drain has ended its context.
func (a *Attempt) ReturnWithin() time.Duration { return a.tail }

// AllEnd returns a channel that is closed once a drain ends the contexts of all jobs, also of those whose
// context has ended before.
func (a *Attempt) AllEnd() <-chan struct{} { return a.ctx.Done() }

// Spans reports whether a queue can share an atomic step with the task's queue.
func (a *Attempt) Spans(queue string) bool { return storage.Spans(a.store, a.Fence.Queue, queue) }

// FollowUp adds an insert to the completion of the task.
func (a *Attempt) FollowUp(in storage.Insert) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.mayAddLocked(); err != nil {
		return err
	}
	sm := settlement{attempt: a}
	tx := storage.Tx{Inserts: append(sm.followUps(), in), Settles: []storage.Settle{sm.settle()}}
	if err := storage.CheckTxs(*a.limits.Load(), []storage.Tx{tx}); err != nil {
		return err
	}
	a.extra().followUps = tx.Inserts
	return nil
}

// SetResult sets the result that is stored with the completion of the task.
func (a *Attempt) SetResult(result []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.mayAddLocked(); err != nil {
		return err
	}
	sm := settlement{attempt: a}
	settle := sm.settle()
	settle.Result = result
	tx := storage.Tx{Inserts: sm.followUps(), Settles: []storage.Settle{settle}}
	if err := storage.CheckTxs(*a.limits.Load(), []storage.Tx{tx}); err != nil {
		return err
	}
	a.extra().result = result
	return nil
}

// largeValue is the size from which a runner writes only one progress or checkpoint at a time, in
// bytes. Several at once would fill the connections and the storage, and delay heartbeats.
const largeValue = 64 << 10

// withCause adds to the error of a call what has ended the context of its job, for example ErrLeaseLost.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// Store stores a progress or an envelope of steps and a checkpoint under the lease, at once. after is the call of
// a Store of unknown outcome, which then cannot replace this one, or zero.
func (a *Attempt) Store(ctx context.Context, after storage.Call, progress, checkpoint []byte) error {
	if len(progress)+len(checkpoint) >= largeValue {
		select {
		case a.large <- struct{}{}:
			defer func() { <-a.large }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	e := storage.Extension{Fence: a.Fence, Started: true, Progress: progress, Checkpoint: checkpoint}
	// A lost heartbeat is replaced by the next. This call is not, so it may take the whole lease.
	call, cancel := context.WithTimeout(ctx, a.lease)
	defer cancel()
	extended, err := a.tasks.Extend(call, storage.ExtendRequest{Call: after, Leases: []storage.Extension{e}})
	if err != nil {
		return withCause(ctx, err)
	}
	if len(extended.Lost) > 0 {
		a.leaseLost(a)
		return storage.ErrLeaseLost
	}
	return nil
}
