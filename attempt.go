package midge

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// Why the context of a job ended, as context.Cause tells it.
var (
	// ErrShutdown: the runner stops and the grace period is over. The task is
	// released, uncharged, unless the job returns nil.
	ErrShutdown = errors.New("midge: the runner is shutting down")
	// ErrTimeout: the job ran longer than its timeout; it counts as a failure,
	// unless the job returns nil.
	ErrTimeout = errors.New("midge: job timed out")
)

// PanicError is what a job that panicked failed with, and what a [Middleware] gets from
// next then.
type PanicError struct {
	Value any
	Stack []byte

	at string // the line of code, such as "main.go:48", "" where it is not known
}

// Error prints the value of the panic, and the line of the job's code that it came from.
func (e *PanicError) Error() string {
	if e.at == "" {
		return fmt.Sprintf("panic: %v", e.Value)
	}
	return fmt.Sprintf("panic: %v (%s)", e.Value, e.at)
}

// panicked makes the error of a panic that was just recovered, in the deferred function.
func panicked(v any) *PanicError {
	return &PanicError{Value: v, Stack: debug.Stack(), at: panickedAt()}
}

// panickedAt gives the line of the innermost frame that is neither the runtime's nor midge's.
func panickedAt() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		f, more := frames.Next()
		own := func(begin string) bool { return strings.HasPrefix(f.Function, begin) }
		if f.Function != "" && !slices.ContainsFunc(ownFunctions, own) {
			return fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// ownFunctions are the beginnings of the names of those that are not the job's.
var ownFunctions = []string{"runtime.", "internal/runtime/", "github.com/midgehq/midge."}

var errGoexit = errors.New("midge: the job called runtime.Goexit")

// attempt is one claimed task on its way through a runner. Thousands may be held, most of them
// for less than a millisecond: what one takes is a good part of what a short job costs.
type attempt struct {
	*arrival

	fence            storage.Fence
	payload          []byte
	headers          map[string]string
	created          int64 // in microseconds
	retries, crashes int32
	suspect          bool
	counted, returns bool  // among the suspects, or among those given back; guarded by slots.mu
	place            int32 // among what is held; guarded by held.mu

	mu       sync.Mutex // guards what follows
	phase    phase
	ran      bool
	returned bool          // its job has, or is not to run
	joined   bool          // a transaction of the job's is to settle it (CompleteWith)
	begun    time.Duration // when it began to run, by the runner's clock
	extended moment        // when the last extension that went through, or the claim, was sent
	why      error         // what cancelled it, first cause wins
	full     *fullContext  // nil until its job asks for what only that can tell
	more     *more         // nil while there is nothing of it
}

// more is what few attempts have.
type more struct {
	follow    []storage.Insert
	result    []byte
	isOver    bool          // its context was seen to have ended
	overSince time.Duration // when that was first
	pastDue   bool          // a line about its running on was logged
}

// arrival is what attempts have in common that one claim brought one behind the other, of
// tasks that were enqueued alike.
type arrival struct {
	r       *Runner
	domain  *domain
	jobs    context.Context //nolint:containedctx // what those of jobs end with
	claimed moment          // when the claim was sent
	arrived time.Time       // when it was answered

	kind, encoding         string
	maxRetries, crashLimit int
	timeout                time.Duration
	snoozes                int
	snoozedSince           time.Time
	handler                *handler // nil where the kind is unknown
}

type phase uint8

const (
	claimedAhead phase = iota
	runs
	settling // its verdict is on the way to the storage
	lost     // its lease is; nothing more is settled
)

// slab is how many attempts are allocated together. One that runs for long keeps the
// memory of so many.
const slab = 16

// newAttempts makes attempts of what was claimed by a call sent at a moment, for jobs whose
// contexts end with jobs.
func newAttempts(
	jobs context.Context, d *domain, claimed *storage.Claimed, sent moment,
) []*attempt {
	attempts := make([]*attempt, len(claimed.Tasks))
	from := &arrival{r: d.r, domain: d, jobs: jobs, claimed: sent, arrived: time.Now()}
	var room []attempt
	for i := range claimed.Tasks {
		if len(room) == 0 {
			room = make([]attempt, min(slab, len(claimed.Tasks)-i))
		}
		a, t := &room[0], &claimed.Tasks[i]
		room = room[1:]
		if !from.suits(t) {
			from = from.with(t)
		}
		a.arrival, a.fence, a.extended = from, claimed.Fences[i], sent
		a.payload, a.headers, a.created = t.Payload, t.Headers, t.Created.UnixMicro()
		a.retries, a.crashes = int32(t.Retries), int32(t.Crashes)
		a.suspect = storage.Suspect(t.Crashes, t.CrashLimit)
		attempts[i] = a
	}
	return attempts
}

// suits reports whether t has all in common with those before it.
func (f *arrival) suits(t *storage.Task) bool {
	return t.Kind == f.kind && t.Encoding == f.encoding &&
		t.MaxRetries == f.maxRetries && t.CrashLimit == f.crashLimit && t.Timeout == f.timeout &&
		t.Snoozes == f.snoozes && t.SnoozedSince.Equal(f.snoozedSince)
}

// with gives the arrival of tasks like t.
func (f *arrival) with(t *storage.Task) *arrival {
	own := *f
	own.kind, own.encoding, own.handler = t.Kind, t.Encoding, f.r.handler(t.Kind)
	own.maxRetries, own.crashLimit, own.timeout = t.MaxRetries, t.CrashLimit, t.Timeout
	own.snoozes, own.snoozedSince = t.Snoozes, t.SnoozedSince
	return &own
}

// rest gives what few attempts have, for writing. The mutex is held.
func (a *attempt) rest() *more {
	if a.more == nil {
		a.more = new(more)
	}
	return a.more
}

// result is what the job set, once it has returned or under the mutex.
func (a *attempt) result() []byte {
	if a.more == nil {
		return nil
	}
	return a.more.result
}

// begin makes the attempt run and gives its context, or false where it was lost or
// cancelled while it waited, or was not extended in time: a process that was frozen must not
// start what others may have by now.
func (a *attempt) begin() (context.Context, bool) {
	now := a.r.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.why == nil && a.overdue(now) {
		a.why = storage.ErrLeaseLost
	}
	if a.phase == lost || a.why != nil {
		return nil, false
	}
	a.phase, a.ran, a.begun = runs, true, now.mono
	return (*jobContext)(a), true
}

// overdue reports whether the lease was not extended in time. The mutex is held.
func (a *attempt) overdue(now moment) bool { return now.since(a.extended) > safe(a.r.cfg.Lease) }

// isOverdue is overdue, for the guard.
func (a *attempt) isOverdue(now moment) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.overdue(now)
}

