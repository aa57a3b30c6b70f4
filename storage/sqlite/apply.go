package sqlite

import (
	"context"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// Apply carries out each Tx whole or not at all, in order. All of them are in one transaction of the
// database, which concurrent calls share.
func (s *Storage) Apply(ctx context.Context, id storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if err := storage.CheckCall(id); err != nil {
		return nil, err
	}
	if err := storage.CheckTxs(s.limits, txs); err != nil {
		return nil, err
	}
	if len(txs) == 0 {
		return []storage.Applied{}, wrap("apply", s.enter())
	}
	c := &call{Call: combine.Call{Identity: id}, txs: txs, lasting: true}
	for i := range txs {
		c.Ops, c.Bytes = c.Ops+txs[i].Ops(), c.Bytes+txs[i].Bytes()
	}
	var applied []storage.Applied
	c.run = func(w *work) (err error) {
		outcome, repeated, err := w.admit(id, engine.VerbApply)
		switch {
		case err != nil:
			return err
		case repeated:
			applied, err = record.Applied(outcome, c.txs)
			return err
		}
		applied = w.apply(c.txs)
		w.remember(id, engine.VerbApply, record.PackApplied(c.txs, applied))
		return nil
	}
	if err := s.do(ctx, c); err != nil {
		return nil, wrap("apply", err)
	}
	s.room.Wrote(nil, applied...)
	return applied, nil
}

// apply carries out Txs.
func (w *work) apply(txs []storage.Tx) []storage.Applied {
	w.prefetchNamed(txs)
	applied := engine.Answers(txs)
	for i := range txs {
		w.step.Apply(&txs[i], &applied[i])
		if w.moved { // an id may be taken again by a later Tx
			w.save()
		}
	}
	w.step.TrimDead()
	return applied
}

// prefetchNamed reads the tasks that Txs insert or settle, many with each statement.
func (w *work) prefetchNamed(txs []storage.Tx) {
	ids := make(map[string][]string)
	for i := range txs {
		tx := &txs[i]
		for j := range tx.Inserts {
			ids[tx.Inserts[j].Ref.Queue] = append(ids[tx.Inserts[j].Ref.Queue], tx.Inserts[j].Ref.ID)
		}
		for j := range tx.Settles {
			ref := tx.Settles[j].Fence.Ref
			ids[ref.Queue] = append(ids[ref.Queue], ref.ID)
		}
	}
	for name, some := range ids {
		w.prefetch(name, some)
	}
}
