package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/ledger"
)

// histories keeps what was read of the history, for all viewers: it changes once a minute, and 90 days are a
// hundred pages.
type histories struct {
	ledger *ledger.Ledger
	now    func() time.Time

	mu   sync.Mutex
	kept map[pastSpan]*pastSeries
}

// pastSpan is what of the history is read: of all queues under the empty name.
type pastSpan struct {
	end          time.Time
	length, step time.Duration
	queue        string
}

// keptFor is for how long it is kept: a small part of a step.
func (s pastSpan) keptFor() time.Duration { return min(max(s.step/12, historyFor), 10*time.Minute) }

// pastSeries is a part of the history.
type pastSeries struct {
	used time.Time // guarded by the mutex of the histories

	mu     sync.Mutex // is held while one viewer reads for all
	at     time.Time
	series *ledger.Series // nil before it was read
}

// mostPast is how many parts of the history are kept.
const mostPast = 24

// read gives a part of the history, which nobody changes.
func (h *histories) read(ctx context.Context, s pastSpan) (*ledger.Series, error) {
	s.end = s.end.Round(0).UTC() // as a key
	p := h.find(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.series != nil && h.now().Sub(p.at) < s.keptFor() {
		return p.series, nil
	}
	var queues []string
	if s.queue != "" {
		queues = []string{s.queue}
	}
	at := h.now()
	series, err := h.ledger.Series(ctx, s.end.Add(-s.length), s.end, s.step, queues...)
	if err != nil {
		return nil, err
	}
	p.at, p.series = at, series
	return series, nil
}

// find gives the place of a part of the history. The part that was not used for the longest goes for a
// new one.
func (h *histories) find(s pastSpan) *pastSeries {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.kept[s]
	if p == nil {
		if len(h.kept) >= mostPast {
			h.forget()
		}
		if h.kept == nil {
			h.kept = make(map[pastSpan]*pastSeries)
		}
		p = &pastSeries{}
		h.kept[s] = p
	}
	p.used = h.now()
	return p
}

func (h *histories) forget() {
	var oldest pastSpan
	for s, p := range h.kept {
		if was := h.kept[oldest]; was == nil || p.used.Before(was.used) {
			oldest = s
		}
	}
	delete(h.kept, oldest)
}
