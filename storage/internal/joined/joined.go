// Package joined holds the code of an Apply within an application's transaction that storages on SQL share:
// its checks before any statement, and the rollback to its savepoint, which is named midge.
package joined

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// NoTransaction returns the error of an Apply within a transaction that is nil.
func NoTransaction() error { return storage.Invalid("transaction", "nil", "one that has begun") }

// Check returns an *InvalidError if an Apply must not be tried: for bad input, or a call with an identity.
func Check(limits storage.Limits, call storage.Call, txs []storage.Tx) error {
	if err := storage.CheckTxs(limits, txs); err != nil {
		return err
	}
	if !call.IsZero() {
		return storage.Invalid("call", "with an identity", "the zero Call within a transaction")
	}
	return nil
}

// LockTime bounds how long an Apply within a transaction waits for locks of other transactions.
const LockTime = 5 * time.Second

// Over returns the error for a call whose transaction is over.
func Over(err error) error { return fmt.Errorf("%w: %w", storage.ErrTransactionOver, err) }

// Known returns an error that is no ErrUnknown, for a call within a transaction: a call without a reply
// changed nothing unless the transaction commits, and a transaction that commits is not lost.
func Known(err error) error {
	if errors.Is(err, storage.ErrUnknown) {
		return fmt.Errorf("%w: %s", storage.ErrUnavailable, err) //nolint:errorlint // it must not be an ErrUnknown
	}
	return err
}

// undoTime bounds how long the rollback of a try may take, whether its context has ended or not.
const undoTime = 5 * time.Second

// Undo rolls a try back to its savepoint. If that fails, it ends the whole transaction and returns an
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
		_ = rollback(ctx) // if this fails too, the connection is gone, and the transaction with it
	}
	return err
}
