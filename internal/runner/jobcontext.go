package runner

import (
	"context"
	"time"
)

// jobContext is an attempt as the context of its job. It carries the values of the runner's
// context, and ends with that context or when the attempt is ended. A standard context costs a
// channel and a place among the runner's children. It is made only when the job first asks for
// something that needs it; most short jobs never do.
type jobContext Attempt

type attemptKey struct{}

// FromContext returns the attempt of a job's context, or nil.
func FromContext(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// fullContext is a standard context with its cancel function.
type fullContext struct {
	context.Context

	cancel context.CancelCauseFunc
}

// Deadline returns the parent's deadline.
func (c *jobContext) Deadline() (time.Time, bool) { return c.ctx.Deadline() }

// Done returns a channel that is closed when the attempt is ended.
func (c *jobContext) Done() <-chan struct{} { return c.made().Done() }

// Err returns nil until the attempt is ended.
func (c *jobContext) Err() error { return c.made().Err() }

// Value returns the attempt, or a value of the parent. Package context asks for the cause with a
// key, too; only for that key the standard context is made.
func (c *jobContext) Value(key any) any {
	switch key {
	case attemptKey{}:
		return (*Attempt)(c)
	case causeKey:
		return c.made().Value(key)
	}
	return c.ctx.Value(key)
}

// causeKey is the key with which package context asks a context for its cause.
var causeKey = func() any {
	var asked askedContext
	_ = context.Cause(&asked)
	return asked.key
}()

// askedContext is an ended context that records the key it was asked for.
type askedContext struct{ key any }

func (*askedContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*askedContext) Done() <-chan struct{}                   { return nil }
func (*askedContext) Err() error                              { return context.Canceled }

func (c *askedContext) Value(key any) any {
	c.key = key
	return nil
}

// made returns the standard context, which it makes at the first call.
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
