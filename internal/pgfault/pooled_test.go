package pgfault

import (
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
	// would wait for seconds. Connections are replaced long before that.
	bouncer := testserver.Bouncer(t, server, "server_lifetime = 5")
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		testserver.Turn(t)
		cfg := fresh(t, postgres.Config{URL: bouncer.URL(), ListenURL: server.URL(), Limits: limits})
		open := func(t testing.TB) storage.Storage {
			store, _ := opened(t, cfg)
			return store
		}
		return storagetest.Opened{Storage: open(t), Again: open, Durable: true}
	}, pooledTopics...)
}
