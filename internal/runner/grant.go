package runner

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// grant is the share of the slots of one shard: what it may claim. Free slots are granted to the
// shards that may have work, in strict order or by weight. A claim asks for no more tasks than its
// shard was granted, so that concurrent claims never bring more tasks than there are slots.
type grant struct {
	weight  int  // in draws; a shard of weight 0 is granted nothing
	wanting bool // there may be tasks that no claim has asked for
	granted int  // slots set aside for its next claim

	asked   time.Time // when the claim under way was sent; zero for none
	start   int       // how many tasks it asked for to start at once
	ahead   int       // how many tasks it asked for ahead
	suspect bool      // the claim under way may bring a suspect

	// since is when the first of its claims was answered that asked for no tasks to start, and whose answer named
	// queues with a limit. It is zero after a claim that asked for some.
	since time.Time

	resting bool // it knows of no tasks, and does not wait for any before a slot is free

	returning int // attempts on their way back to the storage; until they are there, nothing is claimed

	// withheld means that the last claim could not ask for tasks that only start at once, or for a
	// suspect, or that a suspect has come since. A slot that becomes free then, or the end of a
	// suspect, is a reason for another claim.
	withheld bool
}

// overdue reports whether the claim under way has taken so long that its slots are better used by
// other shards. Tasks that it brings then wait ahead, and are given back if no slot is free for
// them soon.
func (g *grant) overdue(now time.Time) bool { return !g.asked.IsZero() && now.Sub(g.asked) > slowScan }

// arrange sets the shards, in their order if it is strict, their weights, and the served queues.
// It removes the attempts ahead whose queue is no longer served, and returns them.
func (s *slots) arrange(shards []*shard, weights []int, strict bool, queues []string) (back []*Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards, s.strict = shards, strict
	s.served = make(map[string]bool, len(queues))
	for _, q := range queues {
		s.served[q] = true
	}
	back = s.removeAhead(0, func(a *Attempt) bool { return !s.served[a.Fence.Queue] })
	for i, d := range shards {
		g := &d.grant
		g.wanting = g.wanting || weights[i] > g.weight
		if g.weight = weights[i]; g.weight == 0 {
			g.wanting, g.granted = false, 0
		}
	}
	s.deal(time.Now())
	return back
}

// ask returns how many tasks d's next claim may ask for: start at once, and ahead, which the budget
// limits. suspect reports whether a suspect may be among them. The slots are reserved until the
// claim is answered.
func (s *slots) ask(d *shard) (start, ahead int, suspect bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	g := &d.grant
	g.wanting = g.weight > 0
	start, ahead = s.allowance(d, now)
	d.wakeUp.forgetSlot()
	g.granted = 0
	g.asked, g.start, g.ahead, g.resting = now, start, ahead, false
	g.suspect = start > 0 && s.suspects == 0 && !s.suspectToCome(now)
	g.withheld = g.weight > 0 && !g.suspect
	return start, ahead, g.suspect
}

// limitedFirst puts the queues with a limit before the other queues of a claim by weight, if earlier claims asked
// for no tasks to start: the few tasks that start now would all be of other queues, whose tasks go ahead too.
func (s *slots) limitedFirst(d *shard, start int, queues []storage.ClaimQueue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strict || start == 0 || d.grant.since.IsZero() {
		return
	}
	rank := func(q storage.ClaimQueue) int {
		if s.limited[q.Name] {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(queues, func(a, b storage.ClaimQueue) int { return rank(a) - rank(b) })
}

// withheld reports whether d's last claim could not ask for all tasks.
func (s *slots) withheld(d *shard) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.grant.withheld
}

// rests reports whether a claim of d, which knows of no tasks and has no slots granted, could not ask for
// any now. Then d is woken once a slot is free.
func (s *slots) rests(d *shard) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.grant.resting = d.grant.weight > 0 && s.noneFor(d, time.Now())
	return d.grant.resting
}

// noneFor reports whether d could ask for no task, because other shards have the free slots. The mutex
// is held.
func (s *slots) noneFor(d *shard, now time.Time) bool {
	free, ahead := s.limit-s.active-len(s.ahead), s.aheadWanted()-len(s.ahead)
	for _, e := range s.shards {
		if e != d && !e.grant.overdue(now) {
			free -= e.grant.granted + e.grant.start
			ahead -= e.grant.ahead
		}
	}
	return free <= 0 && ahead <= 0
}

