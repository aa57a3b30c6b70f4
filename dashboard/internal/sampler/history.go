package sampler

import (
	"context"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/ledger"
)

// Series gives a range of the history, no older than a small part of a step. All viewers share a series, and
// nobody changes it.
func (s *Sampler) Series(ctx context.Context, of Range) (*ledger.Series, error) {
	return s.past.read(ctx, of)
}

// historyCache keeps what was read of the history, for all viewers. The history changes once a minute, and 90
// days of it are a hundred pages.
type historyCache struct {
	ledger *ledger.Ledger
	now    func() time.Time

	mu   sync.Mutex
	kept map[Range]*cachedSeries
}

// Range is a part of the history.
type Range struct {
	End          time.Time
	Length, Step time.Duration
	Queue        string // "" for all queues
}

// keptFor is for how long a range is kept: a small part of a step.
func (s Range) keptFor() time.Duration { return min(max(s.Step/12, historyFor), 10*time.Minute) }

// cachedSeries is the series of a range.
type cachedSeries struct {
	used time.Time // guarded by the mutex of the cache

	mu     sync.Mutex // is held while one viewer reads for all
	at     time.Time
	series *ledger.Series // nil before it is read
}

// mostSeries is how many ranges are kept.
const mostSeries = 24

// read gives the series of a range.
func (h *historyCache) read(ctx context.Context, s Range) (*ledger.Series, error) {
	s.End = s.End.Round(0).UTC() // as a key
	p := h.find(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.series != nil && h.now().Sub(p.at) < s.keptFor() {
		return p.series, nil
	}
	var queues []string
	if s.Queue != "" {
		queues = []string{s.Queue}
	}
	at := h.now()
	series, err := h.ledger.Series(ctx, s.End.Add(-s.Length), s.End, s.Step, queues...)
	if err != nil {
		return nil, err
	}
	p.at, p.series = at, series
	return series, nil
}

// find gives the place of a range. A new range takes the place of the least recently used one.
func (h *historyCache) find(s Range) *cachedSeries {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.kept[s]
	if p == nil {
		if len(h.kept) >= mostSeries {
			h.forget()
		}
		if h.kept == nil {
			h.kept = make(map[Range]*cachedSeries)
		}
		p = &cachedSeries{}
		h.kept[s] = p
	}
	p.used = h.now()
	return p
}

// forget drops the range that was not used for the longest.
func (h *historyCache) forget() {
	var oldest Range
	for s, p := range h.kept {
		if was := h.kept[oldest]; was == nil || p.used.Before(was.used) {
			oldest = s
		}
	}
	delete(h.kept, oldest)
}
