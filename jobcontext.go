package midge

import (
	"context"
	"sync"
	"time"
)

// jobContext is the context of one attempt: it carries the values of the runner's
// context, ends with it, or when the attempt is ended. A context of the standard
// library's, with its channel and its place among the runner's children, is made when
// the job first asks for what only that can tell; most short jobs never do.
type jobContext struct {
	attempt *attempt
	jobs    context.Context //nolint:containedctx // this is a context, and that its parent

	mu     sync.Mutex      // guards what follows
	full   context.Context //nolint:containedctx // nil until it is asked for
	cancel context.CancelCauseFunc
	ended  bool
	cause  error
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
		return c.attempt
	}
	return c.made().Value(key)
}

// made makes the standard context.
func (c *jobContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		c.full, c.cancel = context.WithCancelCause(c.jobs)
		if c.ended {
			c.cancel(c.cause)
		}
	}
	return c.full
}

// end ends the context with a cause; the first one holds.
func (c *jobContext) end(cause error) {
	c.mu.Lock()
	if !c.ended {
		c.ended, c.cause = true, cause
	}
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}
