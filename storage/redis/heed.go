package redis

import (
	"context"
	"sync"

	"github.com/midgehq/midge/storage"
)

// calls are the calls of go-redis under way that heed their callers' contexts.
type calls struct {
	interrupts *interrupts // nil where calls cannot be interrupted

	mu     sync.Mutex // guards closed, and that nothing begins once it is set
	closed bool
	some   sync.WaitGroup
}

func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.some.Add(1)
	return true
}

// close waits for the calls under way, those included for which nobody waits any
// more, and refuses new ones.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.some.Wait()
}

// heed makes a call of go-redis and returns when it has, or when ctx ends.
func heed[T any](ctx context.Context, c *calls, do func(context.Context) (T, error)) (T, error) {
	var nothing T
	if ctx.Done() == nil {
		return do(ctx)
	}
	if !c.begin() {
		return nothing, storage.ErrClosed
	}
	if c.interrupts == nil {
		return apart(ctx, c, do)
	}
	defer c.some.Done()
	call, end := c.interrupts.begin(ctx)
	value, err := do(call)
	end()
	if err != nil && ctx.Err() != nil {
		return nothing, context.Cause(ctx)
	}
	return value, err
}

// apart makes a call in a goroutine of its own. A call that was given up goes on until
// go-redis's timeouts end it.
func apart[T any](ctx context.Context, c *calls, do func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		defer c.some.Done()
		value, err := do(ctx)
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var nothing T
		return nothing, ended(ctx)
	}
}
