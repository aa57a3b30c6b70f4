package sampler

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/ledger"
)

// Series returns a range of the history, no older than a small part of a step. If the history cannot be read,
// it returns the last series that was read of the range, or an error if there is none. While the storage does
// not answer, Series does not wait for it. All viewers share a series, and nobody changes it.
func (s *Sampler) Series(ctx context.Context, of Range) (*ledger.Series, error) {
	if last := s.Last(); last != nil && last.Err != nil {
		return s.past.kept(of, last.Err)
	}
	return s.past.read(ctx, of)
}

// historyCache caches the history for all viewers. The history changes once a minute, and 90 days of it are a
// hundred pages.
type historyCache struct {
	ledger *ledger.Ledger
	now    func() time.Time

	mu     sync.Mutex
	ranges map[Range]*cachedSeries
}

// Range is a part of the history.
type Range struct {
	End          time.Time
	Length, Step time.Duration
	Queue        string // "" for all queues
}

// keptFor is how long a range is kept: a small part of a step.
func (s Range) keptFor() time.Duration { return min(max(s.Step/12, historyFor), 10*time.Minute) }

// cachedSeries is the series of a range.
type cachedSeries struct {
	turn chan struct{} // a semaphore: one viewer reads for all

	// The mutex of the cache guards the fields below.
	used   time.Time
	at     time.Time      // when the reading began that gave the series
	series *ledger.Series // nil until it is read
	// failed is the error of the last reading, which ended at failedAt; nil if that reading gave a series.
	failed   error
	failedAt time.Time
}

// mostSeries is how many ranges are kept.
const mostSeries = 24

// read returns the series of a range. If ctx ends while another viewer reads, it returns the last series, or
// the cause if there is none.
func (h *historyCache) read(ctx context.Context, s Range) (*ledger.Series, error) {
	p := h.find(s)
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return h.kept(s, context.Cause(ctx))
	}
	if h.fresh(p, s.keptFor()) {
		return h.kept(s, nil)
	}
	var queues []string
	if s.Queue != "" {
		queues = []string{s.Queue}
	}
	// The reading goes on for other viewers if the viewer who began it leaves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LookTimeout)
	defer cancel()
	at := h.now()
	series, err := h.ledger.Series(ctx, s.End.Add(-s.Length), s.End, s.Step, queues...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.failed, p.failedAt = err, h.now(); err == nil {
		p.at, p.series = at, series
	}
	return p.told(err)
}

// fresh reports whether the last reading of a range is recent enough. A failed reading is recent for a
// Period, so that the viewers who waited for it do not wait for a second one.
func (h *historyCache) fresh(p *cachedSeries, keptFor time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	return p.series != nil && now.Sub(p.at) < keptFor || p.failed != nil && now.Sub(p.failedAt) < Period
}

// kept returns the last series of a range. If there is none, it returns err, or else the error of the last
// reading.
func (h *historyCache) kept(s Range, err error) (*ledger.Series, error) {
	p := h.find(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.told(err)
}

// told returns the series, or an error if there is none.
func (p *cachedSeries) told(err error) (*ledger.Series, error) {
	if p.series != nil {
		return p.series, nil
	}
	return nil, cmp.Or(err, p.failed)
}

// find returns the entry of a range. If the cache is full, a new range replaces the least recently used one.
func (h *historyCache) find(s Range) *cachedSeries {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.End = s.End.Round(0).UTC() // equal moments are equal keys
	p := h.ranges[s]
	if p == nil {
		if len(h.ranges) >= mostSeries {
			h.forget()
		}
		if h.ranges == nil {
			h.ranges = make(map[Range]*cachedSeries)
		}
		p = &cachedSeries{turn: make(chan struct{}, 1)}
		h.ranges[s] = p
	}
	p.used = h.now()
	return p
}

// forget removes the least recently used range.
func (h *historyCache) forget() {
	var oldest Range
	for s, p := range h.ranges {
		if was := h.ranges[oldest]; was == nil || p.used.Before(was.used) {
			oldest = s
		}
	}
	delete(h.ranges, oldest)
}
