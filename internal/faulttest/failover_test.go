//go:build unix

package faulttest

import (
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// twoMasters is a Redis with a process that can come in the place of its master.
type twoMasters struct {
	server *server
	// inStep waits until the replicas have all that was written by a moment, which it gives.
	inStep func() time.Time
	// master is the process that serves the queues. served waits until another one serves them.
	master func() *testserver.Server
	served func(master *testserver.Server)
}

// TestAClusterPromotesAReplica in the place of a master.
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

// TestSentinelsPromoteAReplica in the place of the master.
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

// promotes has the master of a Redis end under load, by a crash and by hanging with all connections to it
// open: runners and clients go on within ten seconds after the Redis serves again. What was acknowledged
// is lost at most where the replica cannot have it.
func promotes(t *testing.T, start func(t *testing.T) twoMasters) {
	t.Helper()
	testserver.Require(t)
	t.Parallel()
	for name, end := range map[string]func(*testserver.Server) error{
		"a master that crashes": (*testserver.Server).Kill,
		"a master that hangs":   (*testserver.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			h := f.history() // two, the second of which may not know the end of the first
			checkRuns(t, h.where(func(e event) bool { return e.At.Before(ended) }))
			checkRuns(t, h.after(promoted))
			acknowledged, lost := f.checkLoad(func(e event) bool { return e.At.After(safe) && e.At.Before(promoted) })
			t.Logf("promoted %v after the end of the master; %d tasks acknowledged, %d lost; all runners worked %v after the promotion",
				promoted.Sub(ended).Round(time.Millisecond), acknowledged, lost, took.Round(time.Millisecond))
		})
	}
}
