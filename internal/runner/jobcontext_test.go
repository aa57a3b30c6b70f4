package runner

import (
	"context"
	"errors"
	"testing"
)

type traceKey struct{}

// TestJobContextIsAContext checks that it behaves like a standard context, whenever it is used.
func TestJobContextIsAContext(t *testing.T) {
	cause := errors.New("the cause")
	for name, late := range map[string]bool{"looked at before it ends": false, "looked at after it ended": true} {
		t.Run(name, func(t *testing.T) {
			parent := context.WithValue(t.Context(), traceKey{}, "trace")
			a := &Attempt{batch: &batch{ctx: parent}}
			c := (*jobContext)(a)
			if got := c.Value(traceKey{}); got != "trace" || a.full != nil {
				t.Errorf("value of the parent: got %v, want trace and no context made for it", got)
			}
			if late {
				a.end(cause)
			}
			done := c.Done()
			child, cancel := context.WithCancel(context.WithValue(c, traceKey{}, "child"))
			defer cancel()
			childDone := child.Done()
			a.end(cause)
			a.end(errors.New("another"))
			<-done
			<-childDone
			if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), cause) {
				t.Errorf("ended with %v because of %v, want %v because of %v", c.Err(), context.Cause(c), context.Canceled, cause)
			}
			if !errors.Is(context.Cause(child), cause) {
				t.Errorf("a child ended because of %v, want %v", context.Cause(child), cause)
			}
			if got := c.Value(traceKey{}); got != "trace" {
				t.Errorf("value of the parent: got %v, want trace", got)
			}
			if got := child.Value(attemptKey{}); got != a {
				t.Errorf("the attempt by a child: got %v, want it", got)
			}
		})
	}
}

// TestJobContextEndsWithTheRunners checks this, and the cause of the end.
func TestJobContextEndsWithTheRunners(t *testing.T) {
	jobs, end := context.WithCancelCause(t.Context())
	c := (*jobContext)(&Attempt{batch: &batch{ctx: jobs}})
	if c.Err() != nil {
		t.Errorf("before: got %v, want nil", c.Err())
	}
	end(ErrShutdown)
	<-c.Done()
	if !errors.Is(context.Cause(c), ErrShutdown) {
		t.Errorf("cause: got %v, want %v", context.Cause(c), ErrShutdown)
	}
}
