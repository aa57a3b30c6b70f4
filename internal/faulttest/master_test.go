//go:build unix

package faulttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestAMasterThatHangsLosesNothing freezes one of the three masters of a Cluster for two
// leases, while runners serve queues on all of them. That is too short for the other
// masters to declare it dead. A call that concerns several masters is only known to have
// happened when all of them have answered, so the other queues may wait too. But no task
// may be lost, dead, or run twice without a lost lease, and work must go on when the
// master continues.
func TestAMasterThatHangsLosesNothing(t *testing.T) {
	testserver.Require(t)
	testserver.Parallel(t)
	const lease, most = 2 * time.Second, 20
	s := ownServer(t, aCluster, testserver.Options{})
	f := newFleet(t, s)
	queues := queuesOf(t, s.cluster)
	for range 2 {
		f.start(workerConfig{Queues: queues, Concurrency: most, Lease: lease})
	}
	f.awaitWhat("", workerReady, 2, 20*time.Second)
	for i := range 4 {
		for _, q := range queues {
			f.enqueue(q, fmt.Sprint("long-", i), steps(gate("end"), step{Do: "follow"}))
			f.enqueue(q, fmt.Sprint("during-", i), steps(gate("during"), step{Do: "follow"}))
		}
	}
	f.awaitWhat("", runStart, 24, 20*time.Second)
	for i := range 200 { // so that a claim and settles are under way
		f.enqueue(queues[i%3], fmt.Sprint("before-", i), steps(sleep(20*time.Millisecond), step{Do: "follow"}))
	}
	must(t, s.nodes[0].Pause())
	frozen := time.Now()
	f.openGate("during")
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for i := 0; time.Since(frozen) < 2*lease; i++ {
		<-every.C
		for _, q := range queues[1:] {
			f.enqueue(q, fmt.Sprint("new-", i), do("follow"))
		}
	}
	must(t, s.nodes[0].Resume())
	back := time.Now()
	f.openGate("end")
	for _, q := range queues {
		awaitDrained(t, f.store, q, 60*time.Second)
	}
	t.Logf("with a master frozen for %v all was done %v after its return", back.Sub(frozen).Round(time.Second), time.Since(back).Round(time.Millisecond))
	h := f.history()
	checkRuns(t, h)
	for i, q := range queues {
		tasks := tasksOf(t, f.store, q)
		checkTotals(t, f.store, q, tasks)
		checkFollowUps(t, tasks, func(string) bool { return true })
		crashes := 0
		for _, task := range tasks {
			crashes += task.Crashes
			if task.State != storage.Completed || task.Retries > 0 {
				t.Errorf("%s is %s (%s) after %d retries, want completed after none", task.Ref, task.State, task.Reason, task.Retries)
			}
		}
		during := h.of(runStart).where(func(e *event) bool {
			return e.Ref.Queue == q && e.At.After(frozen) && e.At.Before(back)
		})
		t.Logf("master %d: %d tasks, %d starts while the first was frozen, %d crashes charged", i+1, len(tasks), len(during), crashes)
	}
}

// queuesOf returns the name of a queue on each master, in the order of the masters.
func queuesOf(t *testing.T, cluster *testserver.RedisCluster) []string {
	t.Helper()
	masters := cluster.Nodes()[:testserver.Masters]
	names := make([]string, len(masters))
	for i, missing := 0, len(names); missing > 0; i++ {
		name := fmt.Sprint("q", i)
		owner, err := cluster.Owner("{" + name + "}")
		must(t, err)
		for j, node := range masters {
			if node == owner && names[j] == "" {
				names[j] = name
				missing--
			}
		}
	}
	return names
}
