package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/storage"
)

// Flush carries out calls of one Tx each in one flush, like the combiner with calls that arrive while
// another one is under way, and returns the outcome of each.
func (s *Storage) Flush(
	ctx context.Context, calls []storage.Call, txs []storage.Tx,
) (applied [][]storage.Applied, errs []error) {
	var parts []*part
	class := classInsert
	for i, call := range calls {
		p := newPart(call, txs[i:i+1])
		parts, class = append(parts, p), max(class, s.classOf(p))
	}
	if spoiled := s.flush(ctx, class, parts); len(spoiled) > 0 {
		s.flushApart(ctx, class, spoiled)
	}
	for _, p := range parts {
		applied, errs = append(applied, p.applied), append(errs, p.err)
	}
	return applied, errs
}

// Extends carries out calls of Extend that arrive at the same time, and returns the outcome of each. It
// panics if one of them does not share its transaction.
func (s *Storage) Extends(
	ctx context.Context, reqs ...storage.ExtendRequest,
) (extended []storage.Extended, errs []error) {
	parts := sharing(reqs)
	err := s.combiner.Do(ctx, parts...)
	for _, p := range parts {
		extended, errs = append(extended, p.extend.Extended), append(errs, errors.Join(err, p.err))
	}
	return extended, errs
}

func sharing(reqs []storage.ExtendRequest) (parts []*part) {
	for i := range reqs {
		p := extending(&reqs[i])
		if !p.shares() {
			panic("it does not share its transaction")
		}
		p.Line = classExtend
		parts = append(parts, p)
	}
	return parts
}

// TryExtends tries to carry out calls of Extend in one transaction. It reports whether they are to be tried
// together again, and returns the error of the try.
func (s *Storage) TryExtends(ctx context.Context, tries int, reqs ...storage.ExtendRequest) (again bool, err error) {
	err = s.extendOnce(ctx, sharing(reqs), tries)
	return transient(err), err
}

// TryApply tries once to carry out a call of Apply, with pass as a cancel that has been tried for StepLife. It
// reports whether the call is to be tried again, and returns the error of the try.
func (s *Storage) TryApply(ctx context.Context, pass bool, txs ...storage.Tx) (again bool, err error) {
	p := newPart(storage.Call{}, txs)
	p.pass = pass
	err = s.flushOnce(ctx, []*part{p})
	return transient(err), err
}

// ExtendTries is how often leases are tried before a locked task is passed over.
const ExtendTries = extendTries

// Shares reports whether a call of Extend shares its transaction with others.
func Shares(req storage.ExtendRequest) bool { return extending(&req).shares() }

// LargeBytes is the most that a call may carry on the reserve.
const LargeBytes = largeBytes

// HeldFor sets how long a transaction may be open before Describe warns of it.
func (s *Storage) HeldFor(d time.Duration) { s.heldFor = d }

// DeafFor sets how long the listener may be away before Describe warns of it.
func (s *Storage) DeafFor(d time.Duration) { s.wake.deafFor = d }

// Version is the version of this client.
const Version = version

// Scripts returns the names and texts of the scripts in a folder of schema.
func Scripts(dir string) (names, all []string, err error) { return texts(dir + "/*.sql") }

// InSchema puts the names that the server knows into a text.
func InSchema(text, schema string) string { return inSchema(text, schema) }

// AMinuteLater makes the numbers of queues that were read so far so old that they are no longer
// trusted.
func (s *Storage) AMinuteLater() {
	s.numbers.mu.Lock()
	defer s.numbers.mu.Unlock()
	for name, k := range s.numbers.known {
		k.read = k.read.Add(-2 * trust)
		s.numbers.known[name] = k
	}
}

// Copying marks a transaction that copies tasks.
const Copying = copyMark

// Unstick ends the copies that have waited for their clients for so long.
func (s *Storage) Unstick(ctx context.Context, after time.Duration) error {
	return s.unstick(ctx, after)
}

// Look does a round of the sweep.
func (s *Storage) Look(ctx context.Context) { s.look(ctx, true) }

// StopRounds ends the sweep of the storage, except for the rounds of Look, and waits for a round that has begun.
func (s *Storage) StopRounds() {
	s.sweep.mu.Lock()
	s.sweep.folded = time.Now().Add(time.Hour)
	s.sweep.swept = s.sweep.folded
	s.sweep.mu.Unlock()
	s.sweep.rounds.Wait()
}

// Exhaust takes every connection for claims, inserts and reads until giveBack is called.
func (s *Storage) Exhaust(ctx context.Context) (giveBack func(), err error) {
	var taken []*pgxpool.Conn
	giveBack = func() {
		for _, conn := range taken {
			conn.Release()
		}
	}
	for range s.pool.Config().MaxConns {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			giveBack()
			return nil, err
		}
		taken = append(taken, conn)
	}
	return giveBack, nil
}

// NoShort makes every claim and flush go the general way from now on.
func (s *Storage) NoShort() { s.noShort = true }

// Tell notifies other processes of an event in a queue.
func (s *Storage) Tell(ctx context.Context, queue int32) error {
	return s.tell(ctx, "w", []int32{queue})
}

// KeepWakeUps keeps the storage from passing a wake-up on, which it does if its own caller does not claim soon.
// It must be called before the storage is used.
func (s *Storage) KeepWakeUps() { s.wake.events.Elsewhere = nil }

// LateAfter is the duration from which a step reports to all processes that its commit took long.
const LateAfter = lateAfter

// MarkFor is how long a mark of an idle process counts.
const MarkFor = markFor

// ForgetMarks makes the next claim that leaves nothing mark the process as idle again.
func (s *Storage) ForgetMarks() { s.wake.idling.clear() }

// ClaimWaits makes a claim in a transaction, and reports whether the commit of it waits for the disk.
func (s *Storage) ClaimWaits(ctx context.Context, req storage.ClaimRequest) (claimed storage.Claimed, waits bool, err error) {
	tx, err := s.begin(ctx, s.pool)
	if err != nil {
		return claimed, false, err
	}
	defer tx.close(ctx)
	c := &claim{store: s, req: &req, maintained: true}
	var setting string
	err = tx.run(ctx, query{text: "SET LOCAL synchronous_commit TO on"}, c.query(),
		query{text: "SELECT current_setting('synchronous_commit')", scan: one(&setting)})
	if err == nil {
		err = tx.commit(ctx)
	}
	return c.Claimed, setting == "on", err
}

// Connections returns how many connections the storage uses for claims, inserts and reads at most.
func (s *Storage) Connections() int32 { return s.pool.Config().MaxConns }
