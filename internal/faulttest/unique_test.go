//go:build unix

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// contenders is the number of goroutines of each process that enqueue the same job.
const contenders = 200

// uniqueJob returns the job that they enqueue.
func uniqueJob() stepJob { return steps(gate("all have enqueued"), step{Do: "follow"}) }

// enqueueUnique enqueues the unique job from many goroutines at once, as soon as the
// test opens the gate.
func enqueueUnique(ctx context.Context, w *workerProcess) error {
	client, err := midge.NewClient(w.store, midge.ClientConfig{Patience: time.Minute})
	if err != nil {
		return err
	}
	w.rec.record(event{What: workerReady})
	<-w.gates.at("start")
	errs := make([]error, contenders)
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() {
			task, err := client.Enqueue(ctx, uniqueJob(), midge.To("q"), midge.Unique{})
			errs[i] = err
			if err == nil {
				what := "made"
				if task.Existing {
					what = "given"
				}
				w.rec.record(event{What: stepDone, Ref: task.Ref, Step: what})
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// TestAUniqueJobIsEnqueuedOnce checks that of many concurrent enqueues of a unique job
// only one makes a task, and that all others return that task.
func TestAUniqueJobIsEnqueuedOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		const processes = 2
		f := newFleet(t, s)
		f.start(workerConfig{Name: "runner", Queues: []string{"q"}, Concurrency: 10, Lease: 10 * time.Second})
		for i := range processes {
			f.start(workerConfig{Name: fmt.Sprint("client-", i), Client: "unique"})
		}
		f.awaitWhat("", workerReady, 1+processes, 20*time.Second)
		f.openGate("start")
		h := f.awaitWhat("", workerStopped, processes, 30*time.Second)
		f.openGate("all have enqueued")
		awaitDrained(t, f.store, "q", 10*time.Second)

		made := h.where(func(e *event) bool { return e.Step == "made" })
		given := h.where(func(e *event) bool { return e.Step == "given" })
		t.Logf("%d calls made a task, %d were given it", len(made), len(given))
		if len(made) != 1 || len(given) != processes*contenders-1 {
			t.Fatalf("%d calls made a task and %d were given one, want 1 and %d", len(made), len(given), processes*contenders-1)
		}
		for _, e := range given {
			if e.Ref != made[0].Ref {
				t.Errorf("a call was given %s, want %s", e.Ref, made[0].Ref)
			}
		}
		h = f.history()
		checkRuns(t, h)
		if runs := h.of(runStart).about(made[0].Ref); len(runs) != 1 {
			t.Errorf("%s ran %d times, want once", made[0].Ref, len(runs))
		}
		tasks := tasksOf(t, f.store, "q")
		if stats := checkTotals(t, f.store, "q", tasks); stats.Totals.Enqueued != 2 || stats.Completed != 2 {
			t.Errorf("%+v, want the task and its follow-up alone", stats)
		}
		if task := tasks[made[0].Ref.ID]; task.State != storage.Completed {
			t.Errorf("%s is %s, want it completed", task.Ref, task.State)
		}
	})
}
