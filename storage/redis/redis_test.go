package redis_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/storagetest"
)

// atOnce is how many tests run at the same time. On real servers they mostly wait for leases and jumps
// of the clock.
const atOnce = 8

func TestMain(m *testing.M) {
	if err := testserver.SetParallel(atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestContractOnMiniredis runs the suite of the contract on a miniredis, whose clock the suite moves.
func TestContractOnMiniredis(t *testing.T) {
	onMiniredis(t, func(cfg redis.Config) redis.Config { return cfg })
}

// TestContractWithoutShortWays runs the rules on the verbs that have short ways with calls that all go the
// general way. It uses a real server if there is one, because the Lua interpreter in Go is ten times as
// slow.
func TestContractWithoutShortWays(t *testing.T) {
	if testserver.Enabled() {
		t.Parallel()
		onRedis(t, redis.WithoutShortWays, generalTopics...)
	} else {
		onMiniredis(t, redis.WithoutShortWays, generalTopics...)
	}
}

func onMiniredis(t *testing.T, ways func(redis.Config) redis.Config, topics ...string) {
	t.Helper()
	processors := make(chan struct{}, runtime.GOMAXPROCS(0)) // its rules compute, and never wait
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		processors <- struct{}{}
		t.Cleanup(func() { <-processors })
		server := miniredis.RunT(t)
		clock := newClock(server)
		client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		// Under the race detector a script of 16 MiB takes the Lua in Go many seconds.
		url := "redis://" + server.Addr() + "?read_timeout=60s"
		opened := opener(t, client, ways(redis.Config{URL: url, Limits: limits}))
		opened.Advance, opened.Jump = clock.advance, clock.advance
		return opened
	}, topics...)
}

// clock is the clock of a miniredis. It moves only when a test moves it.
type clock struct {
	server *miniredis.Miniredis

	mu  sync.Mutex
	now time.Time
}

func newClock(server *miniredis.Miniredis) *clock {
	c := &clock{server: server, now: time.Now()}
	server.SetTime(c.now)
	return c
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.server.SetTime(c.now)
}

// patient is a parameter of the URL of a server that answers each call: no rule relies on a call that does not
// return, and a busy machine may take longer than the default of three seconds.
const patient = "?read_timeout=1m"

// TestContractOnRedis runs the suite on a real server, as a user with only the documented
// permissions.
func TestContractOnRedis(t *testing.T) {
	testserver.Require(t)
	t.Parallel()
	onRedis(t, func(cfg redis.Config) redis.Config { return cfg })
}

func onRedis(t *testing.T, ways func(redis.Config) redis.Config, topics ...string) {
	t.Helper()
	server := testserver.Redis(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	restricted(t, server)
	var n atomic.Int64
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		testserver.Turn(t)
		return opener(t, client, ways(redis.Config{
			URL: "redis://app:secret@" + server.Addr() + patient, Limits: limits,
			Prefix: fmt.Sprintf("midge:p%d", n.Add(1)),
		}))
	}, topics...)
}

// TestContractOnCluster runs the suite on a real Cluster of three masters.
func TestContractOnCluster(t *testing.T) {
	testserver.Require(t)
	t.Parallel()
	cluster := testserver.Cluster(t)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	restricted(t, cluster.Nodes()...)
	var n atomic.Int64
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		testserver.Turn(t)
		return opener(t, client, redis.WithClusterTimeout(redis.Config{ // see patient
			URL:    "redis+cluster://app:secret@" + cluster.Addrs()[0],
			Limits: limits, Prefix: fmt.Sprintf("midge:p%d", n.Add(1)),
		}, time.Minute))
	})
}

// opener opens a storage, and later opens it again on the same data.
func opener(t testing.TB, client goredis.UniversalClient, cfg redis.Config) storagetest.Opened {
	t.Helper()
	open := func(t testing.TB) storage.Storage {
		t.Helper()
		var s *redis.Storage
		testserver.Await(t, "the server answers", func() (answers bool) { // a busy one may take too long
			var err error
			if s, err = redis.Open(t.Context(), cfg); err != nil && !errors.Is(err, storage.ErrUnknown) {
				t.Fatal(err)
			}
			return err == nil
		})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	return storagetest.Opened{
		Storage: open(t),
		Again:   open,
		Durable: true,
		Damage: func(t testing.TB, ref storage.Ref) {
			t.Helper()
			prefix := cfg.Prefix
			if prefix == "" {
				prefix = "midge"
			}
			if err := client.HSet(t.Context(), prefix+":{"+ref.Queue+"}:tasks", ref.ID, "garbage").Err(); err != nil {
				t.Fatal(err)
			}
		},
	}
}
