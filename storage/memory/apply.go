package memory

import (
	"context"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Apply carries out each Tx whole or not at all, in order, all under one lock. The error is an
// ErrUnknown only if the lane of the call is expired or remembers a later or a different call.
func (s *Storage) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	if err := storage.CheckCall(call); err != nil {
		return nil, err
	}
	if err := storage.CheckTxs(s.step.Limits, txs); err != nil {
		return nil, err
	}
	applied := engine.Answers(txs) // before the lock, so that other calls need not wait for it
	ln, repeated, err := s.begin(ctx, call, engine.VerbApply)
	if err != nil {
		return nil, fmt.Errorf("memory: apply: %w", err)
	}
	defer s.mu.Unlock()
	if repeated {
		copied, _ := copyApplied(nil, nil, ln.applied)
		return copied, nil
	}
	for i := range txs {
		s.step.Apply(&txs[i], &applied[i])
		(*records)(s).copyIn(&txs[i], &applied[i])
	}
	s.step.TrimDead()
	ln.rememberApplied(applied)
	return applied, nil
}
