//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// loadClients goroutines enqueue, and each pauses for loadGap between two enqueues.
const (
	loadClients = 4
	loadGap     = 15 * time.Millisecond
)

// load enqueues tasks, each with a follow-up, until the test ends it. The client repeats
// an enqueue of unknown outcome for as long as its patience lasts.
type load struct {
	all  sync.WaitGroup
	stop context.CancelFunc
}

const loadPatience = time.Minute // for each enqueue; longer than a failover, and than the restart of a server on a busy machine

// load starts to enqueue. The caller ends it, or the end of the test.
func (f *fleet) load() *load {
	f.t.Helper()
	client, err := midge.NewClient(newRecordingStorage(f.store, f.rec), midge.ClientConfig{Patience: loadPatience})
	must(f.t, err)
	ctx, stop := context.WithCancel(f.t.Context())
	l := &load{stop: stop}
	f.t.Cleanup(l.end)
	for n := range loadClients {
		l.all.Go(func() {
			every := time.NewTicker(loadGap)
			defer every.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("load-%d-%d", n, i)
				_, _ = enqueue(context.WithoutCancel(ctx), client, f.rec, "q", id, do("follow")) // errors are recorded
				<-every.C
			}
		})
	}
	return l
}

func (l *load) end() {
	l.stop()
	l.all.Wait()
}

// awaitActive waits until each runner has started and settled tasks since a moment, and
// returns how long it took until the last of them started one.
func (f *fleet) awaitActive(since time.Time, runners ...*worker) time.Duration {
	f.t.Helper()
	var slowest time.Duration
	f.await("each runner works", 30*time.Second, func(h history) bool {
		slowest = 0
		h = h.after(since)
		for _, w := range runners {
			starts := h.by(w.name).of(runStart)
			if len(starts) == 0 || len(h.by(w.name).of(settleDone).after(starts[0].At)) == 0 {
				return false
			}
			slowest = max(slowest, starts[0].At.Sub(since))
		}
		return true
	})
	return slowest
}

// checkLoad checks that each acknowledged task is completed, with its follow-up. It logs
// and counts the lost tasks, and reports the tasks that may not be lost.
func (f *fleet) checkLoad(mayBeLost func(acknowledged *event) bool) (acknowledged, lost int) {
	t := f.t
	t.Helper()
	h := f.history()
	tasks := tasksOf(t, f.store, "q")
	checkTotals(t, f.store, "q", tasks)
	checkFollowUps(t, tasks, func(string) bool { return true })
	for _, task := range tasks {
		if task.State != storage.Completed || task.Retries > 0 {
			t.Errorf("%s is %s (%s) after %d retries, want completed after none", task.Ref, task.State, task.Reason, task.Retries)
		}
	}
	done := h.of(enqueueDone)
	var gone []string
	for _, e := range done {
		if _, found := tasks[e.Ref.ID]; found {
			continue
		}
		gone = append(gone, e.Ref.ID)
		if !mayBeLost(e) {
			t.Errorf("%s was acknowledged at %v and is lost", e.Ref, clock(e.At))
		}
	}
	if len(gone) > 0 {
		t.Logf("lost: %v", gone)
	}
	return len(done), len(gone)
}

func none(*event) bool { return false }

// runsOf returns how often each task was started.
func runsOf(h history) map[storage.Ref]int {
	runs := make(map[storage.Ref]int)
	for _, e := range h.of(runStart) {
		runs[e.Ref]++
	}
	return runs
}

// logTwice logs the tasks that were started more than once, and returns their number.
func logTwice(t *testing.T, h history) (twice int) {
	t.Helper()
	for ref, n := range runsOf(h) {
		if n > 1 {
			twice++
			t.Logf("%s was started %d times", ref, n)
		}
	}
	return twice
}
