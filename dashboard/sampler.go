package dashboard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

const (
	// period is how often the sampler looks while anybody does.
	period = time.Second
	// lookFor bounds one look at the storage.
	lookFor = 5 * time.Second
)

// sampler looks at the storage for all viewers of this process: once a second while anybody watches, and
// else when a page is asked for. Each page of the same second shares one look.
type sampler struct {
	store  storage.Storage
	ledger *ledger.Ledger
	past   *histories
	audit  *ledger.Audit
	now    func() time.Time
	skew   atomic.Int64 // how far the storage's clock is ahead of this process's
	acts   atomic.Int64 // how often somebody acted here
	// watchers counts the calls of watch that are under way.
	watchers atomic.Int64

	turn chan struct{} // holds the right to look
	// What follows is guarded by the turn.
	namesAt, runnersAt, infoAt, historyAt, deadAt, sinceAt time.Time
	heeded                                                 int64 // the acts before the last look
	causes                                                 deadCount
	cursors                                                map[string]*queueCursors
	// failed is why the last look ended without a sample, at failedAt, nil where it did not.
	failed   error
	failedAt time.Time

	mu      sync.Mutex
	current *sample
	rings   rings
}

func newSampler(store storage.Storage, now func() time.Time) *sampler {
	history := ledger.New(store)
	return &sampler{
		store: store, ledger: history, past: &histories{ledger: history, now: now}, audit: ledger.NewAudit(store),
		now: now, turn: make(chan struct{}, 1), rings: rings{},
	}
}

// storageNow is the storage's time, as far as the last look tells.
func (s *sampler) storageNow() time.Time { return s.now().Add(time.Duration(s.skew.Load())) }

// last gives the last sample, nil before the first.
func (s *sampler) last() *sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// sample gives what the storage holds, no older than a period. Where the storage does not answer it gives
// the last sample with the error in it, and an error where there is none.
func (s *sampler) sample(ctx context.Context) (*sample, error) {
	return s.since(ctx, s.now().Add(-period))
}

// since gives a sample that was made after a moment.
func (s *sampler) since(ctx context.Context, after time.Time) (*sample, error) {
	last := s.last()
	if last != nil && last.at.After(after) && last.acts == s.acts.Load() {
		return last, nil
	}
	// One waits for a storage that did not answer before, and nobody else.
	if mine, err := s.take(ctx, last == nil || last.err == nil); !mine {
		return last, err
	}
	defer func() { <-s.turn }()
	before, acts := s.last(), s.acts.Load()
	if s.heeded != acts {
		s.heeded = acts
		s.forget()
	} else if before != nil && before.at.After(after) { // somebody else looked meanwhile
		return before, nil
	}
	if s.failed != nil && s.now().Sub(s.failedAt) < period { // those who waited do not wait as long again
		return before, s.failedFor(before)
	}
	// A viewer who goes away takes the look from nobody.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
	defer cancel()
	fresh, err := s.look(ctx, before)
	s.failed, s.failedAt = err, s.now()
	if err != nil {
		if before == nil {
			return nil, err
		}
		stale := *before
		stale.err = err
		if stale.lost.IsZero() {
			stale.lost = s.now()
		}
		fresh = &stale
	}
	fresh.acts = acts
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.rings.add(before, fresh)
	}
	s.current = fresh
	return fresh, nil
}

// take takes the turn to look, and reports false where somebody else has it and nobody is to wait.
func (s *sampler) take(ctx context.Context, wait bool) (bool, error) {
	select {
	case s.turn <- struct{}{}:
		return true, nil
	default:
		if !wait {
			return false, nil
		}
	}
	select {
	case s.turn <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// failedFor is the error of a viewer who gets the sample from before the failed look: none where there is
// one.
func (s *sampler) failedFor(before *sample) error {
	if before != nil {
		return nil
	}
	return s.failed
}

// seen gives the points of a queue, of all queues under the empty name, as this process has seen them until a
// moment of the storage's time.
func (s *sampler) seen(queue string, span int, now time.Time) []point {
	s.mu.Lock()
	defer s.mu.Unlock()
	if both := s.rings[queue]; both != nil {
		return both[span].read(spans[span], now)
	}
	return make([]point, points)
}

// changed has the next page read everything anew: somebody acted here. It waits for no look that is under
// way.
func (s *sampler) changed() { s.acts.Add(1) }

// forget has a look read everything anew.
func (s *sampler) forget() {
	s.failed = nil
	s.namesAt, s.runnersAt, s.deadAt, s.cursors = time.Time{}, time.Time{}, time.Time{}, nil
}

// watch looks once a period until ctx ends, and tells each sample, or why there is none.
func (s *sampler) watch(ctx context.Context, tell func(*sample, error)) {
	s.watchers.Add(1)
	defer s.watchers.Add(-1)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if now, err := s.since(ctx, s.now().Add(-period/2)); err == nil {
			tell(now, nil)
			s.countDead(ctx)
		} else if ctx.Err() == nil {
			tell(nil, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
