package runner

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/midgehq/midge/storage"
)

// Stepped is a storage of a test kit, which makes the attempts of its runners itself, one at a
// time. A runner that is made on it passes it a function, which it calls instead of Run; see
// [Runner.Step].
type Stepped interface {
	// Within returns the Applier that completes the task in place of the job's transaction tx.
	Within(tx storage.Applier) storage.Applier
	// Stepped receives the step function, and a function that returns the types of the registered
	// jobs by kind.
	Stepped(step func(ctx context.Context, want storage.Ref) (Step, error), types func() map[string]JobType)
}

// JobType is the type of a kind's jobs, and the encoding of their parameters.
type JobType struct {
	Type     reflect.Type // a struct
	Encoding string
}

// Step is the result of one step.
type Step struct {
	// Ran means that an attempt was made. OnEnd has been called with its end.
	Ran bool
	// Next is when something is due next, by the storage's time, if there was nothing to do;
	// zero for never.
	Next time.Time
}

// Step claims one task and makes an attempt of it in the goroutine of its caller, from the claim to
// the acknowledgement of its end. It serves the queues in their order; due schedules come first.
// If want names a task, Step claims that task, and the tasks before it keep their places; it
// returns storage.ErrNotFound if the task does not wait. OnEnd is called in this goroutine too,
// before Step returns.
//
// A runner either makes steps, one at a time, or runs. The lease of a task is not extended during a
// step.
func (r *Runner) Step(ctx context.Context, want storage.Ref) (Step, error) {
	if err := r.openSteps(ctx); err != nil {
		return Step{}, fmt.Errorf("midge: step: %w", err)
	}
	var next time.Time
	for _, s := range r.queues.from(0) {
		s.hard = ctx //nolint:fatcontext // each shard has the one of the step
		ran, due, err := r.stepIn(ctx, s, want)
		if err != nil || ran {
			return Step{Ran: ran}, err
		}
		if next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	if want != (storage.Ref{}) {
		return Step{}, fmt.Errorf("midge: step: %s: %w", want, storage.ErrNotFound)
	}
	return Step{Next: next}, nil
}

// openSteps sets the context of jobs and hooks to ctx, and declares the limits and the schedules at the
// first step.
func (r *Runner) openSteps(ctx context.Context) error {
	r.workers.open(ctx)
	r.ends.open(ctx)
	if r.limits.Load() != nil {
		return nil
	}
	if r.ends != nil {
		r.ends.inline = true
	}
	d, err := r.store.Describe(ctx)
	if err != nil {
		return err
	}
	for i := range r.declaredLimits {
		if err := r.declareLimit(ctx, &r.declaredLimits[i]); err != nil {
			return err
		}
	}
	for _, queue := range r.schedules.queues() {
		if _, err := r.schedules.keep(ctx, queue, r.schedules.of(queue)); err != nil {
			return err
		}
	}
	limits := d.Limits.WithDefaults()
	r.limits.Store(&limits)
	return nil
}

// stepIn makes an attempt of a task of one shard. Without a task it returns when something is due.
func (r *Runner) stepIn(ctx context.Context, of *shard, want storage.Ref) (ran bool, next time.Time, err error) {
	var before []*Attempt // tasks before the wanted one
	defer func() {
		r.releaseAll(before)
		of.settler.flush(ctx)
	}()
	for {
		claimed, err := r.tasks.Claim(ctx, storage.ClaimRequest{
			Runner: r.id, Queues: of.inOrder(), Start: 1, Suspect: true, Kinds: r.jobs.Kinds(), Lease: r.lease,
		})
		if err != nil {
			return false, time.Time{}, err
		}
		of.belief = belief{} // the clock of a test is right, whatever it jumps
		r.tellEnded(claimed.Ended)
		r.schedules.tick(ctx, r.heartbeat.pulse, r.tasks, dueCursors(claimed))
		for _, a := range r.workers.judge.decline(of, r.workers.newAttempts(of, &claimed, r.now())) {
			if want == (storage.Ref{}) || a.Fence.Ref == want {
				r.workers.once(a) //nolint:contextcheck // its calls end with the shard
				return true, time.Time{}, nil
			}
			before = append(before, a)
		}
		of.settler.flush(ctx)
		if len(claimed.Tasks)+len(claimed.Ticks) == 0 && !claimed.More {
			return false, claimed.NextDue, nil
		}
	}
}

// inOrder returns the queues of a step.
func (s *shard) inOrder() []storage.ClaimQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]storage.ClaimQueue, 0, len(s.served)+len(s.ticking))
	for _, name := range s.served {
		list = append(list, storage.ClaimQueue{Name: name})
	}
	for _, name := range s.ticking {
		list = append(list, storage.ClaimQueue{Name: name, Max: storage.MaxNone})
	}
	return list
}

// once runs one attempt up to its verdict, in the goroutine of the caller.
func (w *workers) once(a *Attempt) {
	var err error
	returned := false
	defer func() {
		if !returned {
			err = a.goexited()
		}
		w.judge.finish(a, err, w.stopped(a))
	}()
	w.tellCrash(a)
	if ctx, starts := a.start(); starts {
		err = w.run(ctx, a)
	}
	returned = true
}
