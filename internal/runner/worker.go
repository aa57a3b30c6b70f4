package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/contain"
)

// workers runs attempts on a set of goroutines.
type workers struct {
	*shared

	judge *judge
	ctx   atomic.Pointer[context.Context] // the contexts of jobs end with it; nil before open
}

// worker is a goroutine that runs attempts, one after the other.
type worker struct {
	wake    chan struct{} // capacity 1; closed to end the worker
	started bool
}

// open sets the context with which the contexts of jobs end.
func (w *workers) open(ctx context.Context) { w.ctx.Store(&ctx) }

// context returns the context with which the contexts of jobs end.
func (w *workers) context() context.Context { return *w.ctx.Load() }

// launch queues attempts and wakes a worker if a slot is free, for these or for attempts that
// wait ahead.
func (w *workers) launch(attempts ...*Attempt) {
	another, back := w.slots.add(attempts...)
	w.releaseAll(back)
	w.wake(another)
}

// work runs attempts ahead until the runner drains, and sleeps if there are none. It is the body
// of a worker's goroutine, which is kept because a new one would need a new stack. If a job has
// ended an earlier goroutine, done is the attempt of that job, and took how long it ran.
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

// wake makes a worker search for an attempt to run. A nil worker is none.
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

// runOne runs one attempt up to its verdict and returns how long that took.
func (w *workers) runOne(me *worker, a *Attempt) (took time.Duration) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// runtime.Goexit in the job: this goroutine is ending, and another one replaces it.
		took = w.stopped(a)
		w.judge.finish(a, a.goexited(), took)
		go w.work(me, a, took)
	}()
	w.tellCrash(a)
	var err error
	if ctx, ok := a.start(); ok {
		err = w.run(ctx, a)
	}
	took = w.stopped(a)
	w.judge.finish(a, err, took)
	returned = true // not before, because finish calls methods of the job's error
	return took
}

// stopped returns how long a job took that has returned, 0 if it did not start. If the contexts
// of all jobs have ended, it records that as the end of the attempt.
func (w *workers) stopped(a *Attempt) (took time.Duration) {
	if a.ctx.Err() != nil {
		a.end(context.Cause(a.ctx))
	}
	if !a.ran { // written only by this goroutine
		return 0
	}
	return w.elapsed() - a.startedAt
}

// run runs a job under its timeout and its deadline.
func (w *workers) run(ctx context.Context, a *Attempt) error {
	most, cause := a.limit()
	if most <= 0 {
		return w.jobs.Run(ctx, a)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, cause)
	defer cancel()
	return a.tooLate(ctx, w.jobs.Run(ctx, a)) // an error of the middleware; the job's is already explained
}

var errGoexit = errors.New("midge: the job called runtime.Goexit")

// goexited returns the error of an attempt whose goroutine has ended: what its job returned if
// its AfterRun ended the goroutine, else errGoexit.
func (a *Attempt) goexited() error {
	a.mu.Lock()
	x := a.extras
	a.mu.Unlock()
	if x == nil || x.end == nil { // written only by the goroutine that has ended
		return errGoexit
	}
	a.HookFailed("AfterRun", contain.ErrGoexit)
	return *x.end
}
