//go:build unix

package faulttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestALongJobIsStartedOnce checks that jobs that last many leases are started only
// once, beside short jobs, although three runners have room for all of them.
func TestALongJobIsStartedOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		const jobs, lease, leases = 12, 2 * time.Second, 8
		f := newFleet(t, s)
		for range 3 {
			f.start(workerConfig{Queues: []string{"q"}, Concurrency: jobs, Lease: lease})
		}
		for i := range jobs {
			f.enqueue("q", fmt.Sprint("long-", i), steps(sleep(leases*lease), step{Do: "follow"}))
		}
		f.awaitWhat("", runStart, jobs, 10*time.Second)
		begun := time.Now()
		every := time.NewTicker(25 * time.Millisecond)
		defer every.Stop()
		for i := 0; time.Since(begun) < (leases-1)*lease; i++ {
			<-every.C
			f.enqueue("q", fmt.Sprint("short-", i), stepJob{})
			f.awaitWhat("", runEnd, i+1, 5*time.Second)
		}
		awaitDrained(t, f.store, "q", 20*time.Second)
		h := f.history()
		checkRuns(t, h)
		tasks := tasksOf(t, f.store, "q")
		checkTotals(t, f.store, "q", tasks)
		for i := range jobs {
			ref := storage.Ref{Queue: "q", ID: fmt.Sprint("long-", i)}
			task := tasks[ref.ID]
			n := len(h.of(runStart).about(ref))
			if !h.exactly(n, 1) || !h.exactly(task.Crashes, 0) || task.State != storage.Completed {
				t.Errorf("%s: started %d times, %s, %d crashes; want 1, completed, 0", ref, n, task.State, task.Crashes)
			}
		}
		t.Logf("%d jobs of %d leases started once each, beside %d short ones", jobs, leases, len(tasks)-2*jobs)
	})
}
