package measure

import (
	"context"
	"fmt"
	"time"
)

// depth measures what many waiting jobs do: the drain rate beside that of few, and the
// server's memory for each. Rates are from the first run, because few jobs are drained
// as fast as a worker starts.
func depth(ctx context.Context, r *Rig) (Values, error) {
	shallow, err := r.drainShallow(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Server.Reset(ctx); err != nil {
		return nil, err
	}
	// One job goes through first, so that what is there once is there.
	if err := r.once(ctx); err != nil {
		return nil, err
	}
	before, err := r.Server.Memory(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.fill(ctx, defaultQueue, r.Sizes.Deep, time.Time{}); err != nil {
		return nil, err
	}
	after, err := r.Server.Memory(ctx)
	if err != nil {
		return nil, err
	}
	d, err := r.drain(ctx, drainSpec{Stages: oneQueue(r.Sizes.Deep)})
	if err != nil {
		return nil, err
	}
	return Values{
		"depth":       perSecond(r.Sizes.Deep, d.FromFirst[0]) / shallow,
		"mem_per_job": float64(after-before) / float64(r.Sizes.Deep),
	}, nil
}

// drainShallow gives the rate over several queues that are drained one after the other.
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

// once enqueues and drains one job of another queue.
func (r *Rig) once(ctx context.Context) error {
	const queue = "first"
	if err := r.fill(ctx, queue, 1, time.Time{}); err != nil {
		return err
	}
	_, err := r.drain(ctx, drainSpec{Stages: []stage{{Queues: []string{queue}, Tasks: 1}}})
	return err
}
