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
// in this way too; for that alone the standard context is made.
func (c *jobContext) Value(key any) any {
	switch key {
	case attemptKey{}:
		return (*Attempt)(c)
	case causeKey:
		return c.made().Value(key)
	}
	return c.ctx.Value(key)
}

// causeKey is what package context asks a context for whose cause it wants.
var causeKey = func() any {
	var asked askedContext
	_ = context.Cause(&asked)
	return asked.key
}()

// askedContext has ended, and notes what it was asked for.
type askedContext struct{ key any }

func (*askedContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*askedContext) Done() <-chan struct{}                   { return nil }
func (*askedContext) Err() error                              { return context.Canceled }

func (c *askedContext) Value(key any) any {
	c.key = key
	return nil
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
