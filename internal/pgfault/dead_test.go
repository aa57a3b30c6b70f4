package pgfault

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// through gives the configuration of a schema behind a proxy.
func through(t *testing.T, cfg postgres.Config) (postgres.Config, *testserver.Proxy) {
	t.Helper()
	proxy := testserver.NewProxy(t, shared.Addr())
	cfg.URL = "postgres://" + proxy.Addr() + "/postgres?user=midge&sslmode=disable"
	return cfg, proxy
}

// TestOneDeadConnection is F36: the connection of one claim goes dead, as behind a NAT that
// forgot it or with a server that vanished. Nothing comes on it any more, no error either.
// All other connections work: the next job runs within seconds.
func TestOneDeadConnection(t *testing.T) {
	testserver.RequirePostgres(t)
	const found, soon = 5 * time.Second, 2 * time.Second
	cfg := fresh(t, postgres.Config{})
	direct, _ := opened(t, cfg)
	client := must(midge.NewClient(direct, midge.ClientConfig{}))(t)
	cfg, proxy := through(t, cfg)
	store, _ := opened(t, cfg)
	runner := must(midge.NewRunner(store, midge.RunnerConfig{Lease: 3 * time.Second}))(t)
	ran := make(chan struct{}, 2)
	succeed(t, midge.Handle(runner, func(context.Context, picked) error {
		ran <- struct{}{}
		return nil
	}))
	must(client.Enqueue(t.Context(), picked{}))(t)
	start(t, runner)
	<-ran
	var struck atomic.Bool
	isClaim := testserver.Containing(".claim(")
	held := proxy.HoldReply(func(request []byte) bool { return isClaim(request) && !struck.Swap(true) })
	defer held.Release()
	<-held.Struck()
	must(client.Enqueue(t.Context(), picked{}))(t)
	begun := time.Now()
	select {
	case <-ran:
		t.Logf("the next job ran after %v", time.Since(begun).Round(time.Millisecond))
	case <-time.After(found + soon):
		t.Errorf("no job ran for %v: the runner waits for one dead connection", found+soon)
	}
}
