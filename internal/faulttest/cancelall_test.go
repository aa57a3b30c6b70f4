//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// timedJob is a job that carries the time when it was enqueued.
type timedJob struct{ Sent time.Time }

// TestCancelAllLeavesOthersAlone measures how long it takes to cancel all tasks of a large
// queue, and how long the jobs of another queue wait meanwhile. It prints the figures. The
// bound only distinguishes a queue that stands still from a slow one.
func TestCancelAllLeavesOthersAlone(t *testing.T) {
	require(t)
	sizes := []int{10_000}
	if full {
		sizes = []int{100_000, 1_000_000}
	} else { // its figures do not count
		testserver.Parallel(t)
	}
	for _, k := range []kind{oneRedis, onePostgres} {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s-%d", k, size), func(t *testing.T) {
				p := newPickupRig(t, ownServer(t, k, testserver.Options{}))
				p.fill(size)
				idle := p.during(func() { <-time.NewTimer(2 * time.Second).C })
				begun := time.Now()
				n, err := p.client.Queue("mass").CancelAll(t.Context(), storage.Scheduled, func(storage.Task) bool { return false })
				listed := time.Since(begun)
				if n != 0 || err != nil {
					t.Fatalf("cancelled %d of what was to be listed alone, %v", n, err)
				}
				var took time.Duration
				busy := p.during(func() {
					begun := time.Now()
					n, err = p.client.Queue("mass").CancelAll(t.Context(), storage.Scheduled, nil)
					took = time.Since(begun)
				})
				if n != size || err != nil {
					t.Errorf("cancelled %d of %d, %v", n, size, err)
				}
				t.Logf("%d tasks: listed in %v, cancelled in %v, %.0f a second; pick-up of another queue: before %s, meanwhile %s",
					size, listed.Round(time.Millisecond), took.Round(time.Millisecond), float64(size)/took.Seconds(), quantiles(idle), quantiles(busy))
				if p99 := busy[len(busy)*99/100]; p99 > machine.Stretch(2*time.Second, begun) {
					t.Errorf("jobs of another queue waited %v at p99", p99)
				}
			})
		}
	}
}

// quantiles returns the quantiles of a sorted list as text.
func quantiles(waits []time.Duration) string {
	at := func(share int) time.Duration { return waits[(len(waits)-1)*share/100].Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p99 %v, most %v of %d", at(50), at(99), at(100), len(waits))
}

// pickupRig is a runner that serves one queue, and a client. It records how long jobs wait.
type pickupRig struct {
	*testing.T

	client *midge.Client

	mu    sync.Mutex // guards waits
	waits []time.Duration
}

func newPickupRig(t *testing.T, s *server) *pickupRig {
	t.Helper()
	p := &pickupRig{T: t}
	place := s.place(t)
	opened := func() storage.Storage {
		store, err := place.open(t.Context())
		must(t, err)
		t.Cleanup(func() { must(t, store.Close()) })
		return store
	}
	var err error
	p.client, err = midge.NewClient(opened(), midge.ClientConfig{Patience: loadPatience})
	must(t, err)
	runner, err := midge.NewRunner(opened(), midge.RunnerConfig{Queues: []string{"other"}, Concurrency: 4, Logger: zap.NewNop()})
	must(t, err)
	must(t, midge.Handle(runner, func(_ context.Context, job timedJob) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waits = append(p.waits, time.Since(job.Sent))
		return nil
	}))
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- runner.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ran)
	})
	p.send()
	p.await(1)
	p.waits = nil
	return p
}

// fill schedules size tasks for the next day.
func (p *pickupRig) fill(size int) {
	p.Helper()
	const most = 20_000 // at once
	for done := 0; done < size; done += most {
		items := make([]midge.Item, min(most, size-done))
		for i := range items {
			items[i] = midge.New(timedJob{}, midge.To("mass"), midge.In(24*time.Hour))
		}
		_, err := p.client.EnqueueMany(p.Context(), items)
		must(p.T, err)
	}
}

// send enqueues one job for the runner.
func (p *pickupRig) send() {
	_, err := p.client.Enqueue(p.Context(), timedJob{time.Now()}, midge.To("other"))
	if err != nil {
		p.Error(err)
	}
}

// await waits until n jobs have run.
func (p *pickupRig) await(n int) {
	p.Helper()
	ran := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waits)
	}
	if !poll(time.Minute, func() bool { return ran() >= n }) {
		p.Fatalf("%d jobs of %d ran within a minute", ran(), n)
	}
}

// during runs do and sends a job every ten milliseconds meanwhile. It returns how long
// each job waited, sorted.
func (p *pickupRig) during(do func()) []time.Duration {
	p.Helper()
	p.mu.Lock()
	p.waits = nil
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	sent := 0
	for over := false; !over; sent++ {
		p.send()
		select {
		case <-every.C:
		case <-done:
			over = true
		}
	}
	p.await(sent)
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.waits)
	return p.waits
}
