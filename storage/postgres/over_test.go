package postgres_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestATransactionThatIsOver: within a transaction that has ended, or in which a statement failed, each verb
// returns that error, and never that the outcome is unknown.
func TestATransactionThatIsOver(t *testing.T) {
	s := newShop(t)
	for how, statements := range map[string][]string{
		"failed": {"SELECT 1/0"}, "rolled back by a statement": {"ROLLBACK"}, "committed by a statement": {"COMMIT"},
		"committed": {""},
	} {
		tx, err := s.conn.Begin(t.Context())
		s.must(err)
		sqlTx, err := s.db.BeginTx(t.Context(), nil)
		s.must(err)
		if statements[0] == "" {
			s.must(errors.Join(tx.Commit(t.Context()), sqlTx.Commit()))
		} else {
			_, _ = tx.Exec(t.Context(), statements[0])
			_, _ = sqlTx.ExecContext(t.Context(), statements[0])
		}
		s.over(how, tx, sqlTx)
	}
	s.want("tasks", s.state("a"), storage.State(""))
}

func (s *shop) over(how string, tx pgx.Tx, sqlTx *sql.Tx) {
	s.Helper()
	for _, j := range []storage.Joined{s.store.Within(tx), s.store.WithinSQL(sqlTx)} {
		_, applied := j.Apply(s.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
		_, read := j.Task(s.Context(), storage.Ref{Queue: "q", ID: "a"})
		_, listed := j.Tasks(s.Context(), storage.TasksQuery{Queue: "q", State: storage.Waiting})
		_, named := j.Queues(s.Context(), storage.QueuesQuery{})
		for verb, err := range map[string]error{"apply": applied, "task": read, "tasks": listed, "queues": named} {
			if !errors.Is(err, storage.ErrTransactionOver) || errors.Is(err, storage.ErrUnknown) {
				s.Errorf("%s in a transaction that was %s: got %v, want an ErrTransactionOver", verb, how, err)
			}
		}
	}
	_ = tx.Rollback(s.Context())
	_ = sqlTx.Rollback()
}

// TestALockWithinATransactionIsAwaitedForAWhile: another transaction holds a unique key for longer.
func TestALockWithinATransactionIsAwaitedForAWhile(t *testing.T) {
	testserver.Parallel(t)
	s := newShop(t)
	unique := func(id string) storage.Tx {
		in := insertOf(id)
		in.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
		return storage.Tx{Inserts: []storage.Insert{in}}
	}
	holder, err := s.db.BeginTx(t.Context(), nil)
	s.must(err)
	s.apply(s.store.WithinSQL(holder), unique("a"))
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{}, unique("b"))
	if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) {
		t.Errorf("got %v, want an ErrUnavailable", err)
	}
	s.must(holder.Rollback())
	s.apply(s.store.Within(tx), unique("b")) // the transaction is usable
	s.must(tx.Commit(t.Context()))
	s.want("the task", s.state("b"), storage.Waiting)
}
