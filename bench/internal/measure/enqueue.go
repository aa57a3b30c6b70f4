package measure

import (
	"cmp"
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
	Due       time.Time // zero for jobs that wait at once
	Size      int       // bytes of a payload, 0 for the usual size
}

// enqueued is the report of that process.
type enqueued struct {
	Took                 time.Duration
	ServerCPU, ClientCPU time.Duration // processor time of the server and of the process that enqueues
}

// enqueueBy measures how fast producers enqueue, one by one or in bulk, while no worker
// runs. The jobs are drained afterwards, to check that all of them were enqueued.
func enqueueBy(metric string, producers int, bulk bool) func(context.Context, *Rig) (Values, error) {
	return func(ctx context.Context, r *Rig) (Values, error) {
		spec := enqueueSpec{Target: r.target(), Producers: producers, Tasks: r.Sizes.Singles, Bulk: bulk}
		if bulk {
			spec.Tasks = r.Sizes.Tasks
		}
		values, err := r.enqueue(ctx, metric, spec, system.Totals{Waiting: int64(spec.Tasks)})
		if err != nil {
			return nil, err
		}
		check := drainSpec{Stages: oneQueue(spec.Tasks), Concurrency: 1000}
		if _, err := r.drain(ctx, check); err != nil {
			return nil, err
		}
		return values, nil
	}
}

// enqueueLater measures how fast sixteen producers enqueue jobs that are due in an hour, one by one.
func enqueueLater(ctx context.Context, r *Rig) (Values, error) {
	spec := enqueueSpec{
		Target: r.target(), Producers: fillers, Tasks: r.Sizes.Singles, Due: time.Now().Add(time.Hour),
	}
	return r.enqueue(ctx, "enqueue_later_p16", spec, system.Totals{Later: int64(spec.Tasks)})
}

// enqueue enqueues in a process of its own, checks the totals, and returns the rate with the processor
// time that the server and the process took for each job.
func (r *Rig) enqueue(
	ctx context.Context, metric string, spec enqueueSpec, want system.Totals,
) (Values, error) {
	var e enqueued
	if err := play(ctx, "enqueue", spec, &e); err != nil {
		return nil, err
	}
	if err := r.holds(ctx, defaultQueue, want); err != nil {
		return nil, err
	}
	return Values{
		metric:             perSecond(spec.Tasks, e.Took),
		metric + "_srvcpu": microseconds(e.ServerCPU, spec.Tasks),
		metric + "_clicpu": microseconds(e.ClientCPU, spec.Tasks),
	}, nil
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
	before, err := spec.Target.cpu()
	if err != nil {
		return nil, errors.Join(err, instance.Close())
	}
	started := time.Now()
	err = spec.enqueue(ctx, instance)
	e := enqueued{Took: time.Since(started)}
	after, cpuErr := spec.Target.cpu()
	e.ServerCPU, e.ClientCPU = after.server-before.server, after.worker-before.worker
	return e, errors.Join(err, cpuErr, instance.Close())
}

func (s enqueueSpec) enqueue(ctx context.Context, instance system.Instance) error {
	if !s.Bulk {
		return produce(ctx, s.Producers, s.Tasks, func() error {
			return instance.Enqueue(ctx, defaultQueue, randomBytes(cmp.Or(s.Size, payloadSize)), s.Due)
		})
	}
	bulk, ok := instance.(system.Bulk)
	if !ok {
		return fmt.Errorf("%s has no call that enqueues many", s.Target.System)
	}
	return enqueueBulk(ctx, bulk, defaultQueue, s.Tasks, s.Due)
}
