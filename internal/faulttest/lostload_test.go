//go:build unix

package faulttest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// lossyKinds are the jobs, how often each has to run, and how much that adds to the
// totals of its queue.
var lossyKinds = []struct {
	job    stepJob
	in     time.Duration
	runs   int
	totals storage.Totals
}{
	{job: stepJob{}, runs: 1, totals: storage.Totals{Enqueued: 1, Completed: 1}},
	{job: do("follow"), runs: 1, totals: storage.Totals{Enqueued: 2, Completed: 2}},
	{job: do("fail once"), runs: 2, totals: storage.Totals{Enqueued: 1, Completed: 1, Failed: 1}},
	{job: do("discard"), in: 20 * time.Millisecond, runs: 1, totals: storage.Totals{Enqueued: 1, Dead: 1}},
	{job: stepJob{}, in: 20 * time.Millisecond, runs: 1, totals: storage.Totals{Enqueued: 1, Completed: 1}},
	{job: do("snooze once"), runs: 2, totals: storage.Totals{Enqueued: 1, Completed: 1}},
}

// TestARunnerThatLosesRepliesRunsEachTaskOnce lets a runner and a client work while
// every fifth of their steps is executed without a reply. Tasks are not kept after
// their end, so that only the identity of a call distinguishes a repeat from a new call.
func TestARunnerThatLosesRepliesRunsEachTaskOnce(t *testing.T) {
	eachServerInTurn(t, func(t *testing.T, s *server) {
		tasks := 600
		if s.kind == onePostgres {
			tasks = count(150, 600)
		}
		f := newFleet(t, s)
		var calls, cuts atomic.Int64
		f.start(workerConfig{Name: "warms up", Queues: []string{"q"}, Client: "verbs", IdleExit: true, Every: tickEvery}).ended(t, 20*time.Second)
		warm := checkTotals(t, f.store, "q", tasksOf(t, f.store, "q"))
		before := warm.Totals
		before.Completed += warm.Live() // a last tick that nobody has run yet

		d, proxies := f.dialing.through(t)
		for _, p := range proxies {
			p.CutAfterRequest(func(request []byte) bool {
				cut := s.kind.isStep(request) && calls.Add(1)%5 == 0
				if cut {
					cuts.Add(1)
				}
				return cut
			}, -1)
		}
		store, err := d.open(t.Context())
		must(t, err)
		t.Cleanup(func() { _ = store.Close() })
		client, err := midge.NewClient(newRecordingStorage(store, f.rec), midge.ClientConfig{Patience: time.Minute})
		must(t, err)
		f.start(workerConfig{Name: "runner", Storage: d, Queues: []string{"q"}, Concurrency: 10, Lease: 10 * time.Second})
		f.awaitWhat("runner", workerReady, 1, 20*time.Second)

		want := before
		for i := range tasks {
			kind := lossyKinds[i%len(lossyKinds)]
			want = sum(want, kind.totals)
			_, err := enqueue(t.Context(), client, f.rec, "q", fmt.Sprint("task-", i), kind.job, midge.KeepFor(0), midge.In(kind.in))
			if err != nil {
				t.Errorf("enqueue: %v", err)
			}
		}
		awaitDrained(t, f.store, "q", 60*time.Second)
		h := f.history()
		checkRuns(t, h)
		runs := runsOf(h)
		for i := range tasks {
			ref := storage.Ref{Queue: "q", ID: fmt.Sprint("task-", i)}
			if got, want := runs[ref], lossyKinds[i%len(lossyKinds)].runs; got != want {
				t.Errorf("%s ran %d times, want %d:\n%s", ref, got, want, h.about(ref))
			}
		}
		if got := checkTotals(t, f.store, "q", tasksOf(t, f.store, "q")).Totals; got != want {
			t.Errorf("totals %+v, want %+v", got, want)
		}
		t.Logf("%d of %d steps lost their reply; %d tasks ran as often as they had to", cuts.Load(), calls.Load(), tasks)
		if least := int64(tasks / 3); cuts.Load() < least {
			t.Errorf("%d replies were lost, want at least %d", cuts.Load(), least)
		}
	})
}
