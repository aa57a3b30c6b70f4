package postgres_test

import (
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestBatchMeetsEndedTask enqueues many tasks at once, among them one whose id is that of a
// task which has ended and is kept: where the ids were made together, and where they were not.
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
