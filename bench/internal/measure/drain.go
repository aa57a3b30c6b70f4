package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/midgehq/midge/bench/internal/process"
	"github.com/midgehq/midge/bench/internal/system"
)

// stage is a number of waiting jobs, divided equally among some queues, which one worker drains.
type stage struct {
	Queues   []string
	Tasks    int
	Beside   []string // further, empty queues that the worker serves
	Litter   bool     // the queues also hold scheduled, retried, dead and suspect tasks
	Declined int      // number of tasks in each queue that the worker has declined
	Bounds   system.Bounds
	// Partitions is the number of partitions in each queue, which have equally many jobs, 0 for none.
	Partitions int
}

func oneQueue(tasks int) []stage {
	return []stage{{Queues: []string{defaultQueue}, Tasks: tasks}}
}

// drainSpec is the specification of a worker's process: the stages that it drains one after the
// other.
type drainSpec struct {
	Target      target
	Stages      []stage
	Concurrency int  // 0 means the usual one
	Discard     bool // every job ends as dead
}

// drained is the report of a worker's process.
type drained struct {
	Took      []time.Duration // for each stage, from the start of the worker to the last settle
	FromFirst []time.Duration // for each stage, from its first run
	// Processor time of the server and of the worker's process, for all stages.
	ServerCPU, WorkerCPU time.Duration
	PeakMemory           int64 // of the worker's process, in bytes
}

// drain runs a worker in a process of its own and returns its report.
func (r *Rig) drain(ctx context.Context, spec drainSpec) (drained, error) {
	if spec.Target == (target{}) {
		spec.Target = r.target()
	}
	if spec.Concurrency == 0 {
		spec.Concurrency = concurrency
	}
	var d drained
	return d, play(ctx, "drain", spec, &d)
}

// drainAt measures the rate at which waiting jobs are drained at a concurrency.
func drainAt(metric string, slots int) func(context.Context, *Rig) (Values, error) {
	return func(ctx context.Context, r *Rig) (Values, error) {
		tasks := r.worked(r.Sizes.Tasks, slots)
		d, err := r.fillAndDrain(ctx, tasks, slots)
		if err != nil {
			return nil, err
		}
		return Values{metric: perSecond(tasks, d.Took[0])}, nil
	}
}

// drainWithCosts measures the drain at concurrency 100 together with its cost.
func drainWithCosts(ctx context.Context, r *Rig) (Values, error) {
	tasks := r.worked(r.Sizes.Tasks, concurrency)
	d, err := r.fillAndDrain(ctx, tasks, concurrency)
	if err != nil {
		return nil, err
	}
	values := Values{
		"drain_c100":        perSecond(tasks, d.Took[0]),
		"drain_c100_wrkcpu": microseconds(d.WorkerCPU, tasks),
	}
	if !r.target().inProcess() { // in process, the worker holds the tasks in its memory and is also the server
		values["drain_c100_srvcpu"] = microseconds(d.ServerCPU, tasks)
		values["drain_c100_wrkmem"] = float64(d.PeakMemory) / (1 << 20)
	}
	return values, nil
}

func (r *Rig) fillAndDrain(ctx context.Context, tasks, slots int) (drained, error) {
	if err := r.fill(ctx, defaultQueue, tasks, time.Time{}); err != nil {
		return drained{}, err
	}
	return r.drain(ctx, drainSpec{Stages: oneQueue(tasks), Concurrency: slots})
}

// drainQueues measures one worker that serves 20 queues equally.
func drainQueues(ctx context.Context, r *Rig) (Values, error) {
	const queues = 20
	s := stage{Tasks: r.Sizes.Tasks / queues * queues}
	for i := range queues {
		name := fmt.Sprintf("q%02d", i)
		s.Queues = append(s.Queues, name)
		if err := r.fill(ctx, name, s.Tasks/queues, time.Time{}); err != nil {
			return nil, err
		}
	}
	d, err := r.drain(ctx, drainSpec{Stages: []stage{s}})
	if err != nil {
		return nil, err
	}
	return Values{"drain_q20": perSecond(s.Tasks, d.Took[0])}, nil
}

// drainLittered measures a drain in a queue that also holds the tasks of a typical queue in
// production.
func drainLittered(ctx context.Context, r *Rig) (Values, error) {
	return r.drainBeside(ctx, "drain_littered", stage{Litter: true})
}

// drainDeclined measures a drain in a queue that also holds declined tasks of a kind that the
// worker does not know.
func drainDeclined(ctx context.Context, r *Rig) (Values, error) {
	return r.drainBeside(ctx, "kinds_drain", stage{Declined: r.Sizes.Tasks})
}

