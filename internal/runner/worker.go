package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// workers run attempts, each in its goroutine one after the other.
type workers struct {
	*shared

	judge *judge
	ctx   atomic.Pointer[context.Context] // the contexts of jobs end with it; nil before Run
}

// worker is a goroutine that runs attempts, one after the other.
type worker struct {
	wake    chan struct{} // capacity 1; closed when the worker is to end
	started bool
}

// open has the contexts of jobs end with ctx.
func (w *workers) open(ctx context.Context) { w.ctx.Store(&ctx) }

// context is the context that those of jobs end with.
func (w *workers) context() context.Context { return *w.ctx.Load() }

// launch lets attempts run for which there are slots, and attempts ahead where more are free.
func (w *workers) launch(attempts ...*Attempt) {
	another, back := w.slots.add(attempts...)
	w.releaseAll(back)
	w.wake(another)
}

// work runs the attempts ahead, and sleeps where there are none, until the runner drains. It is
// the body of a worker's goroutine: one that is kept needs no new stack. A goroutine that its
// job has ended leaves the attempt that it has done to this one, and how long that took.
func (w *workers) work(me *worker, done *Attempt, took time.Duration) {
	for {
		next, another := w.slots.next(me, done, took)
		w.wake(another)
		if next != nil {
			done, took = next, w.runOne(me, next)
		} else if _, more := <-me.wake; more {
			done = nil
		} else {
			return
		}
	}
}

// wake lets a worker look for an attempt to run; nil is none.
func (w *workers) wake(other *worker) {
	switch {
	case other == nil:
	case other.started:
		other.wake <- struct{}{}
	default:
		other.started = true
		go w.work(other, nil, 0) // ends when the runner drains; see slots.waitEmpty
	}
}

// runOne runs one attempt to its verdict and tells how long that took.
func (w *workers) runOne(me *worker, a *Attempt) (took time.Duration) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// runtime.Goexit: this goroutine is ending, another one takes its place.
		took = w.stopped(a)
		w.judge.finish(a, errGoexit, took)
		go w.work(me, a, took)
	}()
	w.tellCrash(a)
	var err error
	if ctx, ok := a.start(); ok {
		err = w.run(ctx, a)
	}
	took = w.stopped(a)
	w.judge.finish(a, err, took)
	returned = true // not before: finish asks what the job returned for its text
	return took
}

// stopped tells how long a job took that has returned, 0 if it did not start, and tells its attempt
// where the contexts of all jobs have ended.
func (w *workers) stopped(a *Attempt) (took time.Duration) {
	if a.ctx.Err() != nil {
		a.end(context.Cause(a.ctx))
	}
	if !a.ran { // written by this goroutine alone
		return 0
	}
	return w.elapsed() - a.startedAt
}

// run runs a job under its timeout, and until its deadline.
func (w *workers) run(ctx context.Context, a *Attempt) error {
	most, cause := a.limit()
	if most <= 0 {
		return w.jobs.Run(ctx, a)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, cause)
	defer cancel()
	return a.tooLate(ctx, w.jobs.Run(ctx, a)) // an error of the middleware's own, else it was explained
}

var errGoexit = errors.New("midge: the job called runtime.Goexit")
