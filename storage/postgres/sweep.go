package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
)

// sweep does the maintenance that belongs to no queue's claims: it folds deltas, ends steps that are
// stuck, and deletes lanes and runners whose time is over and queues that nobody uses. It works in
// the background while the storage is used: each Claim and each flush visits it, and it does the
// rounds that are due.
type sweep struct {
	round func(ctx context.Context, all bool)
	ctx   context.Context //nolint:containedctx // of the rounds; ended by Close

	worn   func() bool // whether the tables may need a vacuum
	vacuum func(ctx context.Context, again <-chan struct{})
	again  chan struct{} // notifies a vacuum under way that the tables may need another

	mu        sync.Mutex // guards the fields below
	closed    bool
	busy      bool
	vacuuming bool
	appended  bool // this process has appended deltas since it last folded
	folded    time.Time
	swept     time.Time
	rounds    sync.WaitGroup // a round and a vacuum, at most one of each at a time; they end with ctx
}

const (
	// stepAside is how long a round lets the step that visited it go first: a task may be waiting for
	// that step.
	stepAside = 10 * time.Millisecond
	// foldEvery is how often a process folds its own deltas, and sweepEvery how often it does
	// everything else, which includes the deltas that others have left.
	foldEvery  = 500 * time.Millisecond
	sweepEvery = 10 * time.Second
)

// visit starts a round and a vacuum if they are due. appends is true if the visitor changes sizes
// or totals.
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
	w.appended = w.appended || appends // for the next round: this one may not see it yet
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

// startVacuum starts a vacuum, or has the vacuum under way check the tables again. The caller holds mu.
func (w *sweep) startVacuum() {
	if w.vacuuming {
		select {
		case w.again <- struct{}{}:
		default: // it has been notified already
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

// close waits for the rounds under way, whose context has ended.
func (w *sweep) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.rounds.Wait()
}

// foldBatch is how many deltas are folded at once.
const foldBatch = 2000

// look does a round: with all everything else, and then the folding. The next round makes up for a
// failure.
func (s *Storage) look(ctx context.Context, all bool) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if all {
		_ = s.unstick(ctx, 2*flushTime)
		_ = s.sweepLanes(ctx)
		_ = s.sweepRunners(ctx)
		_ = s.sweepMarks(ctx)
		defer func() { _ = s.sweepQueues(ctx) }() // it reads folded sizes
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

// sweepRunners deletes runners whose heartbeat expired.
func (s *Storage) sweepRunners(ctx context.Context) error {
	return s.askAside(ctx, query{
		text: "DELETE FROM {schema}.runners WHERE until < {schema}.come({schema}.told())",
	})
}

// queueLife is how long a queue outlives its last record and setting, and rowLife how long its row
// outlives the queue. Clients trust the number of a queue for much less.
const (
	queueLife = 24 * time.Hour
	rowLife   = 48 * time.Hour
)

// sweepQueues hides queues that were empty, without settings and untouched for a day. It deletes rows
// that have been hidden for long, the empty lines of kinds that no claim named for a day, and partitions
// without tasks.
func (s *Storage) sweepQueues(ctx context.Context) error {
	return s.askAside(ctx, query{
		text: "SELECT {schema}.abandon($1, $2)", args: []any{queueLife.Microseconds(), rowLife.Microseconds()},
	})
}
