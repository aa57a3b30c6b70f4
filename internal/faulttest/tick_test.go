//go:build unix

package faulttest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestEachTickHasOneTask checks that each tick has exactly one task while five runners
// declare a schedule of every second. They are killed at random and replaced.
func TestEachTickHasOneTask(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		const runners = 5
		life := time.Duration(count(20, 60)) * time.Second
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 0))
		t.Logf("seed %d", seed)
		f := newFleet(t, s)
		begin := func() *worker {
			return f.start(workerConfig{Queues: []string{"q"}, Concurrency: 2, Lease: 2 * time.Second, Every: tickEvery})
		}
		var fleet []*worker
		for range runners {
			fleet = append(fleet, begin())
		}
		f.awaitWhat("", runStart, 1, 20*time.Second)
		begun := time.Now()
		kills := 0
		for time.Since(begun) < life {
			pause := time.NewTimer(time.Second + time.Duration(random.Int64N(int64(2*time.Second))))
			<-pause.C
			i := random.IntN(runners)
			fleet[i].kill()
			fleet[i] = begin()
			kills++
		}
		f.await("the ticks of the last second have run", 20*time.Second, func(h history) bool {
			return len(h.of(runStart).after(begun.Add(life))) > 0
		})
		for _, w := range fleet {
			w.terminate()
		}
		for _, w := range fleet {
			w.ended(t, 30*time.Second)
		}
		h := f.history()
		checkRuns(t, h)
		tasks := tasksOf(t, f.store, "q")
		n := checkTicks(t, tasks)
		t.Logf("%d ticks, each with one task, over %d kills", n, kills)
		if least := int(life / tickEvery); n < least {
			t.Errorf("%d ticks, want at least %d", n, least)
		}
		if late := latestTick(h); late > machine.Stretch(10*time.Second, begun) {
			t.Errorf("a tick ran %v late, want it made up for sooner", late)
		}
		checkTotals(t, f.store, "q", tasks)
	})
}

// latestTick returns the longest time from a tick to its first start.
func latestTick(h history) time.Duration {
	first := make(map[string]time.Time)
	for _, e := range h.of(runStart) {
		if first[e.Tick].IsZero() {
			first[e.Tick] = e.At
		}
	}
	var late time.Duration
	for tick, at := range first {
		moment, err := time.Parse(time.RFC3339Nano, tick)
		if err != nil {
			panic(fmt.Sprintf("tick %q: %v", tick, err))
		}
		late = max(late, at.Sub(moment))
	}
	return late
}

// ticksOf returns the starts of periodic tasks.
func ticksOf(h history) history {
	return h.of(runStart).where(func(e *event) bool { return e.Tick != "" })
}
