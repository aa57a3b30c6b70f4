package postgres

import (
	"math"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// hints remembers the places that claims need not read. Claimed tasks leave dead entries in the index until a
// vacuum, millions in a busy minute. A claim that began at the head of the order would pass over all
// of them.
//
// New tasks join the tail or the head of their priority, at places where no task ever stood. Only a
// transaction that took long to commit adds tasks at places that claims have passed. So a claim reads
// the last tenth of a second again, everything once a second, and everything at once if a process
// reports that its commit took long (wake.late). A hint can make a claim miss a task for a while, but
// never for good.
type hints struct {
	mu    sync.Mutex // guards known
	known map[string]*hint
}

// hint is about one queue: no task waits from the beginning of the tail of a priority up to from, and
// no task was left that was due until since, nor a lease that ended until recovered.
type hint struct {
	from, since, recovered int64

	whole      time.Time // when a claim is to read everything again
	ring       int64     // no ready partition has a turn before it
	wholeRing  time.Time // when a claim is to read the whole ring again
	maintained time.Time // when a claim last found nothing to maintain
}

// seen holds the observations of a claim in a queue: it searched from a place on and took the tasks
// there up to the place last. clean is true if it left no due task and no lease that ended until
// recoverTo, and took is how long it took.
type seen struct {
	now, base, from, last int64 // base is its first version: new places are made of it
	recoverTo             int64
	looked                bool // it had room for a task of this queue
	maintained            bool // it checked, and nothing had to be maintained
	clean                 bool
	took                  time.Duration
}

const (
	// lagging is how long a commit may take before claims can pass the places of its tasks.
	lagging = 100 * time.Millisecond
	// lateAfter is the duration from which a step reports that its commit took long.
	lateAfter = lagging / 2
	// wholeEvery is how often a claim reads everything. If that takes long because no vacuum
	// comes, claims spend a share of one in wholeShare of their time on it, but do it once in
	// wholeLimit.
	wholeEvery = time.Second
	wholeShare = 20
	wholeLimit = 10 * time.Second
	// maintainEvery is how often claims search for expired leases and expired records.
	maintainEvery = 250 * time.Millisecond
	// unknown is a place before all others.
	unknown = math.MinInt64
)

// of returns the hints about queues. A queue of which everything is to be read has none.
func (h *hints) of(names []string) (lows, froms, sinces, recovered []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lows, froms = make([]int64, len(names)), make([]int64, len(names))
	sinces, recovered = make([]int64, len(names)), make([]int64, len(names))
	for i, name := range names {
		lows[i], froms[i], sinces[i], recovered[i] = unknown, unknown, unknown, unknown
		if k := h.known[name]; k != nil && time.Now().Before(k.whole) {
			sinces[i], recovered[i] = k.since, k.recovered
			if k.from != unknown {
				lows[i], froms[i] = bandOf(k.from), k.from
			}
		}
	}
	return lows, froms, sinces, recovered
}

// rings returns the turns before which claims need not search in the rings of queues. A partition that is
// served goes to the end of the ring, and leaves a dead entry behind, as a claimed task does.
func (h *hints) rings(names []string) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	turns := make([]int64, len(names))
	for i, name := range names {
		turns[i] = unknown
		if k := h.known[name]; k != nil && time.Now().Before(k.wholeRing) {
			turns[i] = k.ring
		}
	}
	return turns
}

// served notes that a claim, which had locked the ring of a queue, searched from a turn on and found that
// of the first ready partition, 0 for none. base is its first version: new turns are made of it.
func (h *hints) served(name string, from, first, base int64, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[name]
	if k == nil {
		return // the claim after the next one reads everything too
	}
	if from == unknown {
		k.wholeRing = time.Now().Add(min(max(wholeEvery, wholeShare*took), wholeLimit))
	}
	k.ring = base - lagging.Microseconds()
	if first > 0 {
		k.ring = min(k.ring, first)
	}
}

// maintained reports whether claims found a moment ago that none of the queues needs maintenance.
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

// learn notes the observations of a claim.
func (h *hints) learn(name string, s seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[name]
	if k == nil {
		k = &hint{from: unknown, since: unknown, recovered: unknown}
		h.known[name] = k
	}
	if s.from == unknown && s.looked && (s.last == 0 || s.last >= k.from) { // past all places that claims passed
		k.whole = time.Now().Add(min(max(wholeEvery, wholeShare*s.took), wholeLimit))
	}
	if s.maintained {
		k.maintained = time.Now()
	}
	until := s.now - lagging.Microseconds()
	if s.clean || until < k.since { // the clock may be set back
		k.since = until
	}
	if until = min(until, s.recoverTo); s.clean && until > k.recovered {
		k.recovered = until
	}
	k.recovered = min(k.recovered, k.since)
	if s.last == 0 || !isTail(s.last) {
		return
	}
	// Nothing is left between the place from which the claim searched and the last place. So nothing is
	// left in the tail of this priority up to the last, unless commits lag.
	from := min(s.last, bandOf(s.last)+s.base-lagging.Microseconds())
	if k.from == unknown || bandOf(k.from) != bandOf(from) || from > k.from {
		k.from = from
	}
}

// forget makes the next claim read everything in a queue.
func (h *hints) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.known[name]; k != nil {
		k.whole, k.wholeRing = time.Time{}, time.Time{}
	}
}

// isTail reports whether a place is in the tail of its priority: behind the middle of its band
// (engine.Band).
func isTail(place int64) bool { return place&(1<<56-1) < 1<<55 }

// bandOf returns the middle of the band in whose tail a place is.
func bandOf(place int64) int64 { return place >> 56 << 56 }
