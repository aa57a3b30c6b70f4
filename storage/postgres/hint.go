package postgres

import (
	"math"
	"sync"
	"time"
)

// hints remembers where claims need not look. What was claimed leaves dead entries in the
// index until a vacuum, millions in a busy minute, and a claim that began at the head of
// the order would pass over all of them.
//
// New tasks join the tail of their priority or the head of it, at places where nothing
// ever was. Only a transaction that took long to commit appears among places that were
// passed: a claim looks at the last tenth of a second again, at everything once a second,
// and at once where somebody says that his commit took long (wake.late). So a hint can
// make a claim miss a task for a while and never for good.
type hints struct {
	mu    sync.Mutex // guards known
	known map[string]*hint
}

// hint is about one queue: nothing waits from low to from, and nothing was left that was
// due until since.
type hint struct {
	low, from, since int64
	whole            time.Time // when all was looked at
}

// seen is what a claim saw: that it looked from a place on, and took what was there from
// the first to the last; and whether it left nothing undone.
type seen struct {
	now, from, first, last int64
	clean                  bool
}

const (
	// lagging is how long a commit may take without being noticed by claims.
	lagging = 100 * time.Millisecond
	// lateAfter is when a step says that its commit took long.
	lateAfter = lagging / 2
	// wholeEvery is how often a claim looks at everything.
	wholeEvery = time.Second
	// unknown is a place before all others.
	unknown = math.MinInt64
)

// of gives the hints about queues; about those that are to be looked at whole there is
// none.
func (h *hints) of(names []string) (lows, froms, sinces []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lows, froms, sinces = make([]int64, len(names)), make([]int64, len(names)), make([]int64, len(names))
	for i, name := range names {
		lows[i], froms[i], sinces[i] = unknown, unknown, unknown
		if k := h.known[name]; k != nil && time.Since(k.whole) < wholeEvery {
			lows[i], froms[i], sinces[i] = k.low, k.from, k.since
		}
	}
	return lows, froms, sinces
}

// learn notes what a claim saw.
func (h *hints) learn(name string, s seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[name]
	if k == nil {
		k = &hint{low: unknown, from: unknown, since: unknown}
		h.known[name] = k
	}
	whole := s.from == unknown
	if whole && (s.last == 0 || s.last >= k.from) { // it came past all that was ever passed
		k.whole = time.Now()
	}
	until := s.now - lagging.Microseconds()
	if s.clean {
		k.since = max(k.since, until)
	}
	if s.last == 0 || !isTail(s.first) || !isTail(s.last) || priorityOf(s.first) != priorityOf(s.last) {
		return
	}
	from := min(s.last, priorityOf(s.last)<<56+until)
	switch {
	case from <= s.first:
	case k.from != unknown && priorityOf(k.low) == priorityOf(s.first):
		k.low, k.from = min(k.low, s.first), max(k.from, from)
	default:
		k.low, k.from = s.first, from
	}
}

// forget has a queue looked at whole by the next claim.
func (h *hints) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.known[name]; k != nil {
		k.whole = time.Time{}
	}
}

// isTail reports whether a place is behind the beginning of its priority's band.
func isTail(place int64) bool { return place&(1<<56-1) < 1<<55 }

func priorityOf(place int64) int64 { return place >> 56 }
