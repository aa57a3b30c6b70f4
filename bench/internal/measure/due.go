package measure

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/bench/internal/system"
)

// dueSpec is the specification of a process that enqueues jobs for later and measures
// when they start.
type dueSpec struct {
	Target target
	Tasks  int
	Over   time.Duration // the due moments are spread evenly over it; 0 means one instant
	Lead   time.Duration // from now to the first moment, at most
}

// late is the report of that process, by the clock of the machine, which the server
// shares.
type late struct {
	P99   time.Duration
	Early int           // jobs that started before they were due
	All   time.Duration // from the first moment until all are settled
}

// schedule measures how late jobs start whose due moments are spread evenly over some
// seconds.
func schedule(ctx context.Context, r *Rig) (Values, error) {
	spec := dueSpec{Target: r.target(), Tasks: r.Sizes.Due, Over: r.Sizes.Over, Lead: 2 * time.Second}
	var l late
	if err := play(ctx, "due", spec, &l); err != nil {
		return nil, err
	}
	if r.System.Own && l.Early > 0 {
		return nil, fmt.Errorf("%d jobs started early", l.Early)
	}
	return Values{"sched_p99": milliseconds(l.P99), "sched_early": float64(l.Early)}, nil
}

// burst measures how long it takes until the last of many jobs that are due at one
// instant is settled.
func burst(ctx context.Context, r *Rig) (Values, error) {
	spec := dueSpec{Target: r.target(), Tasks: r.Sizes.Burst, Lead: r.Sizes.Lead}
	var l late
	if err := play(ctx, "due", spec, &l); err != nil {
		return nil, err
	}
	return Values{"burst_all": l.All.Seconds()}, nil
}

// dueRole starts a worker, then enqueues. A payload begins with its due moment.
func dueRole(ctx context.Context, text []byte, _ func()) (any, error) {
	var spec dueSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	instance, producer, leave, err := spec.Target.hire(ctx)
	if err != nil {
		return nil, err
	}
	log := newLog(spec.Tasks)
	crew := newCrew(instance, producer, int64(spec.Tasks), defaultQueue)
	each := func(payload []byte) {
		due := int64(binary.LittleEndian.Uint64(payload))
		log.note(time.Duration(time.Now().UnixNano() - due))
	}
	var l late
	err = crew.during(ctx, concurrency, each, func(ctx context.Context) error {
		// A whole second, because some systems take no finer moment.
		first := time.Now().Add(spec.Lead).Truncate(time.Second)
		if err := spec.enqueue(ctx, producer, first); err != nil {
			return err
		}
		if time.Until(first) < 0 {
			return fmt.Errorf("enqueueing %d jobs took longer than %v", spec.Tasks, spec.Lead)
		}
		err := crew.settled(ctx)
		l.All = time.Since(first)
		return err
	})
	if err == nil {
		err = crew.check(ctx)
	}
	sorted := log.sorted(0)
	l.P99 = percentile(sorted, 0.99)
	for l.Early < len(sorted) && sorted[l.Early] < 0 {
		l.Early++
	}
	return l, errors.Join(err, leave())
}

// enqueue enqueues all jobs. Jobs that are due at one instant are enqueued in the
// fastest way.
func (s dueSpec) enqueue(ctx context.Context, instance system.Instance, first time.Time) error {
	moment := func(i int) time.Time { return first.Add(s.Over * time.Duration(i) / time.Duration(s.Tasks)) }
	if bulk, ok := instance.(system.Bulk); ok && s.Over == 0 {
		return s.enqueueBulk(ctx, bulk, first)
	}
	numbers := make(chan int, s.Tasks)
	for i := range s.Tasks {
		numbers <- i
	}
	return produce(ctx, fillers, s.Tasks, func() error {
		due := moment(<-numbers)
		return instance.Enqueue(ctx, defaultQueue, marked(due), due)
	})
}

func (s dueSpec) enqueueBulk(ctx context.Context, bulk system.Bulk, due time.Time) error {
	for left := s.Tasks; left > 0; {
		payloads := make([][]byte, min(left, bulkItems))
		for i := range payloads {
			payloads[i] = marked(due)
		}
		if err := bulk.EnqueueMany(ctx, defaultQueue, payloads, due); err != nil {
			return err
		}
		left -= len(payloads)
	}
	return nil
}

// marked returns a payload that begins with its due moment.
func marked(due time.Time) []byte {
	p := payload()
	binary.LittleEndian.PutUint64(p, uint64(due.UnixNano()))
	return p
}
