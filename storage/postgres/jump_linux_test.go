package postgres_test

import (
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/storagetest"
)

// TestJumps runs the rules of clocks that jump, on a real server.
func TestJumps(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	clock, err := testserver.StartClock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = clock.Close() })
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true, Env: clock.Env()})
	storagetest.RunJumps(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		opened := opener(t, fresh(t, postgres.Config{URL: server.URL(), Limits: limits}), func(*postgres.Storage) {})
		opened.Jump = func(d time.Duration) { clock.Set(clock.Ahead() + d) }
		return opened
	})
}
