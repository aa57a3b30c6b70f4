package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/joined"
)

// Joined writes and reads within a transaction of the application's. Its writes are invisible until
// that transaction commits, and gone if it rolls back. Like the transaction it is for one goroutine
// at a time.
type Joined struct {
	store *Storage
	tx    *sql.Tx
}

var (
	_ storage.Joined  = (*Joined)(nil)
	_ storage.Located = (*Joined)(nil)
)

// Within joins a transaction on the same file. The transaction should have begun as a writer, see
// *DeferredError, and be short: until it ends nobody else writes, and no runner extends a lease.
func (s *Storage) Within(tx *sql.Tx) *Joined { return &Joined{store: s, tx: tx} }

// WithinSQL is Within, in the form that the storage on PostgreSQL has too.
func (s *Storage) WithinSQL(tx *sql.Tx) storage.Joined { return s.Within(tx) }

// Apply carries out each Tx whole or not at all, within the application's transaction. The call has no
// identity: it must be the zero Call.
//
// A Tx that is refused (Applied.Err) has changed nothing and leaves the transaction usable. So does
// an error, also that of a context which ended: the changes of this Apply are rolled back. If that
// fails, the transaction ends. If it is over, the error is a storage.ErrTransactionOver, and never a
// storage.ErrUnknown. A *DeferredError means that the transaction can write nothing.
func (j *Joined) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	if j.tx == nil {
		return nil, joined.NoTransaction()
	}
	if err := joined.Check(j.store.limits, call, txs); err != nil {
		return nil, err
	}
	if err := j.store.enter(); err != nil {
		return nil, wrap("apply", err)
	}
	if err := ctx.Err(); err != nil || len(txs) == 0 {
		return []storage.Applied{}, wrap("apply", err) // nothing was written
	}
	if err := j.store.checkMoved(nil); err != nil {
		return nil, wrap("apply", err)
	}
	if err := j.begun(ctx); err != nil {
		return nil, wrap("apply", err)
	}
	if _, err := j.tx.ExecContext(ctx, "SAVEPOINT midge"); err != nil {
		return nil, wrap("apply", j.store.translate(err, false))
	}
	w := j.store.newWork(ctx, j.tx, nil)
	j.store.beginJoined(w)
	applied := w.apply(txs)
	w.finish()
	w.exec("RELEASE midge")
	if w.err == nil {
		return applied, nil
	}
	err := j.store.translate(w.err, false)
	j.store.room.Wrote(err)
	if undone := j.undo(ctx); undone != nil {
		err = joined.Over(err)
	}
	return nil, wrap("apply", err)
}

// begun returns an ErrTransactionOver unless the transaction goes on. SQLite ends a transaction by itself
// after some errors, and a savepoint would then begin another one. Only within a transaction it refuses a
// BEGIN.
func (j *Joined) begun(ctx context.Context) error {
	_, err := j.tx.ExecContext(ctx, "BEGIN")
	switch {
	case err == nil:
		_, _ = j.tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return joined.Over(errEnded)
	case j.store.primary(err) == codeError:
		return nil
	}
	return j.store.translate(err, false)
}

var errEnded = errors.New("SQLite or the application has ended it")

// undo rolls a try back to its savepoint. If that fails, it ends the transaction, and returns an
// error.
func (j *Joined) undo(ctx context.Context) error {
	return joined.Undo(ctx, func(ctx context.Context, statement string) error {
		_, err := j.tx.ExecContext(ctx, statement)
		return err
	}, func(context.Context) error { return j.tx.Rollback() })
}

// Location returns the location of the Storage.
func (j *Joined) Location() string { return j.store.Location() }

// Task reads one task as the transaction sees it; see [Storage.Task].
func (j *Joined) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	return readTask(ctx, j, ref)
}

// Tasks lists tasks as the transaction sees them; see [Storage.Tasks].
func (j *Joined) Tasks(ctx context.Context, query storage.TasksQuery) (storage.TasksPage, error) {
	return readTasks(ctx, j, query)
}

// Queues lists queues as the transaction sees them; see [Storage.Queues].
func (j *Joined) Queues(ctx context.Context, query storage.QueuesQuery) (storage.QueuesPage, error) {
	return readQueues(ctx, j, query)
}

// look reads within the transaction, once: its errors show in the application's own statements too.
func (j *Joined) look(ctx context.Context, read func(*work)) error {
	if j.tx == nil {
		return joined.NoTransaction()
	}
	if err := j.store.enter(); err != nil {
		return err
	}
	w := j.store.newWork(ctx, j.tx, nil)
	w.readOnly = true
	if err := j.begun(ctx); err != nil {
		return err
	}
	read(w)
	return j.store.translate(w.err, false)
}
