package measure

import (
	"context"
	"fmt"
	"time"
)

// The sizes at which the growth of the cost is measured: of jobs that wait, of queues that share the jobs,
// and of bytes of a payload.
var (
	depths    = []int{10_000, 100_000, 1_000_000, 10_000_000}
	crowds    = []int{1, 10, 100, 1000}                            // a runner serves at most 1000 queues
	payloadOf = []int{64, 1 << 10, 16 << 10, 256 << 10, 1_000_000} // with its names at most a MiB
)

// growBytes bounds the payloads of a measurement, all together.
const growBytes = 512 << 20

// growth returns the measurements of the growth: the rates of enqueueing one by one by sixteen producers,
// and of the drain that follows.
func growth() []Measurement {
	var all []Measurement
	add := func(over string, sizes []int, run func(context.Context, *Rig, int) (grown, error)) {
		for _, n := range sizes {
			name := fmt.Sprintf("grow_%s_%d", over, n)
			measure := func(ctx context.Context, r *Rig) (Values, error) {
				g, err := run(ctx, r, n)
				return Values{name + "_enqueue": g.enqueue, name + "_drain": g.drain}, err
			}
			gives := []string{name + "_enqueue", name + "_drain"}
			all = append(all, Measurement{gives, measure, onBig, midgeOnly})
		}
	}
	add("waiting", depths, growWaiting)
	add("queues", crowds, growQueues)
	add("payload", payloadOf, growPayload)
	return all
}

// grown holds the rates of one size.
type grown struct{ enqueue, drain float64 }

// growWaiting measures with a number of jobs that wait already.
func growWaiting(ctx context.Context, r *Rig, waiting int) (grown, error) {
	if err := r.fill(ctx, defaultQueue, waiting, time.Time{}); err != nil {
		return grown{}, err
	}
	return r.grow(ctx, enqueueSpec{Tasks: r.Sizes.Singles}, stage{
		Queues: []string{defaultQueue}, Tasks: waiting + r.Sizes.Singles,
	})
}

// growQueues measures with a number of queues that one worker serves equally. The jobs are divided among
// them, and further ones are enqueued into the first.
func growQueues(ctx context.Context, r *Rig, queues int) (grown, error) {
	s := stage{Queues: []string{defaultQueue}, Tasks: r.Sizes.Singles}
	for i := range queues {
		name := defaultQueue
		if i > 0 {
			name = fmt.Sprintf("q%05d", i)
			s.Queues = append(s.Queues, name)
		}
		if err := r.fill(ctx, name, r.Sizes.Tasks/queues, time.Time{}); err != nil {
			return grown{}, err
		}
		s.Tasks += r.Sizes.Tasks / queues
	}
	return r.grow(ctx, enqueueSpec{Tasks: r.Sizes.Singles}, s)
}

// growPayload measures with payloads of a size.
func growPayload(ctx context.Context, r *Rig, size int) (grown, error) {
	jobs := min(r.Sizes.Singles, growBytes/size)
	return r.grow(ctx, enqueueSpec{Tasks: jobs, Size: size}, stage{Queues: []string{defaultQueue}, Tasks: jobs})
}

// grow enqueues, and drains everything.
func (r *Rig) grow(ctx context.Context, spec enqueueSpec, s stage) (grown, error) {
	spec.Target, spec.Producers = r.target(), fillers
	var e enqueued
	if err := play(ctx, "enqueue", spec, &e); err != nil {
		return grown{}, err
	}
	d, err := r.drain(ctx, drainSpec{Stages: []stage{s}})
	if err != nil {
		return grown{}, err
	}
	return grown{enqueue: perSecond(spec.Tasks, e.Took), drain: perSecond(s.Tasks, d.FromFirst[0])}, nil
}
