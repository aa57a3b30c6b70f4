// Package sampler surveys the storage for all pages of the dashboard, and reads the history. However many
// people watch, a process takes one sample of the storage a second, and one after each action. The
// package returns only data. Package dashboard makes texts and charts of it.
package sampler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

const (
	// Period is the time between two readings of the storage while anybody watches.
	Period = time.Second
	// LookTimeout limits one reading of the storage.
	LookTimeout = 5 * time.Second
)

// Sampler takes samples of the storage for all viewers of this process: once a second while anybody watches,
// and otherwise when a page is requested. All pages of a second share one sample. It is safe for concurrent
// use.
type Sampler struct {
	ledger  *ledger.Ledger
	past    *historyCache
	now     func() time.Time
	skew    atomic.Int64 // how far the storage's clock is ahead of this process's clock
	actions atomic.Int64 // counts the actions in this process
	// watchers counts the calls of Watch that are under way.
	watchers atomic.Int64

	turn chan struct{} // a semaphore: its holder sends before a reading, and receives after it
	// The turn guards the fields up to mu.
	reader      *survey.Reader
	historyAt   time.Time
	actionsSeen int64 // the value of actions before the last reading
	// failed is the error of the last reading, which ended at failedAt; nil if that reading returned a sample.
	failed   error
	failedAt time.Time

	mu      sync.Mutex
	current *Sample
	rings   rings
}

// New returns a sampler of a storage and its history. It does not read the storage until somebody asks for a
// sample. now returns this process's time.
func New(store storage.Storage, history *ledger.Ledger, now func() time.Time) *Sampler {
	return &Sampler{
		ledger: history, now: now, reader: survey.NewReader(store, survey.Config{Now: now}),
		past: &historyCache{ledger: history, now: now}, turn: make(chan struct{}, 1), rings: rings{},
	}
}

// StorageNow returns the storage's time, by the clock in the last description of the storage.
func (s *Sampler) StorageNow() time.Time { return s.now().Add(time.Duration(s.skew.Load())) }

// Last returns the last sample, nil before the first.
func (s *Sampler) Last() *Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// Sample returns a sample that is at most a Period old, or at most two while another caller reads the storage
// or watches: to read thousands of queues takes a tenth of a second, for which the pages of viewers would
// wait. After an action in this process it returns only a sample that was taken after the action. If the
// storage fails, it returns the last sample with the error in it, or the error if there is no sample yet. If
// ctx ends while another caller reads the storage, it returns the last sample and an error.
func (s *Sampler) Sample(ctx context.Context) (*Sample, error) {
	now, last := s.now(), s.Last()
	others := len(s.turn) > 0 || s.watchers.Load() > 0
	if last != nil && others && last.At.After(now.Add(-2*Period)) && last.actions == s.actions.Load() {
		return last, nil
	}
	return s.sampleAfter(ctx, now.Add(-Period))
}

// sampleAfter is like Sample, for a sample that was taken after a moment.
func (s *Sampler) sampleAfter(ctx context.Context, after time.Time) (*Sample, error) {
	last := s.Last()
	if last != nil && last.At.After(after) && last.actions == s.actions.Load() {
		return last, nil
	}
	// If the last reading failed, one caller waits for the storage, and all others get the last sample.
	if mine, err := s.takeTurn(ctx, last == nil || last.Err == nil); !mine {
		return last, err
	}
	defer func() { <-s.turn }()
	before, actions := s.Last(), s.actions.Load()
	if s.actionsSeen != actions {
		s.actionsSeen = actions
		s.forget()
	} else if before != nil && before.At.After(after) { // another caller has read the storage meanwhile
		return before, nil
	}
	// A caller who waited for a failed reading does not wait for a second one.
	if s.failed != nil && s.now().Sub(s.failedAt) < Period {
		return before, s.failedFor(before)
	}
	// The reading goes on for other callers if the viewer who began it leaves.
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
	fresh.actions = actions
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.rings.add(before, fresh)
	}
	s.current = fresh
	return fresh, nil
}

// takeTurn waits for the right to read the storage. It returns false if another caller has it and wait is
// false. It returns false and an error if ctx ends first.
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

// failedFor returns the error for a caller who waited for a failed reading: nil if there is a sample from
// before that reading.
func (s *Sampler) failedFor(before *Sample) error {
	if before != nil {
		return nil
	}
	return s.failed
}

// Seen returns the Points of Spans[span] up to now, by the storage's clock, as far as this process has seen
// them: the points of a queue, or of all queues together if queue is empty.
func (s *Sampler) Seen(queue string, span int, now time.Time) []Point {
	s.mu.Lock()
	defer s.mu.Unlock()
	if both := s.rings[queue]; both != nil {
		return both[span].read(Spans[span], now)
	}
	return make([]Point, Points)
}

// Changed makes the next call of Sample read the storage anew, because somebody changed something in this
// process. That reading covers queues, runners and schedules again, and the dead tasks of queues in which
// they have changed. Changed does not wait for a reading in progress.
func (s *Sampler) Changed() { s.actions.Add(1) }

// forget makes the next reading cover everything that Changed names, however recently it was read.
func (s *Sampler) forget() {
	s.failed = nil
	s.reader.Forget()
}

// Watch reads the storage once a Period until ctx ends, and calls tell with each sample, or with the error if
// there is no sample. It counts dead tasks after each reading.
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
