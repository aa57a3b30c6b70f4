package measure

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/bench/internal/process"
	"github.com/midgehq/midge/bench/internal/system"
)

// fleets are the numbers of idle runners that are measured.
var fleets = []int{1, 10, 50, 500, 1000, 2000}

// The parts of a measurement of a fleet.
const (
	perProcess  = 100              // runners, which share one open storage
	upLimit     = 2 * time.Minute  // until all are listed
	fleetRest   = 10 * time.Second // after that
	fleetWatch  = 20 * time.Second // before the jobs and after them
	loneSamples = 1000
	loneEvery   = 10 * time.Millisecond
)

// fleetMetrics returns the metrics of a fleet.
func fleetMetrics(runners int) []string {
	name := fmt.Sprintf("fleet_%d", runners)
	return []string{name + "_up", name + "_idle", name + "_lone", name + "_p99"}
}

// fleet measures what idle runners cost the storage: the time until all of them are listed, the processor
// time of the server without any job, that of a lone enqueue up to the end of its job, and how soon the
// job starts.
func fleet(runners int) func(context.Context, *Rig) (Values, error) {
	return func(ctx context.Context, r *Rig) (Values, error) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		instance, err := r.target().open(ctx)
		if err != nil {
			return nil, err
		}
		f := &fleetRig{Rig: r, instance: instance, runners: runners}
		values, err := f.measure(ctx)
		return values, errors.Join(err, instance.Close())
	}
}

// fleetRig is a fleet that is measured.
type fleetRig struct {
	*Rig

	instance system.Instance
	runners  int
	children []*process.Child
}

// fleetSpec is the specification of one of its processes.
type fleetSpec struct {
	Target  target
	Runners int
}

func (f *fleetRig) measure(ctx context.Context) (Values, error) {
	started := time.Now()
	for left := f.runners; left > 0; left -= perProcess {
		child, err := process.Start(ctx, "fleet", fleetSpec{f.target(), min(left, perProcess)})
		if err != nil {
			return nil, err
		}
		f.children = append(f.children, child)
	}
	if err := f.listed(ctx); err != nil {
		return nil, err
	}
	up := time.Since(started)
	if err := until(ctx, time.Now().Add(fleetRest)); err != nil {
		return nil, err
	}
	var shares [3]float64 // of a processor, before the jobs, with them and after them
	var long time.Duration
	for i, do := range []func(context.Context) error{rest, f.enqueue, rest} {
		began := time.Now()
		spent, err := f.spent(ctx, do)
		if err != nil {
			return nil, err
		}
		took := time.Since(began)
		shares[i] = spent.Seconds() / took.Seconds()
		if i == 1 {
			long = took
		}
	}
	idle := (shares[0] + shares[2]) / 2
	lone := time.Duration((shares[1] - idle) * float64(long))
	late, err := f.finish()
	if err != nil {
		return nil, err
	}
	if len(late) != loneSamples {
		return nil, fmt.Errorf("%d of %d jobs have run", len(late), loneSamples)
	}
	metrics := fleetMetrics(f.runners)
	return Values{
		metrics[0]: up.Seconds(),
		metrics[1]: 100 * idle,
		metrics[2]: microseconds(max(lone, 0), loneSamples),
		metrics[3]: milliseconds(percentile(late, 0.99)),
	}, nil
}

// rest waits without a job.
func rest(ctx context.Context) error { return until(ctx, time.Now().Add(fleetWatch)) }

// listed waits until the storage lists every runner.
func (f *fleetRig) listed(ctx context.Context) error {
	listing, ok := f.instance.(system.Fleet)
	if !ok {
		return errors.New("the system cannot list its runners")
	}
	limit := time.Now().Add(upLimit)
	for {
		n, err := listing.Alive(ctx)
		switch {
		case err != nil:
			return err
		case n >= f.runners:
			return nil
		case time.Now().After(limit):
			return fmt.Errorf("%d of %d runners are listed after %v", n, f.runners, upLimit)
		}
		if err := until(ctx, time.Now().Add(time.Second)); err != nil {
			return err
		}
	}
}

// spent returns the processor time that the server takes while do runs.
func (f *fleetRig) spent(ctx context.Context, do func(context.Context) error) (time.Duration, error) {
	before, err := process.TreeCPU(f.Server.Pid())
	if err != nil {
		return 0, err
	}
	if err := do(ctx); err != nil {
		return 0, err
	}
	after, err := process.TreeCPU(f.Server.Pid())
	return after - before, errors.Join(err, ctx.Err())
}

// enqueue enqueues one job after the other, each with the fleet idle.
func (f *fleetRig) enqueue(ctx context.Context) error {
	for range loneSamples {
		p := payload()
		binary.LittleEndian.PutUint64(p, uint64(time.Now().UnixNano()))
		if err := f.instance.Enqueue(ctx, defaultQueue, p, time.Time{}); err != nil {
			return err
		}
		if err := until(ctx, time.Now().Add(loneEvery+rand.N(loneEvery))); err != nil {
			return err
		}
	}
	return until(ctx, time.Now().Add(settleDown))
}

// finish ends the processes and returns how late their jobs started, in ascending order.
func (f *fleetRig) finish() ([]time.Duration, error) {
	reports, errs := make([][]time.Duration, len(f.children)), make([]error, len(f.children))
	var ending sync.WaitGroup
	for i, child := range f.children {
		ending.Go(func() { errs[i] = child.Finish(&reports[i]) })
	}
	ending.Wait()
	return slices.Sorted(slices.Values(slices.Concat(reports...))), errors.Join(errs...)
}

// fleetRole runs idle runners until the parent ends it. A payload begins with the time at which its job was
// enqueued, by the clock of the machine.
func fleetRole(ctx context.Context, text []byte, ready func()) (any, error) {
	var spec fleetSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	base := context.WithoutCancel(ctx) // ctx ends when the parent has measured enough
	instance, err := spec.Target.open(base)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards late
	late := []time.Duration{}
	run := func(payload []byte) error {
		took := time.Duration(time.Now().UnixNano() - int64(binary.LittleEndian.Uint64(payload)))
		mu.Lock()
		defer mu.Unlock()
		late = append(late, took)
		return nil
	}
	errs := make([]error, spec.Runners)
	var working sync.WaitGroup
	for i := range spec.Runners {
		working.Go(func() {
			errs[i] = instance.Work(ctx, system.Worker{Queues: []string{defaultQueue}, Concurrency: 10, Run: run})
		})
	}
	ready()
	working.Wait()
	return late, errors.Join(errors.Join(errs...), instance.Close())
}
