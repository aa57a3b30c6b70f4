package redis

import (
	"context"
	"sync"

	"github.com/midgehq/midge/storage"
)

// calls are the calls of go-redis under way that end with their callers' contexts.
type calls struct {
	interrupts *interrupts // nil if calls cannot be interrupted

	mu     sync.Mutex // guards closed, and keeps calls from beginning once it is set
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

// close refuses new calls and waits for the calls under way, including the calls whose callers
// have left.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.some.Wait()
}

// heed makes a call of go-redis and returns when the call does, or when ctx ends. It returns
// storage.ErrClosed once calls are closed.
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

// apart makes a call in a goroutine of its own, and returns an ErrUnknown when ctx ends. The call
// then goes on until go-redis's timeouts end it.
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
