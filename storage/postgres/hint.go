package postgres

import (
	"math"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
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

// hint is about one queue: nothing waits behind the beginning of a priority's band up to
// from, and nothing was left that was due until since.
type hint struct {
	from, since int64
	whole       time.Time // when all is to be looked at again
	maintained  time.Time // when it was last seen that nothing had to be maintained
}

// seen is what a claim saw: that it looked from a place on and took what was there up to
// the last; whether it left nothing undone; and how long that took.
type seen struct {
	now, base, from, last int64 // base is its first version, of which places are made
	looked                bool  // it had room for a task of this queue
	maintained            bool  // it saw to what has to be maintained
	clean                 bool
	took                  time.Duration
}

const (
	// lagging is how long a commit may take without being noticed by claims.
	lagging = 100 * time.Millisecond
	// lateAfter is when a step says that its commit took long.
	lateAfter = lagging / 2
	// wholeEvery is how often a claim looks at everything. Where that takes long, because
	// no vacuum comes, it is done in a twentieth of the time, but often enough.
	wholeEvery = time.Second
	wholeShare = 20
	wholeLimit = 10 * time.Second
	// maintainEvery is how often claims ask for leases that expired and what is kept no longer.
	maintainEvery = 250 * time.Millisecond
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
		if k := h.known[name]; k != nil && time.Now().Before(k.whole) {
			sinces[i] = k.since
			if k.from != unknown {
				lows[i], froms[i] = bandOf(k.from), k.from
			}
		}
	}
	return lows, froms, sinces
}

// maintained reports whether it was seen a moment ago that none of the queues has to be
// maintained.
func (h *hints) maintained(queues []storage.ClaimQueue) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range queues {
		if k := h.known[queues[i].Name]; k == nil || time.Since(k.maintained) > maintainEvery {
			return false
		}
	}
	return true
}

// learn notes what a claim saw.
func (h *hints) learn(name string, s seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[name]
	if k == nil {
		k = &hint{from: unknown, since: unknown}
		h.known[name] = k
	}
	if s.from == unknown && s.looked && (s.last == 0 || s.last >= k.from) { // it came past all that was passed
		k.whole = time.Now().Add(min(max(wholeEvery, wholeShare*s.took), wholeLimit))
	}
	if s.maintained {
		k.maintained = time.Now()
	}
	if until := s.now - lagging.Microseconds(); s.clean || until < k.since { // a clock may be set back
		k.since = until
	}
	if s.last == 0 || !isTail(s.last) {
		return
	}
	// Nothing is left between where it looked and the last, so nothing that old is left
	// in the band of the last.
	from := min(s.last, bandOf(s.last)+s.base-lagging.Microseconds())
	if k.from == unknown || bandOf(k.from) != bandOf(from) || from > k.from {
		k.from = from
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

// bandOf gives the beginning of the band in whose tail a place is.
func bandOf(place int64) int64 { return place >> 56 << 56 }
