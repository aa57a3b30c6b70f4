package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
)

// DefaultPatience is how long a call through a [Session] takes at most, its repeats
// included, if the storage does not answer.
const DefaultPatience = 5 * time.Second

// laneUse is how long a lane is used, so that the last call on it can still be
// repeated within LaneLife.
const laneUse = LaneLife / 2

// laneCalls is how many calls go out on one lane. Each call leaves an old version of the
// lane's record, over which a storage may have to read: PostgreSQL has to until a vacuum.
const laneCalls = 1000

// Session is a caller's side of the contract: it assigns each mutating call its identity
// and repeats a call whose outcome is unknown, or that found the storage unavailable, so
// that its user need not notice a lost reply. It is safe for concurrent use; concurrent
// calls get lanes of their own. It holds no connection and needs no closing.
type Session struct {
	store    Storage
	patience time.Duration
	end      sharedEnd

	mu     sync.Mutex // guards the fields below; never held during I/O
	idle   []*lane
	synced time.Time // local moment at which the storage's clock showed base
	base   time.Time
}

// lane is one Lane and the last number used on it.
type lane struct {
	Lane
	seq uint64
}

// NewSession makes a session on store. patience bounds one call together with its repeats; 0
// means DefaultPatience. With a negative patience calls have no bound and are never repeated.
func NewSession(store Storage, patience time.Duration) *Session {
	if patience == 0 {
		patience = DefaultPatience
	}
	return &Session{store: store, patience: patience}
}

// Storage returns the storage on which the session was made.
func (s *Session) Storage() Storage { return s.store }

// UnknownError is an [ErrUnknown] that remembers its call, so that
// [Session.Repeat] can return the outcome while the lane lives.
type UnknownError struct {
	Call Call
	Txs  []Tx // none for an Extend, which Repeat does not repeat
	Err  error
}

// Error returns the text of the storage's error.
func (e *UnknownError) Error() string { return e.Err.Error() }

// Unwrap returns the storage's error.
func (e *UnknownError) Unwrap() error { return e.Err }

// Apply is [Storage.Apply] under the session's identity. If the outcome stays unknown,
// the error is an *[UnknownError].
func (s *Session) Apply(ctx context.Context, txs ...Tx) ([]Applied, error) {
	var applied []Applied
	call, err := s.do(ctx, Call{}, func(ctx context.Context, call Call) (err error) {
		applied, err = s.store.Apply(ctx, call, txs...)
		return err
	})
	if errors.Is(err, ErrUnknown) {
		return nil, &UnknownError{Call: call, Txs: txs, Err: err}
	}
	return applied, err
}

// ApplyOne applies one Tx. If the Tx was refused, the error is its Applied.Err.
func (s *Session) ApplyOne(ctx context.Context, tx Tx) (Applied, error) {
	applied, err := s.Apply(ctx, tx)
	if err != nil {
		return Applied{}, err
	}
	return applied[0], applied[0].Err
}

// Repeat sends a call of unknown outcome again under its old identity: it returns
// the first outcome, or carries the call out if it never happened. After LaneLife
// it returns an ErrUnknown again.
func (s *Session) Repeat(ctx context.Context, unknown *UnknownError) ([]Applied, error) {
	bounded := s.end.patient(ctx, s.patience)
	defer bounded.stop()
	ctx = bounded //nolint:contextcheck // it is the caller's, with a bound
	var applied []Applied
	err := s.repeat(ctx, doubting(true, func() (err error) {
		applied, err = s.store.Apply(ctx, unknown.Call, unknown.Txs...)
		return err
	}))
	if errors.Is(err, ErrUnknown) {
		return nil, &UnknownError{Call: unknown.Call, Txs: unknown.Txs, Err: err}
	}
	return applied, err
}

// Claim is [Storage.Claim] under the session's identity; it fills req.Call, and req.Token
// if it is zero.
func (s *Session) Claim(ctx context.Context, req ClaimRequest) (Claimed, error) {
	if req.Token == (Token{}) {
		req.Token = NewToken()
	}
	var claimed Claimed
	_, err := s.do(ctx, Call{}, func(ctx context.Context, call Call) (err error) {
		req.Call = call
		claimed, err = s.store.Claim(ctx, req)
		return err
	})
	if err == nil {
		s.set(claimed.Now)
	}
	return claimed, err
}

// Extend is [Storage.Extend] under the session's identity; it fills req.Call. If the outcome stays unknown,
// the error is an *[UnknownError]. That Extend may still happen later, and would replace what a later one has
// written. An Extend of the same single lease whose req.Call is that of the error comes after it: once it has
// succeeded, the one before it has happened or never will.
func (s *Session) Extend(ctx context.Context, req ExtendRequest) (Extended, error) {
	var extended Extended
	call, err := s.do(ctx, req.Call, func(ctx context.Context, call Call) (err error) {
		req.Call = call
		extended, err = s.store.Extend(ctx, req)
		return err
	})
	if errors.Is(err, ErrUnknown) {
		err = &UnknownError{Call: call, Err: err}
	}
	return extended, err
}

// Configure is [Storage.Configure] under the session's identity.
func (s *Session) Configure(ctx context.Context, queue string, settings Settings) error {
	_, err := s.do(ctx, Call{}, func(ctx context.Context, call Call) error {
		return s.store.Configure(ctx, call, queue, settings)
	})
	return err
}

