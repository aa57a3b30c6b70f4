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

// recordingStorage records the calls between a runner or client and its storage: which leases were
// granted, extended and lost, and which settles were accepted.
type recordingStorage struct {
	storage.Storage
	rec *recorder

	mu     sync.Mutex // guards the fields below
	fences map[storage.Ref]storage.Fence
	sent   map[storage.Lane]sending // the last call in each lane
}

// sending is the sequence number of a call and the time when it was first sent. A repeat of
// the call has the outcome of the first execution.
type sending struct {
	seq  uint64
	from time.Time
}

func newRecordingStorage(store storage.Storage, rec *recorder) *recordingStorage {
	return &recordingStorage{
		Storage: store, rec: rec,
		fences: make(map[storage.Ref]storage.Fence), sent: make(map[storage.Lane]sending),
	}
}

// Spans passes on the optional ability of the storage.
func (r *recordingStorage) Spans(queues ...string) bool { return storage.Spans(r.Storage, queues...) }

// fence returns the fence under which this process last claimed a task.
func (r *recordingStorage) fence(ref storage.Ref) storage.Fence {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fences[ref]
}

// firstSent returns the time when a call was first sent, which is now unless the call is a
// repeat.
func (r *recordingStorage) firstSent(call storage.Call) time.Time {
	now := time.Now()
	if call.IsZero() {
		return now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.sent[call.Lane]; last.seq == call.Seq {
		return last.from
	}
	r.sent[call.Lane] = sending{call.Seq, now}
	return now
}

func (r *recordingStorage) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	from := r.firstSent(req.Call)
	if req.Most() > 0 {
		r.rec.record(event{What: claimBegun, N: req.Most()})
	}
	answer, err := r.Storage.Claim(ctx, req)
	for i, t := range answer.Tasks {
		fence := answer.Fences[i]
		r.mu.Lock()
		r.fences[t.Ref] = fence
		r.mu.Unlock()
		r.rec.record(event{
			What: claimed, Ref: t.Ref, Fence: fence.Version, From: from, For: req.Lease,
			Ahead: !t.Started, Retries: t.Retries, Crashes: t.Crashes, Claimed: t.Claimed,
		})
	}
	return answer, err
}

func (r *recordingStorage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	from := r.firstSent(req.Call)
	answer, err := r.Storage.Extend(ctx, req)
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
		r.rec.record(event{What: what, Ref: e.Fence.Ref, Fence: e.Fence.Version, From: from, For: e.For})
	}
	return answer, nil
}

func (r *recordingStorage) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	from := r.firstSent(call)
	each(txs, func(_ int, _ int, s storage.Settle) {
		r.rec.record(event{What: settleBegun, Ref: s.Fence.Ref, Fence: s.Fence.Version, Outcome: s.Outcome})
	})
	applied, err := r.Storage.Apply(ctx, call, txs...)
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
		r.rec.record(e)
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
