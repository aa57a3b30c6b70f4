package difftest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// TestServers compares real servers, whose clock is a testserver.Clock.
func TestServers(t *testing.T) {
	testserver.Require(t)
	testserver.RequirePostgres(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	clock, err := testserver.StartClock()
	must(err)
	t.Cleanup(func() { must(clock.Close()) })
	clock.Set(time.Until(begin)) // the clock runs until all servers are up
	one, err := testserver.Start(testserver.Options{Env: clock.Env()})
	must(err)
	t.Cleanup(func() { must(one.Close()) })
	cluster, err := testserver.StartCluster(testserver.Options{
		Env: clock.Env(), Config: []string{"cluster-node-timeout 31536000000"}, // longer than any jump
	})
	must(err)
	t.Cleanup(func() { must(cluster.Close()) })
	pg := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true, Env: clock.Env()})

	n := 0
	sequences(t, seeds, steps, func(t testing.TB) ([]*side, func(time.Time)) {
		n++
		name := fmt.Sprint("d", n)
		reference, move := openMemory(t)
		slots := openRedis(t, "cluster", "redis+cluster://"+cluster.Addrs()[0], name)
		slots.slots = true
		cfg := postgres.Config{URL: pg.URL(), Schema: name, Limits: limits}
		must(postgres.Migrate(t.Context(), cfg))
		store, err := postgres.Open(t.Context(), cfg)
		must(err)
		t.Cleanup(func() {
			_ = store.Close()
			_ = pg.Exec(context.WithoutCancel(t.Context()), "DROP SCHEMA "+name+" CASCADE")
		})
		tables := newSide("postgres", store)
		tables.lazy, tables.fresh = true, true
		return []*side{reference, openRedis(t, "redis", one.URL(), name), slots, tables}, func(now time.Time) {
			move(now)
			clock.Set(time.Until(now))
		}
	})
}
