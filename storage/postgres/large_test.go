package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestHeartbeatsPassLargeCheckpoints has as many large checkpoints hang on the way as there are
// connections for leases. The heartbeat of another runner does not wait for them.
func TestHeartbeatsPassLargeCheckpoints(t *testing.T) {
	const large = 2
	s := newShop(t)
	_, err := s.session.Apply(t.Context(), insertTxs(large+1)...)
	s.must(err)
	fences := s.claim(large + 1).Fences
	lock, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE "+s.cfg.Schema+".sides IN EXCLUSIVE MODE")
	s.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, f := range fences[:large] {
		all.Go(func() {
			for ctx.Err() == nil { // each is given up after a while
				_, _ = s.store.Extend(ctx, storage.ExtendRequest{
					Leases: []storage.Extension{{Fence: f, Checkpoint: make([]byte, 1<<20)}},
				})
			}
		})
	}
	testserver.Await(t, "they are under way", func() bool {
		var n int
		s.must(s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
			"AND strpos(query, $1) > 0", postgres.InSchema("{schema}.side(", `"`+s.cfg.Schema+`"`)).Scan(&n))
		return n == large
	})
	pace, begun := testserver.StartPace(t), time.Now()
	extended, err := s.store.Extend(t.Context(), storage.ExtendRequest{
		Leases: []storage.Extension{{Fence: fences[large], For: time.Minute}},
	})
	if took := time.Since(begun); err != nil || len(extended.Lost) > 0 || took > pace.Stretch(2*time.Second, begun) {
		t.Errorf("a heartbeat gave %+v, %v, after %v, want the lease extended at once", extended, err, took)
	}
	cancel()
	s.must(lock.Rollback(t.Context()))
	all.Wait()
}
