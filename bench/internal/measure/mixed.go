package measure

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// mixedSpec is the specification of a process that enqueues and works at once.
type mixedSpec struct {
	Target    target
	Producers int
	Tasks     int
}

// mixedBy measures producers that enqueue one by one while a worker drains: the rate from
// the first enqueue until all jobs are settled.
func mixedBy(metric string, producers int) func(context.Context, *Rig) (Values, error) {
	return func(ctx context.Context, r *Rig) (Values, error) {
		rate, err := r.mixed(ctx, producers, r.worked(r.Sizes.Singles, concurrency))
		if err != nil {
			return nil, err
		}
		return Values{metric: rate}, nil
	}
}

func (r *Rig) mixed(ctx context.Context, producers, tasks int) (rate float64, err error) {
	var took time.Duration
	err = play(ctx, "mixed", mixedSpec{Target: r.target(), Producers: producers, Tasks: tasks}, &took)
	return perSecond(tasks, took), err
}

// mixedRole runs producers and worker in one process, on connections of their own. The
// worker starts at the first acknowledged job, so that a polling worker does not begin
// with a pause.
func mixedRole(ctx context.Context, text []byte, _ func()) (any, error) {
	var spec mixedSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	instance, producer, leave, err := spec.Target.hire(ctx)
	if err != nil {
		return nil, err
	}
	crew := newCrew(instance, producer, int64(spec.Tasks), defaultQueue)
	enqueue := func() error { return producer.Enqueue(ctx, defaultQueue, payload(), time.Time{}) }
	started := time.Now()
	if err := enqueue(); err != nil {
		return nil, errors.Join(err, leave())
	}
	var took time.Duration
	err = crew.during(ctx, concurrency, nil, func(ctx context.Context) error {
		if err := produce(ctx, spec.Producers, spec.Tasks-1, enqueue); err != nil {
			return err
		}
		err := crew.settled(ctx)
		took = time.Since(started)
		return err
	})
	if err == nil {
		err = crew.check(ctx)
	}
	return took, errors.Join(err, leave())
}
