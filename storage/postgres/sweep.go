package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
)

// sweep looks after what belongs to no queue's claims: it folds what steps appended, ends
// steps that are stuck, forgets lanes and runners whose time is over, and queues that
// nobody uses. It works in the background, now and then, while the storage is used: each
// Claim and each flush visits it, and it does the rounds that are due.
type sweep struct {
	round func(ctx context.Context, all bool)
	ctx   context.Context //nolint:containedctx // of the rounds; ended by Close

	worn   func() bool // the tables may need a vacuum
	vacuum func(ctx context.Context, again <-chan struct{})
	again  chan struct{} // tells a vacuum under way that they may need another

	mu        sync.Mutex // guards what follows
	closed    bool
	busy      bool
	vacuuming bool
	appended  bool // by this process, since it last folded
	folded    time.Time
	swept     time.Time
	rounds    sync.WaitGroup // a round and a vacuum, at most one of each at a time; they end with ctx
}

const (
	// stepAside is how long a round lets the step go first that visited it: a task may be
	// waiting for that.
	stepAside = 10 * time.Millisecond
	// foldEvery is how often is folded what this process appends, and sweepEvery how often all
	// else is done, what others have left to be folded included.
	foldEvery  = 500 * time.Millisecond
	sweepEvery = 10 * time.Second
)

// visit starts a round where one is due, and a vacuum. appends says that the visitor changes
// sizes or totals.
func (w *sweep) visit(appends bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && w.worn() {
		w.startVacuum()
	}
	all := now.Sub(w.swept) > sweepEvery
	fold := all || w.appended && now.Sub(w.folded) > foldEvery
	if fold && !w.busy && !w.closed {
		w.start(all, now)
	}
	w.appended = w.appended || appends // behind the round, which may not see it yet
}

// start starts a round. The caller holds mu.
func (w *sweep) start(all bool, now time.Time) {
	w.busy, w.folded, w.appended = true, now, false
	if all {
		w.swept = now
	}
	w.rounds.Go(func() {
		if sleep.For(w.ctx, stepAside) {
			w.round(w.ctx, all)
		}
		w.mu.Lock()
		w.busy = false
		w.mu.Unlock()
	})
}

// append notes that this process has changed sizes or totals.
func (w *sweep) append() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appended = true
}

// startVacuum has the tables vacuumed, or vacuumed again. The caller holds mu.
func (w *sweep) startVacuum() {
	if w.vacuuming {
		select {
		case w.again <- struct{}{}:
		default: // somebody has told it
		}
		return
	}
	w.vacuuming = true
	w.rounds.Go(func() {
		w.vacuum(w.ctx, w.again)
		w.mu.Lock()
		w.vacuuming = false
		w.mu.Unlock()
	})
}

// close waits for what is under way, whose context has ended.
func (w *sweep) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.rounds.Wait()
}

// foldBatch is how many deltas are folded at once.
const foldBatch = 2000

// look does a round: all else where it is time, and then it folds. What fails is done by the
// next one.
func (s *Storage) look(ctx context.Context, all bool) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if all {
		_ = s.unstick(ctx, 2*flushTime)
		_ = s.sweepLanes(ctx)
		_ = s.sweepRunners(ctx)
		_ = s.sweepQueues(ctx)
	}
	for n := foldBatch; n == foldBatch; {
		err := s.askAside(ctx, query{
			text: "SELECT {schema}.fold($1)", args: []any{int32(foldBatch)}, scan: one(&n),
		})
		if err != nil {
			return
		}
	}
}

// sweepRunners forgets runners whose heartbeat expired.
func (s *Storage) sweepRunners(ctx context.Context) error {
	return s.askAside(ctx, query{
		text: "DELETE FROM {schema}.runners WHERE until < {schema}.come({schema}.told())",
	})
}

// How long a queue outlives its last record and setting, and its row the queue: a number
// that a client knows is good for much less.
const (
	queueLife = 24 * time.Hour
	rowLife   = 48 * time.Hour
)

// sweepQueues hides queues that were empty, without settings and untouched for a day, and
// deletes rows that stand for no queue for long.
func (s *Storage) sweepQueues(ctx context.Context) error {
	return s.askAside(ctx, query{
		text: "SELECT {schema}.abandon($1, $2)", args: []any{queueLife.Microseconds(), rowLife.Microseconds()},
	})
}
