package dashboard

import (
	"time"
)

// points is how many points a chart has.
const points = 60

// spans are the charts that a process draws from what it has seen itself: of how long each point is.
var spans = [2]time.Duration{5 * time.Second, time.Minute}

// point is what happened in one part of a chart.
type point struct {
	Done, Failed float64 // attempts
	// Seen says that somebody looked. Gap says that the counts are averages over a time in which nobody did.
	Seen, Gap bool
}

// ring holds the newest points of one span.
type ring struct {
	slot   int64 // the number of the newest point
	points [points]point
}

// rings are those of each queue, and of all queues under the empty name.
type rings map[string]*ringPair

// add spreads what happened between two samples over the points between them.
func (r rings) add(before, fresh *sample) {
	var done, failed int64
	for i := range fresh.queues {
		q := &fresh.queues[i]
		var d, f int64
		if before != nil {
			if was := before.byName[q.Queue]; was != nil {
				d = max(0, q.Totals.Completed-was.Totals.Completed)
				f = max(0, q.failures()-was.failures())
			} else {
				d, f = q.Totals.Completed, q.failures()
			}
		}
		done, failed = done+d, failed+f
		r.of(q.Queue).add(before, fresh, d, f)
	}
	r.of("").add(before, fresh, done, failed)
	for name := range r {
		if name != "" && fresh.byName[name] == nil {
			delete(r, name)
		}
	}
}

func (r rings) of(queue string) *ringPair {
	both := r[queue]
	if both == nil {
		both = &ringPair{}
		r[queue] = both
	}
	return both
}

type ringPair [len(spans)]ring

func (p *ringPair) add(before, fresh *sample, done, failed int64) {
	for i, span := range spans {
		to := fresh.at.Add(fresh.skew)
		from := to
		if before != nil {
			from = before.at.Add(fresh.skew)
		}
		p[i].add(span, from, to, float64(done), float64(failed))
	}
}

// add spreads counts evenly over the time between two moments.
func (r *ring) add(span time.Duration, from, to time.Time, done, failed float64) {
	first, last := from.UnixNano()/int64(span), to.UnixNano()/int64(span)
	if last <= r.slot-points { // the clock was put back
		*r = ring{}
	}
	if last > r.slot { // make room
		for slot := max(r.slot+1, last-points+1); slot <= last; slot++ {
			r.points[slot%points] = point{}
		}
		r.slot = last
	}
	passed := to.Sub(from)
	gap := passed > max(span, 3*period)
	for slot := max(first, last-points+1); slot <= last; slot++ {
		share := 1.0
		if passed > 0 && first != last {
			begins, ends := slot*int64(span), (slot+1)*int64(span)
			inside := min(ends, to.UnixNano()) - max(begins, from.UnixNano())
			share = float64(inside) / float64(passed)
		}
		p := &r.points[slot%points]
		p.Done, p.Failed = p.Done+done*share, p.Failed+failed*share
		p.Seen, p.Gap = true, p.Gap || gap
	}
}

// read gives the points up to a moment, the oldest first.
func (r *ring) read(span time.Duration, now time.Time) []point {
	read := make([]point, points)
	last := now.UnixNano() / int64(span)
	for i := range read {
		if slot := last - points + 1 + int64(i); slot <= r.slot && slot > r.slot-points {
			read[i] = r.points[slot%points]
		}
	}
	return read
}
