package runner

import (
	"testing"

	"github.com/midgehq/midge/storage"
)

// jobsOf is a Jobs with some kinds, whose tasks are never run.
type jobsOf struct {
	Jobs

	kinds []string
}

func (j jobsOf) Kinds() []string { return j.kinds }

func (j jobsOf) Name(kind string) string { return kind }

// TestWhatAWorkerTookOfADroppedQueueDoesNotBegin has SetQueues return before the worker starts its
// job, as on a busy machine.
func TestWhatAWorkerTookOfADroppedQueueDoesNotBegin(t *testing.T) {
	r := New(Config{Jobs: jobsOf{kinds: []string{"work"}}, Concurrency: 1, Lease: storage.MinLease})
	ctx := t.Context()
	r.workers.ctx.Store(&ctx)
	r.SetQueues([]string{"a"}, nil)
	fence := storage.Fence{Ref: storage.Ref{Queue: "a", ID: "x"}}
	claimed := &storage.Claimed{Tasks: []storage.Task{{Ref: fence.Ref, Kind: "work"}}, Fences: []storage.Fence{fence}}
	a := r.workers.newAttempts(r.queues.from(0)[0], claimed, r.now())[0]
	worker, _ := r.slots.add(a)
	if next, _ := r.slots.next(worker, nil, 0); next != a {
		t.Fatalf("the worker got %v, want the task", next)
	}
	r.SetQueues([]string{"b"}, nil)
	if _, starts := a.start(); starts {
		t.Error("the job begins after SetQueues has returned")
	}
	if settle, _, _ := r.workers.judge.verdict(a, nil); settle.Outcome != storage.Release {
		t.Errorf("got %s, want the task released", settle.Outcome)
	}
}
