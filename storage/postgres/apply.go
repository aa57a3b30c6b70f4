package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// Apply carries out each Tx whole or not at all, in order. All of them are in one transaction of the
// database, which concurrent calls share.
func (s *Storage) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	if err := storage.CheckCall(call); err != nil {
		return nil, err
	}
	if err := storage.CheckTxs(s.limits, txs); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, wrap("apply", err)
	}
	if len(txs) == 0 {
		return []storage.Applied{}, nil
	}
	s.sweep.visit(true)
	p := newPart(call, txs)
	for i := range txs {
		s.vacuum.left(txs[i].Ops() - len(txs[i].Inserts))
	}
	err := s.send(ctx, s.classOf(p), p)
	if errors.Is(err, errLeft) {
		p, err = s.insist(ctx, call, txs)
	}
	s.room.Wrote(err)
	if err != nil { // a flush may still write to the part
		return nil, wrap("apply", err)
	}
	s.room.Wrote(nil, p.applied...)
	return p.applied, nil
}

// classOf returns the class in which a call is flushed.
func (s *Storage) classOf(p *part) int {
	class := classInsert
	for i := range p.txs {
		tx := &p.txs[i]
		if s.noShort || !isPlain(tx) {
			return classGeneral
		}
		if len(tx.Settles) > 0 {
			class = classSettle
		}
	}
	if class == classSettle && s.odd.is(queuesOfParts([]*part{p})) {
		return classGeneral
	}
	return class
}

// isPlain reports whether a Tx has only plain inserts and completions.
func isPlain(tx *storage.Tx) bool {
	if len(tx.Changes)+len(tx.Deletes)+len(tx.Depends) > 0 {
		return false
	}
	for i := range tx.Inserts {
		if in := &tx.Inserts[i]; in.Unique.Mode != "" || in.Cursor != nil || in.Partition != "" {
			return false
		}
	}
	for i := range tx.Settles {
		if tx.Settles[i].Outcome != storage.Complete || tx.Settles[i].Result != nil {
			return false
		}
	}
	return true
}

// largeBytes bounds the size of a call on the reserve, so that heartbeats do not wait for its
// transmission.
const largeBytes = 64 << 10

// poolOf returns the connections for a flush: settles end leases, and use the reserve.
func (s *Storage) poolOf(parts []*part) *pgxpool.Pool {
	size, settles := 0, false
	for _, p := range parts {
		size += p.Bytes
		settles = settles || slices.ContainsFunc(p.txs, func(tx storage.Tx) bool { return len(tx.Settles) > 0 })
	}
	if !settles {
		return s.pool
	}
	return s.reserveFor(size)
}

// reserveFor returns the reserve, or the pool for calls that carry more than largeBytes.
func (s *Storage) reserveFor(size int) *pgxpool.Pool {
	if size > largeBytes {
		return s.pool
	}
	return s.reserve
}

// stepLife is how long a cancel is tried before it is refused if its pending task is locked. All steps of
// this package lock such tasks, most for some milliseconds, and the server ends a step whose process hangs
// (idleLimit). A transaction of the application's keeps a task locked for longer, and probably settles it.
const stepLife = 2300 * time.Millisecond

// insist tries a call with cancels until its tasks are free, or for stepLife. It does so in classes of their
// own, so that no other call waits for it.
func (s *Storage) insist(ctx context.Context, call storage.Call, txs []storage.Tx) (*part, error) {
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if !sleep.For(ctx, pause/2+rand.N(pause)) {
			return nil, translate(errLeft)
		}
		p, class := newPart(call, txs), classCancel
		if p.pass = time.Since(begun) >= stepLife; p.pass {
			class = classPass
		}
		if err := s.send(ctx, class, p); p.pass || !errors.Is(err, errLeft) {
			return p, err
		}
	}
}

// flushShared is flushOnce within a flush, which a call with cancels leaves as soon as it is held up.
func (s *Storage) flushShared(ctx context.Context, parts []*part) error {
	err := s.flushOnce(ctx, parts)
	if errors.Is(err, errHeld) && parts[0].asks() {
		return errLeft
	}
	return err
}

// flushOnce carries out parts in one transaction, the general way. If another transaction holds it up, its
// error is one of those of heldUp.
func (s *Storage) flushOnce(ctx context.Context, parts []*part) error {
	return heldUp(s.flushTogether(ctx, parts, parts[0].pass), parts)
}

// asks reports whether a part has cancels that ask for the end of a pending task.
func (p *part) asks() bool {
	for i := range p.txs {
		for j := range p.txs[i].Changes {
			if p.txs[i].Changes[j].Permitted(storage.Pending) {
				return true
			}
		}
	}
	return false
}

// flushTogether carries out parts in one transaction. With pass, it refuses cancels of pending tasks that
// stay locked.
func (s *Storage) flushTogether(ctx context.Context, parts []*part, pass bool) error {
	queues, err := s.numbersOf(ctx, queuesOfParts(parts))
	if err != nil {
		return err
	}
	begun := time.Now()
	pool := s.pool
	if !pass { // such a step takes long
		pool = s.poolOf(parts)
	}
	tx, err := s.begin(ctx, pool)
	if err != nil {
		return err
	}
	defer tx.close(ctx)
	st := s.newStep(tx, queues)
	st.pass = pass
	if err := st.enter(ctx, parts); err != nil {
		return err
	}
	w, err := st.carryOut(ctx)
	if err != nil {
		return err
	}
	writes, rung := s.ringing(w)
	writes = append(w.save(false), writes...)
	if q, some := remembering(st.parts); some {
		writes = append(writes, q)
	}
	if err := tx.commit(ctx, writes...); err != nil {
		return err
	}
	s.lateSince(ctx, begun, queues)
	rung(ctx)
	s.noteDead(w)
	for _, p := range st.parts {
		p.done, p.err = true, nil
	}
	return nil
}
