package storage

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errPatience is the cause of a context that the session's patience ended, not the caller.
var errPatience = errors.New("the session's patience is over")

// patientContext is a caller's context with a session's patience. Its timer starts when somebody
// waits for Done, so that a call to a storage that answers at once costs no timer. Callers whose own
// contexts never end share a timer.
type patientContext struct {
	context.Context //nolint:containedctx // the caller's: this is a context itself

	until  time.Time // zero without a bound
	shared *sharedEnd

	mu    sync.Mutex      // guards timed and end
	timed context.Context //nolint:containedctx // what this one is once it has a timer
	end   context.CancelFunc
}

// patient returns ctx with a patience that counts from now on; a negative patience has no end.
func (s *sharedEnd) patient(ctx context.Context, patience time.Duration) *patientContext {
	p := &patientContext{Context: ctx, shared: s}
	if patience >= 0 {
		p.until = time.Now().Add(patience)
	}
	return p
}

// sharedEnd is the context of all calls whose patience ends at about the same moment and whose callers'
// contexts never end: a timer for each of them takes more of a busy client than the rest of its contexts.
// Its zero value is ready for use.
type sharedEnd struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time
	ctx  context.Context //nolint:containedctx // it ends at that moment
	free context.CancelFunc
}

// shareOf is the part of the time until then by which a call may end later than its patience.
const shareOf = 100

// after returns a context that ends at a moment or a little later.
func (s *sharedEnd) after(until time.Time) context.Context {
	late := time.Until(until) / shareOf
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil || until.After(s.at) || s.at.Sub(until) > late {
		s.at = until.Add(late)
		// Nobody frees it before its end: the timer belongs to all calls that share it.
		base := context.Background() //nolint:forbidigo // the calls that share it keep the values of their callers
		s.ctx, s.free = context.WithDeadlineCause(base, s.at, errPatience)
	}
	return s.ctx
}

// stop frees the context's timer.
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

// EndsAtDeadline reports whether the context ends at its deadline and not before: a storage that keeps the
// deadline by itself then needs not wait for Done.
func (p *patientContext) EndsAtDeadline() bool { return !p.until.IsZero() && p.Context.Done() == nil }

// Done implements context.Context.
func (p *patientContext) Done() <-chan struct{} { return p.running().Done() }

// Err implements context.Context.
func (p *patientContext) Err() error {
	if p.until.IsZero() || time.Now().Before(p.until) {
		return p.Context.Err()
	}
	return p.running().Err()
}

// Value implements context.Context. If the timer runs, Value asks the timer's context first, so that
// package context finds that context: a context derived from this one then needs no goroutine, and
// [context.Cause] returns why it ended.
func (p *patientContext) Value(key any) any {
	p.mu.Lock()
	timed := p.timed
	p.mu.Unlock()
	if timed != nil {
		if value := timed.Value(key); value != nil {
			return value
		}
	}
	return p.Context.Value(key)
}

// running returns the context with its timer, which it starts at the first call.
func (p *patientContext) running() context.Context {
	if p.until.IsZero() {
		return p.Context
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.timed != nil:
	case p.Context.Done() == nil:
		p.timed = p.shared.after(p.until)
	default:
		p.timed, p.end = context.WithDeadlineCause(p.Context, p.until, errPatience)
	}
	return p.timed
}
