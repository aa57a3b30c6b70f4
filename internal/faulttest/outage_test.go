//go:build unix

package faulttest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// outage is a way in which a server becomes unavailable and returns.
type outage struct {
	name string
	away func(s *server) error
	back func(s *server) error
}

var outages = []outage{
	{
		name: "killed",
		away: func(s *server) error {
			for _, node := range s.nodes {
				if err := node.Kill(); err != nil {
					return err
				}
			}
			return nil
		},
		back: func(s *server) error {
			for _, node := range s.nodes {
				if err := node.Restart(); err != nil {
					return err
				}
			}
			return s.ready()
		},
	},
	{
		name: "frozen",
		away: func(s *server) error {
			for _, node := range s.nodes {
				if err := node.Pause(); err != nil {
					return err
				}
			}
			return nil
		},
		back: func(s *server) error {
			for _, node := range s.nodes {
				if err := node.Resume(); err != nil {
					return err
				}
			}
			return s.ready()
		},
	},
}

// TestAnOutageEndsNothing crashes or hangs the storage for ten seconds while jobs run,
// finish and wait. No job may end because of it, and work must go on within two seconds
// after the storage is back.
func TestAnOutageEndsNothing(t *testing.T) {
	t.Parallel()
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			eachOwnServer(t, func(t *testing.T, s *server) { outlast(t, s, o) }, "appendonly yes", "appendfsync always")
		})
	}
}

func outlast(t *testing.T, s *server, o outage) {
	t.Helper()
	const running, waiting, gone = 10, 20, 10 * time.Second
	f := newFleet(t, s)
	// The lease outlasts an outage that a busy machine makes longer. With a minute, awaitDrained would take a
	// task that was just claimed for a task that is left for later.
	runner := f.start(workerConfig{Name: "runner", Queues: []string{"q"}, Concurrency: running, Lease: 50 * time.Second})
	for i := range running {
		name := "during" // half of the jobs end during the outage, half after it
		if i%2 == 1 {
			name = "after"
		}
		f.enqueue("q", fmt.Sprint(name, "-", i), steps(gate(name), step{Do: "follow"}))
	}
	f.awaitWhat("runner", runStart, running, 20*time.Second)
	for i := range waiting {
		f.enqueue("q", fmt.Sprint("waits-", i), stepJob{})
	}

	must(t, o.away(s))
	left := time.Now()
	used := cpuTime(t, runner.pid)
	f.openGate("during")
	f.await("the outage is over", 2*gone, func(history) bool { return time.Since(left) >= gone })
	share := float64(cpuTime(t, runner.pid)-used) / float64(time.Since(left))
	t.Logf("%.1f %% of a processor used during the outage", 100*share)
	if share > 0.05 {
		t.Errorf("the runner used %.1f %% of a processor while its storage was gone, want less than 5 %%", 100*share)
	}
	must(t, o.back(s))
	back := time.Now()

	h := f.await("a waiting task starts and a finished one is settled", 20*time.Second, func(h history) bool {
		return len(h.of(runStart).after(left)) > 0 && len(h.of(settleDone).after(left)) >= running/2
	})
	resumed := h.of(runStart).after(left)[0].At.Sub(back)
	settled := h.of(settleDone).after(left)[running/2-1].At.Sub(back)
	t.Logf("%v after the return work began, %v after it all that had finished was settled",
		resumed.Round(time.Millisecond), settled.Round(time.Millisecond))
	if bound := machine.Stretch(2*time.Second, back); resumed > bound || settled > bound {
		t.Errorf("work began %v and was settled %v after the return, want both within %v", resumed, settled, bound)
	}
	f.openGate("after")
	awaitDrained(t, f.store, "q", 30*time.Second)
	h = f.history()
	checkRuns(t, h)
	for _, e := range h.of(ctxDone) {
		t.Errorf("%s: its context ended: %s", e.Ref, e.Err)
	}
	tasks := tasksOf(t, f.store, "q")
	checkTotals(t, f.store, "q", tasks)
	checkFollowUps(t, tasks, func(id string) bool { return id[0] == 'd' || id[0] == 'a' })
	if want := 2*running + waiting; len(tasks) != want {
		t.Errorf("%d tasks, want %d", len(tasks), want)
	}
	runs := runsOf(h)
	for _, task := range tasks {
		if n := runs[task.Ref]; task.State != storage.Completed || n != 1 {
			t.Errorf("%s is %s after %d runs, want completed after one", task.Ref, task.State, n)
		}
	}
	select {
	case <-runner.done:
		t.Errorf("the runner ended: %v", runner.state)
	default:
	}
}

