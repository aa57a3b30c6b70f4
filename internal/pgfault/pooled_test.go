package pgfault

import (
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/storagetest"
)

// TestPooledTransactions is F53: the contract holds behind a proxy that runs each
// transaction on another connection of the server. The listener alone goes around it.
func TestPooledTransactions(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	// Each rule makes a schema. A connection that has called the functions of hundreds looks
	// through all their plans whenever something is created, so that the last rules would
	// wait for seconds: connections are replaced long before.
	bouncer := testserver.Bouncer(t, server, "server_lifetime = 5")
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		cfg := fresh(t, postgres.Config{URL: bouncer.URL(), ListenURL: server.URL(), Limits: limits})
		open := func(t testing.TB) storage.Storage {
			store, _ := opened(t, cfg)
			return store
		}
		return storagetest.Opened{Storage: open(t), Again: open, Durable: true}
	})
}
