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
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// Why the context of a job ended, as context.Cause tells it.
var (
	// ErrShutdown: the runner stops and the grace period is over. The task is
	// released, uncharged, unless the job returns nil.
	ErrShutdown = runner.ErrShutdown
	// ErrTimeout: the job ran longer than its timeout; it counts as a failure,
	// unless the job returns nil.
	ErrTimeout = runner.ErrTimeout
	// ErrExpired: the [Deadline] of the task is over; the task is dead, unless the job returns nil.
	ErrExpired = runner.ErrExpired
)

// jobs are the jobs of a runner: it runs them and reads what they return.
type jobs struct {
	definitions definitions
	handlers    map[string]*handler // by kind; none is added once the runner has started
	kinds       []string            // of the handlers, once it has
	middleware  []Middleware
	enqueuing   enqueueChain
	backoff     Backoff
}

// Kinds gives the kinds that are registered.
func (j *jobs) Kinds() []string { return j.kinds }

// types lists the types that are registered, by kind, for a test kit.
func (j *jobs) types() map[string]runner.JobType {
	all := make(map[string]runner.JobType, len(j.handlers))
	for kind, h := range j.handlers {
		all[kind] = runner.JobType{Type: h.typ, Encoding: string(h.options.Encoding)}
	}
	return all
}

// Name gives the kind of today of a task's kind, which may be an alias.
func (j *jobs) Name(kind string) string {
	if h := j.handlers[kind]; h != nil {
		return h.kind
	}
	return kind
}

// Enqueue gives those of the inserts that the middleware passes on.
func (j *jobs) Enqueue(ctx context.Context, inserts []storage.Insert) ([]storage.Insert, error) {
	return j.enqueuing.passed(ctx, inserts)
}

// Run runs the job of a task within the middleware. A panic in that is an error too.
func (j *jobs) Run(ctx context.Context, a *runner.Attempt) (err error) {
	h := j.handlers[a.Kind]
	unfit := h.fit(a)
	if len(j.middleware) == 0 {
		return h.call(ctx, a, unfit)
	}
	defer recovered(&err)
	run := func(ctx context.Context) error { return h.call(ctx, a, unfit) }
	for _, wrap := range slices.Backward(j.middleware) {
		run = wrap(run)
	}
	return run(ctx)
}

// call runs the job alone. The error tells the middleware what ended the context of the job too.
func (h *handler) call(ctx context.Context, a *runner.Attempt, unfit error) error {
	if unfit != nil {
		return unfit
	}
	err := a.Explain(ctx, h.attempt(ctx, a.Job))
	if after, ok := a.Job.(interface {
		AfterRun(ctx context.Context, end error)
	}); ok {
		if failed := afterRun(ctx, after.AfterRun, err); failed != nil {
			a.HookFailed("AfterRun", failed)
		}
	}
	return err
}

// fit decodes the job of an attempt, and says why it cannot. A panic of a method that decodes is
// that of the job.
func (h *handler) fit(a *runner.Attempt) (err error) {
	defer recovered(&err)
	a.Job, err = h.decode(a.Encoding, a.Payload)
	if err == nil {
		h.lookForUnread(a)
	}
	return err
}

// attempt runs the job. A panic of the job is an error with its stack.
func (h *handler) attempt(ctx context.Context, job any) (err error) {
	defer recovered(&err)
	if before, ok := job.(interface {
		BeforeRun(ctx context.Context) error
	}); ok {
		if err := before.BeforeRun(ctx); err != nil {
			return err
		}
	}
	return h.run(ctx, job)
}

// afterRun calls a job's AfterRun. The error is its panic.
func afterRun(ctx context.Context, call func(context.Context, error), end error) (err error) {
	defer recovered(&err)
	call(ctx, end)
	return nil
}

// recovered turns a panic of the function that defers it into that function's error.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = panicked(v)
	}
}

// Judge reads an error of a job, also one whose methods panic, such as a nil
// pointer in an interface: that is a panic of the job's.
func (j *jobs) Judge(err error) runner.Judgement { return judge(err) }

func judge(err error) (asked runner.Judgement) {
	defer func() {
		if v := recover(); v != nil {
			asked = verdictOf(panicked(v))
		}
	}()
	return verdictOf(err)
}

// Backoff asks the backoff recorded with the task, else the job's, else the runner's, how
// long to wait before the retry.
func (j *jobs) Backoff(a *runner.Attempt) (d time.Duration, err error) {
	defer func() {
		if v := recover(); v != nil {
			d, err = Geometric{}.Delay(int(a.Retries)+1), panicked(v)
		}
	}()
	backoff := j.backoff
	if recorded := recordedBackoff(a.Headers); recorded != nil {
		backoff = recorded
	} else if h := j.handlers[a.Kind]; h != nil && h.options.Backoff != nil {
		backoff = h.options.Backoff
	}
	return backoff(int(a.Retries) + 1), nil
}

// reasonUndecodable is why a task cannot run on this runner.
const reasonUndecodable = "undecodable payload"

// cannotDecode is the error of a job whose parameters could not be decoded.
func cannotDecode(err error) error {
	c := &runner.CannotRunError{Reason: reasonUndecodable, Err: err}
	if u := (*codec.DecodeError)(nil); errors.As(err, &u) {
		c.Detail = u.Problem
	}
	return c
}

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

// ownFunctions are the beginnings of the names of functions that are not the job's.
var ownFunctions = []string{
	"runtime.", "internal/runtime/", "github.com/midgehq/midge.", "github.com/midgehq/midge/internal/",
}