// drainLimited measures a drain in a queue whose concurrency never binds.
func drainLimited(ctx context.Context, r *Rig) (Values, error) {
	return r.drainBeside(ctx, "drain_limited", stage{Bounds: system.Bounds{Concurrency: 10_000}})
}

// drainRated measures a drain in a queue whose concurrency and rate never bind.
func drainRated(ctx context.Context, r *Rig) (Values, error) {
	bounds := system.Bounds{Concurrency: 10_000, Starts: 1_000_000_000, Per: time.Minute}
	return r.drainBeside(ctx, "drain_rated", stage{Bounds: bounds})
}

func (r *Rig) drainBeside(ctx context.Context, metric string, s stage) (Values, error) {
	s.Queues, s.Tasks = []string{defaultQueue}, r.Sizes.Tasks
	d, err := r.drain(ctx, drainSpec{Stages: []stage{s}})
	if err != nil {
		return nil, err
	}
	return Values{metric: perSecond(s.Tasks, d.Took[0])}, nil
}

func drainRole(ctx context.Context, text []byte, _ func()) (any, error) {
	var spec drainSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	instance, look, leave, err := spec.Target.hire(ctx)
	if err != nil {
		return nil, err
	}
	var d drained
	for _, s := range spec.Stages {
		left, err := s.litter(ctx, instance)
		if err == nil && (spec.Target.inProcess() || s.fills()) {
			err = s.fill(ctx, instance)
		}
		if err == nil && s.Bounds != (system.Bounds{}) {
			err = limit(ctx, instance, s.Bounds, s.Queues...)
		}
		if err == nil {
			err = spec.stage(ctx, s, instance, look, left, &d)
		}
		if err != nil {
			return nil, errors.Join(err, leave())
		}
	}
	d.PeakMemory, err = process.PeakMemory()
	return d, errors.Join(err, leave())
}

// fills reports whether the worker's own process enqueues the jobs on every storage.
func (s stage) fills() bool {
	return s.Litter || s.Declined > 0 || s.Bounds != (system.Bounds{}) || s.Partitions > 0
}

// fill enqueues the stage's jobs.
func (s stage) fill(ctx context.Context, instance system.Instance) error {
	for _, queue := range s.Queues {
		var err error
		if jobs := s.Tasks / len(s.Queues); s.Partitions > 0 {
			err = fillPartitions(ctx, instance, queue, jobs, s.Partitions)
		} else {
			err = fill(ctx, instance, queue, jobs, time.Time{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// litter adds to the queues the tasks that they hold beside the jobs, and returns by how much
// their totals grow.
func (s stage) litter(ctx context.Context, instance system.Instance) (gains system.Totals, err error) {
	own, ok := instance.(interface {
		system.Litterer
		system.Kinds
	})
	for _, queue := range s.Queues {
		var litter, declined system.Totals
		switch {
		case !s.Litter && s.Declined == 0:
			return gains, nil
		case !ok:
			return gains, errors.New("the system cannot litter a queue")
		}
		if s.Litter {
			litter, err = own.Litter(ctx, queue)
		}
		if s.Declined > 0 && err == nil {
			declined, err = own.Decline(ctx, queue, s.Declined)
		}
		if err != nil {
			return gains, err
		}
		gains = gains.Plus(litter).Plus(declined)
	}
	return gains, nil
}

// stage drains one stage, whose queues already hold the tasks that others counts, and adds to
// the report.
func (s drainSpec) stage(
	ctx context.Context, st stage, instance, look system.Instance, others system.Totals, d *drained,
) error {
	crew := newCrew(instance, look, int64(st.Tasks)+others.Waiting, st.Queues...)
	crew.dead, crew.beside, crew.others = s.Discard, st.Beside, others
	before, err := s.Target.cpu()
	if err != nil {
		return err
	}
	err = crew.during(ctx, s.Concurrency, nil, func(ctx context.Context) error {
		if err := crew.settled(ctx); err != nil {
			return err
		}
		took := time.Since(crew.started)
		d.Took = append(d.Took, took)
		d.FromFirst = append(d.FromFirst, took-time.Duration(crew.first.Load()))
		after, err := s.Target.cpu()
		d.ServerCPU += after.server - before.server
		d.WorkerCPU += after.worker - before.worker
		return err
	})
	if err != nil {
		return err
	}
	return crew.check(ctx)
}

// used is the processor time of the server and of the worker.
type used struct{ server, worker time.Duration }

// cpu returns the processor time that the server and this process have used so far.
func (t target) cpu() (used, error) {
	var u used
	var err, serverErr error
	u.worker, err = process.CPU(os.Getpid())
	if t.ServerPid != 0 {
		u.server, serverErr = process.TreeCPU(t.ServerPid)
	}
	return u, errors.Join(err, serverErr)
}
