package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
)

// A flush takes along no more than this.
const (
	flushCalls = 256
	flushOps   = 4000
	flushBytes = 8 << 20
)

const (
	// lockTime is how long a step waits for the write lock.
	lockTime = 5 * time.Second
	// Between two tries it pauses, at first for a moment.
	pauseLeast = 100 * time.Microsecond
	pauseMost  = 5 * time.Millisecond
)

// call is a call that writes. It shares its transaction with others.
type call struct {
	combine.Call

	txs []storage.Tx // of an Apply
	// run carries the call out. What it gives is definite: nothing of the call happened, or it is the
	// outcome that its lane remembers.
	run func(w *work) error
	// lasting says that the call may not be lost in a power cut once it was acknowledged.
	lasting bool
	err     error
}

// keep copies what is the caller's again once its context has ended.
func (c *call) keep() { c.txs = append([]storage.Tx(nil), c.txs...) }

// do has a call carried out.
func (s *Storage) do(ctx context.Context, c *call) error {
	if err := s.enter(); err != nil {
		return err
	}
	if err := s.combiner.Do(ctx, c); err != nil {
		return err
	}
	return c.err
}

// flush carries out calls in one transaction. Where that fails for something of one of them they are given
// back, to be carried out one by one.
func (s *Storage) flush(ctx context.Context, _ int, calls []*call) (spoiled []*call) {
	err := s.transact(ctx, calls)
	if err == nil {
		return nil
	}
	var file *FileError
	if len(calls) > 1 && !translatedAway(err) && !errors.As(err, &file) {
		return calls
	}
	for _, c := range calls {
		c.err = err
	}
	return nil
}

// translatedAway reports whether an error concerns all calls alike.
func translatedAway(err error) bool {
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) ||
		errors.Is(err, storage.ErrClosed)
}

func (s *Storage) flushApart(ctx context.Context, line int, calls []*call) {
	for _, c := range calls {
		s.flush(ctx, line, []*call{c})
	}
}

// transact carries out calls in one transaction of the database.
func (s *Storage) transact(ctx context.Context, calls []*call) error {
	wr, err := s.acquire(ctx)
	if err != nil {
		return s.translate(err, false)
	}
	sound := false
	defer func() { s.release(wr, sound) }()
	relaxed := true
	for _, c := range calls {
		relaxed = relaxed && !c.lasting
	}
	plain := context.WithoutCancel(ctx) // a statement that is interrupted would end the transaction of all
	if err := wr.relax(plain, relaxed || s.cfg.Relaxed); err != nil {
		return s.translate(err, false)
	}
	if err := s.begin(ctx, wr.conn); err != nil {
		sound = s.isBusy(err) || errors.Is(err, storage.ErrUnavailable)
		return s.translate(err, false)
	}
	w := s.newWork(plain, wr.conn, wr.stmts)
	moved := s.checkMoved(&wr.log)
	w.fail(moved)
	w.begin()
	w.keepCalm(s.lock.waited())
	for _, c := range calls {
		if c.err = c.run(w); w.err != nil {
			break
		}
	}
	w.finish()
	if w.err != nil {
		_, err := wr.conn.ExecContext(plain, "ROLLBACK")
		sound = err == nil && (moved != nil || s.primary(w.err) == codeFull)
		return s.translate(w.err, false)
	}
	if _, err := wr.conn.ExecContext(plain, "COMMIT"); err != nil {
		_, _ = wr.conn.ExecContext(plain, "ROLLBACK")
		return s.translate(err, true)
	}
	sound = true
	w.tell()
	return nil
}

// begin begins a transaction that writes, which waits for those of others for a while.
func (s *Storage) begin(ctx context.Context, l link) error {
	begun, pause := time.Now(), pauseLeast
	for {
		_, err := l.ExecContext(context.WithoutCancel(ctx), "BEGIN IMMEDIATE")
		if err == nil {
			return nil
		}
		if !s.isBusy(err) {
			return err
		}
		s.lock.missed()
		if time.Since(begun) > lockTime {
			return s.translate(err, false)
		}
		if !sleep.For(ctx, pause/2+rand.N(pause)) {
			return fmt.Errorf("%w: %w", storage.ErrUnavailable, context.Cause(ctx))
		}
		pause = min(2*pause, pauseMost)
	}
}

// lock is what a storage knows of the write lock.
type lock struct {
	mu     sync.Mutex // guards what follows
	since  time.Time  // when it was first missed since it was had; zero where it is free
	length time.Duration
	at     time.Time // when the last long wait ended, by the wall clock
}

// warned is how long a wait for the lock is worth a warning, and warnedFor for how long it is.
const (
	warned    = time.Second
	warnedFor = time.Minute
)

func (l *lock) missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		l.since = time.Now()
	}
}

// waited gives how long steps of this process have waited for the lock that one has now.
func (l *lock) waited() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		return 0
	}
	length := time.Since(l.since)
	l.since = time.Time{}
	if length >= warned {
		l.length, l.at = length, time.Now()
	}
	return length
}

func (l *lock) warnings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const who = "another process, which may be frozen, or a transaction of the application's held it"
	switch {
	case !l.since.IsZero() && time.Since(l.since) > warned:
		return []string{fmt.Sprintf("steps wait for the write lock since %s: %s",
			l.since.UTC().Format(time.TimeOnly), who)}
	case !l.at.IsZero() && time.Since(l.at) < warnedFor:
		return []string{fmt.Sprintf("steps waited for the write lock for %v until %s: %s",
			l.length.Round(time.Millisecond), l.at.UTC().Format(time.TimeOnly), who)}
	}
	return nil
}

// keepCalm has nothing recovered for a while after the lock was held for long: nobody could extend a lease,
// and those who live extend theirs first.
func (w *work) keepCalm(waited time.Duration) {
	if third := w.store.cfg.MinLease / 3; waited > third {
		w.meta.calm, w.changed = w.step.Now+third.Microseconds(), true
	}
	if w.meta.calm > w.step.Now+w.store.cfg.MinLease.Microseconds() {
		w.meta.calm = 0 // of a clock that was ahead
	}
}
