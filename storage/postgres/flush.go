package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
)

// flushTime bounds one flush with all its retries, and likewise all calls carried out apart after it.
const flushTime = 10 * time.Second

// The most that one flush takes.
const (
	flushCalls = 256
	flushOps   = 2000
	flushBytes = 8 << 20
)

// largeOps is the number of operations that makes a call of inserts large. A large call does not wait
// for a flush that is under way: beside its inserts a transaction costs little, while small calls
// save more by sharing one. From this number on inserts are copied, three round trips included.
const largeOps = 100

// The classes of calls. Each class is flushed by itself, so that no call waits for those of another
// class.
const (
	classInsert  = iota // nothing but plain inserts
	classSettle         // completions, with plain inserts or without
	classGeneral        // everything else of Apply
	classExtend         // progress and checkpoints of jobs
	classCancel         // calls with cancels that have met a locked task
	classPass           // the last tries of these calls, which pass over locked tasks
)

// newCombiner makes the combiner that flushes calls; its lines are the classes. The calls of a
// flush share a transaction, and with it round trips and waits for the disk.
func (s *Storage) newCombiner(connections int) *combine.Combiner[*part] {
	return combine.New(combine.Config[*part]{
		Flush: s.flush, Apart: s.flushApart, Context: s.background, Interruptible: true,
		Keep:  (*part).keep,
		Calls: flushCalls, Ops: flushOps, Bytes: flushBytes, Beside: connections - 2,
	})
}

// keep copies the slices of a call that belong to its caller again once the caller's context has ended.
func (p *part) keep() {
	p.txs = slices.Clone(p.txs)
	if p.extend != nil {
		p.extend.Leases = slices.Clone(p.extend.Leases)
	}
}

// send has a call carried out, and returns its error. A caller whose context ends leaves; a flush
// that others share goes on for them.
func (s *Storage) send(ctx context.Context, class int, p *part) error {
	p.Line, p.Large = class, class == classInsert && p.Ops >= largeOps
	if err := s.combiner.Do(ctx, p); err != nil {
		return err
	}
	return p.err
}

// flush carries out parts of one class. It returns them if one was held up, to be carried out
// apart.
func (s *Storage) flush(ctx context.Context, class int, parts []*part) (spoiled []*part) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	defer context.AfterFunc(s.background, cancel)() //nolint:contextcheck // it ends with either
	if class == classExtend {
		tries := 0
		return s.flushGeneral(ctx, parts, func(ctx context.Context, parts []*part) error {
			tries++
			return s.extendOnce(ctx, parts, tries)
		})
	}
	if in, lone := parts[0].lone(); lone && len(parts) == 1 && !s.noShort {
		if s.add(ctx, parts[0], in) {
			return nil
		}
	} else if class < classGeneral {
		switch left, err := s.flushPlain(ctx, class, parts); {
		case errors.Is(err, errBusy):
			return parts
		case !left:
			return nil
		}
	}
	return s.flushGeneral(ctx, parts, s.flushShared)
}

// flushGeneral carries out parts in one transaction, by the function once. If one of them spoils it for the
// others, it returns those without an outcome, to be carried out apart.
func (s *Storage) flushGeneral(
	ctx context.Context, parts []*part, once func(context.Context, []*part) error,
) (spoiled []*part) {
	err := translate(s.retry(ctx, func() error { return once(ctx, parts) }))
	if err == nil {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return p.done })
	if len(parts) > 1 && (errors.Is(err, errBusy) || !away(err) &&
		!errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrRefused)) {
		return left
	}
	for _, p := range left {
		p.err = err
	}
	return nil
}

// flushApart carries out parts one by one. A part gets an errAwaited, for its caller to repeat, if it
// waits for an id or unique key that another transaction is taking, and so do later parts that want
// the same: such a key may be taken for long, so that a flush waits for it only briefly and once. All
// parts together have the time of one flush, as other calls wait for the next.
func (s *Storage) flushApart(ctx context.Context, class int, parts []*part) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	awaited := make(map[any]bool)
	for _, p := range parts {
		wanted := p.takes()
		if slices.ContainsFunc(wanted, func(w any) bool { return awaited[w] }) {
			p.err = translate(errAwaited)
			continue
		}
		if s.flush(ctx, class, []*part{p}); errors.Is(p.err, errAwaited) {
			for _, w := range wanted {
				awaited[w] = true
			}
		}
	}
}
