package pgfault

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// through returns the configuration with a proxy in front of the server, and the proxy.
func through(t *testing.T, cfg postgres.Config) (postgres.Config, *testserver.Proxy) {
	t.Helper()
	proxy := testserver.NewProxy(t, shared.Addr())
	cfg.URL = "postgres://" + proxy.Addr() + "/postgres?user=midge&sslmode=disable"
	return cfg, proxy
}

// TestOneDeadConnection makes the connection of one claim dead, like a connection that a
// NAT has forgotten or whose server has vanished: nothing arrives on it any more, not even
// an error. All other connections work, so the next job must run within seconds.
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
	isClaim := testserver.Containing(".claim_")
	held := proxy.HoldReply(func(request []byte) bool { return isClaim(request) && !struck.Swap(true) })
	defer held.Release()
	<-held.Struck()
	must(client.Enqueue(t.Context(), picked{}))(t)
	pace, begun := testserver.StartPace(t), time.Now()
	testserver.Await(t, "the next job runs", func() bool { return len(ran) > 0 })
	took := time.Since(begun)
	t.Logf("the next job ran after %v", took.Round(time.Millisecond))
	if took > pace.Stretch(found+soon, begun) {
		t.Errorf("no job ran for %v: the runner waits for one dead connection", took)
	}
}

// TestDeadWakeUpsHoldNothingUp sends wake-ups on connections that are dead. Heartbeats and
// settles, which have two connections of their own, must go on.
func TestDeadWakeUpsHoldNothingUp(t *testing.T) {
	testserver.RequirePostgres(t)
	const dead, limit = 2, time.Second
	cfg, proxy := through(t, fresh(t, postgres.Config{}))
	_, session := opened(t, cfg)
	must(session.Apply(t.Context(), inserts(1)...))(t)
	fence := must(session.Claim(t.Context(), claimOf(1)))(t).Fences[0]
	var struck atomic.Int64
	isTell := testserver.Containing("set_config('synchronous_commit', 'off', true)")
	held := proxy.HoldReply(func(request []byte) bool { return isTell(request) && struck.Add(1) <= dead })
	defer held.Release()
	busy, rest := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer rest()
	for _, unique := range []bool{false, true} { // the two are flushed concurrently
		all.Go(func() {
			for busy.Err() == nil {
				txs := inserts(1)
				if unique {
					txs[0].Inserts[0].Unique = storage.Unique{Mode: storage.UniqueLife, Key: txs[0].Inserts[0].Ref.ID}
				}
				_, _ = session.Apply(busy, txs...)
			}
		})
	}
	testserver.Await(t, "wake-ups were sent apart", func() bool { return struck.Load() >= dead })
	pace, begun := testserver.StartPace(t), time.Now()
	req := storage.ExtendRequest{Leases: []storage.Extension{{Fence: fence, For: time.Minute}}}
	_, err := session.Extend(t.Context(), req)
	if took := time.Since(begun); err != nil || took > pace.Stretch(limit, begun) {
		t.Errorf("no lease was extended for %v: %v", took, err)
	}
}