// end cancels the job's context with a cause, or keeps one that waits from running.
func (a *attempt) end(cause error) {
	a.mu.Lock()
	if a.why == nil {
		a.why = cause
	}
	full := a.full
	a.mu.Unlock()
	if full != nil {
		full.cancel(cause)
	}
}

// lose marks the lease as lost, so that nothing is settled under it, and reports
// whether that is news: a lease that ends by its own settle is not lost, nor one that was
// handed to a transaction.
func (a *attempt) lose() bool {
	a.mu.Lock()
	news := (a.phase == claimedAhead || a.phase == runs) && !a.joined
	if news {
		a.phase = lost
	}
	a.mu.Unlock()
	if news {
		a.end(storage.ErrLeaseLost)
	}
	return news
}

func (a *attempt) isLost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == lost
}

// ending is how an attempt stands when its job has returned.
type ending struct {
	settles     bool // its verdict is to be settled
	ran, joined bool
}

// conclude ends the job's context, so that what the job left running learns that it is over,
// and moves the attempt to settling.
func (a *attempt) conclude() ending {
	a.mu.Lock()
	a.returned = true
	e := ending{settles: a.settlesLocked(), ran: a.ran, joined: a.joined}
	full := a.full
	a.mu.Unlock()
	if full != nil {
		full.cancel(context.Canceled)
	}
	return e
}

// settles moves a from waiting or running to settling and reports whether it may:
// false where the lease is lost or somebody else settles it.
func (a *attempt) settles() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settlesLocked()
}

