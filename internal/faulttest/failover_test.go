//go:build unix

package faulttest

import (
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// twoMasters is a Redis with a process that can replace its master.
type twoMasters struct {
	server *server
	// inStep waits until the replicas have everything that was written up to a moment, which it
	// returns.
	inStep func() time.Time
	// master returns the process that serves the queues. served waits until another process serves
	// them.
	master func() *testserver.Server
	served func(master *testserver.Server)
}

// TestAClusterPromotesAReplica runs promotes on a Cluster with replicas.
func TestAClusterPromotesAReplica(t *testing.T) {
	promotes(t, func(t *testing.T) twoMasters {
		t.Helper()
		cluster, err := testserver.StartCluster(testserver.Options{Replicas: true})
		must(t, err)
		t.Cleanup(func() { must(t, cluster.Close()) })
		s := &server{kind: aCluster, cluster: cluster}
		for _, n := range cluster.Nodes() {
			s.nodes = append(s.nodes, n)
		}
		return twoMasters{
			server: s, inStep: func() time.Time { return cluster.AwaitInStep(t) },
			master: func() *testserver.Server {
				master, err := cluster.Owner("{q}")
				must(t, err)
				return master
			},
			served: func(master *testserver.Server) { cluster.AwaitTakenOver(t, master) },
		}
	})
}

// TestSentinelsPromoteAReplica runs promotes on a Redis with a sentinel.
func TestSentinelsPromoteAReplica(t *testing.T) {
	promotes(t, func(t *testing.T) twoMasters {
		t.Helper()
		s := testserver.Sentinel(t)
		return twoMasters{
			server: &server{kind: sentinels, nodes: []node{s.Sentinel}},
			inStep: func() time.Time { return s.AwaitInStep(t) },
			master: func() *testserver.Server { return s.Master },
			served: func(*testserver.Server) { s.AwaitPromoted(t) },
		}
	})
}

// promotes ends the master of a Redis under load, by a crash and by a hang that keeps all
// connections open. Runners and clients must work again within ten seconds after the Redis serves
// again. Only acknowledged tasks that the replica cannot have may be lost.
func promotes(t *testing.T, start func(t *testing.T) twoMasters) {
	t.Helper()
	testserver.Require(t)
	t.Parallel()
	for name, end := range map[string]func(*testserver.Server) error{
		"a master that crashes": (*testserver.Server).Kill,
		"a master that hangs":   (*testserver.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			testserver.Parallel(t)
			r := start(t)
			f := newFleet(t, r.server)
			var runners []*worker
			for range 2 {
				runners = append(runners, f.start(workerConfig{Queues: []string{"q"}, Concurrency: 10, Lease: 3 * time.Second}))
			}
			f.awaitWhat("", workerReady, len(runners), 20*time.Second)
			load := f.load()
			f.awaitActive(time.Now(), runners...)
			safe := r.inStep()
			master := r.master()
			must(t, end(master))
			ended := time.Now()
			r.served(master)
			promoted := time.Now()
			took := f.awaitActive(promoted, runners...)
			if bound := machine.Stretch(10*time.Second, promoted); took > bound {
				t.Errorf("a runner worked %v after the Redis served again, want within %v", took, bound)
			}
			load.end()
			awaitDrained(t, f.store, "q", 60*time.Second)
			h := f.history() // two histories: the second master may lack the end of the first history
			checkRuns(t, h.where(func(e *event) bool { return e.At.Before(ended) }))
			checkRuns(t, h.after(promoted))
			acknowledged, lost := f.checkLoad(func(e *event) bool { return e.At.After(safe) && e.At.Before(promoted) })
			t.Logf("promoted %v after the end of the master; %d tasks acknowledged, %d lost; all runners worked %v after the promotion",
				promoted.Sub(ended).Round(time.Millisecond), acknowledged, lost, took.Round(time.Millisecond))
		})
	}
}
