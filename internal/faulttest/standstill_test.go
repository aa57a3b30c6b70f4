//go:build unix

package faulttest

import (
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// standstillBound is how long a task may stand still while the storage is available.
func (s *server) standstillBound() time.Duration { return s.lease() + 10*time.Second }

// interval is the time between two successive events of a task.
type interval struct {
	ref           storage.Ref
	before, after *event
}

// checkStandstills checks that no task stood still for longer than the lease and ten seconds,
// outages left out. A running task stands still while it has no event. A task that can be
// claimed stands still while its queue has no claims, or while tasks that became ready so
// much later are claimed before it. A task that waits for earlier ones, because there is more work
// than the runners can do, does not stand still. Other checks cover tasks that wait for a
// moment of another clock, and damaged tasks.
func (s *storm) checkStandstills(h history) {
	s.t.Helper()
	outages, standstillBound := outagesOf(h), s.server.standstillBound()
	intervals := s.intervalsOf(h)
	claims := queueClaimsOf(intervals, outages)
	var longest, waited time.Duration
	for _, p := range intervals {
		stood := p.after.At.Sub(p.before.At) - outages.within(p.before.At, p.after.At)
		waited = max(waited, stood)
		if p.after.What == claimed && stood > standstillBound {
			stood = claims[p.ref.Queue].stood(p, outages)
		}
		longest = max(longest, stood)
		if stood > standstillBound && stood > machine.Stretch(standstillBound, p.before.At) {
			s.t.Errorf("%s stood still for %v, from %s at %v to %s at %v", p.ref, stood.Round(time.Millisecond),
				p.before.What, clock(p.before.At), p.after.What, clock(p.after.At))
		}
	}
	s.t.Logf("no task stood still for longer than %v; the longest wait was %v, outages left out",
		longest.Round(time.Millisecond), waited.Round(time.Millisecond))
}

// intervalsOf returns the intervals of all tasks that the check concerns, up to the moment when all tasks
// had ended.
func (s *storm) intervalsOf(h history) []interval {
	byRef := make(map[storage.Ref]*event)
	var intervals []interval
	for _, e := range h {
		skipped := isDamaged(e.Ref.ID) || strings.HasPrefix(e.Ref.Queue, damagedQueue) || strings.HasPrefix(e.Ref.ID, "cancelled-")
		if e.Ref == (storage.Ref{}) || skipped || e.At.After(s.drainedAt) {
			continue
		}
		before, some := byRef[e.Ref]
		byRef[e.Ref] = e
		if some && !before.State.Ended() {
			intervals = append(intervals, interval{e.Ref, before, e})
		}
	}
	return intervals
}

// queueClaims are the claims of a queue in order of time.
type queueClaims []queueClaim

// queueClaim is a claim at a time. ready is when its task joined the end of the queue, or zero if
// it did not join there. latest is the latest such moment among the claims up to this one. gap is the
// time since the claim before, without outages.
type queueClaim struct {
	at, ready, latest time.Time
	gap               time.Duration
}

// queueClaimsOf returns the claims of each queue.
func queueClaimsOf(intervals []interval, outages spans) map[string]queueClaims {
	all := make(map[string]queueClaims)
	for _, p := range intervals {
		if p.after.What == claimed {
			c := queueClaim{at: p.after.At}
			b := p.before
			toHead := b.What != enqueueDone && b.What != settleDone || b.Outcome == storage.Release
			preferred := strings.HasPrefix(p.ref.ID, "preferred-") || p.ref.ID == lastID
			if !toHead && b.Outcome != storage.Decline && !preferred {
				c.ready = b.At // declined tasks, and tasks of a higher priority, are claimed before others
			}
			all[p.ref.Queue] = append(all[p.ref.Queue], c)
		}
	}
	for _, own := range all {
		slices.SortFunc(own, func(a, b queueClaim) int { return a.at.Compare(b.at) })
		var latest time.Time
		for i := range own {
			if own[i].ready.After(latest) {
				latest = own[i].ready
			}
			own[i].latest = latest
			if i > 0 {
				own[i].gap = outages.left(own[i-1].at, own[i].at)
			}
		}
	}
	return all
}

// stood returns for how long a task stood still before its claim: the longest time without a
// claim in its queue or, if that is longer, by how much later a task that was claimed before
// it had become ready.
func (all queueClaims) stood(p interval, outages spans) time.Duration {
	i, _ := slices.BinarySearchFunc(all, p.before.At, func(t queueClaim, at time.Time) int { return t.at.Compare(at) })
	if i == len(all) || !all[i].at.Before(p.after.At) {
		return outages.left(p.before.At, p.after.At)
	}
	still := outages.left(p.before.At, all[i].at)
	for i++; i < len(all) && all[i].at.Before(p.after.At); i++ {
		still = max(still, all[i].gap)
	}
	last := all[i-1]
	if last.latest.After(p.before.At) {
		still = max(still, outages.left(p.before.At, last.latest))
	}
	return max(still, outages.left(last.at, p.after.At))
}

// span is a period of time.
type span struct{ from, to time.Time }

// spans are periods in order of time that do not overlap.
type spans []span

// outagesOf returns the periods in which the storage, or a part of it, was unavailable.
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

// left returns how much of the time between two moments lies outside the spans.
func (all spans) left(from, to time.Time) time.Duration { return to.Sub(from) - all.within(from, to) }

// within returns how much of the spans lies between two moments.
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
