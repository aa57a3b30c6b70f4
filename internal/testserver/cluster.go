package testserver

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
)

// Masters is how many nodes a cluster has.
const Masters = 3

// slots is how many hash slots every Redis Cluster has.
const slots = 16384

// RedisCluster is a private Redis Cluster of three masters without replicas. Node
// i owns the i-th third of the slots.
type RedisCluster struct {
	nodes []*Server
}

// Cluster starts a cluster for the test and stops it when the test ends. Each
// config is a line of every node's redis.conf. The test fails where the cluster
// does not come up.
func Cluster(t testing.TB, config ...string) *RedisCluster {
	t.Helper()
	cluster, err := StartCluster(Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return cluster
}

// StartCluster starts a cluster and returns when every node serves. The caller
// closes it. Options.Dir has to be empty: each node has a directory of its own.
func StartCluster(options Options) (*RedisCluster, error) {
	if options.Dir != "" {
		return nil, fmt.Errorf("testserver: Options.Dir of a cluster is %q, want none", options.Dir)
	}
	options.Config = append([]string{
		"cluster-enabled yes",
		"cluster-config-file nodes.conf",
		"cluster-node-timeout 5000",
	}, options.Config...)
	cluster := &RedisCluster{}
	for range Masters {
		node, err := Start(options)
		if err != nil {
			return nil, errors.Join(err, cluster.Close())
		}
		cluster.nodes = append(cluster.nodes, node)
	}
	if err := cluster.join(); err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return cluster, nil
}

// Nodes are the cluster's servers. The caller does not change the slice.
func (c *RedisCluster) Nodes() []*Server { return c.nodes }

// Addrs are the addresses of the nodes, in the order of Nodes.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, 0, len(c.nodes))
	for _, node := range c.nodes {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// Slot is the hash slot of a key. It asks a node, one that runs.
func (c *RedisCluster) Slot(key string) (int, error) {
	var errs []error
	for _, node := range c.nodes {
		reply, err := node.Do("CLUSTER", "KEYSLOT", key)
		if err == nil {
			return strconv.Atoi(reply)
		}
		errs = append(errs, err)
	}
	return 0, errors.Join(errs...)
}

// Owner is the node that a key belongs to, whether it runs or not.
func (c *RedisCluster) Owner(key string) (*Server, error) {
	slot, err := c.Slot(key)
	if err != nil {
		return nil, err
	}
	for i, node := range c.nodes {
		if _, end := slotsOf(i); slot < end {
			return node, nil
		}
	}
	return nil, fmt.Errorf("testserver: slot %d of %q, want less than %d", slot, key, slots)
}

// AwaitReady waits until every node serves and says that the cluster is whole, as
// after the restart of one.
func (c *RedisCluster) AwaitReady() error {
	var state string
	ready := func() bool {
		for _, node := range c.nodes {
			state = node.Addr() + " is away"
			info, err := node.Do("CLUSTER", "INFO")
			if err != nil {
				return false
			}
			state = node.Addr() + ":\n" + info
			if !whole(info) {
				return false
			}
		}
		return true
	}
	if !poll(awaitLimit, ready) {
		return fmt.Errorf("testserver: the cluster is not ready after %v; %s", awaitLimit, state)
	}
	return nil
}

// Close stops all nodes.
func (c *RedisCluster) Close() error {
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}

// join gives each node its slots and introduces the others to the first; gossip
// does the rest.
func (c *RedisCluster) join() error {
	for i, node := range c.nodes {
		first, end := slotsOf(i)
		add := []string{"CLUSTER", "ADDSLOTS"}
		for slot := first; slot < end; slot++ {
			add = append(add, strconv.Itoa(slot))
		}
		if _, err := node.Do(add...); err != nil {
			return fmt.Errorf("testserver: give slots to %s: %w", node.Addr(), err)
		}
		// Epochs that differ from the start spare the nodes a dispute about them.
		if _, err := node.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return fmt.Errorf("testserver: set epoch of %s: %w", node.Addr(), err)
		}
	}
	for _, node := range c.nodes[1:] {
		host, port, err := net.SplitHostPort(node.Addr())
		if err != nil {
			return err
		}
		if _, err := c.nodes[0].Do("CLUSTER", "MEET", host, port); err != nil {
			return fmt.Errorf("testserver: introduce %s: %w", node.Addr(), err)
		}
	}
	return c.AwaitReady()
}

// slotsOf gives the range of slots of node i: from first up to, not including, end.
func slotsOf(i int) (first, end int) { return slots * i / Masters, slots * (i + 1) / Masters }

// whole reports whether a node's CLUSTER INFO shows a cluster that is complete.
func whole(info string) bool {
	for _, want := range []string{
		"cluster_state:ok",
		"cluster_slots_ok:" + strconv.Itoa(slots),
		"cluster_known_nodes:" + strconv.Itoa(Masters),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return false
		}
	}
	return true
}
