//go:build unix

package faulttest

import (
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// stillBound is how long something may stand still while the storage is to be had.
func (s *server) stillBound() time.Duration { return s.lease() + 10*time.Second }

// pause is a time in which nothing is heard of a task.
type pause struct {
	ref           storage.Ref
	before, after event
}

// checkStandstills checks that no task stood still for longer than the lease and ten seconds
// in which the storage was to be had: with nothing heard of it while it ran, or while it was
// to be claimed and its queue had no claims or others that came so much later went before it.
// To wait in its turn, where there is more to do than can be done, is no standstill. What
// waits for a moment that was stamped under another clock, and what was damaged, is judged
// elsewhere.
func (s *storm) checkStandstills(h history) {
	s.t.Helper()
	outages, stillBound := outagesOf(h), s.server.stillBound()
	pauses := s.pausesOf(h)
	turns := turnsOf(pauses)
	var longest, waited time.Duration
	for _, p := range pauses {
		stood := p.after.At.Sub(p.before.At) - outages.within(p.before.At, p.after.At)
		waited = max(waited, stood)
		if p.after.What == claimed && stood > stillBound {
			stood = turns[p.ref.Queue].stood(p, outages)
		}
		longest = max(longest, stood)
		if stood > machine.Stretch(stillBound, p.before.At) {
			s.t.Errorf("%s stood still for %v, from %s at %v to %s at %v", p.ref, stood.Round(time.Millisecond),
				p.before.What, clock(p.before.At), p.after.What, clock(p.after.At))
		}
	}
	s.t.Logf("no task stood still for longer than %v; the longest wait was %v, outages left out",
		longest.Round(time.Millisecond), waited.Round(time.Millisecond))
}

// pausesOf gives the times between what was heard of tasks, until all was calm.
func (s *storm) pausesOf(h history) []pause {
	byRef := make(map[storage.Ref]event)
	var pauses []pause
	for _, e := range h {
		skipped := damaged(e.Ref.ID) || strings.HasPrefix(e.Ref.Queue, "ill") || strings.HasPrefix(e.Ref.ID, "cancelled-")
		if e.Ref == (storage.Ref{}) || skipped || e.At.After(s.calmed) {
			continue
		}
		before, some := byRef[e.Ref]
		byRef[e.Ref] = e
		if some && !before.State.Ended() {
			pauses = append(pauses, pause{e.Ref, before, e})
		}
	}
	return pauses
}

// turns are the claims of a queue, in their order.
type turns []turn

// turn is a claim, and since when the task had been ready, zero where it had not joined the
// tail. latest is the latest such moment of the claims up to this one.
type turn struct{ at, ready, latest time.Time }

// turnsOf gives those of each queue.
func turnsOf(pauses []pause) map[string]turns {
	all := make(map[string]turns)
	for _, p := range pauses {
		if p.after.What == claimed {
			c := turn{at: p.after.At}
			if b := p.before; b.What == enqueueDone || b.What == settleDone && b.Outcome != storage.Release {
				c.ready = b.At // behind all others; what is given back or recovered goes before them
			}
			all[p.ref.Queue] = append(all[p.ref.Queue], c)
		}
	}
	for _, own := range all {
		slices.SortFunc(own, func(a, b turn) int { return a.at.Compare(b.at) })
		var latest time.Time
		for i := range own {
			if own[i].ready.After(latest) {
				latest = own[i].ready
			}
			own[i].latest = latest
		}
	}
	return all
}

// stood gives for how long a task stood still that waited for its claim: the longest time in
// which its queue had none, or by how much what was claimed before it had come later.
func (all turns) stood(p pause, outages spans) time.Duration {
	i, _ := slices.BinarySearchFunc(all, p.before.At, func(t turn, at time.Time) int { return t.at.Compare(at) })
	var still time.Duration
	last := p.before.At
	for ; i < len(all) && all[i].at.Before(p.after.At); i++ {
		still = max(still, all[i].at.Sub(last)-outages.within(last, all[i].at))
		last = all[i].at
		late := all[i].latest
		still = max(still, late.Sub(p.before.At)-outages.within(p.before.At, late))
	}
	return max(still, p.after.At.Sub(last)-outages.within(last, p.after.At))
}

// span is a time.
type span struct{ from, to time.Time }

// spans do not overlap and are in their order.
type spans []span

// outagesOf gives the times in which the storage, or a part of it, was away.
func outagesOf(h history) spans {
	var all spans
	away := 0
	for _, e := range h.of(outageBegun, outageOver) {
		switch {
		case e.What == outageBegun && away == 0:
			all = append(all, span{e.At, e.At})
			away++
		case e.What == outageBegun:
			away++
		default:
			away--
			all[len(all)-1].to = e.At
		}
	}
	return all
}

// within is how much of the spans is between two moments.
func (all spans) within(from, to time.Time) (sum time.Duration) {
	for _, s := range all {
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(end.Sub(begin), 0)
	}
	return sum
}
