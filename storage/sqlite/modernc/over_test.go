package modernc_test

import (
	"errors"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestATransactionThatIsOver: within a transaction that has ended each verb returns that error, and never
// that the outcome is unknown. Nothing happens outside of the transaction.
func TestATransactionThatIsOver(t *testing.T) {
	path := file(t)
	s := open(t, path)
	db := database(t, path, "&_txlock=immediate")
	for _, how := range []string{"COMMIT", "ROLLBACK", "commit", "rollback"} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		switch how {
		case "commit":
			must(t, tx.Commit())
		case "rollback":
			must(t, tx.Rollback())
		default: // by a statement, as SQLite does by itself after some errors
			_, err := tx.ExecContext(t.Context(), how)
			must(t, err)
		}
		j := s.store.WithinSQL(tx)
		_, applied := j.Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{job("a")}})
		_, read := j.Task(t.Context(), ref("a"))
		_, listed := j.Tasks(t.Context(), storage.TasksQuery{Queue: queue, State: storage.Waiting})
		_, named := j.Queues(t.Context(), storage.QueuesQuery{})
		for verb, err := range map[string]error{"apply": applied, "task": read, "tasks": listed, "queues": named} {
			if !errors.Is(err, storage.ErrTransactionOver) || errors.Is(err, storage.ErrUnknown) {
				t.Errorf("%s after %s: got %v, want an ErrTransactionOver", verb, how, err)
			}
		}
		_ = tx.Rollback()
	}
	if state := s.state(t, "a"); state != "" {
		t.Errorf("the task is %s, want none", state)
	}
}
