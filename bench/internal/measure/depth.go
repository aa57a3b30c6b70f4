package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge/bench/internal/system"
)

// depth measures the effect of many waiting jobs: the drain rate in relation to the
// rate with few jobs, and the server's memory for each job. Rates count from the first
// run, because few jobs are drained in the time that a worker needs to start.
//
// The drain rate of a system that pauses after each fetch depends only on its pauses.
// For such a system only the memory is measured.
func depth(ctx context.Context, r *Rig) (Values, error) {
	if r.worked(r.Sizes.Deep, concurrency) < r.Sizes.Deep {
		perJob, err := r.fillDeep(ctx)
		if err == nil {
			err = r.holds(ctx, defaultQueue, system.Totals{Waiting: int64(r.Sizes.Deep)})
		}
		return Values{"mem_per_job": perJob}, err
	}
	shallow, err := r.drainShallow(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Server.Reset(ctx); err != nil {
		return nil, err
	}
	perJob, err := r.fillDeep(ctx)
	if err != nil {
		return nil, err
	}
	d, err := r.drain(ctx, drainSpec{Stages: oneQueue(r.Sizes.Deep)})
	if err != nil {
		return nil, err
	}
	return Values{"depth": perSecond(r.Sizes.Deep, d.FromFirst[0]) / shallow, "mem_per_job": perJob}, nil
}

// fillDeep enqueues many jobs and returns how many bytes of the server's memory each
// takes.
func (r *Rig) fillDeep(ctx context.Context) (perJob float64, err error) {
	// One job is enqueued and run first, so that memory which is allocated only once does
	// not count.
	if err := r.once(ctx); err != nil {
		return 0, err
	}
	before, err := r.Server.Memory(ctx)
	if err != nil {
		return 0, err
	}
	if err := r.fill(ctx, defaultQueue, r.Sizes.Deep, time.Time{}); err != nil {
		return 0, err
	}
	after, err := r.Server.Memory(ctx)
	return float64(after-before) / float64(r.Sizes.Deep), err
}

// drainShallow returns the drain rate of several short queues that are drained one
// after the other.
func (r *Rig) drainShallow(ctx context.Context) (rate float64, err error) {
	var stages []stage
	for i := range r.Sizes.Shallows {
		queue := fmt.Sprintf("d%02d", i)
		if err := r.fill(ctx, queue, r.Sizes.Shallow, time.Time{}); err != nil {
			return 0, err
		}
		stages = append(stages, stage{Queues: []string{queue}, Tasks: r.Sizes.Shallow})
	}
	d, err := r.drain(ctx, drainSpec{Stages: stages})
	if err != nil {
		return 0, err
	}
	var took time.Duration
	for _, t := range d.FromFirst {
		took += t
	}
	return perSecond(r.Sizes.Shallow*r.Sizes.Shallows, took), nil
}

// once enqueues and drains one job in another queue.
func (r *Rig) once(ctx context.Context) error {
	const queue = "first"
	if err := r.fill(ctx, queue, 1, time.Time{}); err != nil {
		return err
	}
	_, err := r.drain(ctx, drainSpec{Stages: []stage{{Queues: []string{queue}, Tasks: 1}}})
	return err
}
