//go:build unix

package faulttest

import (
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// TestSentinelsPromoteAReplica under load, when the master crashes and when it hangs with all
// connections to it open: runners and clients go on with the replica within ten seconds. What
// was acknowledged is lost at most where the replica cannot have it.
func TestSentinelsPromoteAReplica(t *testing.T) {
	testserver.Require(t)
	t.Parallel()
	for name, end := range map[string]func(*testserver.Server) error{
		"a master that crashes": (*testserver.Server).Kill,
		"a master that hangs":   (*testserver.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Sentinel(t)
			f := newFleet(t, &server{kind: sentinels, nodes: []node{s.Sentinel}})
			var runners []*worker
			for range 2 {
				runners = append(runners, f.start(workerConfig{Queues: []string{"q"}, Concurrency: 10, Lease: 3 * time.Second}))
			}
			f.awaitWhat("", workerReady, len(runners), 20*time.Second)
			load := f.load()
			f.awaitActive(time.Now(), runners...)
			safe := s.AwaitInStep(t)
			must(t, end(s.Master))
			ended := time.Now()
			s.AwaitPromoted(t)
			promoted := time.Now()
			took := f.awaitActive(promoted, runners...)
			if bound := machine.Stretch(10*time.Second, promoted); took > bound {
				t.Errorf("a runner worked %v after the promotion, want within %v", took, bound)
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
