//go:build unix

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// node is one process of a server.
type node interface {
	Addr() string
	Kill() error // as a crash would
	Restart() error
	Pause() error
	Resume() error
	Close() error
}

// kind is the kind of a server.
type kind string

const (
	oneRedis    kind = "redis"
	aCluster    kind = "cluster"
	onePostgres kind = "postgres"
	oneFile     kind = "sqlite" // without a server
	// sentinels are a Redis that clients reach through a sentinel. Their tests start them: see
	// testserver.Sentinel.
	sentinels kind = "sentinels"
)

// server is a Redis, a Cluster, a PostgreSQL, or, for files, no server at all.
type server struct {
	kind    kind
	nodes   []node
	cluster *testserver.RedisCluster // nil unless it is a Cluster
}

func (s *server) addrs() []string {
	var addrs []string
	for _, node := range s.nodes {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// place returns a place on the server that only this test uses: a key prefix, a schema, or
// a file.
func (s *server) place(t *testing.T) dialing {
	t.Helper()
	if s.kind == oneFile {
		return dialing{Kind: oneFile, Addrs: []string{filepath.Join(t.TempDir(), "jobs.db")}}
	}
	d := dialing{Kind: s.kind, Addrs: s.addrs(), Place: placeOf(t, s.kind)}
	if s.kind == onePostgres {
		must(t, postgres.Migrate(t.Context(), d.postgres()))
	}
	return d
}

// lease returns the shortest lease that runners may have on this kind of server.
func (s *server) lease() time.Duration {
	if s.kind == oneFile {
		return 10 * time.Second
	}
	return 2 * time.Second
}

// ready waits until the server serves.
func (s *server) ready() error {
	if s.kind == oneFile {
		return nil
	}
	switch node := s.nodes[0].(type) {
	case *testserver.PostgresServer:
		return node.Exec(context.Background(), "SELECT 1")
	case *testserver.Server:
		if s.cluster != nil {
			return s.cluster.AwaitReady()
		}
		_, err := node.Do("PING")
		return err
	}
	return fmt.Errorf("faulttest: a %T", s.nodes[0])
}

func (s *server) close() error {
	var errs []error
	for _, node := range s.nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}

// start starts a server. A PostgreSQL uses only the environment of the options. It is
// durable by default, except if no test disturbs it.
func start(k kind, disturbed bool, options testserver.Options) (*server, error) {
	s := &server{kind: k}
	switch k {
	case oneFile:
		return s, nil
	case oneRedis:
		redis, err := testserver.Start(options)
		s.nodes = []node{redis}
		return s, err
	case aCluster:
		cluster, err := testserver.StartCluster(options)
		if err != nil {
			return nil, err
		}
		s.cluster = cluster
		for _, n := range cluster.Nodes() {
			s.nodes = append(s.nodes, n)
		}
		return s, nil
	default:
		pg, err := testserver.StartPostgres(testserver.PostgresOptions{Unsafe: !disturbed, Env: options.Env})
		s.nodes = []node{pg}
		return s, err
	}
}

// shared holds the servers of tests that do not disturb them. Each test has its own place
// on them.
var shared struct {
	mu      sync.Mutex
	servers map[kind]*server
}

func stopShared() error {
	var errs []error
	for _, s := range shared.servers {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// require skips or fails the test if its servers are not available, as testserver.Require
// does.
func require(t *testing.T) {
	t.Helper()
	testserver.Require(t)
	testserver.RequirePostgres(t)
}

// eachServer runs a test on a Redis, a Cluster and a PostgreSQL, in parallel. Other tests
// share these servers.
func eachServer(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	require(t)
	t.Parallel()
	for _, k := range []kind{oneRedis, aCluster, onePostgres} {
		t.Run(string(k), func(t *testing.T) {
			testserver.Parallel(t)
			test(t, sharedServer(t, k))
		})
	}
}

// eachServerInTurn is like eachServer, but tests one server after the other. It is for tests that
// use a processor all the time, so that they do not starve the leases of other tests.
func eachServerInTurn(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	require(t)
	testserver.Parallel(t)
	for _, k := range []kind{oneRedis, aCluster, onePostgres} {
		t.Run(string(k), func(t *testing.T) { test(t, sharedServer(t, k)) })
	}
}

// eachStorage is like eachServer, and also runs the test on a SQLite file that all its
// processes share.
func eachStorage(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	eachServer(t, test)
	t.Run(string(oneFile), func(t *testing.T) {
		testserver.Parallel(t)
		test(t, &server{kind: oneFile})
	})
}

func sharedServer(t *testing.T, k kind) *server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.servers[k] == nil {
		s, err := start(k, false, testserver.Options{})
		must(t, err)
		if shared.servers == nil {
			shared.servers = make(map[kind]*server)
		}
		shared.servers[k] = s
	}
	return shared.servers[k]
}

// eachOwnServer runs a test, which may disturb them, on servers of its own of each kind.
// Each config is a line of redis.conf.
func eachOwnServer(t *testing.T, test func(t *testing.T, s *server), config ...string) {
	t.Helper()
	ownServers(t, []kind{oneRedis, aCluster, onePostgres}, test, config...)
}

// eachOwnRedis is like eachOwnServer, but only on a Redis and a Cluster.
func eachOwnRedis(t *testing.T, test func(t *testing.T, s *server), config ...string) {
	t.Helper()
	ownServers(t, []kind{oneRedis, aCluster}, test, config...)
}

func ownServers(t *testing.T, kinds []kind, test func(t *testing.T, s *server), config ...string) {
	t.Helper()
	require(t)
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			testserver.Parallel(t)
			test(t, ownServer(t, k, testserver.Options{Config: config}))
		})
	}
}

// ownServer starts a server for only one test.
func ownServer(t *testing.T, k kind, options testserver.Options) *server {
	t.Helper()
	s, err := start(k, true, options)
	must(t, err)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// count returns how often a test does something: all times with the build tag long, else
// some.
func count(some, all int) int {
	if full {
		return all
	}
	return some
}
