package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// settlement is a verdict on its way to the storage.
type settlement struct {
	attempt *Attempt
	verdict *storage.Settle // without fence; nil completes the task with the job's result
	as      Outcome         // how the attempt ended; "" for success
	err     error           // to be reported; nil for success
	took    time.Duration
	refused int  // how often a storage that may accept it later has refused it
	counted bool // as a success, before its completion was refused
}

// settle returns the settle for the storage.
func (sm *settlement) settle() storage.Settle {
	s := storage.Settle{Outcome: storage.Complete}
	if sm.verdict != nil {
		s = *sm.verdict
	} else {
		s.Result = sm.attempt.result()
	}
	s.Fence = sm.attempt.Fence
	return s
}

// count counts the run that the settlement ends, if it ends one.
func (sm *settlement) count() {
	a := sm.attempt
	switch {
	case sm.counted:
		a.counter.Fail()
		return
	case sm.verdict == nil:
	case sm.as == OutcomeReleased, sm.as == OutcomeUndecodable, sm.verdict.Outcome == storage.Decline, !a.ran:
		return
	}
	a.counter.Count(sm.took, sm.as.fails())
}

func (sm *settlement) outcome() storage.Outcome {
	if sm.verdict == nil {
		return storage.Complete
	}
	return sm.verdict.Outcome
}

// text returns the text of the error to be reported, cut as a log line quotes it. It reuses the
// text of the verdict, because making a long text twice is slow.
func (sm *settlement) text() string {
	if sm.verdict != nil && sm.verdict.Error != "" {
		return storage.PrintableText(sm.verdict.Error, briefMost)
	}
	return brief(sm.err)
}

// followUps returns the follow-ups of a completion; other outcomes have none.
func (sm *settlement) followUps() []storage.Insert {
	if sm.outcome() != storage.Complete || sm.attempt.extras == nil {
		return nil
	}
	return sm.attempt.extras.followUps
}

// size returns the number of operations of the settlement, and about how many bytes they carry.
func (sm *settlement) size() (ops, bytes int) {
	if sm.verdict == nil && sm.attempt.extras == nil {
		return 1, 0
	}
	settle := [1]storage.Settle{sm.settle()}
	tx := storage.Tx{Settles: settle[:], Inserts: sm.followUps()}
	return tx.Ops(), tx.Bytes()
}

// appendTx appends the settlement's Tx and its settle. settles must have spare capacity, because
// the Tx points into it.
func (sm *settlement) appendTx(txs []storage.Tx, settles []storage.Settle) ([]storage.Tx, []storage.Settle) {
	n := len(settles)
	settles = append(settles, sm.settle())
	return append(txs, storage.Tx{Settles: settles[n : n+1 : n+1], Inserts: sm.followUps()}), settles
}

// settler is the actor that brings the verdicts of a shard to the storage. Verdicts that arrive
// while a call is under way go out together with the next one; a lone verdict goes at once. It
// repeats a call for as long as its outcome is unknown.
type settler struct {
	*shared

	shard *shard
	judge *judge
	kick  chan struct{} // capacity 1
	pulse *pulse

	mu    sync.Mutex // guards queue
	queue []settlement

	// Memory of earlier calls for reuse. A call in doubt leaves none, because the storage may still
	// read its arguments.
	spare   []settlement
	txs     []storage.Tx
	settles []storage.Settle
	toTell  []end

	waiting []settlement // for another try, at next
	next    time.Time
	why     error // why they were refused
}

// spareMost bounds the memory that is kept: a longer queue comes from a time without the storage.
const spareMost = 4 * storage.MaxTxOps

// add queues settlements.
func (s *settler) add(sms ...settlement) {
	s.mu.Lock()
	s.queue = append(s.queue, sms...)
	s.mu.Unlock()
	kick(s.kick)
}

// release returns a task to the storage without counting a retry, unless it is being settled
// already; then that settle is still to be sent.
func (s *shared) release(a *Attempt) {
	switch {
	case a.settles():
		a.shard.settler.add(settlement{attempt: a, verdict: &storage.Settle{Outcome: storage.Release}, as: OutcomeReleased})
	case a.hasJoined(), // its transaction decides, and a release would wait for the lock of that transaction
		a.isLost():
		s.slots.settled(a)
	}
}

// releaseAll releases tasks in the reverse order of their claim: each goes to the head of its
// queue, so that they keep their order.
func (s *shared) releaseAll(attempts []*Attempt) {
	s.slots.returning(attempts...)
	for _, a := range slices.Backward(attempts) {
		s.release(a)
	}
}

