package runner

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/midgehq/midge/storage"
)

// Stepped is a storage that wants to make the attempts of the runners on it by itself, one at a time:
// that of a test kit. A runner that is made on it hands it a function, which it calls in the place of
// Run; see [Runner.Step].
type Stepped interface {
	// Within gives what stands for the transaction of a job's own, which completes the task.
	Within(tx storage.Applier) storage.Applier
	// The other function lists the types of the jobs that are registered, by kind.
	Stepped(step func(ctx context.Context, want storage.Ref) (Step, error), types func() map[string]JobType)
}

// JobType is the type of a kind's jobs, and how their parameters are encoded.
type JobType struct {
	Type     reflect.Type // a struct
	Encoding string
}

// Step is what a step came to.
type Step struct {
	// Ran says that an attempt was made. OnEnd has been told how it ended.
	Ran bool
	// Next is when something is due next, by the storage's time, where there was nothing to do; zero
	// for never.
	Next time.Time
}

// Step claims one task and makes an attempt of it in the goroutine of its caller, from the claim to
// the acknowledgement of its end. The queues come in their order, and the schedules that are due
// first. Where want names a task, that one is claimed, and the tasks before it keep their places; it
// is storage.ErrNotFound where it does not wait. OnEnd is called in this goroutine too, before Step
// returns.
//
// A runner makes steps, one at a time, or it runs. The lease of a task is not extended meanwhile.
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

// openSteps has the contexts of jobs and hooks end with ctx, and declares the schedules at the first step.
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
	for _, own := range r.schedules.all() {
		if err := r.schedules.keep(ctx, own); err != nil {
			return err
		}
	}
	limits := d.Limits.WithDefaults()
	r.limits.Store(&limits)
	return nil
}

// stepIn makes an attempt of a task of one shard, if there is one, or tells when something is due.
func (r *Runner) stepIn(ctx context.Context, of *shard, want storage.Ref) (ran bool, next time.Time, err error) {
	var before []*Attempt // tasks before the one that is wanted
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
		of.belief = belief{} // the clock of a test is right
		r.tellEnded(claimed.Ended)
		for _, t := range claimed.Ticks {
			r.schedules.tick(ctx, r.tasks, dueCursor{t, claimed.Now})
		}
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

// inOrder lists the queues of a step.
func (s *shard) inOrder() []storage.ClaimQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]storage.ClaimQueue, 0, len(s.served)+len(s.ticking))
	for _, name := range s.served {
		list = append(list, storage.ClaimQueue{Name: name})
	}
	for _, name := range s.ticking {
		list = append(list, storage.ClaimQueue{Name: name, Max: -1})
	}
	return list
}

// once runs one attempt to its verdict, in the goroutine of the caller.
func (w *workers) once(a *Attempt) {
	err := errGoexit // if the job ends this goroutine
	defer func() { w.judge.finish(a, err, w.stopped(a)) }()
	w.tellCrash(a)
	ctx, starts := a.start()
	if !starts {
		err = nil
		return
	}
	err = w.run(ctx, a)
}
