package measure

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/bench/internal/system"
)

// pickupSpec is the specification of a process that enqueues at a pace and measures how soon each
// job starts.
type pickupSpec struct {
	Target    target
	Producers int
	Tasks     int           // of all producers together
	Every     time.Duration // interval between the jobs of each producer
	Jitter    time.Duration // random delay added to each interval, at most
	// Kinds makes every other producer enqueue jobs of a second kind, which a second worker runs.
	// Both workers are idle at the start.
	Kinds bool
	// Own makes the producers enqueue through the storage that the worker has open.
	Own bool
}

// pickup is the report of that process: the times from the call of Enqueue to the start of the
// job.
type pickup struct{ P50, P99, Worst time.Duration }

// latencyIdle measures how soon a worker starts a job that is enqueued after a pause.
func latencyIdle(name string, own bool) func(context.Context, *Rig) (Values, error) {
	return func(ctx context.Context, r *Rig) (Values, error) {
		const every = 20 * time.Millisecond
		spec := pickupSpec{
			Target: r.target(), Producers: 1, Tasks: r.Sizes.Samples, Every: every, Jitter: 3 * every, Own: own,
		}
		var p pickup
		if err := play(ctx, "pickup", spec, &p); err != nil {
			return nil, err
		}
		return Values{name + "_p50": milliseconds(p.P50), name + "_p99": milliseconds(p.P99)}, nil
	}
}

// latencyHalf measures the same while jobs are enqueued at half of the rate that the system
// reaches with as many producers.
func latencyHalf(ctx context.Context, r *Rig) (Values, error) {
	const producers = 8
	rate, ok := r.Known("mixed")
	if !ok {
		var err error
		if rate, err = r.mixed(ctx, producers, max(r.Sizes.Singles/5, producers)); err != nil {
			return nil, err
		}
		if err := r.Server.Reset(ctx); err != nil {
			return nil, err
		}
	}
	rate /= 2
	spec := pickupSpec{
		Target: r.target(), Producers: producers, Tasks: int(rate * r.Sizes.Half.Seconds()),
		Every: time.Duration(producers / rate * float64(time.Second)),
	}
	var p pickup
	if err := play(ctx, "pickup", spec, &p); err != nil {
		return nil, err
	}
	return Values{"latency_half_p99": milliseconds(p.P99)}, nil
}

// latencyOfKinds measures how soon jobs of two kinds start that are enqueued to one queue, one
// each millisecond, if each of two workers knows one kind.
func latencyOfKinds(ctx context.Context, r *Rig) (Values, error) {
	const producers = 8
	spec := pickupSpec{
		Target: r.target(), Producers: producers, Tasks: r.Sizes.Kinds, Every: producers * time.Millisecond,
		Kinds: true,
	}
	var p pickup
	if err := play(ctx, "pickup", spec, &p); err != nil {
		return nil, err
	}
	return Values{"kinds_p99": milliseconds(p.P99), "kinds_worst": milliseconds(p.Worst)}, nil
}

// warmUps is the number of jobs that open connections and load scripts. They are not measured.
const warmUps = 10

// pickupRole runs producers and worker in one process, so that they share a clock, on connections
// of their own. A payload begins with the time when its Enqueue was called.
func pickupRole(ctx context.Context, text []byte, _ func()) (any, error) {
	var spec pickupSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	instance, producer, leave, err := spec.Target.hire(ctx)
	if err != nil {
		return nil, err
	}
	if spec.Own {
		producer = instance
	}
	epoch, log := time.Now(), newLog(spec.Tasks+warmUps)
	crew := newCrew(instance, producer, int64(spec.Tasks+warmUps), defaultQueue)
	producers := []system.Instance{producer}
	if spec.Kinds {
		crew.also = []system.Instance{instance.(system.Kinds).Other()}
		producers = append(producers, producer.(system.Kinds).Other())
	}
	each := func(payload []byte) {
		called := time.Duration(binary.LittleEndian.Uint64(payload))
		log.note(time.Since(epoch) - called)
	}
	err = crew.during(ctx, concurrency, each, func(ctx context.Context) error {
		for i := range warmUps {
			if err := stamped(ctx, producers[i%len(producers)], epoch); err != nil {
				return err
			}
		}
		if err := log.reaches(ctx, warmUps); err != nil {
			return err
		}
		if err := until(ctx, time.Now().Add(spec.rest())); err != nil {
			return err
		}
		if err := spec.pace(ctx, producers, epoch); err != nil {
			return err
		}
		return crew.settled(ctx)
	})
	if err == nil {
		err = crew.check(ctx)
	}
	measured := log.sorted(warmUps)
	p := pickup{P50: percentile(measured, 0.5), P99: percentile(measured, 0.99), Worst: percentile(measured, 1)}
	return p, errors.Join(err, leave())
}

// rest returns how long the workers are idle before the measurement.
func (s pickupSpec) rest() time.Duration {
	if s.Kinds {
		return 3 * time.Second
	}
	return 0
}

// stamped enqueues a job whose payload begins with the time of the call.
func stamped(ctx context.Context, instance system.Instance, epoch time.Time) error {
	p := payload()
	binary.LittleEndian.PutUint64(p, uint64(time.Since(epoch)))
	return instance.Enqueue(ctx, defaultQueue, p, time.Time{})
}

// pace lets each producer enqueue at its moments, by the instances in turn. A late producer
// catches up.
func (s pickupSpec) pace(ctx context.Context, instances []system.Instance, epoch time.Time) error {
	errs := make([]error, s.Producers)
	var left atomic.Int64
	left.Store(int64(s.Tasks))
	var working sync.WaitGroup
	for i := range s.Producers {
		working.Go(func() {
			// The producers begin one after the other, so that their jobs are spread evenly.
			next := time.Now().Add(s.Every * time.Duration(i) / time.Duration(s.Producers))
			for left.Add(-1) >= 0 && errs[i] == nil {
				if errs[i] = until(ctx, next); errs[i] == nil {
					errs[i] = stamped(ctx, instances[i%len(instances)], epoch)
				}
				next = next.Add(s.Every)
				if s.Jitter > 0 {
					next = next.Add(rand.N(s.Jitter))
				}
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// until waits until a moment, or returns an error if ctx ends first.
func until(ctx context.Context, moment time.Time) error {
	left := time.Until(moment)
	if left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
