package midge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// PanicError is what a job that panicked failed with.
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

// attempt is one claimed task on its way through a runner.
type attempt struct {
	*arrival

	place   int // among what the slots hold; guarded by slots.mu
	suspect bool
	task    taskInfo
	fence   storage.Fence
	ctx     jobContext // what its job is given

	mu        sync.Mutex // guards what follows
	phase     phase
	joined    bool      // a transaction of the job's is to settle it (CompleteWith)
	pastDue   bool      // a line about its running on was logged
	why       error     // what cancelled it, first cause wins
	begun     time.Time // zero until it runs
	extended  time.Time // when the last extension that went through was sent
	overSince time.Time // when its context was first seen to have ended
	follow    []storage.Insert
	result    []byte
}

// arrival is what the attempts of one claim have in common.
type arrival struct {
	r       *Runner
	domain  *domain
	claimed time.Time // when the claim was sent
	arrived time.Time // when it was answered
}

// taskInfo is what an attempt has to know of its task, a third of a storage.Task.
type taskInfo struct {
	Kind, Encoding string
	Payload        []byte
	Headers        map[string]string

	Retries, MaxRetries int
	Crashes, CrashLimit int
	Snoozes             int
	SnoozedSince        time.Time

	Created time.Time
	Timeout time.Duration
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

// newAttempts makes attempts of what was claimed by a call sent at a moment.
func newAttempts(d *domain, claimed *storage.Claimed, sent time.Time) []*attempt {
	attempts := make([]*attempt, len(claimed.Tasks))
	from := &arrival{r: d.r, domain: d, claimed: sent, arrived: time.Now()}
	var room []attempt
	for i := range claimed.Tasks {
		if len(room) == 0 {
			room = make([]attempt, min(slab, len(claimed.Tasks)-i))
		}
		a, t := &room[0], &claimed.Tasks[i]
		room = room[1:]
		a.arrival, a.fence, a.extended = from, claimed.Fences[i], sent
		a.suspect = storage.Suspect(t.Crashes, t.CrashLimit)
		a.task = taskInfo{
			Kind: t.Kind, Encoding: t.Encoding, Payload: t.Payload, Headers: t.Headers,
			Retries: t.Retries, MaxRetries: t.MaxRetries, Crashes: t.Crashes, CrashLimit: t.CrashLimit,
			Snoozes: t.Snoozes, SnoozedSince: t.SnoozedSince, Created: t.Created, Timeout: t.Timeout,
		}
		attempts[i] = a
	}
	return attempts
}

// begin makes the attempt run and gives its context, or false where it was lost or
// cancelled while it waited.
func (a *attempt) begin(jobs context.Context, now time.Time) (context.Context, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == lost || a.why != nil {
		return nil, false
	}
	a.phase, a.begun = runs, now
	a.ctx.attempt, a.ctx.jobs = a, jobs
	return &a.ctx, true
}

// end cancels the job's context with a cause, or keeps one that waits from running.
func (a *attempt) end(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.why == nil {
		a.why = cause
	}
	a.ctx.end(cause)
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

// settles moves a from waiting or running to settling and reports whether it may:
// false where the lease is lost or somebody else settles it.
func (a *attempt) settles() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
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
	return (a.phase == runs || a.phase == lost) && !a.begun.IsZero()
}

func (a *attempt) runningSince() (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun, a.phase == runs
}

// work runs what waits ahead, and sleeps where nothing does, until the runner drains. It is
// the body of a worker's goroutine: one that is kept needs no new stack. Another one whose
// job ended its goroutine leaves what is done to this one.
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
	begun := time.Now()
	returned := false
	defer func() {
		if returned {
			return
		}
		// runtime.Goexit: this goroutine is ending, another one takes its place.
		if cause := context.Cause(jobs); cause != nil {
			a.end(cause)
		}
		took = time.Since(begun)
		r.finish(a, errGoexit, took) //nolint:contextcheck // its calls outlive jobs
		go r.work(jobs, w, a, took)
	}()
	var err error
	if ctx, ok := a.begin(jobs, begun); ok {
		err = r.call(ctx, a)
	}
	if cause := context.Cause(jobs); cause != nil {
		a.end(cause)
	}
	took = time.Since(begun)
	r.finish(a, err, took) //nolint:contextcheck // its calls outlive jobs
	returned = true        // not before: finish asks what the job returned for its text
	return took
}

// call runs the job with its middleware under its timeout. A panic in any of them is
// an error with its stack.
func (r *Runner) call(ctx context.Context, a *attempt) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
		a.ctx.end(context.Canceled) // what the job left running learns that it is over
	}()
	h := r.handler(a.task.Kind)
	if h == nil {
		return errUnknownKind
	}
	if t := a.task.Timeout; t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t, ErrTimeout)
		defer cancel()
	}
	if err = r.wrapped(ctx, h, &a.task); err != nil && errors.Is(context.Cause(ctx), ErrTimeout) {
		err = fmt.Errorf("%w after %v: %w", ErrTimeout, a.task.Timeout, err)
	}
	return err
}

// wrapped runs a job within the middleware.
func (r *Runner) wrapped(ctx context.Context, h *handler, t *taskInfo) error {
	if len(r.cfg.Middleware) == 0 {
		return h.run(ctx, t.Encoding, t.Payload)
	}
	run := func(ctx context.Context) error { return h.run(ctx, t.Encoding, t.Payload) }
	for _, wrap := range slices.Backward(r.cfg.Middleware) {
		run = wrap(run)
	}
	return run(ctx)
}