// full reports whether no slot is free for tasks of d.
func (s *slots) full(d *shard) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, ahead := s.allowance(d, time.Now())
	return d.grant.weight > 0 && start+ahead == 0
}

// answered ends the claim of d that is under way. It reports whether d may have work, which is so if the
// storage has more tasks or the claim asked for none.
func (s *slots) answered(d *shard, claimed storage.Claimed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, queue := range slices.Concat(claimed.Bounded, claimed.Held) {
		if s.limited == nil {
			s.limited = make(map[string]bool)
		}
		s.limited[queue] = true
	}
	g := &d.grant
	switch {
	case g.start > 0 || len(claimed.Bounded) == 0:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = time.Now()
	}
	more := claimed.More || g.weight > 0 && g.start+g.ahead == 0
	s.ended(d, more && g.weight > 0)
	return more
}

// refused ends a failed claim. Until d's next claim other shards may have its slots.
func (s *slots) refused(d *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended(d, false)
}

// ended ends the claim under way, and wakes the resting shards that can ask for the slots that it leaves. The
// mutex is held.
func (s *slots) ended(d *shard, wanting bool) {
	g := &d.grant
	g.asked, g.start, g.ahead, g.suspect = time.Time{}, 0, 0, false
	if g.wanting = wanting; !wanting {
		g.granted = 0
	}
	s.rested = slices.DeleteFunc(s.rested, func(a *Attempt) bool { return a.shard == d })
	now := time.Now()
	s.deal(now)
	for _, e := range s.shards {
		if e.grant.resting && !s.noneFor(e, now) {
			e.wakeUp.slotFree()
		}
	}
}

// suspectToCome reports whether a claim under way may bring a suspect. The mutex is held.
func (s *slots) suspectToCome(now time.Time) bool {
	return slices.ContainsFunc(s.shards, func(d *shard) bool {
		return d.grant.suspect && !d.grant.overdue(now)
	})
}

// allowance returns what a claim of d may ask for now. The mutex is held.
func (s *slots) allowance(d *shard, now time.Time) (start, ahead int) {
	if s.draining || d.grant.weight == 0 || d.grant.returning > 0 {
		return 0, 0
	}
	s.deal(now)
	start = d.grant.granted
	ahead = s.aheadWanted() - len(s.ahead)
	wanting := 1
	for _, e := range s.shards {
		if e != d && !e.grant.overdue(now) {
			ahead -= e.grant.ahead
			if e.grant.wanting {
				wanting++
			}
		}
	}
	ahead = max(ahead, 0) / wanting
	if !d.grant.since.IsZero() && now.Sub(d.grant.since) >= aheadStale {
		ahead = 0 // until a slot is free: a limit admits few tasks ahead, or none
	}
	// Finished tasks whose settle is under way are in flight too: a storage that settles slowly is
	// not asked for more.
	if spare := 2*s.limit + 2*aheadMost - s.inFlight.count(); start+ahead > spare {
		start, ahead = max(min(start, spare), 0), 0
	}
	start = min(start, claimMost)
	return start, min(ahead, claimMost-start)
}

// deal grants the free slots that no shard has to the wanting shards, and wakes the shards that got
// some. The mutex is held.
func (s *slots) deal(now time.Time) {
	free := s.limit - s.active - len(s.ahead)
	var wanting []*shard
	for _, d := range s.shards {
		g := &d.grant
		if g.overdue(now) {
			g.granted = 0
			continue
		}
		if g.returning > 0 {
			g.granted = 0
		}
		free -= g.granted + g.start
		if g.wanting && g.returning == 0 {
			wanting = append(wanting, d)
		}
	}
	for _, d := range wanting { // the limit was lowered
		back := min(d.grant.granted, max(-free, 0))
		d.grant.granted -= back
		free += back
	}
	if free <= 0 || len(wanting) == 0 {
		return
	}
	if s.strict || len(wanting) == 1 {
		wanting[0].grantSlots(free)
		return
	}
	for range free {
		drawn(wanting).grantSlots(1)
	}
}

// grantSlots grants n more slots to a shard. The slots' mutex is held.
func (s *shard) grantSlots(n int) {
	s.grant.granted += n
	s.wakeUp.slotFree()
}

// drawn returns one of several shards, drawn by weight.
func drawn(wanting []*shard) *shard {
	total := 0
	for _, d := range wanting {
		total += d.grant.weight
	}
	at := rand.IntN(total)
	for _, d := range wanting {
		if at -= d.grant.weight; at < 0 {
			return d
		}
	}
	return wanting[len(wanting)-1]
}