// loop settles until ctx ends, which happens after every attempt in flight was settled or given up.
func (s *settler) loop(ctx context.Context) {
	defer s.pulse.ends()
	timer := time.NewTimer(slowScan)
	defer timer.Stop()
	for {
		s.pulse.works()
		s.flush(ctx)
		var due <-chan time.Time
		if len(s.waiting) > 0 {
			timer.Reset(time.Until(s.next))
			due = timer.C
		}
		s.pulse.rests()
		select {
		case <-s.kick:
		case <-due:
			s.pulse.works()
			s.retry(ctx)
		case <-ctx.Done():
			s.giveUp(s.waiting, s.why)
			return
		}
	}
}

// flush settles until the queue is empty.
func (s *settler) flush(ctx context.Context) {
	for all := s.takeQueue(); len(all) > 0; all = s.takeQueue() {
		for i := range all { // here, so that workers do not contend for the counters
			all[i].count()
		}
		s.settleAll(ctx, all)
	}
}

// settleAll settles the queued settlements in as few calls as possible.
func (s *settler) settleAll(ctx context.Context, all []settlement) {
	doubts := s.store.doubts.Load()
	for rest := all; len(rest) > 0; {
		n := oneCall(rest, (*settlement).size)
		s.settle(ctx, rest[:n])
		rest = rest[n:]
	}
	if s.store.doubts.Load() == doubts && cap(all) <= spareMost {
		clear(all)
		s.spare = all[:0]
	}
}

// takeQueue empties the queue and returns its settlements.
func (s *settler) takeQueue() []settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.queue
	if len(all) > 0 {
		s.queue, s.spare = s.spare, nil
	}
	return all
}

// oneCall returns how many of the first elements of a queue one call may carry. size returns the number
// of an element's operations, and about how many bytes they carry.
func oneCall[T any](queue []T, size func(*T) (ops, bytes int)) (n int) {
	ops, bytes := 0, 0
	for i := range queue {
		moreOps, moreBytes := size(&queue[i])
		ops += moreOps
		bytes += moreBytes
		if i > 0 && (ops > storage.MaxTxOps || bytes > storage.MaxTxBytes) {
			return i
		}
	}
	return len(queue)
}

// settle settles a batch, or keeps it for another try.
func (s *settler) settle(ctx context.Context, batch []settlement) {
	txs, settles := s.txs[:0], slices.Grow(s.settles[:0], len(batch))
	s.txs, s.settles = nil, nil
	for i := range batch {
		txs, settles = batch[i].appendTx(txs, settles)
	}
	doubts := s.store.doubts.Load()
	s.pulse.rests()
	applied, err := s.apply(ctx, txs)
	s.pulse.works()
	if s.store.doubts.Load() == doubts {
		clear(txs)
		clear(settles)
		s.txs, s.settles = txs, settles
	}
	switch {
	case err == nil:
		s.settled(batch, applied)
	case ctx.Err() != nil || errors.Is(err, storage.ErrClosed):
		s.giveUp(batch, err)
	case len(batch) > 1 && refusesTx(err): // one of them spoils the call: each gets its own
		for i := range batch {
			s.settle(ctx, batch[i:i+1])
		}
	case refusesTx(err):
		s.failInstead(&batch[0], err)
	default: // the storage is full, or refuses one of them, or all for now
		s.later(batch, err)
	}
}

// later keeps a batch for another try, each settlement by itself, so that one that is refused for
// good does not stop the others. The leases are extended meanwhile. A lease that has expired, because
// a full storage refuses extensions too, can still be settled until it is recovered, and then its fence
// refuses the settle. If its lease has expired, a settlement that is refused for another reason, such as
// damage, is given up.
func (s *settler) later(batch []settlement, err error) {
	if len(s.waiting) == 0 { // one line per round of tries
		s.log.trouble("settle", err)
	}
	for i := range batch {
		if !refuses(err) && !Unanswered(err) && batch[i].attempt.unextended() >= s.lease {
			s.giveUp(batch[i:i+1], err)
			continue
		}
		if len(s.waiting) == 0 {
			s.next = time.Now().Add(jitter(slowScan))
		}
		s.waiting = append(s.waiting, batch[i])
		s.waiting[len(s.waiting)-1].refused++
		s.slots.unreturned(batch[i].attempt)
	}
	s.why = err
}

// refusedMost bounds how many refused settlements a round tries in vain: a storage that refuses all
// is not asked about each.
const refusedMost = 10

// retry tries the waiting settlements again, those first that were refused least often.
func (s *settler) retry(ctx context.Context) {
	all := s.waiting
	s.waiting = nil
	slices.SortStableFunc(all, func(a, b settlement) int { return cmp.Compare(a.refused, b.refused) })
	for i := range all {
		if len(s.waiting) >= refusedMost {
			s.waiting = append(s.waiting, all[i:]...)
			return
		}
		s.settle(ctx, all[i:i+1])
	}
}

