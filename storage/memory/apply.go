package memory

import (
	"context"
	"fmt"

	"github.com/midgehq/midge/storage"
)

// Apply carries out each Tx whole or not at all, in order, all under one lock. The
// error is never an ErrUnknown but for a call that its lane has left behind.
func (s *Storage) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	if err := storage.CheckCall(call); err != nil {
		return nil, err
	}
	if err := storage.CheckTxs(s.limits, txs); err != nil {
		return nil, err
	}
	applied, room := make([]storage.Applied, len(txs)), roomFor(txs) // before others have to wait
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("memory: apply: %w", err)
	}
	defer s.mu.Unlock()
	ln, repeated, err := s.admit(call)
	if err != nil {
		return nil, fmt.Errorf("memory: apply: %w", err)
	}
	if repeated {
		first, ok := ln.outcome.([]storage.Applied)
		if !ok {
			return nil, fmt.Errorf("memory: apply: repeats another call: %w", storage.ErrUnknown)
		}
		copied, _ := copyApplied(nil, nil, first)
		return copied, nil
	}
	for i := range txs {
		room = s.apply(&txs[i], &applied[i], room)
	}
	ln.rememberApplied(applied)
	return applied, nil
}

// roomFor makes one piece of memory for the answers to all of the txs.
func roomFor(txs []storage.Tx) []storage.Placed {
	n := 0
	for i := range txs {
		n += len(txs[i].Inserts) + len(txs[i].Changes) + len(txs[i].Settles)
	}
	return make([]storage.Placed, n)
}

// apply checks a Tx and then, if nothing stands in its way, writes it. It takes the
// room for its answer and gives back the rest.
func (s *Storage) apply(tx *storage.Tx, a *storage.Applied, room []storage.Placed) []storage.Placed {
	if dep := s.check(tx); dep != nil {
		a.Err = dep
		return room
	}
	a.Inserted, room = cut(room, len(tx.Inserts))
	a.Changed, room = cut(room, len(tx.Changes))
	a.Settled, room = cut(room, len(tx.Settles))
	p := &s.plan
	for _, t := range p.deletes {
		s.remove(t)
	}
	for i := range tx.Settles {
		a.Settled[i] = s.settle(p.settles[i], &tx.Settles[i])
	}
	for i := range tx.Changes {
		a.Changed[i] = s.change(p.changes[i], &tx.Changes[i])
	}
	for i := range tx.Inserts {
		if p.inserts[i] == (storage.Ref{}) {
			a.Inserted[i] = s.insert(&tx.Inserts[i])
		}
	}
	for i := range tx.Inserts { // last, so that they tell what the step made of them
		if p.inserts[i] != (storage.Ref{}) {
			a.Inserted[i] = s.existing(p.inserts[i])
		}
	}
	s.trimDead()
	return room
}

// cut takes n elements off the room, none as nil.
func cut(room []storage.Placed, n int) (taken, rest []storage.Placed) {
	if n == 0 {
		return nil, room
	}
	return room[:n:n], room[n:]
}
