package storage

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errPatience is why a call was given up that its caller's context would have let go on.
var errPatience = errors.New("the session's patience is over")

// patientContext is a caller's context with a session's patience. Its timer begins to run when
// somebody waits for it: a storage that answers at once has none to pay for.
type patientContext struct {
	context.Context //nolint:containedctx // the caller's: this is a context itself

	until time.Time // zero without a bound

	mu    sync.Mutex      // guards timed and end
	timed context.Context //nolint:containedctx // what this one is once it has a timer
	end   context.CancelFunc
}

// patient is ctx with a patience that counts from now on; a negative one has no end.
func patient(ctx context.Context, patience time.Duration) *patientContext {
	p := &patientContext{Context: ctx}
	if patience >= 0 {
		p.until = time.Now().Add(patience)
	}
	return p
}

// stop frees what the context has needed.
func (p *patientContext) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.end()
	}
}

// Deadline implements context.Context.
func (p *patientContext) Deadline() (time.Time, bool) {
	at, ok := p.Context.Deadline()
	if p.until.IsZero() || ok && at.Before(p.until) {
		return at, ok
	}
	return p.until, true
}

// Done implements context.Context.
func (p *patientContext) Done() <-chan struct{} { return p.running().Done() }

// Err implements context.Context.
func (p *patientContext) Err() error {
	if p.until.IsZero() || time.Now().Before(p.until) {
		return p.Context.Err()
	}
	return p.running().Err()
}

// Value implements context.Context. The timer's context is found by it where one runs, so that a
// context derived from this one needs no goroutine, and [context.Cause] tells why it ended.
func (p *patientContext) Value(key any) any {
	p.mu.Lock()
	timed := p.timed
	p.mu.Unlock()
	if timed == nil {
		timed = p.Context
	}
	return timed.Value(key)
}

// running is the context with its timer.
func (p *patientContext) running() context.Context {
	if p.until.IsZero() {
		return p.Context
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timed == nil {
		p.timed, p.end = context.WithDeadlineCause(p.Context, p.until, errPatience)
	}
	return p.timed
}
