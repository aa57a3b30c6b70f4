package postgres_test

import (
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestAnIsolationOfTheRolesOwn uses a role whose transactions are REPEATABLE READ by default. An
// insert that waits for a settle of the same id sees the result of the settle.
func TestAnIsolationOfTheRolesOwn(t *testing.T) {
	s := newShop(t)
	cfg := s.cfg
	cfg.URL = shared.URL() + "&default_transaction_isolation=repeatable%20read&application_name=" + cfg.Schema
	strictStore, strict := opened(t, cfg)
	kept := insertOf("x")
	kept.Keep.For = time.Hour
	s.apply(strictStore, storage.Tx{Inserts: []storage.Insert{kept}})
	claimed, err := strict.Claim(t.Context(), claimOf(1))
	s.must(err)
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	s.apply(s.store.Within(tx), storage.Tx{
		Settles: []storage.Settle{{Fence: claimed.Fences[0], Outcome: storage.Complete}},
	})
	var a storage.Applied
	done := make(chan error)
	go func() {
		var err error
		a, err = strict.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{kept}})
		done <- err
	}()
	testserver.Await(t, "the insert waits", func() bool {
		var waits bool
		s.must(s.db.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity "+
			"WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%')", s.cfg.Schema).Scan(&waits))
		return waits
	})
	s.must(tx.Commit(t.Context()))
	s.must(<-done)
	s.want("existing", a.Inserted[0].Existing, true)
	s.want("ended", s.state("x"), storage.Completed)
}
