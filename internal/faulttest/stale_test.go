//go:build unix

package faulttest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// TestAResumedRunnerStartsNothingStale repeatedly freezes runners that have claimed short
// jobs ahead, each for two and a half leases. When they continue, their leases have run out,
// and a runner that was not frozen has their tasks. A job may start under a lease that has
// run out only if the freeze fell between the runner's check of the lease and the start.
func TestAResumedRunnerStartsNothingStale(t *testing.T) {
	eachServerInTurn(t, func(t *testing.T, s *server) {
		const lease, freeze, runners = time.Second, 2500 * time.Millisecond, 5
		rounds, each := count(5, 40), count(400, 1000)
		f := newFleet(t, s)
		cfg := workerConfig{Queues: []string{"q"}, Concurrency: 2, Lease: lease}
		var fleet []*worker
		for range runners {
			fleet = append(fleet, f.start(cfg))
		}
		cfg.Name = "awake"
		f.start(cfg)
		f.awaitWhat("", workerReady, runners+1, 20*time.Second)
		for round := range rounds {
			begun, enqueued := time.Now(), 0 // begun is before the first job of the round is enqueued
			f.await("each runner runs", 20*time.Second, func(h history) bool {
				h = h.of(runStart).after(begun)
				if len(h.refs()) >= enqueued { // the others may be through before the last runner is back
					f.enqueueMany("q", each, func(i int) (string, any) {
						return fmt.Sprintf("job-%d-%d", round, enqueued+i), steps(step{Do: "compute", For: time.Millisecond})
					})
					enqueued += each
				}
				for _, w := range fleet {
					if len(h.by(w.name)) == 0 {
						return false
					}
				}
				return true
			})
			var all sync.WaitGroup
			for _, w := range fleet {
				all.Go(func() { f.freezeFor(w, time.Duration(rand.Int64N(int64(100*time.Millisecond))), freeze) })
			}
			all.Wait()
		}
		awaitDrained(t, f.store, "q", 60*time.Second)
		h := f.history()
		checkRuns(t, h)
		between := checkStarts(t, h)
		tasks := tasksOf(t, f.store, "q")
		checkTotals(t, f.store, "q", tasks)
		checkFollowUps(t, tasks, func(string) bool { return false })
		freezes := len(h.of(resumed))
		t.Logf("%d freezes, %d starts, %d leases lost: %d stale starts where the freeze fell between the check of the lease and the start",
			freezes, len(h.of(runStart)), len(h.of(extendLost, settleLost)), between)
		if freezes != rounds*runners || len(h.of(extendLost, settleLost)) == 0 {
			t.Errorf("%d freezes of %d, and %d leases lost: a run that proves nothing", freezes, rounds*runners, len(h.of(extendLost, settleLost)))
		}
	})
}

// freezeFor waits, then freezes a worker for a time, and records it.
func (f *fleet) freezeFor(w *worker, after, freeze time.Duration) {
	<-time.NewTimer(after).C
	f.rec.record(event{What: frozen, Step: w.name})
	w.freeze()
	<-time.NewTimer(freeze).C
	w.resume()
	f.rec.record(event{What: resumed, Step: w.name})
}

// enqueueMany enqueues n jobs in one call and records the call.
func (f *fleet) enqueueMany(queue string, n int, job func(i int) (id string, job any)) {
	f.t.Helper()
	items := make([]midge.Item, n)
	refs := make([]storage.Ref, n)
	for i := range items {
		id, j := job(i)
		refs[i] = storage.Ref{Queue: queue, ID: id}
		items[i] = midge.New(j, midge.To(queue), midge.ID(id))
		f.rec.record(event{What: enqueueBegun, Ref: refs[i]})
	}
	results, err := f.client.EnqueueMany(f.t.Context(), items)
	must(f.t, err)
	for i, r := range results {
		f.rec.record(event{What: enqueued(r.Err), Ref: refs[i], Err: text(r.Err)})
		must(f.t, r.Err)
	}
}

// checkStarts checks that no job started under a lease that had run out when the runner last
// checked it. It returns the number of jobs whose lease ran out between that check and the
// start.
func checkStarts(t *testing.T, h history) int {
	t.Helper()
	stale, between := staleStarts(h)
	if len(stale) > 0 {
		t.Errorf("%d jobs were started under leases that had run out, such as %s", len(stale), stale[0])
	}
	for _, start := range between {
		t.Log("the lease ran out between the check and the start: ", start)
	}
	return len(between)
}

// staleStarts returns the starts under leases that had run out: stale if the lease had run
// out when the runner last checked it, between if it ran out after that check.
func staleStarts(h history) (stale, between []string) {
	type lease struct {
		ref   storage.Ref
		fence int64
	}
	until := make(map[lease]time.Time)
	for _, e := range h {
		l := lease{e.Ref, e.Fence}
		switch e.What {
		case claimed, extended:
			if end := e.From.Add(e.For); e.For > 0 && end.After(until[l]) {
				until[l] = end
			}
		case runStart:
			end := until[l]
			if end.IsZero() || e.At.Before(end.Add(slack)) {
				continue
			}
			start := fmt.Sprintf("%s: %s checked at %v the lease, which ran out at %v, and started the job at %v",
				e.Ref, e.Worker, clock(e.checkedAt()), clock(end), clock(e.At))
			if e.checkedAt().Before(end.Add(slack)) {
				between = append(between, start)
			} else {
				stale = append(stale, start)
			}
		}
	}
	return stale, between
}