// apply applies the Txs. It repeats them under their first identity while the outcome is unknown,
// and under a new identity if they were never sent or the first one has expired. In the latter
// case the fences keep a second try from committing twice.
func (s *settler) apply(ctx context.Context, txs []storage.Tx) ([]storage.Applied, error) {
	applied, err := s.tasks.Apply(ctx, txs...)
	for ctx.Err() == nil {
		var unknown *storage.UnknownError
		switch {
		case errors.Is(err, storage.ErrClosed):
			return applied, err
		case errors.Is(err, storage.ErrUnavailable), errors.Is(err, storage.ErrLaneExpired):
			applied, err = s.tasks.Apply(ctx, txs...)
		case !errors.As(err, &unknown):
			return applied, err
		default:
			applied, err = s.tasks.Repeat(ctx, unknown)
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

// mayComeLater reports whether the storage may later accept the Tx that it refused, for example
// because the queue is damaged.
func mayComeLater(err error) bool {
	return err != nil && !errors.Is(err, storage.ErrLeaseLost) && !refusesTx(err)
}

// settled reports a batch after a successful call, Tx by Tx. Only the settler's goroutine may call
// it, because it uses the settler's memory.
func (s *settler) settled(batch []settlement, applied []storage.Applied) {
	s.toTell = s.report(batch, applied, s.toTell)
	clear(s.toTell)
	s.toTell = s.toTell[:0]
}

// report does the work of settled for any goroutine. It uses toTell as memory for the ends and
// returns it.
func (s *settler) report(batch []settlement, applied []storage.Applied, toTell []end) []end {
	ended := make([]*Attempt, 0, len(batch))
	for i := range batch {
		sm := &batch[i]
		switch err := applied[i].Err; {
		case err == nil:
			state := applied[i].Settled[0].State
			if sm.outcome() == storage.Release && sm.as != OutcomeThrottled && state != storage.Cancelled {
				s.released.Add(1)
			}
			s.log.settled(sm, state)
			toTell = s.settledEnds(toTell, sm, &applied[i].Settled[0])
			s.tellLeftOut(sm.attempt, sm.followUps(), applied[i].Inserted)
		case errors.Is(err, storage.ErrLeaseLost):
			s.log.lost(sm.attempt, sm.err, sm.took)
			s.tellLost(sm.attempt, sm.err, sm.took)
		case mayComeLater(err):
			s.later(batch[i:i+1], err)
			continue
		default:
			s.retryAsFailure(sm, err)
			continue
		}
		ended = append(ended, sm.attempt)
	}
	s.tell(toTell)
	s.slots.settled(ended...)
	return toTell
}

// tellLeftOut logs the follow-ups whose ids belong to tasks that will not run.
func (s *shared) tellLeftOut(a *Attempt, follow []storage.Insert, placed []storage.Placed) {
	for i := range min(len(follow), len(placed)) {
		if p := placed[i]; p.Existing && p.Ref == follow[i].Ref && (p.State == storage.Dead || p.State == storage.Cancelled) {
			s.log.leftOut(a, &follow[i], p.State)
		}
	}
}

// refusedFollowUp adds to an error about a taken id which follow-up it refuses, because nothing
// else in the error shows that the error is not about the task itself.
func refusedFollowUp(follow []storage.Insert, err error) error {
	var dep *storage.DependencyError
	if !errors.As(err, &dep) {
		return err
	}
	for _, c := range dep.Colliding {
		for i := range follow {
			if follow[i].Ref == c.Ref {
				return fmt.Errorf("midge: the follow-up %s %s was refused: %w", follow[i].Kind, c.Ref, err)
			}
		}
	}
	return err
}

// retryAsFailure queues a settlement whose follow-ups were refused again, as a failure without
// follow-ups.
func (s *settler) retryAsFailure(sm *settlement, err error) {
	err = refusedFollowUp(sm.followUps(), err)
	fail := s.judge.fail(sm.attempt, Judgement{Err: err})
	fail.As = string(OutcomeFailed)
	failed := *sm
	failed.verdict, failed.as, failed.err = &fail, OutcomeFailed, err
	failed.counted = sm.outcome() == storage.Complete
	s.add(failed)
}

// failInstead does the same for a Tx that no storage would accept. A Tx that completes nothing is
// given up.
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
		s.log.unsettled(batch[i].attempt, err)
		s.slots.settled(batch[i].attempt)
	}
}