// Now returns the storage's time, computed from the last answer that held it. It asks the
// storage only if no answer has held the time yet.
func (s *Session) Now(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	synced, base := s.synced, s.base
	s.mu.Unlock()
	if !synced.IsZero() {
		return base.Add(time.Since(synced)), nil
	}
	return s.sync(ctx)
}

// sync asks the storage for its time.
func (s *Session) sync(ctx context.Context) (time.Time, error) {
	d, err := s.store.Describe(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("storage: ask for the time: %w", err)
	}
	s.set(d.Now)
	return d.Now, nil
}

func (s *Session) set(now time.Time) {
	if now.IsZero() {
		return
	}
	s.mu.Lock()
	s.synced, s.base = time.Now(), now
	s.mu.Unlock()
}

// do sends a call on a lane of its own, and repeats it until its outcome is known or the session's patience
// is over. A first try that is refused because the lane was too old (this process was suspended, or the
// storage's clock jumped) did nothing: the call goes out again on a new lane. A lane whose last outcome is
// unknown is not used again, so that its number stays repeatable. Only calls that come after such a call
// use its lane.
func (s *Session) do(ctx context.Context, after Call, send func(context.Context, Call) error) (Call, error) {
	bounded := s.end.patient(ctx, s.patience)
	defer bounded.stop()
	ctx = bounded //nolint:contextcheck // it is the caller's, with a bound
	for fresh := false; ; fresh = true {
		ln := &lane{after.Lane, after.Seq}
		err := s.repeat(ctx, func() (err error) { // take may have to ask the storage for its time
			if fresh || after.IsZero() { // once a lane has expired, no call on it happens
				ln, err = s.take(ctx, fresh)
			}
			return err
		})
		if err != nil {
			return Call{}, unsent{err}
		}
		ln.seq++
		call := Call{Lane: ln.Lane, Seq: ln.seq}
		first := true
		expired := false
		err = s.repeat(ctx, doubting(false, func() error {
			err := send(ctx, call)
			expired = first && errors.Is(err, ErrLaneExpired)
			first = false
			return err
		}))
		if expired && !fresh {
			continue
		}
		if !errors.Is(err, ErrUnknown) && after.IsZero() {
			s.mu.Lock()
			s.idle = append(s.idle, ln)
			s.mu.Unlock()
		}
		return call, err
	}
}

// doubting wraps send so that an unknown outcome stays unknown: once a try of the call may have
// happened, the refusal of a later try means only that this later try did nothing. doubt means
// that a try may have happened before the first send. An error that depends only on the call, or
// that the lane remembers, stays definite.
func doubting(doubt bool, send func() error) func() error {
	return func() error {
		err := send()
		var invalid *InvalidError
		decided := errors.As(err, &invalid) || errors.Is(err, ErrSpan) || errors.Is(err, ErrNotEmpty)
		switch {
		case !doubt || err == nil || decided || errors.Is(err, ErrUnknown):
		case errors.Is(err, ErrUnavailable): // only this try is known to have done nothing
			err = fmt.Errorf("%w: %v", ErrUnknown, err) //nolint:errorlint // it hides what the error is
		default:
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		doubt = doubt || errors.Is(err, ErrUnknown)
		return err
	}
}

// unsent is the error of a call that was never sent, because the session could not learn the
// storage's time. Even if the outcome of that question is unknown, the call did not happen.
type unsent struct{ error }

// Is reports an ErrUnknown as ErrUnavailable, since the call did not happen.
func (e unsent) Is(target error) bool {
	if errors.Is(e.error, ErrUnknown) && target == ErrUnavailable {
		return true
	}
	return target != ErrUnknown && errors.Is(e.error, target)
}

// As finds target in the storage's error.
func (e unsent) As(target any) bool { return errors.As(e.error, target) }

// repeat calls send until the outcome is known, ctx ends or leaves no time for another try, the
// lane is past its life, or the storage is closed. Between tries it waits for 5 ms, and twice as
// long each time up to a second, with jitter. The error of a try that ctx ended wraps that of the try before.
func (s *Session) repeat(ctx context.Context, send func() error) error {
	pause := 5 * time.Millisecond
	var before error
	for {
		err := send()
		if before != nil && ctx.Err() != nil && errors.Is(err, ErrUnknown) {
			err = fmt.Errorf("%w; the try before: %w", err, before)
		}
		if before = err; !errors.Is(err, ErrUnknown) {
			before = nil
		}
		if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrUnavailable) {
			return err
		}
		if errors.Is(err, ErrLaneExpired) || errors.Is(err, ErrClosed) || s.patience < 0 || ctx.Err() != nil {
			return err
		}
		wait := pause/2 + rand.N(pause)
		if end, some := ctx.Deadline(); some && time.Until(end) < wait || !sleep.For(ctx, wait) {
			return err
		}
		pause = min(2*pause, time.Second)
	}
}

// take returns a lane that nobody else uses: an idle lane, or a new one opened now. With fresh
// it asks the storage for the time anew and always opens a new lane.
func (s *Session) take(ctx context.Context, fresh bool) (*lane, error) {
	now, err := s.Now(ctx)
	if fresh && err == nil {
		now, err = s.sync(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := len(s.idle); n > 0 && !fresh; n = len(s.idle) {
		ln := s.idle[n-1]
		s.idle = s.idle[:n-1]
		if age := now.Sub(ln.Opened); age >= 0 && age < laneUse && ln.seq < laneCalls {
			return ln, nil
		}
	}
	return &lane{Lane: Lane{ID: random16(), Opened: now.Truncate(time.Microsecond)}}, nil
}
