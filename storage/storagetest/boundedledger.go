package storagetest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// costLedger counts the costs of starts beside the storage.
type costLedger struct {
	rate   storage.Rate
	starts []costStart // in the order of their moments
}

// costStart is a start that the ledger counts.
type costStart struct {
	at   time.Time
	cost int64
}

// charge returns the part of the rate that a start of a cost uses up.
func (l *costLedger) charge(c storage.Cost) int64 {
	switch c {
	case storage.NoCost:
		return 0
	case 0:
		return 1
	}
	return min(int64(c), int64(l.rate.N))
}

// from returns the moment from which the rate admits a start of a cost, if it counted every start for exactly
// Per.
func (l *costLedger) from(c storage.Cost) (at time.Time) {
	sum := max(l.charge(c), 1)
	for _, s := range slices.Backward(l.starts) {
		if sum += s.cost; sum > int64(l.rate.N) {
			return s.at.Add(l.rate.Per)
		}
	}
	return at
}

// late returns how much longer than Per a start may count.
func (l *costLedger) late() time.Duration {
	return l.rate.Per/storage.RateParts + time.Microsecond
}

// admits reports whether the rate must admit a start of a cost at a moment, and whether it may.
func (l *costLedger) admits(c storage.Cost, now time.Time) (must, may bool) {
	from := l.from(c)
	return !now.Before(from.Add(l.late())), !now.Before(from)
}

// started notes a start, which fails the rule if it is too early.
func (l *costLedger) started(r *rig, c storage.Cost, now time.Time) {
	r.Helper()
	if _, may := l.admits(c, now); !may {
		r.Fatalf("a start of cost %d: got it at %v, want it from %v, by the starts before it", c, now, l.from(c))
	}
	l.starts = append(l.starts, costStart{now, l.charge(c)})
}

// sum returns the sum of the costs of the starts that count at a moment, if each counts for this long.
func (l *costLedger) sum(now time.Time, long time.Duration) (sum int64) {
	for _, s := range l.starts {
		if s.at.Add(long).After(now) {
			sum += s.cost
		}
	}
	return sum
}

func costDue(r *rig) {
	l := &costLedger{rate: storage.Rate{N: 10, Per: time.Second}}
	r.pace.rely(l.rate.Per)
	r.configure(limiting(storage.Limit{Rate: l.rate}))
	costs := []storage.Cost{4, 3, 2, 5, 0, storage.NoCost, 8, 1000, storage.NoCost, 3, 8}
	for i, c := range costs {
		r.insert(costing(c, fmt.Sprint("t", i)))
	}
	for taken, waits, claims := 0, 0, 0; taken < len(costs); claims++ {
		c := r.claim(ask(1 + claims%3))
		for _, t := range c.Tasks {
			r.want("claimed", t.ID, fmt.Sprint("t", taken))
			l.started(r, costs[taken], c.Now)
			taken, waits = taken+1, 0
		}
		if len(c.Tasks) > 0 {
			r.pass(100 * time.Millisecond)
			continue
		}
		r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
		first := l.from(costs[taken])
		from := first
		if left, _ := l.admits(storage.NoCost, c.Now); !left { // then NextDue may be when something is left again
			from = l.from(storage.NoCost)
		}
		r.between("NextDue", c.NextDue, from, first.Add(l.late()))
		if next := r.stats().Limit.NextOf(costs[taken]); !next.IsZero() { // else it has come
			r.between("NextOf", next, first, first.Add(l.late()))
		}
		if claims%2 == 0 {
			r.pass(c.NextDue.Sub(c.Now) / 2)
			continue
		}
		if waits++; waits > 2 {
			r.Fatalf("claims at NextDue: got %d without t%d, want it in the second at the latest", waits-1, taken)
		}
		r.passTo(c.NextDue)
	}
}

func costClockAhead(r *rig) {
	if !r.jumps() {
		return
	}
	r.hourly(10)
	r.spend(7)
	r.insert(costing(5, "big"), costing(1, "small"))
	r.Jump(far)
	for range 3 {
		c := r.full("while the clock is ahead")
		r.between("NextDue", c.NextDue, c.Now, c.Now.Add(storage.JumpWait))
		r.charged("while the clock is ahead", 7)
		r.pass(200 * time.Millisecond)
	}
	r.Jump(-far)
	r.full("when it is right again")
	r.charged("when it is right again", 7)
}

func costClockBack(r *rig) {
	if !r.jumps() {
		return
	}
	const per = 2 * time.Second
	r.pace.rely(per)
	r.configure(limiting(starting(10, per)))
	r.spend(7)
	r.insert(costing(5, "big"), costing(1, "small"))
	r.Jump(-far)
	c := r.full("after the clock was set back")
	r.charged("after the clock was set back", 7)
	r.between("NextDue", c.NextDue, c.Now, c.Now.Add(per+per/storage.RateParts))
	r.pass(per + per/storage.RateParts + 10*time.Millisecond)
	r.want("claimed after Per", r.drain(), []string{"big", "small"})
}

func costClaimers(r *rig) {
	const n, tasks, claimers = 49, 60, 6
	r.hourly(n)
	ins, want, sum := make([]storage.Insert, tasks), []string(nil), 0
	for i := range ins {
		cost := storage.Cost(i*7%5) - 1 // NoCost to 3
		ins[i] = costing(cost, fmt.Sprintf("t%02d", i))
		if need := max(cost.N(), 1); len(want) == i && sum+need <= n {
			want, sum = append(want, ins[i].Ref.ID), sum+cost.N()
		}
	}
	r.insert(ins...)
	var mu sync.Mutex
	var taken []storage.Task
	var all sync.WaitGroup
	for i := range claimers {
		own := r
		if other, ok := r.again(); ok && i > 0 {
			own = other
		}
		all.Go(func() {
			for left := true; left; {
				c, err := own.session.Claim(own.ctx, ask(1+i%3))
				if err != nil {
					r.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				taken = append(taken, c.Tasks...)
				mu.Unlock()
				left = len(c.Tasks) > 0 || len(c.Bounded) == 0
			}
		})
	}
	all.Wait()
	slices.SortStableFunc(taken, func(a, b storage.Task) int { return cmp.Compare(a.Version, b.Version) })
	r.want("claimed", ids(taken), want)
	r.charged("at the end", int64(sum))
	r.full("at the end")
}
