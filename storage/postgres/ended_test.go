package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestBatchMeetsEndedTask enqueues many tasks at once, one of them under the id of a task that has
// ended and is kept. The ids were made together, or not.
func TestBatchMeetsEndedTask(t *testing.T) {
	testserver.RequirePostgres(t)
	_, session := opened(t, fresh(t, postgres.Config{}))
	for _, others := range [][]string{
		{storage.NewID(), storage.NewID(), storage.NewID()}, {"a", "b", storage.NewID()},
	} {
		taken := others[2]
		kept := insertOf(taken)
		kept.Keep.For = time.Hour
		if _, err := session.Apply(t.Context(), storage.Tx{Inserts: []storage.Insert{kept}}); err != nil {
			t.Fatal(err)
		}
		complete(t.Context(), t, session, make(map[string]int))
		var txs []storage.Tx
		for _, id := range []string{others[0], taken, others[1]} {
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{insertOf(id)}})
		}
		applied, err := session.Apply(t.Context(), txs...)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range applied {
			ended := i == 1
			if a.Err != nil || a.Inserted[0].Existing != ended || (a.Inserted[0].State == storage.Completed) != ended {
				t.Errorf("insert %d: got %+v, want what has ended for the second and new tasks else", i, a)
			}
		}
		complete(t.Context(), t, session, make(map[string]int))
	}
}

// TestAnEndedTaskMovesToWhereItsIDIsFree has the application move a dead task to another queue, in a
// transaction that is still open when somebody enqueues its id there.
func TestAnEndedTaskMovesToWhereItsIDIsFree(t *testing.T) {
	s := newShop(t)
	kept := insertOf("a")
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{kept}})
	s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: s.claim(1).Fences[0], Outcome: storage.Bury}}})
	arrives := storage.Ref{Queue: "archive", ID: "a"}
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{{
		Ref: storage.Ref{Queue: arrives.Queue, ID: "other"}, Kind: "kind", Encoding: "json", CrashLimit: 3,
	}}})
	ended, err := s.store.Task(t.Context(), kept.Ref)
	s.must(err)
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	moves := storage.Change{Ref: kept.Ref, Version: ended.Version, Queue: arrives.Queue}
	s.must(s.apply(s.store.Within(tx), storage.Tx{Changes: []storage.Change{moves}}).Err)
	asked := make(chan storage.Applied, 1)
	go func() { // ends with the test
		in := insertOf("a")
		in.Ref, in.Kind = arrives, "another"
		applied, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
		if err != nil {
			applied.Err = err
		}
		asked <- applied
	}()
	testserver.Await(t, "the insert waits, or has gone through", func() (waits bool) {
		s.must(s.db.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)`).Scan(&waits))
		return waits || len(asked) > 0
	})
	s.must(tx.Commit(t.Context()))
	var dep *storage.DependencyError
	if got := <-asked; !errors.As(got.Err, &dep) || len(dep.Colliding) == 0 {
		t.Errorf("an insert of an id that has arrived gave %+v, want a collision", got)
	}
}
