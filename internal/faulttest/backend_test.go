//go:build unix

package faulttest

import (
	"errors"
	"sync"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
)

// server is one Redis or a Cluster, as far as these tests care.
type server struct {
	name    string
	cluster *testserver.RedisCluster // nil for one Redis
	nodes   []*testserver.Server
}

func (s *server) addrs() []string {
	var addrs []string
	for _, node := range s.nodes {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// dialing reaches the server under a key prefix.
func (s *server) dialing(prefix string) dialing {
	return dialing{Addrs: s.addrs(), Cluster: s.cluster != nil, Prefix: prefix}
}

// ready waits until the server serves.
func (s *server) ready() error {
	if s.cluster != nil {
		return s.cluster.AwaitReady()
	}
	_, err := s.nodes[0].Do("PING")
	return err
}

// shared are the servers of tests that do not disturb them: each has its own key
// prefix there.
var shared struct {
	mu      sync.Mutex
	single  *server
	cluster *server
}

func stopShared() error {
	var errs []error
	for _, s := range []*server{shared.single, shared.cluster} {
		if s == nil {
			continue
		}
		for _, node := range s.nodes {
			errs = append(errs, node.Close())
		}
	}
	return errors.Join(errs...)
}

// eachServer runs a test on one Redis and on a Cluster, side by side, both shared
// with other tests.
func eachServer(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	testserver.Require(t)
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, sharedSingle(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, sharedCluster(t))
	})
}

func sharedSingle(t *testing.T) *server {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.single == nil {
		node, err := testserver.Start(testserver.Options{})
		if err != nil {
			t.Fatal(err)
		}
		shared.single = &server{name: "redis", nodes: []*testserver.Server{node}}
	}
	return shared.single
}

func sharedCluster(t *testing.T) *server {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		cluster, err := testserver.StartCluster(testserver.Options{})
		if err != nil {
			t.Fatal(err)
		}
		shared.cluster = &server{name: "cluster", cluster: cluster, nodes: cluster.Nodes()}
	}
	return shared.cluster
}

// eachOwnServer runs a test on a Redis and on a Cluster of its own, to be disturbed.
func eachOwnServer(t *testing.T, test func(t *testing.T, s *server), config ...string) {
	t.Helper()
	testserver.Require(t)
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, &server{name: "redis", nodes: []*testserver.Server{testserver.Redis(t, config...)}})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testserver.Cluster(t, config...)
		test(t, &server{name: "cluster", cluster: cluster, nodes: cluster.Nodes()})
	})
}
