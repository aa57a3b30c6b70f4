// Package sampler reads the storage for all pages of the dashboard: what the queues, the runners, the
// schedules and the dead tasks are now, and what the history tells. However many people watch, a process
// looks at the storage once a second. The package gives facts alone; package dashboard makes texts and charts
// of them.
package sampler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

const (
	// Period is the time between two looks while anybody watches.
	Period = time.Second
	// LookTimeout bounds one look at the storage.
	LookTimeout = 5 * time.Second
)

// Sampler looks at the storage for all viewers of this process: once a second while anybody watches, and
// else when a page is asked for. All pages of a second share one look. It is safe for concurrent use.
type Sampler struct {
	store  storage.Storage
	ledger *ledger.Ledger
	past   *historyCache
	audit  *ledger.Audit
	now    func() time.Time
	skew   atomic.Int64 // how far the storage's clock is ahead of this process's
	acts   atomic.Int64 // how often somebody acted here
	// watchers counts the calls of Watch that are under way.
	watchers atomic.Int64

	turn chan struct{} // holds the right to look: its holder sends before the look, and receives behind it
	// The turn guards what follows.
	namesAt, runnersAt, infoAt, historyAt, deadAt, sinceAt time.Time
	actsSeen                                               int64 // the acts before the last look
	causes                                                 deadCount
	cursors                                                map[string]*queueCursors
	// failed is why the last look, at failedAt, gave no sample; nil where it gave one.
	failed   error
	failedAt time.Time

	mu      sync.Mutex
	current *Sample
	rings   rings
}

// New makes a sampler of a storage and its history. It asks the storage nothing before somebody asks for a
// sample. now gives this process's time.
func New(store storage.Storage, history *ledger.Ledger, now func() time.Time) *Sampler {
	return &Sampler{
		store: store, ledger: history, audit: ledger.NewAudit(store), now: now,
		past: &historyCache{ledger: history, now: now}, turn: make(chan struct{}, 1), rings: rings{},
	}
}

// StorageNow is the storage's time, as far as the last look tells.
func (s *Sampler) StorageNow() time.Time { return s.now().Add(time.Duration(s.skew.Load())) }

// Last gives the last sample, nil before the first.
func (s *Sampler) Last() *Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// Sample gives what the storage holds, no older than a Period. Where the storage does not answer it gives the
// last sample with the error in it, and an error where there is no sample yet. It gives the last sample and
// an error where ctx ends while another caller looks.
func (s *Sampler) Sample(ctx context.Context) (*Sample, error) {
	return s.sampleAfter(ctx, s.now().Add(-Period))
}

// sampleAfter gives a sample that was made after a moment.
func (s *Sampler) sampleAfter(ctx context.Context, after time.Time) (*Sample, error) {
	last := s.Last()
	if last != nil && last.At.After(after) && last.acts == s.acts.Load() {
		return last, nil
	}
	// Where the storage did not answer before, one caller waits for it, and all others get the last sample.
	if mine, err := s.takeTurn(ctx, last == nil || last.Err == nil); !mine {
		return last, err
	}
	defer func() { <-s.turn }()
	before, acts := s.Last(), s.acts.Load()
	if s.actsSeen != acts {
		s.actsSeen = acts
		s.forget()
	} else if before != nil && before.At.After(after) { // somebody else looked meanwhile
		return before, nil
	}
	if s.failed != nil && s.now().Sub(s.failedAt) < Period { // who waited for a failed look awaits no second one
		return before, s.failedFor(before)
	}
	// The look goes on for others where the viewer who began it goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LookTimeout)
	defer cancel()
	fresh, err := s.look(ctx, before)
	s.failed, s.failedAt = err, s.now()
	if err != nil {
		if before == nil {
			return nil, err
		}
		stale := *before
		stale.Err = err
		if stale.Lost.IsZero() {
			stale.Lost = s.now()
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

// takeTurn takes the turn to look. It reports false where another caller has the turn and this one is not to
// wait, or where ctx ends before.
func (s *Sampler) takeTurn(ctx context.Context, wait bool) (bool, error) {
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

// failedFor is the error for a caller who gets the sample from before the failed look: nil where there is
// such a sample.
func (s *Sampler) failedFor(before *Sample) error {
	if before != nil {
		return nil
	}
	return s.failed
}

// Seen gives the Points of one of Spans until a moment of the storage's time, as far as this process has seen
// them: those of a queue, or of all queues together under the empty name.
func (s *Sampler) Seen(queue string, span int, now time.Time) []Point {
	s.mu.Lock()
	defer s.mu.Unlock()
	if both := s.rings[queue]; both != nil {
		return both[span].read(Spans[span], now)
	}
	return make([]Point, Points)
}

// Changed has the next look read everything, because somebody acted here. It waits for no look that is under
// way.
func (s *Sampler) Changed() { s.acts.Add(1) }

// forget has the look that follows read everything.
func (s *Sampler) forget() {
	s.failed = nil
	s.namesAt, s.runnersAt, s.deadAt, s.cursors = time.Time{}, time.Time{}, time.Time{}, nil
}

// Watch looks once a Period until ctx ends, and tells each sample, or the error where there is none.
func (s *Sampler) Watch(ctx context.Context, tell func(*Sample, error)) {
	s.watchers.Add(1)
	defer s.watchers.Add(-1)
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		if now, err := s.sampleAfter(ctx, s.now().Add(-Period/2)); err == nil {
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
