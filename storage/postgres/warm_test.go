package postgres_test

import (
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// TestConnectionsAreWarm claims once. Soon afterwards there are connections that nobody
// had to wait for, and nothing is left of what they rehearsed.
func TestConnectionsAreWarm(t *testing.T) {
	s := newShop(t)
	cfg := fresh(t, postgres.Config{URL: shared.URL() + "&application_name=warm"})
	_, s.session = opened(t, cfg)
	s.claim(1)
	number := func(query string) (n int) {
		t.Helper()
		s.must(s.db.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	testserver.Await(t, "one of the reserve, two for claims, and the listener", func() bool {
		return number("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'warm' AND state = 'idle'") >= 4
	})
	for _, table := range []string{"tasks", "deltas"} {
		if n := number("SELECT count(*) FROM " + cfg.Schema + "." + table); n > 0 {
			t.Errorf("%s: got %d rows, want none", table, n)
		}
	}
	if n := number("SELECT count(*) FROM " + cfg.Schema + ".queues WHERE queue < 0"); n > 0 {
		t.Errorf("got %d queues of rehearsals, want none", n)
	}
}
