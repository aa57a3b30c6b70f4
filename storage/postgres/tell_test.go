package postgres_test

import (
	"context"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
)

// TestWakeUpsDoNotWaitForTheSweep has the sweep wait for a lock while another process has to be told
// of an event.
func TestWakeUpsDoNotWaitForTheSweep(t *testing.T) {
	s := newShop(t)
	lock, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE "+s.cfg.Schema+".deltas IN ACCESS EXCLUSIVE MODE")
	s.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		s.store.Look(ctx)
	}()
	testserver.Await(t, "the sweep waits", func() bool {
		var waiting int
		s.must(s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
			"AND query LIKE '%\""+s.cfg.Schema+"\".fold%'").Scan(&waiting))
		return waiting > 0
	})
	if err := s.store.Tell(t.Context(), 1); err != nil {
		t.Errorf("got %v, want the others told", err)
	}
	s.must(lock.Commit(t.Context()))
	<-swept
}
