// Package joined holds what storages of SQL share of an Apply within a transaction of the application's: its
// checks before any statement, and its savepoint, which is named midge.
package joined

import (
	"context"
	"time"

	"github.com/midgehq/midge/storage"
)

// NoTransaction is the error of an Apply within a transaction that is nil.
func NoTransaction() error { return storage.Invalid("transaction", "nil", "one that has begun") }

// Check gives an *InvalidError where an Apply must not be tried: bad input, or a call with an identity.
func Check(limits storage.Limits, call storage.Call, txs []storage.Tx) error {
	if err := storage.CheckTxs(limits, txs); err != nil {
		return err
	}
	if !call.IsZero() {
		return storage.Invalid("call", "with an identity", "the zero Call within a transaction")
	}
	return nil
}

// undoTime bounds how long a try is rolled back, whether its context has ended or not.
const undoTime = 5 * time.Second

// Undo rolls a try back to its savepoint. Where that fails it ends the transaction, and gives an error: the
// application must not commit half of a step.
func Undo(
	ctx context.Context, run func(ctx context.Context, statement string) error,
	rollback func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err := run(ctx, "ROLLBACK TO SAVEPOINT midge")
	if err == nil { // apart: after an error PostgreSQL prepares nothing but the first
		err = run(ctx, "RELEASE SAVEPOINT midge")
	}
	if err != nil {
		_ = rollback(ctx) // where this fails too the connection is gone, and the transaction with it
	}
	return err
}