// TestAnOutageLongerThanTheLease checks that the contexts of jobs end before their
// leases may have run out, that nothing is lost, and that all jobs run again.
func TestAnOutageLongerThanTheLease(t *testing.T) {
	eachOwnServer(t, func(t *testing.T, s *server) {
		const running, lease = 10, 2 * time.Second
		f := newFleet(t, s)
		f.start(workerConfig{Name: "runner", Queues: []string{"q"}, Concurrency: running, Lease: lease})
		for i := range running {
			f.enqueue("q", fmt.Sprint("job-", i), steps(gate("end"), step{Do: "follow"}))
		}
		f.awaitWhat("runner", runStart, running, 20*time.Second)
		must(t, outages[1].away(s))
		away := time.Now()
		h := f.awaitWhat("runner", ctxDone, running, 3*lease)
		last := h.of(ctxDone)[running-1].At.Sub(away)
		t.Logf("the last context ended %v after the storage went, with a lease of %v", last.Round(time.Millisecond), lease)
		// The runner's guard ends it a sixth of the lease before that, or later if the
		// machine is busy.
		if last > lease*5/6+machine.Stretch(lease/6, away) {
			t.Errorf("a context ended %v after the storage went, want it before the lease of %v had run out", last, lease)
		}
		f.await("the leases have run out", 3*lease, func(history) bool { return time.Since(away) > 2*lease })
		f.openGate("end")
		must(t, outages[1].back(s))
		awaitDrained(t, f.store, "q", 30*time.Second)
		h = f.history()
		checkRuns(t, h)
		tasks := tasksOf(t, f.store, "q")
		checkTotals(t, f.store, "q", tasks)
		checkFollowUps(t, tasks, func(string) bool { return true })
		for _, task := range tasks {
			if task.State != storage.Completed || task.Retries != 0 || task.Crashes != 0 {
				t.Errorf("%s is %s after %d retries and %d crashes, want completed after none", task.Ref, task.State,
					task.Retries, task.Crashes)
			}
		}
	})
}

// TestAnOutageChargesNoCrash takes the storage away for one lease and for three, and again and again with short
// times between, while two runners run jobs and have slots for the jobs of the other. Every second job goes
// on after its context has ended. No process dies, so that no crash may be charged.
func TestAnOutageChargesNoCrash(t *testing.T) {
	eachOwnServer(t, func(t *testing.T, s *server) {
		const lease, jobs = 2 * time.Second, 16
		f := newFleet(t, s)
		for _, name := range []string{"one", "two"} {
			f.start(workerConfig{Name: name, Queues: []string{"q"}, Concurrency: jobs, Lease: lease})
		}
		rounds := 0
		for _, o := range outages {
			f.endure(fmt.Sprint(o.name, " for a lease"), jobs, o, lease)
			f.endure(fmt.Sprint(o.name, " for three"), jobs, o, 3*lease)
			rounds += 2
		}
		for i := range count(1, 5) {
			naps := make([]time.Duration, 6)
			for j := range naps {
				naps[j] = time.Second + rand.N(lease*3/2)
			}
			f.endure(fmt.Sprint("slow ", i), jobs, outages[1], naps...)
			rounds++
		}
		checkRuns(t, f.history())
		tasks := tasksOf(t, f.store, "q")
		checkTotals(t, f.store, "q", tasks)
		for _, task := range tasks {
			if task.State != storage.Completed || task.Retries != 0 || task.Crashes != 0 {
				t.Errorf("%s is %s after %d retries and %d crashes, want completed after none", task.Ref, task.State,
					task.Retries, task.Crashes)
			}
		}
		if want := rounds * jobs; len(tasks) != want {
			t.Errorf("%d tasks, want %d", len(tasks), want)
		}
	}, "appendonly yes", "appendfsync always")
}

// endure has jobs run while the storage goes away for these times, with a fraction of a second between, and end
// after that.
func (f *fleet) endure(round string, jobs int, o outage, lengths ...time.Duration) {
	f.t.Helper()
	round = strings.ReplaceAll(round, " ", "-")
	for i := range jobs {
		waits := gate(round)
		if i%2 == 1 {
			waits = hold(round)
		}
		f.enqueue("q", fmt.Sprint(round, "-", i), steps(waits))
	}
	f.await("all jobs run", 20*time.Second, func(h history) bool {
		return len(h.of(runStart).where(func(e *event) bool { return strings.HasPrefix(e.Ref.ID, round) })) >= jobs
	})
	for _, length := range lengths {
		must(f.t, o.away(f.server))
		away := time.Now()
		f.await("the outage is over", 20*length, func(history) bool { return time.Since(away) >= length })
		must(f.t, o.back(f.server))
	}
	f.openGate(round)
	awaitDrained(f.t, f.store, "q", 30*time.Second)
}
