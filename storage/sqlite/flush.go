package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
)

// The most that one flush takes.
const (
	flushCalls = 256
	flushOps   = 4000
	flushBytes = 8 << 20
	claimOps   = 100 // as how many operations a claim counts at most: many find less than they ask for
)

const (
	// lockTime is how long a step waits for the write lock.
	lockTime = 5 * time.Second
	// pauseLeast is the first pause between two tries, and pauseMost the longest.
	pauseLeast = 100 * time.Microsecond
	pauseMost  = time.Millisecond
)

// call is a call that writes. It shares its transaction with other calls.
type call struct {
	combine.Call

	txs []storage.Tx // of an Apply
	// run carries the call out. Its error is definite: nothing of the call happened, or the error is
	// the outcome that the lane remembers.
	run func(w *work) error
	// lasting means that a power cut may not lose the call once it was acknowledged.
	lasting bool
	err     error
	stage   atomic.Int32
}

// The stages of a call. A caller whose context ends while its call waits leaves, and the call does
// not happen.
const (
	waits int32 = iota // for its flush, or for the write lock
	begun              // it may happen
	left
)

// keep copies the memory that belongs to the caller again once its context has ended.
func (c *call) keep() { c.txs = append([]storage.Tx(nil), c.txs...) }

// do has a call carried out.
func (s *Storage) do(ctx context.Context, c *call) error {
	if err := s.enter(); err != nil {
		return err
	}
	err := s.combiner.Do(ctx, c)
	switch {
	case err == nil:
		s.room.Wrote(c.err)
		return c.err
	case errors.Is(err, storage.ErrUnknown) && c.stage.CompareAndSwap(waits, left):
		return fmt.Errorf("%w: %w: %w", storage.ErrUnavailable, errLocked, context.Cause(ctx))
	}
	return err
}

// flush carries out calls in one transaction. If one of the calls spoils it for the others, flush
// returns the calls, to be carried out one by one.
func (s *Storage) flush(ctx context.Context, _ int, calls []*call) (spoiled []*call) {
	err := s.transact(ctx, calls)
	if err == nil {
		return nil
	}
	var file *FileError
	ofFile := errors.As(err, &file) && s.primary(file.Err) != codeCorrupt // other calls read other pages
	if len(calls) > 1 && !translatedAway(err) && !ofFile {
		for _, c := range calls {
			c.stage.CompareAndSwap(begun, waits) // all was rolled back
		}
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
	plain := context.WithoutCancel(ctx) // an interrupted statement would end the transaction of all calls
	if err := wr.relax(plain, relaxed || s.cfg.Relaxed); err != nil {
		return s.translate(err, false)
	}
	if err := s.begin(ctx, wr.conn); err != nil {
		sound = s.isBusy(err) || errors.Is(err, storage.ErrUnavailable)
		return s.translate(err, false)
	}
	w := s.newWork(plain, wr.conn, wr.stmts)
	refused := s.beginStep(plain, wr, w)
	for _, c := range calls {
		if !c.stage.CompareAndSwap(waits, begun) {
			continue // its caller has left
		}
		if c.err = c.run(w); w.err != nil {
			break
		}
	}
	w.finish()
	if w.err != nil {
		s.lock.missed(w.err)
		_, err := wr.conn.ExecContext(plain, "ROLLBACK")
		sound = err == nil && (refused != nil || s.primary(w.err) == codeFull)
		return s.translate(w.err, false)
	}
	if _, err := wr.conn.ExecContext(plain, "COMMIT"); err != nil {
		s.lock.missed(err)
		_, _ = wr.conn.ExecContext(plain, "ROLLBACK")
		return s.translate(err, true)
	}
	sound = true
	s.lock.had(w.changed)
	w.tell()
	return nil
}

// begin begins a transaction that writes. It waits for other writers, up to lockTime.
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
		s.lock.missed(nil)
		if time.Since(begun) > lockTime {
			return s.translate(err, false)
		}
		if !sleep.For(ctx, pause/2+rand.N(pause)) {
			return fmt.Errorf("%w: %w: %w", storage.ErrUnavailable, errLocked, context.Cause(ctx))
		}
		pause = min(2*pause, pauseMost)
	}
}