var errUnknownKind = errors.New("midge: no job of this kind is registered here")

// handler gives that of a kind, or nil. Once the runner has started none is added, so that
// those who run jobs need no lock.
func (r *Runner) handler(kind string) *handler { return r.handlers[kind] }

// finish turns what a job returned into the settle of its task.
func (r *Runner) finish(a *attempt, err error, took time.Duration) {
	if !a.settles() {
		if a.isLost() { // else it is being given back, and that is still to be brought
			r.slots.settled(a)
		}
		r.log.lost(a, took)
		return
	}
	if a.hasJoined() {
		r.finishJoined(a, err, took)
		return
	}
	s, reported := r.soundVerdict(a, err)
	s.Fence = a.fence
	sm := settlement{attempt: a, settle: [1]storage.Settle{s}, err: reported, took: took}
	if s.Outcome == storage.Complete {
		sm.follow = a.follow
	}
	a.domain.settle.add(sm)
}

// soundVerdict is the verdict, also on an error whose methods panic, such as a nil
// pointer in an interface: that is a panic of the job's.
func (r *Runner) soundVerdict(a *attempt, err error) (s storage.Settle, reported error) {
	defer func() {
		if v := recover(); v != nil {
			s, reported = r.verdict(a, panicked(v))
		}
	}()
	return r.verdict(a, err)
}

// verdict is the settle that err asks for, and the error to report.
func (r *Runner) verdict(a *attempt, err error) (storage.Settle, error) {
	a.mu.Lock()
	why, ran := a.why, !a.begun.IsZero()
	a.mu.Unlock()
	switch {
	case !ran && errors.Is(why, ErrCancelled):
		return storage.Settle{Outcome: storage.Cancel, Error: why.Error()}, why
	case !ran:
		return storage.Settle{Outcome: storage.Release}, why
	case errors.Is(err, errUnknownKind):
		return r.unknownKind(a)
	}
	v := verdictOf(err)
	switch {
	case v.kind == verdictDone:
		return storage.Settle{Outcome: storage.Complete, Result: a.result}, nil
	case errors.Is(err, errUndecodable):
		return bury(reasonUndecodable, err), err
	case errors.Is(why, ErrCancelled):
		return failure(storage.Cancel, 0, err), err
	case v.kind == verdictSnooze:
		return storage.Settle{Outcome: storage.Snooze, Delay: v.delay}, beside(err)
	case v.kind == verdictDiscard:
		return bury(reasonDiscarded, v.err), v.err
	case v.kind == verdictRetryIn:
		return failure(storage.Fail, v.delay, v.err), v.err
	case why != nil: // the shutdown, or a lease that could not be extended: no fault of the job's
		return storage.Settle{Outcome: storage.Release}, why
	}
	return failure(storage.Fail, r.delay(a), err), err
}

// Why midge buries a task, beside the storage's own reasons.
const (
	reasonUndecodable = "undecodable payload"
	reasonDiscarded   = "discarded"
	reasonUnknownKind = "unknown kind"
)

func bury(reason string, err error) storage.Settle {
	s := failure(storage.Bury, 0, err)
	s.Reason = reason
	return s
}

// failure is a settle with the text and stack of err.
func failure(outcome storage.Outcome, delay time.Duration, err error) storage.Settle {
	s := storage.Settle{Outcome: outcome, Delay: delay, Error: errorText(err)}
	if p := (*PanicError)(nil); errors.As(err, &p) {
		s.Stack = string(p.Stack)
	}
	return s
}

// errorText is err's text, even where its Error method panics.
func errorText(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("%T whose Error method panicked: %v", err, v)
		}
	}()
	if err == nil {
		return ""
	}
	return err.Error()
}

// delay asks the backoff recorded with the task, else the job's, else the runner's, how
// long to wait before the retry.
func (r *Runner) delay(a *attempt) (d time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			r.log.backoffPanic(a, v)
			d = DefaultBackoff()(a.task.Retries + 1)
		}
		d = min(max(d, 0), storage.MaxDelay)
	}()
	backoff := r.cfg.Backoff
	if recorded := recordedBackoff(a.task.Headers); recorded != nil {
		backoff = recorded
	} else if h := r.handler(a.task.Kind); h != nil && h.options.Backoff != nil {
		backoff = h.options.Backoff
	}
	return backoff(a.task.Retries + 1)
}

// Unknown kinds are tried again, uncharged, this often and this long: a deploy may be
// under way.
const (
	unknownFirst = time.Second
	unknownMost  = 30 * time.Second
	unknownFor   = 24 * time.Hour
)

func (r *Runner) unknownKind(a *attempt) (storage.Settle, error) {
	r.mu.Lock()
	first := !r.warned[a.task.Kind]
	r.warned[a.task.Kind] = true
	r.mu.Unlock()
	if first {
		r.log.unknownKind(a)
	}
	t := &a.task
	if since := t.SnoozedSince; t.Snoozes > 0 && r.heart.storageNow(a.claimed).Sub(since) > unknownFor {
		return bury(reasonUnknownKind, errUnknownKind), errUnknownKind
	}
	d := unknownMost
	if t.Snoozes < 5 {
		d = unknownFirst << t.Snoozes
	}
	d = d*3/4 + rand.N(d/2)
	return storage.Settle{Outcome: storage.Snooze, Delay: d}, errUnknownKind
}
