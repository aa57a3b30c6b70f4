package sampler

import (
	"time"

	"github.com/midgehq/midge/internal/ledger"
)

// Points is how many points of each span the sampler keeps.
const Points = 60

// Spans are the lengths of a point. The sampler keeps the newest Points of each length.
var Spans = [2]time.Duration{5 * time.Second, time.Minute}

// Point has the attempts of one span of time.
type Point struct {
	Done, Failed float64 // attempts
	// Seen is whether the attempts are known. Gap is whether they are averages over a time in which nobody
	// looked.
	Seen, Gap bool
}

// ring holds the newest points of one span.
type ring struct {
	slot   int64 // the number of the newest point, counted from the Unix epoch
	points [Points]Point
}

// rings are the points of each queue by name, and of all queues together under the empty name.
type rings map[string]*ringPair

// add spreads the attempts between two samples over the points between them.
func (r rings) add(before, fresh *Sample) {
	var done, failed int64
	for i := range fresh.Queues {
		q := &fresh.Queues[i]
		var grown ledger.Flow
		if before != nil {
			grown = q.Flow()
			if was := before.Queue(q.Queue); was != nil {
				grown = grown.Since(was.Flow())
			}
		}
		done, failed = done+grown.Done, failed+grown.Failed
		r.of(q.Queue).add(before, fresh, grown.Done, grown.Failed)
	}
	r.of("").add(before, fresh, done, failed)
	for name := range r {
		if name != "" && fresh.Queue(name) == nil {
			delete(r, name)
		}
	}
}

// of returns the rings of a queue, and makes them if there are none.
func (r rings) of(queue string) *ringPair {
	both := r[queue]
	if both == nil {
		both = &ringPair{}
		r[queue] = both
	}
	return both
}

// ringPair has a ring for each span.
type ringPair [len(Spans)]ring

// add spreads the attempts between two samples over the points of both rings.
func (p *ringPair) add(before, fresh *Sample, done, failed int64) {
	for i, span := range Spans {
		to := fresh.At.Add(fresh.Skew)
		from := to
		if before != nil {
			from = before.At.Add(fresh.Skew)
		}
		p[i].add(span, from, to, float64(done), float64(failed))
	}
}

// add spreads counts evenly over the time between two moments.
func (r *ring) add(span time.Duration, from, to time.Time, done, failed float64) {
	first, last := from.UnixNano()/int64(span), to.UnixNano()/int64(span)
	if last <= r.slot-Points { // somebody set the clock back
		*r = ring{}
	}
	if last > r.slot { // clear the new points
		for slot := max(r.slot+1, last-Points+1); slot <= last; slot++ {
			r.points[slot%Points] = Point{}
		}
		r.slot = last
	}
	passed := to.Sub(from)
	gap := passed > max(span, 3*Period)
	for slot := max(first, last-Points+1); slot <= last; slot++ {
		share := 1.0
		if passed > 0 && first != last {
			begins, ends := slot*int64(span), (slot+1)*int64(span)
			inside := min(ends, to.UnixNano()) - max(begins, from.UnixNano())
			share = float64(inside) / float64(passed)
		}
		p := &r.points[slot%Points]
		p.Done, p.Failed = p.Done+done*share, p.Failed+failed*share
		p.Seen, p.Gap = true, p.Gap || gap
	}
}

// read returns the points up to a moment, the oldest first.
func (r *ring) read(span time.Duration, now time.Time) []Point {
	read := make([]Point, Points)
	last := now.UnixNano() / int64(span)
	for i := range read {
		if slot := last - Points + 1 + int64(i); slot <= r.slot && slot > r.slot-Points {
			read[i] = r.points[slot%Points]
		}
	}
	return read
}
