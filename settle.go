package midge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// settlement is a verdict on its way to the storage.
type settlement struct {
	attempt *attempt
	settle  [1]storage.Settle
	follow  []storage.Insert
	err     error // to be reported, nil for success
	took    time.Duration
}

func (sm *settlement) tx() storage.Tx { return storage.Tx{Settles: sm.settle[:], Inserts: sm.follow} }

func (sm *settlement) outcome() storage.Outcome { return sm.settle[0].Outcome }

// settler is the actor that brings the verdicts of a domain to the storage. What finishes while a
// call is under way goes out with the next one; a lone verdict goes at once. It
// repeats a call for as long as its outcome is unknown.
type settler struct {
	d    *domain
	kick chan struct{} // capacity 1

	mu    sync.Mutex // guards queue
	queue []settlement

	// Memory that earlier calls have left, unless one of them was in doubt: it may be on its
	// way yet, with what was handed to it.
	spare []settlement
	txs   []storage.Tx
}

// spareMost bounds the memory that is kept: what is more was a time without the storage.
const spareMost = 4 * storage.MaxTxOps

// add queues a settlement.
func (s *settler) add(sm settlement) {
	s.mu.Lock()
	s.queue = append(s.queue, sm)
	s.mu.Unlock()
	kick(s.kick)
}

// release gives a task back, uncharged, unless it is being settled already: then that
// settle is still to be brought.
func (r *Runner) release(a *attempt) {
	switch {
	case a.hasJoined(): // its transaction decides: a release would wait for the lock of that
		r.slots.settled(a)
	case a.settles():
		back := storage.Settle{Fence: a.fence, Outcome: storage.Release}
		a.domain.settle.add(settlement{attempt: a, settle: [1]storage.Settle{back}})
	case a.isLost():
		r.slots.settled(a)
	}
}

// releaseAll gives tasks back in the order in which they were claimed: each goes to the
// head, so the last goes first.
func (r *Runner) releaseAll(attempts []*attempt) {
	for _, a := range slices.Backward(attempts) {
		r.release(a)
	}
}

// loop settles until ctx ends, which is after everything held was settled or given
// up on.
func (s *settler) loop(ctx context.Context) {
	for {
		for all := s.take(); len(all) > 0; all = s.take() {
			doubts := s.d.r.store.doubts.Load()
			for rest := all; len(rest) > 0; {
				n := oneCall(rest)
				s.settle(ctx, rest[:n], false)
				rest = rest[n:]
			}
			if s.d.r.store.doubts.Load() == doubts && cap(all) <= spareMost {
				clear(all)
				s.spare = all[:0]
			}
		}
		select {
		case <-s.kick:
		case <-ctx.Done():
			return
		}
	}
}

// take gives all that is queued.
func (s *settler) take() []settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.queue
	if len(all) > 0 {
		s.queue, s.spare = s.spare, nil
	}
	return all
}

// oneCall is how many of those queued one call may carry.
func oneCall(queue []settlement) (n int) {
	ops, bytes := 0, 0
	for i := range queue {
		tx := queue[i].tx()
		ops += tx.Ops()
		bytes += tx.Bytes()
		if i > 0 && (ops > storage.MaxTxOps || bytes > storage.MaxTxBytes) {
			return i
		}
	}
	return len(queue)
}

// settle brings a batch to its end; again says that it was refused as a whole before.
func (s *settler) settle(ctx context.Context, batch []settlement, again bool) {
	txs := s.txs[:0]
	s.txs = nil
	for i := range batch {
		txs = append(txs, batch[i].tx())
	}
	doubts := s.d.r.store.doubts.Load()
	applied, err := s.apply(ctx, txs)
	if s.d.r.store.doubts.Load() == doubts {
		clear(txs)
		s.txs = txs
	}
	switch {
	case err == nil:
		s.settled(batch, applied)
	case ctx.Err() != nil || errors.Is(err, storage.ErrClosed):
		s.giveUp(batch, err)
	case len(batch) > 1 && (again || refusesTx(err)): // one of them spoils the call: each for itself
		for i := range batch {
			s.settle(ctx, batch[i:i+1], false)
		}
	case refusesTx(err):
		s.failInstead(&batch[0], err)
	default: // the storage is full or refuses for now; the lease is kept meanwhile
		s.d.r.log.trouble("settle", err)
		if s.pause(ctx, batch[len(batch)-1].attempt) {
			s.settle(ctx, batch, true)
		} else {
			s.giveUp(batch, err)
		}
	}
}

// apply applies the Txs and repeats them under their first identity for as long as the
// outcome is unknown. Once that identity has expired, the fences still keep a second
// try from committing twice.
func (s *settler) apply(ctx context.Context, txs []storage.Tx) ([]storage.Applied, error) {
	applied, err := s.d.r.jobs.Apply(ctx, txs...)
	for ctx.Err() == nil {
		var unknown *storage.UnknownError
		switch {
		case !errors.As(err, &unknown) || errors.Is(err, storage.ErrClosed):
			return applied, err
		case errors.Is(err, storage.ErrLaneExpired):
			applied, err = s.d.r.jobs.Apply(ctx, txs...)
		default:
			applied, err = s.d.r.jobs.Repeat(ctx, unknown)
		}
	}
	return applied, err
}

// refusesTx reports whether err is about the Tx itself, so that no repeat can help.
func refusesTx(err error) bool {
	var invalid *storage.InvalidError
	var dep *storage.DependencyError
	return errors.As(err, &invalid) || errors.As(err, &dep) || errors.Is(err, storage.ErrSpan)
}

// pause waits a little and reports whether a's settlement is still worth a try.
func (s *settler) pause(ctx context.Context, a *attempt) bool {
	t := time.NewTimer(jitter(slowScan))
	defer t.Stop()
	select {
	case <-t.C:
		return time.Since(a.lastExtended()) < s.d.r.cfg.Lease
	case <-ctx.Done():
		return false
	}
}

// settled reports a batch that went through, Tx by Tx.
func (s *settler) settled(batch []settlement, applied []storage.Applied) {
	ended := make([]*attempt, 0, len(batch))
	for i := range batch {
		sm := &batch[i]
		switch err := applied[i].Err; {
		case err == nil:
			if sm.outcome() == storage.Release {
				s.d.r.released.Add(1)
			}
			s.d.r.log.settled(sm, applied[i].Settled[0].State)
		case errors.Is(err, storage.ErrLeaseLost):
			s.d.r.log.lost(sm.attempt, sm.took)
		default:
			s.retryAsFailure(sm, err)
			continue
		}
		ended = append(ended, sm.attempt)
	}
	s.d.r.slots.settled(ended...)
}

// retryAsFailure queues a settlement whose follow-ups were refused again, as a failure
// without them.
func (s *settler) retryAsFailure(sm *settlement, err error) {
	failed := *sm
	fail := failure(storage.Fail, s.d.r.delay(sm.attempt), err)
	fail.Fence = sm.attempt.fence
	failed.settle[0], failed.follow, failed.err = fail, nil, err
	s.add(failed)
}

// failInstead does the same for a Tx that no storage would take.
func (s *settler) failInstead(sm *settlement, err error) {
	if sm.outcome() == storage.Complete {
		s.retryAsFailure(sm, err)
		return
	}
	s.giveUp([]settlement{*sm}, err)
}

// giveUp leaves a batch to the expiry of its leases.
func (s *settler) giveUp(batch []settlement, err error) {
	for i := range batch {
		s.d.r.log.unsettled(batch[i].attempt, err)
		s.d.r.slots.settled(batch[i].attempt)
	}
}
