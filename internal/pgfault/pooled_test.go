package pgfault

import (
	"sync"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/storagetest"
)

// TestPooledTransactions checks rules of the contract behind a proxy that may run each transaction
// on another connection of the server. Only the listener connects to the server directly.
func TestPooledTransactions(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	// Each rule makes a schema. A connection that has called the functions of hundreds of
	// schemas checks all their plans whenever an object is created, so that the last rules
	// would wait for seconds. Thus a proxy serves some rules only. Connections must not be replaced for their
	// age: pgbouncer 1.18 ends with "bad server state: 11" if it does so after a cancel.
	const each = 40
	var mu sync.Mutex // guards the variables below
	var bouncer *testserver.PgBouncer
	served := 0
	next := func() *testserver.PgBouncer {
		mu.Lock()
		defer mu.Unlock()
		if served++; served%each == 1 {
			bouncer = testserver.Bouncer(t, server, "server_idle_timeout = 5")
		}
		return bouncer
	}
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		testserver.Turn(t)
		bouncer := next()
		cfg := fresh(t, postgres.Config{URL: bouncer.URL(), ListenURL: server.URL(), Limits: limits})
		open := func(t testing.TB) storage.Storage {
			store, _ := opened(t, cfg)
			return store
		}
		return storagetest.Opened{Storage: open(t), Again: open, Durable: true}
	}, pooledTopics...)
}
