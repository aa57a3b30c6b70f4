//go:build unix

package faulttest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// TestAFullRedis checks that a Redis without free memory refuses new tasks with
// ErrFull, while the leases of running jobs are still extended and every acknowledged
// task is completed.
func TestAFullRedis(t *testing.T) {
	eachOwnRedis(t, func(t *testing.T, s *server) {
		const jobs, lease = 5, 2 * time.Second
		f := newFleet(t, s)
		f.start(workerConfig{Name: "running", Queues: []string{"q"}, Concurrency: jobs, Lease: lease})
		for i := range jobs {
			f.enqueue("q", fmt.Sprint("job-", i), steps(gate("end")), midge.KeepFor(0))
		}
		f.awaitWhat("running", runStart, jobs, 20*time.Second)

		// Fill it until not even a small task fits. Then try again for four leases, whenever
		// the server has freed some memory, for example from the buffers of its connections.
		n := f.fill(0, 100_000, 10_000, 1_000, 0)
		refusals := 1
		since := time.Now()
		f.await("four leases passed", 6*lease, func(history) bool {
			n = f.fill(n, 0)
			refusals++
			return time.Since(since) > 4*lease
		})
		acknowledged := len(f.history().of(enqueueDone))
		t.Logf("%d tasks fitted in, %d were refused", acknowledged, refusals)
		h := f.history()
		if lost := h.of(ctxDone, extendLost); !h.exactly(len(lost), 0) || !h.exactly(len(h.of(runStart)), jobs) {
			t.Errorf("%d leases were lost and %d runs started in a full Redis, want 0 and %d", len(lost), len(h.of(runStart)), jobs)
		}
		f.openGate("end")
		f.start(workerConfig{Name: "helper", Queues: []string{"q"}, Concurrency: jobs, Lease: lease})
		awaitDrained(t, f.store, "q", 30*time.Second)
		h = f.history()
		checkRuns(t, h)
		if ran := len(h.of(runStart).refs()); ran != acknowledged {
			t.Errorf("%d tasks ran, want the %d that were acknowledged", ran, acknowledged)
		}
		if tasks := tasksOf(t, f.store, "q"); len(tasks) > 0 {
			t.Errorf("%d tasks are left, want none", len(tasks))
		}
		if stats := checkTotals(t, f.store, "q", nil); stats.Totals.Completed != int64(acknowledged) {
			t.Errorf("%d completed, want %d", stats.Totals.Completed, acknowledged)
		}
		f.enqueue("q", "again", stepJob{})
	}, "maxmemory 24mb", "maxmemory-policy noeviction")
}

// fill enqueues tasks of each of the given sizes until one is refused. n is the number
// of the first task; fill returns the next number.
func (f *fleet) fill(n int, sizes ...int) int {
	f.t.Helper()
	for _, size := range sizes {
		job := steps(step{Do: "progress", Arg: strings.Repeat("x", size)})
		for refused := false; !refused; n++ {
			_, err := enqueue(f.t.Context(), f.client, f.rec, "q", fmt.Sprint("bulk-", n), job, midge.KeepFor(0))
			refused = err != nil
			if refused && !errors.Is(err, storage.ErrFull) {
				f.t.Fatalf("enqueue into a full Redis: %v, want ErrFull", err)
			}
		}
	}
	return n
}
