//go:build unix

package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// farOff is the error of the wrong clocks.
const farOff = 10 * time.Minute

// TestClocksOfRunnersChangeNothing runs three runners on one storage, one of them ten
// minutes ahead and one ten minutes behind, with a client that is ahead too. Delays,
// leases and takeovers must not depend on these clocks.
func TestClocksOfRunnersChangeNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		f := newFleet(t, s)
		var err error
		f.skew = farOff
		f.client, err = midge.NewClient(&skewed{Storage: newRecordingStorage(f.store, f.rec), by: f.skew}, midge.ClientConfig{Patience: loadPatience})
		must(t, err)
		var fleet []*worker
		for _, by := range []time.Duration{farOff, -farOff, 0} {
			fleet = append(fleet, f.start(workerConfig{
				Name: fmt.Sprint("off-by-", by), Queues: []string{"q"}, Concurrency: 20, Lease: 2 * time.Second, Skew: by,
			}))
		}
		f.awaitWhat("", workerReady, len(fleet), 20*time.Second)
		observeClocks(t, f, fleet)
	})
}

// observeClocks checks delays, leases and takeovers in a fleet whose clocks, or whose
// server's clock, are wrong.
func observeClocks(t *testing.T, f *fleet, fleet []*worker) {
	t.Helper()
	const delayed, long, lease = 60, 6, 2 * time.Second
	for i := range long {
		f.enqueue("q", fmt.Sprint("long-", i), steps(sleep(6*lease), step{Do: "follow"}))
	}
	f.awaitWhat("", runStart, long, 10*time.Second)
	due := make(map[storage.Ref]time.Time) // by the host's clock, at the earliest
	for i := range delayed {
		delay := time.Duration(i) * 25 * time.Millisecond
		begun := time.Now()
		due[f.enqueue("q", fmt.Sprint("delayed-", i), stepJob{}, midge.In(delay))] = begun.Add(delay)
	}
	const in = time.Second
	before := time.Now()
	description, err := f.store.Describe(t.Context())
	must(t, err)
	ref := storage.Ref{Queue: "q", ID: "at"}
	at := description.Now.Add(in - f.skew) // by the clock of the client
	due[ref] = before.Add(in)
	_, err = f.client.EnqueueAt(t.Context(), at, stepJob{}, midge.To("q"), midge.ID("at"))
	must(t, err)
	f.enqueue("q", "snoozes", do("snooze once"))

	h := f.await("all that was delayed has run", 20*time.Second, func(h history) bool {
		return len(h.of(runEnd).where(func(e *event) bool { return !due[e.Ref].IsZero() }).refs()) == len(due)
	})
	var late []time.Duration
	for ref, moment := range due {
		start := h.of(runStart).about(ref)[0].At
		if start.Before(moment) {
			t.Errorf("%s started %v early", ref, moment.Sub(start))
		}
		late = append(late, start.Sub(moment))
	}
	slices.Sort(late)
	t.Logf("%d delayed tasks: none early; late by p50 %v, at most %v", len(late), late[len(late)/2], late[len(late)-1])
	if last := late[len(late)-1]; last > machine.Stretch(1500*time.Millisecond, before) {
		t.Errorf("a delayed task started %v late", last)
	}
	// Only the long jobs are counted: whether the kill cuts off a short job is chance.
	isLong := func(e *event) bool { return strings.HasPrefix(e.Ref.ID, "long-") }
	killed := fleet[0]
	at = time.Now()
	killed.kill()
	h = f.history().by(killed.name)
	held := h.of(runStart).where(isLong).refs()
	for ref := range h.of(runEnd).refs() { // a loaded machine takes long to come here, or costs a job its lease
		delete(held, ref)
	}
	f.await("all of the killed runner's long jobs run elsewhere", lease+takeover, func(h history) bool {
		crashed := h.of(runStart).after(at).where(func(e *event) bool { return held[e.Ref] && e.Crashes == 1 })
		return len(crashed.refs()) == len(held)
	})
	awaitDrained(t, f.store, "q", 20*time.Second)
	for _, w := range fleet[1:] { // no schedule may tick while the tasks are counted
		w.terminate()
		w.ended(t, 30*time.Second)
	}
	h = f.history()
	checkRuns(t, h)
	tasks := tasksOf(t, f.store, "q")
	checkTotals(t, f.store, "q", tasks)
	checkFollowUps(t, tasks, func(id string) bool { return strings.HasPrefix(id, "long-") })
	t.Logf("%d jobs of a killed runner were taken over, the other %d ran once", len(held), long-len(held))
	if runs := len(h.of(runStart).where(isLong)); !h.exactly(runs, long+len(held)) {
		t.Errorf("%d long jobs ran %d times in all, want %d", long, runs, long+len(held))
	}
}
