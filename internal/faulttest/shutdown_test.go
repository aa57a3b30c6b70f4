//go:build unix

package faulttest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// TestATerminatedRunnerGivesItsTasksBack sends SIGTERM to two runners while some of
// their jobs finish within the grace period, some end with their context and some
// ignore it. The tasks that they hand back must start elsewhere at once, before ten
// thousand waiting tasks.
func TestATerminatedRunnerGivesItsTasksBack(t *testing.T) {
	eachServerInTurn(t, func(t *testing.T, s *server) {
		const backlog, grace = 10_000, 2 * time.Second
		f := newFleet(t, s)
		leaving := f.start(workerConfig{
			Name: "leaving", Queues: []string{"q"}, Concurrency: 20, Grace: grace, Lease: 10 * time.Second,
		})
		for i := range 20 {
			switch {
			case i < 5:
				f.enqueue("q", fmt.Sprint("finishes-", i), steps(gate("finish"), step{Do: "follow"}))
			case i < 15:
				f.enqueue("q", fmt.Sprint("heeds-", i), steps(gate("elsewhere"), step{Do: "follow"}))
			default:
				f.enqueue("q", fmt.Sprint("ignores-", i), steps(hold("elsewhere"), step{Do: "follow"}))
			}
		}
		f.awaitWhat("leaving", runStart, 20, 20*time.Second)
		f.enqueueBacklog("q", backlog)
		// A second runner is in the middle of short jobs when it is terminated, and holds
		// some tasks that it has claimed ahead.
		busy := f.start(workerConfig{
			Name: "busy", Queues: []string{"q"}, Concurrency: 8, Grace: grace, Lease: 10 * time.Second,
		})
		f.start(workerConfig{
			Name: "stays", Queues: []string{"q"}, Concurrency: 8, Lease: 10 * time.Second, Gates: []string{"elsewhere"},
		})
		f.awaitWhat("busy", runEnd, 50, 20*time.Second)
		f.awaitWhat("stays", runEnd, 50, 20*time.Second)

		terminated := time.Now()
		leaving.terminate()
		busy.terminate()
		f.openGate("finish")
		took := map[string]time.Duration{"busy": busy.ended(t, 2*grace+5*time.Second)}
		leaving.ended(t, grace+10*time.Second)
		took["leaving"] = time.Since(terminated)
		t.Logf("ended after the signal: the leaving runner in %v, with a grace of %v, the busy one in %v",
			took["leaving"].Round(time.Millisecond), grace, took["busy"].Round(time.Millisecond))
		bound := grace + machine.Stretch(2*time.Second, terminated)
		for name, d := range took {
			if d > bound {
				t.Errorf("%s ended %v after SIGTERM, want at most %v", name, d, bound)
			}
		}
		h := f.await("all that was left behind runs elsewhere", 20*time.Second, func(h history) bool {
			return len(h.by("stays").of(runStart).where(leftBehind).refs()) >= 15
		})
		checkNoNewClaims(t, h, terminated)
		checkGivenBack(t, h, terminated)
		awaitEnded(t, f, 20)
		checkRuns(t, f.history())
	})
}

// leftBehind reports whether an event is about a job that outlasts the grace period.
func leftBehind(e *event) bool {
	return strings.HasPrefix(e.Ref.ID, "heeds-") || strings.HasPrefix(e.Ref.ID, "ignores-")
}

// enqueueBacklog enqueues n short jobs.
func (f *fleet) enqueueBacklog(queue string, n int) {
	f.t.Helper()
	items := make([]midge.Item, n)
	for i := range items {
		items[i] = midge.New(steps(sleep(3*time.Millisecond)), midge.To(queue), midge.ID(fmt.Sprint("backlog-", i)), midge.KeepFor(0))
	}
	_, err := f.client.EnqueueMany(f.t.Context(), items)
	must(f.t, err)
}

// checkNoNewClaims checks that the terminated runners claimed and started nothing more.
func checkNoNewClaims(t *testing.T, h history, terminated time.Time) {
	t.Helper()
	atOnce := machine.Stretch(200*time.Millisecond, terminated) // for the signal to arrive
	for _, e := range h.of(claimBegun, runStart).after(terminated.Add(atOnce)) {
		if e.Worker != "stays" {
			t.Errorf("%s: %s %s %v after SIGTERM, want none", e.Worker, e.What, e.Ref, e.At.Sub(terminated))
		}
	}
}

