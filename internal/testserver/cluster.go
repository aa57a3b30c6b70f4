package testserver

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Masters is the number of masters of a cluster.
const Masters = 3

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// RedisCluster is a private Redis Cluster of three masters. Node i owns the i-th third of
// the slots. If the cluster has replicas, node i + Masters is the replica of node i.
type RedisCluster struct {
	nodes []*Server
}

// Cluster starts a cluster for the test and stops it when the test ends. Each config is a
// line of every node's redis.conf. The test fails if the cluster does not start.
func Cluster(t testing.TB, config ...string) *RedisCluster {
	t.Helper()
	cluster, err := StartCluster(Options{Config: config})
	return started(t, cluster, err)
}

// StartCluster starts a cluster and returns when every node serves. The caller closes it.
// Options.Dir must be empty, because each node has its own directory.
func StartCluster(options Options) (*RedisCluster, error) {
	if options.Dir != "" {
		return nil, fmt.Errorf("testserver: Options.Dir of a cluster is %q, want none", options.Dir)
	}
	defaults, nodes := []string{
		"cluster-enabled yes",
		"cluster-config-file nodes.conf",
		"cluster-node-timeout 5000",
	}, Masters
	if options.Replicas {
		nodes = 2 * Masters
		defaults = append(defaults, "cluster-node-timeout 1000", "repl-diskless-sync-delay 0")
	}
	options.Config = append(defaults, options.Config...)
	cluster := &RedisCluster{}
	for range nodes {
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

// Nodes returns the cluster's servers. The caller does not change the slice.
func (c *RedisCluster) Nodes() []*Server { return c.nodes }

// Addrs returns the addresses of the nodes, in the order of Nodes.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, 0, len(c.nodes))
	for _, node := range c.nodes {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// Slot returns the hash slot of a key. It asks the first node that answers, and fails if
// none does.
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

// Owner returns the master that a key belongs to, whether it runs or not. It is wrong after
// a replica has taken over.
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

// AwaitInStep waits until each replica has everything that its master had written at the
// time of the call. It returns that time.
func (c *RedisCluster) AwaitInStep(t testing.TB) time.Time {
	t.Helper()
	at := time.Now()
	for i, master := range c.nodes[:Masters] {
		awaitInStep(t, master, c.nodes[Masters+i])
	}
	return at
}

// AwaitTakenOver waits until the replica of the given master has become a master in its
// place and the cluster serves again.
func (c *RedisCluster) AwaitTakenOver(t testing.TB, master *Server) {
	t.Helper()
	replica := c.nodes[Masters+slices.Index(c.nodes, master)]
	Await(t, "the replica has taken over", func() bool {
		role, err := replica.Do("ROLE")
		return err == nil && strings.HasPrefix(role, "master")
	})
	Await(t, "the cluster serves again", func() bool {
		for _, node := range c.nodes {
			if node == master {
				continue
			}
			info, err := node.Do("CLUSTER", "INFO")
			if err != nil || !strings.Contains(info, "cluster_state:ok\r\n") {
				return false
			}
		}
		return true
	})
}

// AwaitReady waits until every node serves and reports that the cluster is complete, for
// example after a node was restarted.
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
			if !c.whole(info) {
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

// join assigns each node its slots and introduces the others to the first; gossip
// does the rest.
func (c *RedisCluster) join() error {
	for i, node := range c.nodes[:Masters] {
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
	if err := c.AwaitReady(); err != nil {
		return err
	}
	for i, replica := range c.nodes[Masters:] {
		if err := follow(replica, c.nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// follow makes a node the replica of a master and returns when their replication link is
// up.
func follow(replica, master *Server) error {
	id, err := master.Do("CLUSTER", "MYID")
	if err != nil {
		return fmt.Errorf("testserver: ask %s for its id: %w", master.Addr(), err)
	}
	linked := func() bool {
		if _, err = replica.Do("CLUSTER", "REPLICATE", id); err != nil {
			return false // the two nodes do not know each other yet
		}
		var info string
		info, err = replica.Do("INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:up")
	}
	if !poll(awaitLimit, linked) {
		return fmt.Errorf("testserver: %s does not follow %s: %w", replica.Addr(), master.Addr(), err)
	}
	return nil
}

// slotsOf returns the range of slots of node i: from first up to, but not including, end.
func slotsOf(i int) (first, end int) { return slots * i / Masters, slots * (i + 1) / Masters }

// whole reports whether a node's CLUSTER INFO shows a cluster that is complete.
func (c *RedisCluster) whole(info string) bool {
	for _, want := range []string{
		"cluster_state:ok",
		"cluster_slots_ok:" + strconv.Itoa(slots),
		"cluster_known_nodes:" + strconv.Itoa(len(c.nodes)),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return false
		}
	}
	return true
}