func (a *attempt) settlesLocked() bool {
	if a.phase == lost || a.phase == settling {
		return false
	}
	a.phase = settling
	return true
}

// abandon reports whether a still runs, so that its task has to be released under
// its job's feet.
func (a *attempt) abandon() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return (a.phase == runs || a.phase == lost) && a.ran
}

func (a *attempt) runningSince() (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun, a.phase == runs
}

// work runs what waits ahead, and sleeps where nothing does, until the runner drains. It is
// the body of a worker's goroutine: one that is kept needs no new stack. Another one whose
// job ended its goroutine leaves what is done to this one, and how long that took.
func (r *Runner) work(jobs context.Context, w *worker, done *attempt, took time.Duration) {
	for {
		next, roused := r.slots.next(w, done, took, r.cfg.Ahead)
		r.rouse(jobs, roused)
		if next != nil {
			done, took = next, r.runOne(jobs, w, next)
		} else if _, more := <-w.wake; more {
			done = nil
		} else {
			return
		}
	}
}

// rouse lets a worker look for something to run.
func (r *Runner) rouse(jobs context.Context, w *worker) {
	switch {
	case w == nil:
	case w.begun:
		w.wake <- struct{}{}
	default:
		w.begun = true
		go r.work(jobs, w, nil, 0) // ends when the runner drains; see slots.waitEmpty
	}
}

// runOne runs one attempt to its verdict and tells how long that took.
func (r *Runner) runOne(jobs context.Context, w *worker, a *attempt) (took time.Duration) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// runtime.Goexit: this goroutine is ending, another one takes its place.
		took = r.over(jobs, a)
		r.finish(a, errGoexit, took) //nolint:contextcheck // its calls outlive jobs
		go r.work(jobs, w, a, took)
	}()
	var err error
	if ctx, ok := a.begin(); ok {
		err = r.call(ctx, a) //nolint:contextcheck // it ends with jobs
	}
	took = r.over(jobs, a)
	r.finish(a, err, took) //nolint:contextcheck // its calls outlive jobs
	returned = true        // not before: finish asks what the job returned for its text
	return took
}

// over tells how long a job took that returned, 0 if it did not begin, and tells its attempt
// where all were to end.
func (r *Runner) over(jobs context.Context, a *attempt) (took time.Duration) {
	if jobs.Err() != nil {
		a.end(context.Cause(jobs))
	}
	if !a.ran { // written by this goroutine alone
		return 0
	}
	return r.clock() - a.begun
}

// call runs the job with its middleware under its timeout.
func (r *Runner) call(ctx context.Context, a *attempt) error {
	if a.handler == nil {
		return errUnknownKind
	}
	if a.timeout > 0 {
		return r.callWithin(ctx, a)
	}
	return r.wrapped(ctx, a)
}

// callWithin runs the job under its timeout.
func (r *Runner) callWithin(ctx context.Context, a *attempt) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, ErrTimeout)
	defer cancel()
	err := r.wrapped(ctx, a)
	if err != nil && errors.Is(context.Cause(ctx), ErrTimeout) {
		err = fmt.Errorf("%w after %v: %w", ErrTimeout, a.timeout, err)
	}
	return err
}

// wrapped runs a job within the middleware. A panic in that is an error too.
func (r *Runner) wrapped(ctx context.Context, a *attempt) (err error) {
	if len(r.cfg.Middleware) == 0 {
		return a.run(ctx)
	}
	defer recovered(&err)
	run := a.run
	for _, wrap := range slices.Backward(r.cfg.Middleware) {
		run = wrap(run)
	}
	return run(ctx)
}

// run runs the job alone. A panic of the job is an error with its stack, so that the
// middleware sees it.
func (a *attempt) run(ctx context.Context) (err error) {
	defer recovered(&err)
	return a.handler.run(ctx, a.encoding, a.payload)
}

// recovered turns a panic of the function that defers it into that function's error.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = panicked(v)
	}
}

// handler gives that of a kind, or nil. Once the runner has started none is added, so that
// those who run jobs need no lock.
func (r *Runner) handler(kind string) *handler { return r.handlers[kind] }
