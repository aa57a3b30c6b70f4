package redis

import (
	"context"
	"sync"

	"github.com/midgehq/midge/storage"
)

// calls are the calls of go-redis under way that heed their callers' contexts.
type calls struct {
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

// heed makes a call of go-redis and returns when it has, or when ctx ends: go-redis
// itself heeds a deadline at best, never a cancel, and would wait for the answer of a
// server that hangs for as long as its own timeouts are. A call that was given up goes
// on until then, or until Close has closed its connection.
func heed[T any](ctx context.Context, c *calls, call func() (T, error)) (T, error) {
	var nothing T
	if ctx.Done() == nil {
		return call()
	}
	if !c.begin() {
		return nothing, storage.ErrClosed
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		defer c.some.Done()
		value, err := call()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return nothing, ended(ctx)
	}
}
