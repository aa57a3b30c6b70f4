//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// TestAFrozenRunnerCannotCommit checks that a runner that was frozen past its leases
// can write nothing under them. When it continues, the other runner has completed half
// of the tasks and still runs the other half.
func TestAFrozenRunnerCannotCommit(t *testing.T) {
	eachStorage(t, func(t *testing.T, s *server) {
		const half = 10
		lease := s.lease()
		f := newFleet(t, s)
		stale := []step{
			{Do: "progress", Arg: "ran"},
			{Do: "checkpoint", Arg: "ran"},
			{Do: "stale", Arg: "frozen"},
			{Do: "until ended", Arg: "frozen"},
			{Do: "result"},
			{Do: "follow"},
		}
		early := steps(append([]step{hold("resume")}, stale...)...)
		late := steps(append(append([]step{hold("resume")}, stale...), gate("end"))...)
		runner := workerConfig{Queues: []string{"q"}, Concurrency: 2 * half, Lease: lease}
		runner.Name = "frozen"
		frozen := f.start(runner)
		for i := range half {
			f.enqueue("q", fmt.Sprint("early-", i), early)
			f.enqueue("q", fmt.Sprint("late-", i), late)
		}
		f.awaitWhat("frozen", runStart, 2*half, 10*time.Second)
		freezeIdle(t, f, frozen)
		runner.Name, runner.Gates = "successor", []string{"resume"}
		runner.Lease = 10 * lease // else the other runner may take a task again from it on a busy machine
		f.start(runner)
		f.await("the successor runs all and has completed half", lease+2*takeover, func(h history) bool {
			h = h.by("successor")
			done := h.of(settleDone).where(func(e *event) bool { return strings.HasPrefix(e.Ref.ID, "early") })
			return len(h.of(runStart)) >= 2*half && len(done) >= half
		})
		f.openGate("resume")
		resumed := time.Now()
		frozen.resume()
		f.awaitWhat("frozen", runEnd, 2*half, 10*time.Second)
		f.openGate("end")
		// A lease of more than a minute would count as a lease that is kept for later.
		f.await("the successor has completed all", 10*time.Second, func(h history) bool {
			late := func(e *event) bool { return strings.HasPrefix(e.Ref.ID, "late") }
			return len(h.by("successor").of(settleDone).where(late)) >= half
		})
		awaitDrained(t, f.store, "q", 10*time.Second)
		frozen.terminate()
		frozen.ended(t, 10*time.Second)

		h := f.history()
		checkRuns(t, h)
		checkFrozen(t, h.by("frozen"), 2*half, resumed)
		tasks := tasksOf(t, f.store, "q")
		checkTotals(t, f.store, "q", tasks)
		checkFollowUps(t, tasks, func(string) bool { return true })
		checkSuccessorCommits(t, f, h.by("successor"), tasks)
	})
}

// freezeIdle freezes a worker at a moment at which it does not write. On SQLite a process that is frozen
// while it writes holds the file's lock, and blocks all others.
func freezeIdle(t *testing.T, f *fleet, w *worker) {
	t.Helper()
	for n := 0; ; n++ {
		w.freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := f.client.Enqueue(ctx, steps(), midge.To("idle"), midge.ID(fmt.Sprint("after-", n)))
		cancel()
		if err == nil {
			return
		}
		t.Logf("frozen while it writes: %v", err)
		w.resume()
	}
}

// checkFrozen checks that the storage refused everything that the frozen worker tried.
func checkFrozen(t *testing.T, h history, jobs int, resumed time.Time) {
	t.Helper()
	refusals := 0
	for _, e := range h.of(stepDone).after(resumed) {
		tried := strings.HasPrefix(e.Step, "stale ") || e.Step == "progress" || e.Step == "checkpoint"
		refused := strings.Contains(e.Err, storage.ErrLeaseLost.Error()) || strings.Contains(e.Err, "lease lost")
		if tried && !refused {
			t.Errorf("%s: %s under the stale fence gave %q, want a lost lease", e.Ref, e.Step, e.Err)
		}
		if tried && refused {
			refusals++
		}
	}
	const tries = 12 // progress, checkpoint and the ten of stale
	if refusals != jobs*tries {
		t.Errorf("%d tries were refused, want %d", refusals, jobs*tries)
	}
	for _, e := range h.of(settleDone).after(resumed) {
		if strings.HasPrefix(e.Ref.ID, followPrefix) { // it may run the follow-ups that the successor committed
			continue
		}
		t.Errorf("%s: a settle of the frozen runner, %s, was accepted", e.Ref, e.Outcome)
	}
	ended := h.of(ctxDone)
	var latest time.Duration
	for _, e := range ended {
		latest = max(latest, e.At.Sub(resumed))
		if !strings.Contains(e.Err, storage.ErrLeaseLost.Error()) {
			t.Errorf("%s: the context ended with %q, want a lost lease", e.Ref, e.Err)
		}
	}
	t.Logf("%d stale tries refused; all contexts had ended %v after it was resumed", refusals, latest.Round(time.Millisecond))
	if bound := machine.Stretch(time.Second, resumed); len(ended) != jobs || latest > bound {
		t.Errorf("%d contexts ended, the last after %v; want %d within %v", len(ended), latest, jobs, bound)
	}
}

// checkSuccessorCommits checks that results, progress and follow-ups come from the successor's
// runs.
func checkSuccessorCommits(t *testing.T, f *fleet, h history, tasks map[string]storage.Task) {
	t.Helper()
	for _, start := range h.of(runStart) {
		if strings.HasPrefix(start.Ref.ID, followPrefix) {
			continue
		}
		runs := h.of(runStart).about(start.Ref)
		if start != runs[len(runs)-1] && h.exactly(len(runs), 1) {
			continue // the successor lost its lease too, and ran the task again
		}
		var fence int64
		if err := f.client.Await(t.Context(), start.Ref, &fence); err != nil || fence != start.Fence {
			t.Errorf("%s: the result is %d, %v; want the fence of the successor's run, %d", start.Ref, fence, err, start.Fence)
		}
		task, err := f.store.Task(t.Context(), start.Ref)
		must(t, err)
		if string(task.Progress) == `"stale"` || string(task.Result) == `"stale"` {
			t.Errorf("%s: the stale run's progress %q or result %q is stored", start.Ref, task.Progress, task.Result)
		}
		follow := fmt.Sprintf("%s%s-%d", followPrefix, start.Ref.ID, start.Fence)
		if _, ok := tasks[follow]; !ok {
			t.Errorf("%s: the follow-up of the successor's run is missing", start.Ref)
		}
	}
}
