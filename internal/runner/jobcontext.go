package runner

import (
	"context"
	"time"
)

// jobContext is an attempt as the context of its job: it carries the values of the runner's
// context, and ends with that or when the attempt is ended. A context of the standard
// library, with its channel and its place among the runner's children, is made when
// the job first asks for what only that can tell; most short jobs never do.
type jobContext Attempt

type attemptKey struct{}

// FromContext gives the attempt of a job's context, or nil.
func FromContext(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// fullContext is a context of the standard library.
type fullContext struct {
	context.Context

	cancel context.CancelCauseFunc
}

// Deadline is the parent's.
func (c *jobContext) Deadline() (time.Time, bool) { return c.ctx.Deadline() }

// Done is closed when the attempt is ended.
func (c *jobContext) Done() <-chan struct{} { return c.made().Done() }

// Err is nil until then.
func (c *jobContext) Err() error { return c.made().Err() }

// Value gives the attempt, or a value of the parent. Package context asks for the cause
// in this way too.
func (c *jobContext) Value(key any) any {
	if key == (attemptKey{}) {
		return (*Attempt)(c)
	}
	return c.made().Value(key)
}

// made makes the standard context.
func (c *jobContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		ctx, cancel := context.WithCancelCause(c.ctx)
		c.full = &fullContext{ctx, cancel}
		switch cause := (*Attempt)(c).cause(); {
		case cause != nil:
			cancel(cause)
		case c.returned:
			cancel(context.Canceled)
		}
	}
	return c.full
}
