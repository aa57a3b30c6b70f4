package midge

import (
	"math/rand/v2"
	"slices"
	"time"
)

// stake is what slots know of a domain: its turn, and what it may claim. Free slots are
// dealt out as credit to the domains that may have work, in strict order or by weight,
// and a claim asks for no more than its domain's credit: so claims that are under way at
// the same time never bring more than there is room for.
type stake struct {
	weight int  // in draws; 0 takes nothing
	hungry bool // there may be tasks that it was not asked for
	credit int  // slots set aside for its next claim

	asked   time.Time // when the claim under way was sent, zero for none
	start   int       // how many it asked for
	ahead   int
	suspect bool // it may bring one

	returning int // attempts on their way back to the storage: nothing is claimed meanwhile

	// withheld says that the last claim could not ask for tasks that only start at once,
	// or for a suspect: a slot that is free then, or a suspect's end, is worth another.
	withheld bool
}

// overdue reports whether the claim under way has taken so long that the slots it asked
// for are better used elsewhere. What it brings then waits ahead, and is given back
// where nothing has room for it soon.
func (k *stake) overdue(now time.Time) bool { return !k.asked.IsZero() && now.Sub(k.asked) > slowScan }

// arrange tells the domains, in their order where it is strict, each with its weight, and the
// queues that are served. It takes out what is held ahead of others.
func (s *slots) arrange(domains []*domain, weights []int, strict bool, queues []string) (back []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.domains, s.strict = domains, strict
	s.served = make(map[string]bool, len(queues))
	for _, q := range queues {
		s.served[q] = true
	}
	back = s.takeFrom(0, func(a *attempt) bool { return !s.served[a.fence.Queue] })
	for i, d := range domains {
		k := &d.stake
		k.hungry = k.hungry || weights[i] > k.weight
		if k.weight = weights[i]; k.weight == 0 {
			k.hungry, k.credit = false, 0
		}
	}
	s.deal(time.Now())
	return back
}

// ask says how many tasks d's next claim may bring: start at once, and ahead as much as
// takes budget to run; and whether a suspect may be among them. They are set aside until
// the claim is answered.
func (s *slots) ask(d *domain, budget time.Duration) (start, ahead int, suspect bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	k := &d.stake
	k.hungry = k.weight > 0
	start, ahead = s.room(d, budget, now)
	d.sleep.forget()
	k.credit = 0
	k.asked, k.start, k.ahead = now, start, ahead
	k.suspect = start > 0 && s.suspects == 0 && !s.suspectToCome(now)
	k.withheld = k.weight > 0 && !k.suspect
	return start, ahead, k.suspect
}

// withheld reports whether d's last claim could not ask for all.
func (s *slots) withheld(d *domain) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.stake.withheld
}

// full reports whether there is no room for what d may have.
func (s *slots) full(d *domain, budget time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, ahead := s.room(d, budget, time.Now())
	return d.stake.weight > 0 && start+ahead == 0
}

// answered ends the claim of d that is under way, which said whether there is more, and
// reports whether d may have work: what was not asked for may be there too.
func (s *slots) answered(d *domain, more bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &d.stake
	more = more || k.weight > 0 && k.start+k.ahead == 0
	s.ended(d, more && k.weight > 0)
	return more
}

// refused ends a claim that failed: until the next one others may have d's slots.
func (s *slots) refused(d *domain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended(d, false)
}

// ended ends the claim under way. The mutex is held.
func (s *slots) ended(d *domain, hungry bool) {
	k := &d.stake
	k.asked, k.start, k.ahead, k.suspect = time.Time{}, 0, 0, false
	if k.hungry = hungry; !hungry {
		k.credit = 0
	}
	s.deal(time.Now())
}

// suspectToCome reports whether a claim under way may bring one. The mutex is held.
func (s *slots) suspectToCome(now time.Time) bool {
	return slices.ContainsFunc(s.domains, func(d *domain) bool {
		return d.stake.suspect && !d.stake.overdue(now)
	})
}

// room is what a claim of d may ask for now. The mutex is held.
func (s *slots) room(d *domain, budget time.Duration, now time.Time) (start, ahead int) {
	if s.draining || d.stake.weight == 0 || d.stake.returning > 0 {
		return 0, 0
	}
	s.deal(now)
	start = d.stake.credit
	ahead = s.aheadWanted(budget) - len(s.ahead)
	hungry := 1
	for _, e := range s.domains {
		if e != d && !e.stake.overdue(now) {
			ahead -= e.stake.ahead
			if e.stake.hungry {
				hungry++
			}
		}
	}
	ahead = max(ahead, 0) / hungry
	// Finished tasks whose settle is under way are held too: a storage that is slow
	// to settle is not asked for more.
	if spare := 2*s.limit + 2*aheadMost - s.held.count(); start+ahead > spare {
		start, ahead = max(min(start, spare), 0), 0
	}
	start = min(start, claimMost)
	return start, min(ahead, claimMost-start)
}

// deal gives slots that are free, and nobody's, to the hungry domains, and wakes those
// that got some. The mutex is held.
func (s *slots) deal(now time.Time) {
	free := s.limit - s.active - len(s.ahead)
	var takers []*domain
	for _, d := range s.domains {
		k := &d.stake
		if k.overdue(now) {
			k.credit = 0
			continue
		}
		if k.returning > 0 {
			k.credit = 0
		}
		free -= k.credit + k.start
		if k.hungry && k.returning == 0 {
			takers = append(takers, d)
		}
	}
	for _, d := range takers { // the limit was lowered
		back := min(d.stake.credit, max(-free, 0))
		d.stake.credit -= back
		free += back
	}
	if free <= 0 || len(takers) == 0 {
		return
	}
	if s.strict || len(takers) == 1 {
		takers[0].give(free)
		return
	}
	for range free {
		drawn(takers).give(1)
	}
}

// give adds to a domain's credit. The slots' mutex is held.
func (d *domain) give(n int) {
	d.stake.credit += n
	d.sleep.free()
}

// drawn is one of several domains, by weight.
func drawn(takers []*domain) *domain {
	total := 0
	for _, d := range takers {
		total += d.stake.weight
	}
	at := rand.IntN(total)
	for _, d := range takers {
		if at -= d.stake.weight; at < 0 {
			return d
		}
	}
	return takers[len(takers)-1]
}
