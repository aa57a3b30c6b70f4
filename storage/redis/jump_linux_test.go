package redis_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/storagetest"
)

// TestJumpsOnRedis runs the rules about clocks that jump on a real server.
func TestJumpsOnRedis(t *testing.T) {
	testserver.Require(t)
	t.Parallel()
	clock := startClock(t)
	server, err := testserver.Start(testserver.Options{Env: clock.Env()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	runJumps(t, clock, client, server.URL())
}

// TestJumpsOnCluster runs the same rules on a real Cluster. Its nodes must not suspect each other when
// the clock jumps.
func TestJumpsOnCluster(t *testing.T) {
	testserver.Require(t)
	t.Parallel()
	clock := startClock(t)
	cluster, err := testserver.StartCluster(testserver.Options{
		Env: clock.Env(), Config: []string{"cluster-node-timeout 86400000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	runJumps(t, clock, client, "redis+cluster://"+cluster.Addrs()[0])
}

func startClock(t *testing.T) *testserver.Clock {
	t.Helper()
	clock, err := testserver.StartClock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = clock.Close() })
	return clock
}

func runJumps(t *testing.T, clock *testserver.Clock, client goredis.UniversalClient, url string) {
	t.Helper()
	n := 0
	storagetest.RunJumps(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		n++
		opened := opener(t, client, redis.Config{URL: url, Limits: limits, Prefix: fmt.Sprintf("p%d", n)})
		opened.Jump = func(d time.Duration) { clock.Set(clock.Ahead() + d) }
		return opened
	})
}