// checkGivenBack checks that each job that outlasts the grace period was released, and
// that released tasks started elsewhere within a second, charged with nothing.
func checkGivenBack(t *testing.T, h history, terminated time.Time) {
	t.Helper()
	var slowest time.Duration
	released := h.of(settleDone).after(terminated).where(func(e *event) bool { return e.Outcome == storage.Release })
	for _, r := range released {
		starts := h.about(r.Ref).of(runStart).where(func(e *event) bool { return e.Fence > r.Fence })
		if len(starts) == 0 {
			if leftBehind(r) {
				t.Errorf("%s was released and not started elsewhere", r.Ref)
			}
			continue
		}
		slowest = max(slowest, starts[0].At.Sub(r.At))
		if starts[0].Retries != 0 || starts[0].Crashes != 0 {
			t.Errorf("%s started with %d retries and %d crashes, want none", r.Ref, starts[0].Retries, starts[0].Crashes)
		}
	}
	t.Logf("%d tasks were released; the slowest started %v later elsewhere", len(released), slowest.Round(time.Millisecond))
	if bound := machine.Stretch(time.Second, terminated); slowest > bound {
		t.Errorf("a released task started %v later, want within %v", slowest, bound)
	}
	if left := len(released.where(leftBehind)); left != 15 {
		t.Errorf("%d of the jobs that outlast the grace were released, want 15", left)
	}
}

// awaitEnded waits until n of the first tasks, which are neither backlog nor
// follow-ups, are completed.
func awaitEnded(t *testing.T, f *fleet, n int) {
	t.Helper()
	f.await("the first tasks have been committed", 20*time.Second, func(h history) bool {
		done := h.of(settleDone).where(func(e *event) bool {
			return e.State == storage.Completed && !strings.HasPrefix(e.Ref.ID, "backlog-") && !strings.HasPrefix(e.Ref.ID, followPrefix)
		})
		return len(done.refs()) == n
	})
}

// TestShutdownWhileTheStorageIsAway checks that a runner ends within its grace period
// even if the storage is unavailable, and that its tasks run elsewhere after their
// leases.
func TestShutdownWhileTheStorageIsAway(t *testing.T) {
	eachOwnServer(t, func(t *testing.T, s *server) {
		const jobs, grace, lease = 5, time.Second, 3 * time.Second
		f := newFleet(t, s)
		leaving := f.start(workerConfig{Name: "leaving", Queues: []string{"q"}, Concurrency: jobs, Grace: grace, Lease: lease})
		for i := range jobs {
			f.enqueue("q", fmt.Sprint("job-", i), steps(gate("end"), step{Do: "follow"}))
		}
		f.awaitWhat("leaving", runStart, jobs, 20*time.Second)
		must(t, outages[1].away(s))
		terminated := time.Now()
		leaving.terminate()
		took := leaving.ended(t, grace+10*time.Second)
		run := f.awaitWhat("leaving", runnerStopped, 1, time.Second).of(runnerStopped)[0].At.Sub(terminated)
		t.Logf("Run returned %v after the signal, with a grace of %v; the process ended after %v",
			run.Round(time.Millisecond), grace, took.Round(time.Millisecond))
		bound := grace + machine.Stretch(2*time.Second, terminated)
		closing := machine.Stretch(1500*time.Millisecond, terminated) // a second for Close, and the process's end
		if run > bound || took > bound+closing {
			t.Errorf("Run returned %v after SIGTERM and the process ended after %v, want at most %v, and %v to close",
				run, took, bound, closing)
		}
		must(t, outages[1].back(s))
		f.openGate("end")
		f.start(workerConfig{Name: "successor", Queues: []string{"q"}, Concurrency: jobs, Lease: lease})
		awaitDrained(t, f.store, "q", 20*time.Second)
		checkRuns(t, f.history())
		tasks := tasksOf(t, f.store, "q")
		checkTotals(t, f.store, "q", tasks)
		checkFollowUps(t, tasks, func(string) bool { return true })
	})
}
