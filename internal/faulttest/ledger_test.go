//go:build unix

package faulttest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// ledger records the calls between a runner or client and its storage: which leases were
// granted, extended and lost, and which settles were accepted.
type ledger struct {
	storage.Storage
	rec *recorder

	mu     sync.Mutex // guards what follows
	fences map[storage.Ref]storage.Fence
	sent   map[storage.Lane]sending // the last call in each lane
}

// sending is the sequence number of a call and the time when it was first sent. A repeat of
// the call has the outcome of the first execution.
type sending struct {
	seq  uint64
	from time.Time
}

func newLedger(store storage.Storage, rec *recorder) *ledger {
	return &ledger{
		Storage: store, rec: rec,
		fences: make(map[storage.Ref]storage.Fence), sent: make(map[storage.Lane]sending),
	}
}

// Spans passes on the optional ability of the storage.
func (l *ledger) Spans(queues ...string) bool { return storage.Spans(l.Storage, queues...) }

// fence returns the fence under which this process last claimed a task.
func (l *ledger) fence(ref storage.Ref) storage.Fence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fences[ref]
}

// firstSent returns the time when a call was first sent, which is now unless the call is a
// repeat.
func (l *ledger) firstSent(call storage.Call) time.Time {
	now := time.Now()
	if call.IsZero() {
		return now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.sent[call.Lane]; last.seq == call.Seq {
		return last.from
	}
	l.sent[call.Lane] = sending{call.Seq, now}
	return now
}

func (l *ledger) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	from := l.firstSent(req.Call)
	if req.Most() > 0 {
		l.rec.record(event{What: claimBegun, N: req.Most()})
	}
	answer, err := l.Storage.Claim(ctx, req)
	for i, t := range answer.Tasks {
		fence := answer.Fences[i]
		l.mu.Lock()
		l.fences[t.Ref] = fence
		l.mu.Unlock()
		l.rec.record(event{
			What: claimed, Ref: t.Ref, Fence: fence.Version, From: from, For: req.Lease,
			Ahead: !t.Started, Retries: t.Retries, Crashes: t.Crashes,
		})
	}
	return answer, err
}

func (l *ledger) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	from := l.firstSent(req.Call)
	answer, err := l.Storage.Extend(ctx, req)
	if err != nil {
		return answer, err
	}
	gone := make(map[storage.Ref]bool, len(answer.Lost))
	for _, ref := range answer.Lost {
		gone[ref] = true
	}
	for _, e := range req.Leases {
		if slices.Contains(answer.Locked, e.Fence.Ref) {
			continue
		}
		what := extended
		if gone[e.Fence.Ref] {
			what = extendLost
		}
		l.rec.record(event{What: what, Ref: e.Fence.Ref, Fence: e.Fence.Version, From: from, For: e.For})
	}
	return answer, nil
}

func (l *ledger) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	from := l.firstSent(call)
	each(txs, func(_ int, _ int, s storage.Settle) {
		l.rec.record(event{What: settleBegun, Ref: s.Fence.Ref, Fence: s.Fence.Version, Outcome: s.Outcome})
	})
	applied, err := l.Storage.Apply(ctx, call, txs...)
	each(txs, func(i, j int, s storage.Settle) {
		e := event{Ref: s.Fence.Ref, Fence: s.Fence.Version, Outcome: s.Outcome, From: from}
		switch {
		case err != nil:
			e.What, e.Err = settleUnknown, err.Error()
		case applied[i].Err == nil:
			e.What, e.State = settleDone, applied[i].Settled[j].State
		case errors.Is(applied[i].Err, storage.ErrLeaseLost):
			e.What, e.Err = settleLost, applied[i].Err.Error()
		default: // another part of the Tx was refused
			return
		}
		l.rec.record(e)
	})
	return applied, err
}

// each calls visit for every settle of the Txs.
func each(txs []storage.Tx, visit func(i, j int, s storage.Settle)) {
	for i := range txs {
		for j, s := range txs[i].Settles {
			visit(i, j, s)
		}
	}
}
