package sampler

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/ledger"
)

// Series returns a range of the history, no older than the time of Range.keptFor. If the history cannot be
// read, it returns the last series that was read of such a range, whatever its end, or an error if there is
// none. While the storage does not answer, Series does not wait for it. All viewers share a series, and
// nobody changes it.
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
	shapes map[shape]*cachedSeries
}

// Range is a part of the history up to a moment.
type Range struct {
	End          time.Time
	Length, Step time.Duration
	Queue        string // "" for all queues
	Sums         bool   // only the figures of all queues together, see [ledger.Ledger.Sums]
}

// shape is a Range without its end. The cache keeps only the last series of each shape, because the ends of
// ranges move on with the time, and a series of many queues is large.
type shape struct {
	length, step time.Duration
	queue        string
	sums         bool
}

func (s Range) shape() shape { return shape{s.Length, s.Step, s.Queue, s.Sums} }

// keptFor returns how long a series is fresh: a twelfth of a step, but from 30 seconds to 10 minutes.
func (s Range) keptFor() time.Duration { return min(max(s.Step/12, historyFor), 10*time.Minute) }

// cachedSeries is the series of a shape.
type cachedSeries struct {
	turn chan struct{} // a semaphore: one viewer reads for all

	// The mutex of the cache guards the fields below.
	used   time.Time
	at     time.Time      // when the reading of the series began
	end    time.Time      // the end of its range
	series *ledger.Series // nil until it is read
	// failed is the error of the last reading, which ended at failedAt; nil if that reading returned a series.
	failed   error
	failedAt time.Time
}

// mostSeries is how many shapes are kept.
const mostSeries = 24

// read returns the series of a range. If ctx ends while another viewer reads, it returns the last series of
// the shape, or the cause of ctx if there is none.
func (h *historyCache) read(ctx context.Context, s Range) (*ledger.Series, error) {
	p := h.find(s.shape())
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return h.told(p, context.Cause(ctx))
	}
	if h.fresh(p, s) {
		return h.told(p, nil)
	}
	// The reading goes on for other viewers if the viewer who began it leaves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LookTimeout)
	defer cancel()
	at := h.now()
	series, err := h.load(ctx, s)
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.failed, p.failedAt = err, h.now(); err == nil {
		p.at, p.end, p.series = at, s.End, series
	}
	return p.told(err)
}

// load reads a range from the storage.
func (h *historyCache) load(ctx context.Context, s Range) (*ledger.Series, error) {
	begin := s.End.Add(-s.Length)
	switch {
	case s.Sums:
		return h.ledger.Sums(ctx, begin, s.End, s.Step)
	case s.Queue != "":
		return h.ledger.Series(ctx, begin, s.End, s.Step, s.Queue)
	default:
		return h.ledger.Series(ctx, begin, s.End, s.Step)
	}
}

// fresh reports whether the last reading of a shape is recent enough for a range. A failed reading is recent
// for a Period, so that the viewers who waited for it do not wait for a second one.
func (h *historyCache) fresh(p *cachedSeries, s Range) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	return p.series != nil && !p.end.Before(s.End) && now.Sub(p.at) < s.keptFor() ||
		p.failed != nil && now.Sub(p.failedAt) < Period
}

// kept returns the last series of the shape of a range, or err if there is none.
func (h *historyCache) kept(s Range, err error) (*ledger.Series, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.shapes[s.shape()]; p != nil {
		return p.told(err)
	}
	return nil, err
}

// told returns the last series of an entry. If there is none, it returns err, or else the error of the last
// reading.
func (h *historyCache) told(p *cachedSeries, err error) (*ledger.Series, error) {
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

// find returns the entry of a shape. If the cache is full, a new shape replaces the least recently used one.
func (h *historyCache) find(s shape) *cachedSeries {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.shapes[s]
	if p == nil {
		if len(h.shapes) >= mostSeries {
			h.forget()
		}
		if h.shapes == nil {
			h.shapes = make(map[shape]*cachedSeries)
		}
		p = &cachedSeries{turn: make(chan struct{}, 1)}
		h.shapes[s] = p
	}
	p.used = h.now()
	return p
}

// forget removes the least recently used shape.
func (h *historyCache) forget() {
	var oldest shape
	for s, p := range h.shapes {
		if was := h.shapes[oldest]; was == nil || p.used.Before(was.used) {
			oldest = s
		}
	}
	delete(h.shapes, oldest)
}
