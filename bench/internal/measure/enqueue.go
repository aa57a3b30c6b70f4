package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/bench/internal/system"
)

// enqueueSpec is the specification of the process that enqueues.
type enqueueSpec struct {
	Target    target
	Producers int
	Tasks     int
	Bulk      bool
}

// enqueueBy measures how fast producers enqueue, one by one or in bulk, while no worker
// runs. The jobs are drained afterwards, to check that all of them were enqueued.
func enqueueBy(metric string, producers int, bulk bool) func(context.Context, *Rig) (Values, error) {
	return func(ctx context.Context, r *Rig) (Values, error) {
		spec := enqueueSpec{Target: r.target(), Producers: producers, Tasks: r.Sizes.Singles, Bulk: bulk}
		if bulk {
			spec.Tasks = r.Sizes.Tasks
		}
		var took time.Duration
		if err := play(ctx, "enqueue", spec, &took); err != nil {
			return nil, err
		}
		if err := r.waits(ctx, defaultQueue, spec.Tasks); err != nil {
			return nil, err
		}
		check := drainSpec{Stages: oneQueue(spec.Tasks), Concurrency: 1000}
		if _, err := r.drain(ctx, check); err != nil {
			return nil, err
		}
		return Values{metric: perSecond(spec.Tasks, took)}, nil
	}
}

func enqueueRole(ctx context.Context, text []byte, _ func()) (any, error) {
	var spec enqueueSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	instance, err := spec.Target.open(ctx)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	err = spec.enqueue(ctx, instance)
	took := time.Since(started)
	return took, errors.Join(err, instance.Close())
}

func (s enqueueSpec) enqueue(ctx context.Context, instance system.Instance) error {
	if !s.Bulk {
		return produce(ctx, s.Producers, s.Tasks, func() error {
			return instance.Enqueue(ctx, defaultQueue, payload(), time.Time{})
		})
	}
	bulk, ok := instance.(system.Bulk)
	if !ok {
		return fmt.Errorf("%s has no call that enqueues many", s.Target.System)
	}
	return enqueueBulk(ctx, bulk, defaultQueue, s.Tasks, time.Time{})
}
