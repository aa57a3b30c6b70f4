package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestLateStepsDoNotStarve has two steps commit late at the same time, on all connections of the
// reserve. Each then reports that it is late, over another connection.
func TestLateStepsDoNotStarve(t *testing.T) {
	s := newShop(t)
	kept := insertOf("kept")
	kept.Keep.For = time.Hour
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{kept, insertOf("buried")}})
	fences := s.claim(2).Fences
	lock, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE "+s.cfg.Schema+".deltas IN SHARE MODE")
	s.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for _, tx := range []storage.Tx{
		{Settles: []storage.Settle{{Fence: fences[0], Outcome: storage.Complete}}},
		{Settles: []storage.Settle{{Fence: fences[1], Outcome: storage.Bury}}},
	} {
		all.Go(func() {
			if _, err := s.session.ApplyOne(ctx, tx); err != nil {
				t.Errorf("apply: %v", err)
			}
		})
	}
	testserver.Await(t, "both wait to commit, late", func() bool {
		var waiting int
		s.must(s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
			"AND query LIKE '%INSERT INTO \""+s.cfg.Schema+"\".deltas%' AND clock_timestamp() - xact_start > '60ms'").Scan(&waiting))
		return waiting == 2
	})
	pace, begun := testserver.StartPace(t), time.Now()
	s.must(lock.Commit(t.Context()))
	all.Wait()
	if took := time.Since(begun); took > pace.Stretch(5*time.Second, begun) {
		t.Errorf("took %v, want no wait for each other's connection", took)
	}
}
