//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// takeover is the time after the end of a lease within which another runner must start
// the task.
const takeover = 5 * time.Second

// TestTheJobsOfAKilledRunnerStartElsewhere checks that another runner starts the jobs
// of a killed runner when their leases have run out, each charged with one crash.
func TestTheJobsOfAKilledRunnerStartElsewhere(t *testing.T) {
	eachStorage(t, func(t *testing.T, s *server) {
		const jobs = 20
		lease := s.lease()
		f := newFleet(t, s)
		runner := workerConfig{Queues: []string{"q"}, Concurrency: jobs, Lease: lease}
		runner.Name = "victim"
		victim := f.start(runner)
		for i := range jobs {
			f.enqueue("q", fmt.Sprint("job-", i), steps(gate("go"), step{Do: "follow"}))
		}
		f.awaitWhat("victim", runStart, jobs, 10*time.Second)
		runner.Name = "successor"
		f.start(runner)
		f.awaitWhat("successor", workerReady, 1, 10*time.Second)

		killed := time.Now()
		victim.kill()
		// On an overloaded machine the victim may have ended jobs before the kill, because it could not extend
		// their leases. A job that it handed back did not crash.
		ended := f.history().by("victim").of(runEnd).refs()
		charged := func(ref storage.Ref, crashes int) bool { return crashes == 1 || crashes == 0 && ended[ref] }
		h := f.awaitWhat("successor", runStart, jobs, lease+takeover)
		var latest time.Duration
		for _, start := range h.of(runStart).by("successor") {
			latest = max(latest, start.At.Sub(killed))
			if start.Retries != 0 || !charged(start.Ref, start.Crashes) {
				t.Errorf("%s started with %d retries and %d crashes, want 0 and 1", start.Ref, start.Retries, start.Crashes)
			}
		}
		t.Logf("all %d started again %v after the kill, with a lease of %v", jobs, latest.Round(time.Millisecond), lease)
		if bound := lease + machine.Stretch(takeover, killed); latest > bound {
			t.Errorf("the last of %d started %v after the kill, want at most %v", jobs, latest, bound)
		}
		f.openGate("go")
		awaitDrained(t, f.store, "q", 10*time.Second)
		checkRuns(t, f.history())
		tasks := tasksOf(t, f.store, "q")
		checkTotals(t, f.store, "q", tasks)
		checkFollowUps(t, tasks, func(string) bool { return true })
		for id, task := range tasks {
			first := !strings.HasPrefix(id, followPrefix)
			if task.State != storage.Completed || task.Retries != 0 || first && !charged(task.Ref, task.Crashes) {
				t.Errorf("%s: %s, %d retries, %d crashes; want completed, 0, 1", task.Ref, task.State, task.Retries, task.Crashes)
			}
		}
	})
}

// TestAPoisonPillDiesAlone checks that a job that kills its process, a poison pill, is buried after its
// crash limit while its neighbours complete. The job kills all its neighbours twice,
// so that each of them is one crash short of its limit too.
func TestAPoisonPillDiesAlone(t *testing.T) {
	eachStorage(t, func(t *testing.T, s *server) {
		const neighbours = 20
		f := newFleet(t, s)
		for i := range neighbours {
			if i == neighbours/2 {
				f.enqueue("q", "killer", steps(step{Do: "kill", N: neighbours, For: 2 * time.Second}))
			}
			f.enqueue("q", fmt.Sprint("neighbour-", i), steps(gate("end"), step{Do: "follow"}))
		}
		sup := f.supervise(workerConfig{
			Name: "host", Queues: []string{"q"}, Concurrency: neighbours + 1, Lease: s.lease(), MayDie: true,
		})
		f.await("the second death", 30*time.Second, func(h history) bool {
			starts := h.of(runStart).about(storage.Ref{Queue: "q", ID: "killer"})
			return sup.deaths() >= 2 && len(starts) >= 2
		})
		f.openGate("end")
		awaitDrained(t, f.store, "q", 60*time.Second)
		sup.stop()
		h := f.history()
		checkRuns(t, h)
		tasks := tasksOf(t, f.store, "q")
		checkTotals(t, f.store, "q", tasks)
		checkFollowUps(t, tasks, func(id string) bool { return id != "killer" })
		charged := 0
		for id, task := range tasks {
			switch {
			case id == "killer":
				if task.State != storage.Dead || task.Reason != storage.ReasonCrashes || task.Crashes != 3 {
					t.Errorf("the job that kills its process is %s, reason %q, %d crashes; want dead of a crash loop after 3", task.State, task.Reason, task.Crashes)
				}
			case task.State != storage.Completed:
				t.Errorf("%s is %s (%s) after %d crashes, want it completed", id, task.State, task.Reason, task.Crashes)
			default:
				charged += task.Crashes
			}
		}
		starts := h.of(runStart).about(storage.Ref{Queue: "q", ID: "killer"})
		t.Logf("the job that kills its process started %d times; its %d neighbours were charged %d crashes in all", len(starts), neighbours, charged)
		if len(starts) != 3 {
			t.Errorf("the job that kills its process started %d times, want 3", len(starts))
		}
	})
}

// supervisor starts a worker again whenever it has ended, as an init system would.
type supervisor struct {
	end  context.CancelFunc
	done chan struct{}

	mu    sync.Mutex // guards ended
	ended int
}

// supervise keeps a worker running until stop.
func (f *fleet) supervise(cfg workerConfig) *supervisor {
	ctx, end := context.WithCancel(f.t.Context())
	s := &supervisor{end: end, done: make(chan struct{})}
	f.t.Cleanup(s.stop)
	go func() {
		defer close(s.done)
		for n := 1; ctx.Err() == nil; n++ {
			c := cfg
			c.Name = fmt.Sprint(cfg.Name, "-", n)
			c.Gates = slices.Clone(cfg.Gates)
			w := f.start(c)
			select {
			case <-w.done:
				s.mu.Lock()
				s.ended++
				s.mu.Unlock()
			case <-ctx.Done():
				w.kill()
			}
		}
	}()
	return s
}

func (s *supervisor) stop() {
	s.end()
	<-s.done
}

// deaths returns how often the worker has ended by itself.
func (s *supervisor) deaths() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}
