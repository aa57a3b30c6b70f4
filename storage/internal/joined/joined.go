// Package joined holds the code of an Apply within an application's transaction that storages on SQL share:
// its checks before any statement, and the rollback to its savepoint, which is named midge.
package joined

import (
	"context"
	"time"

	"github.com/midgehq/midge/storage"
)

// NoTransaction returns the error of an Apply within a transaction that is nil.
func NoTransaction() error { return storage.Invalid("transaction", "nil", "one that has begun") }

// Check returns an *InvalidError where an Apply must not be tried: for bad input, or a call with an identity.
func Check(limits storage.Limits, call storage.Call, txs []storage.Tx) error {
	if err := storage.CheckTxs(limits, txs); err != nil {
		return err
	}
	if !call.IsZero() {
		return storage.Invalid("call", "with an identity", "the zero Call within a transaction")
	}
	return nil
}

// undoTime bounds how long the rollback of a try may take, whether its context has ended or not.
const undoTime = 5 * time.Second

// Undo rolls a try back to its savepoint. Where that fails it ends the whole transaction and returns an
// error, so that the application does not commit half of a step.
func Undo(
	ctx context.Context, run func(ctx context.Context, statement string) error,
	rollback func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err := run(ctx, "ROLLBACK TO SAVEPOINT midge")
	if err == nil { // apart: in a failed transaction PostgreSQL prepares only the rollback
		err = run(ctx, "RELEASE SAVEPOINT midge")
	}
	if err != nil {
		_ = rollback(ctx) // where this fails too the connection is gone, and the transaction with it
	}
	return err
}
