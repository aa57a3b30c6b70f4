package midge

import (
	"context"
	"time"
)

// jobContext is an attempt as the context of its job: it carries the values of the runner's
// context, ends with it, or when the attempt is ended. A context of the standard
// library's, with its channel and its place among the runner's children, is made when
// the job first asks for what only that can tell; most short jobs never do.
type jobContext attempt

// fullContext is one of the standard library's.
type fullContext struct {
	context.Context //nolint:containedctx // that is what it is

	cancel context.CancelCauseFunc
}

// Deadline is the parent's.
func (c *jobContext) Deadline() (time.Time, bool) { return c.jobs.Deadline() }

// Done is closed when the attempt is ended.
func (c *jobContext) Done() <-chan struct{} { return c.made().Done() }

// Err is nil until then.
func (c *jobContext) Err() error { return c.made().Err() }

// Value gives the attempt, or a value of the parent. Package context asks for the cause
// in this way too.
func (c *jobContext) Value(key any) any {
	if key == (attemptKey{}) {
		return (*attempt)(c)
	}
	return c.made().Value(key)
}

// made makes the standard context.
func (c *jobContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		ctx, cancel := context.WithCancelCause(c.jobs)
		c.full = &fullContext{ctx, cancel}
		switch {
		case c.why != nil:
			cancel(c.why)
		case c.returned:
			cancel(context.Canceled)
		}
	}
	return c.full
}
