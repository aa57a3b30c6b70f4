//go:build unix

package faulttest

import (
	"fmt"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// stormFailover is a failover in a storm. Any acknowledged step in the queue between safe and promoted, the
// moment when the replica had been promoted, may be undone.
type stormFailover struct {
	queue                 string
	safe, ended, promoted time.Time
}

// failover lets the replica of a master take over while the master is written to. Afterwards the
// old master follows it.
func (n *faultInjector) failover() bool {
	n.failoverMu.Lock()
	defer n.failoverMu.Unlock()
	i := len(n.failovers)
	nodes := n.server.cluster.Nodes()
	master, replica := nodes[i], nodes[testserver.Masters+i]
	l := stormFailover{queue: n.queues[i], safe: time.Now()}
	written, err := replicated(master)
	inStep := func() bool {
		has, err := replicated(replica)
		return err == nil && has >= written
	}
	if err != nil || !poll(stormLease, inStep) {
		return false
	}
	return n.outage(func() {
		_ = master.Kill()
		l.ended = time.Now()
		if !poll(30*time.Second, func() bool { return isMaster(replica) && n.serves(master) }) {
			n.t.Errorf("no replica of %s took over", master.Addr())
		}
		l.promoted = time.Now()
		n.failovers = append(n.failovers, l)
	}, 0, master.Restart)
}

// replicated returns how many bytes a node has written, or has received of its master's writes.
func replicated(node *testserver.Server) (n int64, err error) {
	info, err := node.Do("INFO", "replication")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "master_repl_offset:")
	_, err = fmt.Sscan(rest, &n)
	return n, err
}

func isMaster(node *testserver.Server) bool {
	role, err := node.Do("ROLE")
	return err == nil && strings.HasPrefix(role, "master")
}

// serves reports whether all nodes except one report that the Cluster is complete.
func (n *faultInjector) serves(but *testserver.Server) bool {
	for _, node := range n.server.cluster.Nodes() {
		if node == but {
			continue
		}
		info, err := node.Do("CLUSTER", "INFO")
		if err != nil || !strings.Contains(info, "cluster_state:ok") {
			return false
		}
	}
	return true
}

// undone reports whether a failover may have undone a change of a task at a moment.
func (s *storm) undone(queue string, at time.Time) bool {
	for _, l := range s.failovers {
		if l.queue == queue && at.After(l.safe) && at.Before(l.promoted) {
			return true
		}
	}
	return false
}

// checkRunsAroundFailovers is checkRuns for a storm. For tasks that a failover may have changed back, it
// checks the events before and after the failover separately.
func (s *storm) checkRunsAroundFailovers(h history) {
	touched := make(map[storage.Ref]bool)
	for _, e := range h {
		if s.undone(e.Ref.Queue, e.At) {
			touched[e.Ref] = true
		}
	}
	checkRuns(s.t, h.where(func(e *event) bool { return !touched[e.Ref] }))
	for _, l := range s.failovers {
		own := h.where(func(e *event) bool { return touched[e.Ref] && e.Ref.Queue == l.queue })
		checkRuns(s.t, own.where(func(e *event) bool { return e.At.Before(l.ended) }))
		checkRuns(s.t, own.after(l.promoted))
	}
}
