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
	"github.com/midgehq/midge/internal/contain"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// These errors are causes of the end of a job's context, as context.Cause returns them.
var (
	// ErrShutdown means that the runner stops and the grace period is over. The task is released
	// without counting a retry, unless the job returns nil. [Runner.Start] returns it if
	// [Runner.Shutdown] was called before the runner had started.
	ErrShutdown = runner.ErrShutdown
	// ErrTimeout means that the job ran longer than its timeout. The attempt has failed, unless the
	// job returns nil.
	ErrTimeout = runner.ErrTimeout
	// ErrExpired means that the [Deadline] of the task is over. The task is dead, unless the job
	// returns nil.
	ErrExpired = runner.ErrExpired
)

// jobs holds the jobs of a runner. It runs them and interprets the errors that they return.
type jobs struct {
	definitions definitions
	handlers    map[string]*handler // by kind; complete once the runner has started
	kinds       []string            // the keys of handlers, once the runner has started
	middleware  []Middleware
	enqueuing   enqueueChain
	backoff     Backoff
}

// Kinds returns the registered kinds.
func (j *jobs) Kinds() []string { return j.kinds }

// types returns the registered job types by kind, for a test kit. Kinds of [HandleRaw] have none.
func (j *jobs) types() map[string]runner.JobType {
	all := make(map[string]runner.JobType, len(j.handlers))
	for kind, h := range j.handlers {
		if h.typ == rawType {
			continue
		}
		all[kind] = runner.JobType{Type: h.typ, Encoding: string(h.options.Encoding)}
	}
	return all
}

// Name returns the current kind for a task's kind, which may be an alias.
func (j *jobs) Name(kind string) string {
	if h := j.handlers[kind]; h != nil {
		return h.kind
	}
	return kind
}

// Enqueue returns the inserts that the middleware passes on.
func (j *jobs) Enqueue(ctx context.Context, inserts []storage.Insert) ([]storage.Insert, error) {
	return j.enqueuing.passed(ctx, inserts)
}

// Run runs the job of a task within the middleware. A panic of the middleware is an error too.
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

// call runs the job without the middleware. Its error also names, for the middleware, the cause
// that ended the context of the job.
func (h *handler) call(ctx context.Context, a *runner.Attempt, unfit error) error {
	if unfit != nil {
		return unfit
	}
	err := a.Explain(ctx, a.Owing(h.attempt(ctx, a.Job)))
	if after, ok := a.Job.(interface {
		AfterRun(ctx context.Context, end error)
	}); ok {
		a.AfterRun(err, func() error { return afterRun(ctx, after.AfterRun, err) })
	}
	return err
}

// fit decodes the job of an attempt, or returns the reason why it cannot. A panic of a decoding
// method counts as a panic of the job.
func (h *handler) fit(a *runner.Attempt) (err error) {
	defer recovered(&err)
	a.Job, err = h.decode(a.Encoding, a.Payload)
	if err == nil {
		h.lookForUnread(a)
	}
	return err
}

// attempt runs the job. A panic of the job becomes an error with the stack of the panic.
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

// afterRun calls a job's AfterRun and returns its panic as an error.
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

// Judge interprets an error of a job. If a method of the error panics, as a method on a nil pointer
// in an interface does, that is a panic of the job. The end that the attempt owes holds all the same.
func (j *jobs) Judge(err error) runner.Judgement { return judge(err) }

func judge(err error) (asked runner.Judgement) {
	defer func() {
		if v := recover(); v != nil {
			asked = verdictOf(runner.Instead(err, panicked(v)))
		}
	}()
	return verdictOf(err)
}

// DefaultBackoff returns the delay before a retry if no backoff returns one.
func (j *jobs) DefaultBackoff(retry int) time.Duration { return Geometric{}.Delay(retry) }

// Backoff returns the delay before the retry, by the backoff recorded with the task, else the
// job's, else the runner's. It returns the panic of that backoff as an error, and a runtime.Goexit.
func (j *jobs) Backoff(a *runner.Attempt) (d time.Duration, err error) {
	retry, backoff := int(a.Retries)+1, j.backoff
	if recorded := recordedBackoff(a.Headers); recorded != nil {
		return recorded(retry), nil
	}
	if h := j.handlers[a.Kind]; h != nil && h.options.Backoff != nil {
		backoff = h.options.Backoff
	}
	if backoff == nil {
		return j.DefaultBackoff(retry), nil
	}
	err = contain.Call(func() { d = backoff(retry) }, panicked)
	return d, err
}

// cannotDecode returns the error of a job whose parameters could not be decoded.
func cannotDecode(err error) error {
	c := &runner.CannotRunError{Reason: storage.ReasonUndecodable, Err: err}
	if u := (*codec.DecodeError)(nil); errors.As(err, &u) {
		c.Detail = u.Problem
	}
	return c
}

// PanicError is the error of a job that panicked; a [Middleware] gets it from next.
type PanicError struct {
	Value any
	Stack []byte

	at string // the line of code, such as "main.go:48", "" if it is not known
}

// Error prints the value of the panic, and the line of the job's code where it happened.
func (e *PanicError) Error() string {
	if e.at == "" {
		return fmt.Sprintf("panic: %v", e.Value)
	}
	return fmt.Sprintf("panic: %v (%s)", e.Value, e.at)
}

// panicked returns the error of a panic that the calling deferred function has just recovered.
func panicked(v any) error {
	return &PanicError{Value: v, Stack: debug.Stack(), at: panickedAt()}
}

// panickedAt returns the file and line of the innermost frame that is neither the runtime's nor
// midge's.
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

// ownFunctions are the prefixes of functions that are not the job's.
var ownFunctions = []string{
	"runtime.", "internal/runtime/", "github.com/midgehq/midge.", "github.com/midgehq/midge/internal/",
}
