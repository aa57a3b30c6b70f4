package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestHeartbeatsPassLargeCheckpoints has large checkpoints and results under way that get no
// further: a heartbeat of their neighbour does not wait for a connection.
func TestHeartbeatsPassLargeCheckpoints(t *testing.T) {
	s := newShop(t)
	proxy := testserver.NewProxy(t, shared.Addr())
	cfg := s.cfg
	cfg.URL = "postgres://" + proxy.Addr() + "/postgres?user=midge&sslmode=disable"
	store, session := opened(t, cfg)
	const large = 3
	if _, err := session.Apply(t.Context(), insertTxs(large+2)...); err != nil {
		t.Fatal(err)
	}
	claimed, err := session.Claim(t.Context(), claimOf(large+2))
	if err != nil || len(claimed.Fences) != large+2 {
		t.Fatalf("claimed %d, %v, want %d", len(claimed.Fences), err, large+2)
	}
	held := proxy.Hold(testserver.Containing(".side("))
	defer held.Release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, f := range claimed.Fences[:large] {
		go func() { // ends with ctx
			_, _ = store.Extend(ctx, storage.ExtendRequest{
				Leases: []storage.Extension{{Fence: f, Checkpoint: make([]byte, 1<<20)}},
			})
		}()
	}
	go func() { // likewise
		_, _ = store.Apply(ctx, storage.Call{}, storage.Tx{Settles: []storage.Settle{
			{Fence: claimed.Fences[large], Outcome: storage.Complete, Result: make([]byte, 1<<20)},
		}})
	}()
	testserver.Await(t, "they are under way", func() bool {
		var n int
		s.must(s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity "+
			"WHERE state = 'idle in transaction' AND query LIKE '%load%' AND strpos(query, $1) > 0", s.cfg.Schema).Scan(&n))
		return n >= 2
	})
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	extended, err := store.Extend(ctx, storage.ExtendRequest{
		Leases: []storage.Extension{{Fence: claimed.Fences[large+1], For: time.Minute}},
	})
	if err != nil || len(extended.Lost) > 0 {
		t.Errorf("a heartbeat gave %+v, %v, want the lease extended", extended, err)
	}
}
