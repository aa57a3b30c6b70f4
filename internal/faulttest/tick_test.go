//go:build unix

package faulttest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

// TestEachTickHasOneTask checks that each tick has exactly one task while five runners
// declare a schedule of every second, and tick kept schedules that are set, paused, resumed and removed
// meanwhile. They are killed at random, most of them at a call of the storage, and replaced. No tick of a kept
// schedule is made after its pause, its replacement or its removal was acknowledged.
func TestEachTickHasOneTask(t *testing.T) {
	eachStorage(t, func(t *testing.T, s *server) {
		life := time.Duration(count(20, 60)) * time.Second
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		f := newFleet(t, s)
		var err error
		f.client, err = midge.NewClient(newRecordingStorage(f.store, f.rec), midge.ClientConfig{Patience: loadPatience})
		must(t, err)
		r := &tickRig{fleet: f, random: rand.New(rand.NewPCG(seed, 0))}
		kept := newKeptSchedules(f, r.random)
		for range 5 {
			r.runners = append(r.runners, r.start(r.mortal()))
		}
		f.awaitWhat("", runStart, 1, 20*time.Second)
		begun := time.Now()
		for time.Since(begun) < life {
			next := time.Now().Add(time.Second + time.Duration(r.random.Int64N(int64(2*time.Second))))
			for time.Now().Before(next) {
				kept.change()
				r.replaceDead()
				<-time.NewTimer(time.Duration(r.random.Int64N(int64(time.Second / 4)))).C
			}
			r.kill()
		}
		r.runners = append(r.runners, r.start(r.config()))
		f.await("the ticks of the last second have run", s.lease()+18*time.Second, func(h history) bool {
			return len(ofQueue("q", h.of(runStart)).after(begun.Add(life))) > 0
		})
		kept.settle()
		r.end()
		h := f.history()
		checkRuns(t, h)
		tasks, keptTasks := tasksOf(t, f.store, "q"), tasksOf(t, f.store, keptQueue)
		n := checkTicks(t, tasks)
		t.Logf("%d ticks, and %d of %d versions of kept schedules, each with one task, over %d kills",
			n, kept.check(keptTasks), len(kept.all), r.kills)
		if least := int(life / tickEvery); n < least {
			t.Errorf("%d ticks, want at least %d", n, least)
		}
		if late := latestTick(ofQueue("q", h)); late > machine.Stretch(s.lease()+8*time.Second, begun) {
			t.Errorf("a tick ran %v late, want it made up for sooner", late)
		}
		checkTotals(t, f.store, "q", tasks)
		checkTotals(t, f.store, keptQueue, keptTasks)
	})
}

// tickRig is a fleet of runners that are killed and replaced.
type tickRig struct {
	*fleet
	random  *rand.Rand
	runners []*worker
	kills   int
}

func (r *tickRig) config() workerConfig {
	return workerConfig{Queues: []string{"q", keptQueue}, Concurrency: 2, Lease: r.server.lease(), Every: tickEvery}
}

// mortal returns the configuration of a runner that usually dies at a call of the storage.
func (r *tickRig) mortal() workerConfig {
	c := r.config()
	if r.random.IntN(4) > 0 {
		c.KillAt = killPoint{Call: 20 + r.random.Int64N(180), After: r.random.IntN(2) == 0}
	}
	return c
}

// replaceDead replaces the runners that have died.
func (r *tickRig) replaceDead() {
	for i, w := range r.runners {
		select {
		case <-w.done:
			r.runners[i] = r.start(r.mortal())
			r.kills++
		default:
		}
	}
}

// kill kills a runner and replaces it.
func (r *tickRig) kill() {
	r.runners[r.random.IntN(len(r.runners))].kill()
	r.replaceDead()
}

// end ends all runners.
func (r *tickRig) end() {
	for _, w := range r.runners {
		w.terminate()
	}
	for _, w := range r.runners {
		w.ended(r.t, 30*time.Second)
	}
}

func ofQueue(queue string, h history) history {
	return h.where(func(e *event) bool { return e.Ref.Queue == queue })
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
