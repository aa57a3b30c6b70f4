package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func boundedCostRules() []rule {
	charges := []rule{
		state("bounded/cost charged", costCharged,
			"A start uses up its cost of the rate: 1 if none is named, nothing with NoCost, and N if it costs more "+
				"than N."),
		state("bounded/cost while a rate is spent", costSpent,
			"A rate that is spent admits no start, even if it costs nothing, and one that is not spent admits any "+
				"number that cost nothing."),
		state("bounded/cost repeated", costRepeated,
			"A repeat of a Claim charges nothing."),
		state("bounded/cost without refund", costRefund,
			"No outcome, no recovery and no change of the cost gives back anything of a start, and each start of a "+
				"task is charged."),
		state("bounded/cost without room", costRoom,
			"A task that the rate admits and that has no room in the answer is not charged."),
		state("bounded/cost of a lowered rate", costLowered,
			"A task that costs more than a lowered N counts as N, and starts that cost more than is left of it still "+
				"count."),
		state("bounded/cost of a raised rate", costRaised,
			"A start that counted as N goes on counting as that N once the rate is raised."),
		state("bounded/cost of many claimers", costClaimers,
			"Callers that claim at the same time, from several processes, take the tasks in their order, and stop at "+
				"the first that the rate does not admit."),
		state("bounded/cost told", costTold,
			"Stats returns the starts that count: their sum is Started, each counts until a moment to come, and "+
				"NextOf returns the moment from which a start of a cost is admitted."),
		state("bounded/cost and the next start", costDue,
			"NextDue is the first moment at which the rate admits the next task, which is at most a part of Per "+
				"late. A Claim takes the task then, and not before."),
		state("bounded/cost while the clock is ahead", costClockAhead,
			"During a wait of the clock no cost ceases to count, and NextDue is no later than the end of the wait."),
		state("bounded/cost after the clock was set back", costClockBack,
			"After the clock was set back the costs of starts that lie ahead count for Per, and no longer."),
		state("bounded/cost model", costModel,
			"After random steps each claim takes the tasks in their order up to the first that the rate does not "+
				"admit, and in no span of Per do the costs of starts exceed N."),
	}
	return slices.Concat(charges, boundedCostLineRules(), boundedCostKeptRules())
}

// costing returns a job of a cost.
func costing(c storage.Cost, id string) storage.Insert {
	j := job(id)
	j.Cost = c
	return j
}

// hourly sets a rate of n in an hour.
func (r *rig) hourly(n int) {
	r.Helper()
	r.configure(limiting(starting(n, time.Hour)))
}

// charged fails the rule unless the starts that count cost this much together.
func (r *rig) charged(when string, want int64) {
	r.Helper()
	r.want("started "+when, r.stats().Limit.Started, want)
}

// spend starts a task of a cost, in a queue in which nothing else waits, and completes it.
func (r *rig) spend(c storage.Cost) {
	r.Helper()
	r.end(r.holding(costing(c, fmt.Sprint("spent", c))), storage.Complete)
}

func costCharged(r *rig) {
	r.hourly(100)
	sum := int64(0)
	for i, c := range []storage.Cost{0, storage.NoCost, 1, 7, 0, 20, storage.NoCost} {
		r.end(r.holding(costing(c, fmt.Sprint("t", i))), storage.Complete)
		sum += []int64{1, 0, 1, 7, 1, 20, 0}[i]
		r.charged(fmt.Sprint("after a cost of ", c), sum)
	}
	r.insert(costing(71, "too-much"))
	r.full("with 70 left")
	r.delete("too-much")
	for _, n := range []int{100, 1, storage.MaxCost - 1} {
		r.configure(clearing()) // which forgets all starts
		r.hourly(n)
		r.spend(storage.MaxCost)
		r.charged("by the highest cost", int64(n))
		r.add("next")
		r.full("after the highest cost")
		r.delete("next")
	}
}

func costSpent(r *rig) {
	r.hourly(3)
	r.spend(2)
	for i := range 20 {
		r.insert(costing(storage.NoCost, fmt.Sprint("free", i)))
	}
	r.hold(ask(20), 20)
	r.charged("by tasks that cost nothing", 2)
	r.spend(1)
	for id, c := range []storage.Cost{storage.NoCost, storage.NoCost, 1, storage.NoCost} {
		r.insert(costing(c, fmt.Sprint("t", id)))
	}
	c := r.full("while the rate is spent")
	r.want("NextDue is set", c.NextDue.IsZero(), false)
	r.hourly(4)
	r.want("claimed with 1 left", ids(r.claim(ask(9)).Tasks), []string{"t0", "t1", "t2"})
	r.charged("at the end", 4)
	r.full("while it is spent again")
}

func costRepeated(r *rig) {
	r.hourly(10)
	r.insert(costing(3, "a"), costing(storage.NoCost, "b"), costing(4, "c"), costing(4, "d"))
	req := ask(9)
	req.Call, req.Token = r.first(), storage.NewToken()
	first := r.claimedAs(req)
	r.want("claimed", len(first), 3)
	for range 3 {
		r.want("repeated", r.claimedAs(req), first)
		r.charged("after a repeat", 7)
	}
	r.full("after the repeats")
	r.hourly(11)
	r.take(ask(1), "d")
}

func costRefund(r *rig) {
	r.hourly(1000)
	sum := int64(0)
	start := func(req storage.ClaimRequest, id string) held {
		r.Helper()
		h := r.take(req, id)
		sum += 3
		r.charged("by a start of "+id, sum)
		return h
	}
	for _, outcome := range outcomes() {
		id := string(outcome)
		j := kept(id)
		j.Cost = 3
		r.insert(j)
		p := r.settle(start(ask(1), id), storage.Settle{Outcome: outcome, Delay: settleDelay(outcome)})
		r.charged("after "+id, sum)
		if outcome != storage.Release {
			r.changeNow(id, storage.Change{Requeue: p.State.Ended(), Now: !p.State.Ended()})
		}
		r.changeNow(id, repriced(storage.NoCost))
		r.changeNow(id, repriced(3))
		r.end(start(ask(1), id), storage.Complete)
		r.charged("after another start of "+id, sum)
	}
	r.insert(costing(3, "expired"))
	r.expire(start(brief(1), "expired"))
	r.charged("after a recovery", sum)
	r.delete("expired")
	r.charged("after a delete", sum)
	r.insert(costing(3, "cancelled"))
	start(ask(1), "cancelled")
	r.cancel("cancelled")
	r.charged("after a cancel", sum)
}

func costRoom(r *rig) {
	const n = 6
	for i := range n {
		j := costing(2, fmt.Sprint("t", i))
		j.Payload = make([]byte, 1<<20)
		r.insert(j)
	}
	r.hourly(2 * n)
	for taken := 0; taken < n; {
		c := r.claim(ask(n))
		if taken += len(c.Tasks); len(c.Tasks) == 0 || len(c.Tasks) == n {
			r.Fatalf("claimed: got %d of %d tasks of 1 MiB, want as many as have room in an answer", len(c.Tasks), n)
		}
		r.charged(fmt.Sprintf("by %d tasks", taken), int64(2*taken))
	}
}

func costLowered(r *rig) {
	r.hourly(20)
	r.spend(12)
	r.insert(costing(9, "a"), costing(1, "b"))
	r.full("with 8 left")
	r.hourly(5)
	r.charged("once N is lowered", 12)
	r.full("with none left")
	r.hourly(16)
	r.full("with 4 left")
	r.hourly(12 + 9)
	r.take(ask(1), "a")
	r.full("while it is spent")
	r.configure(clearing())
	r.hourly(5)
	r.take(ask(1), "b")
	r.insert(costing(9, "c"))
	r.full("with one less than N left")
	r.hourly(9)
	r.full("with one less than its cost left")
	r.hourly(10)
	r.take(ask(1), "c")
	r.charged("at the end", 10)
}

func costRaised(r *rig) {
	r.hourly(10)
	r.spend(1000)
	r.hourly(1000)
	r.charged("once N is raised", 10)
	r.insert(costing(1000, "a"), costing(1, "b"))
	r.full("with 990 left")
	urgent := costing(990, "urgent")
	urgent.Priority = 1
	r.insert(urgent)
	r.take(ask(1), "urgent")
	r.full("while it is spent")
	r.hourly(2000)
	r.take(ask(1), "a")
	r.charged("at the end", 2000)
}

func costTold(r *rig) {
	const per = time.Hour
	r.hourly(20)
	told := func(when string, started int64, admitted, waits []storage.Cost) {
		r.Helper()
		now, q, sum, last := r.now(), r.stats().Limit, int64(0), time.Time{}
		for _, c := range q.Counts {
			sum += c.N
			r.between("Until "+when, c.Until, now, r.now().Add(per+per/storage.RateParts))
			if !c.Until.After(last) || c.N < 1 {
				r.Fatalf("counts %s: got %+v, want counts over 0, the oldest first", when, q.Counts)
			}
			last = c.Until
		}
		r.want("started, sum of the counts "+when, [2]int64{q.Started, sum}, [2]int64{started, started})
		r.want("Next "+when, q.Next, q.NextOf(0))
		for _, c := range admitted {
			r.want(fmt.Sprint("next of cost ", c, " ", when), q.NextOf(c), time.Time{})
		}
		for _, c := range waits {
			r.between(fmt.Sprint("next of cost ", c, " ", when), q.NextOf(c), now.Add(per*9/10), last)
		}
	}
	all := []storage.Cost{storage.NoCost, 0, 1, 9, 10, 20, storage.MaxCost}
	told("before all starts", 0, all, nil)
	r.insert(costing(4, "a"), costing(storage.NoCost, "b"), costing(7, "c"), costing(20, "d"))
	r.hold(ask(9), 3)
	told("after some", 11, all[:4], all[4:])
	s := r.stats()
	_, spent := s.AtLimit()
	r.want("spent", spent, false)
	r.changeNow("d", repriced(9))
	r.hold(ask(9), 1)
	told("while it is spent", 20, nil, all)
	s = r.stats()
	_, spent = s.AtLimit()
	r.want("spent at the end", spent, true)
	r.configure(limiting(slotsOf(9)))
	q := r.stats().Limit
	r.want("started, counts without a rate", [2]int64{q.Started, int64(len(q.Counts))}, [2]int64{0, 0})
	r.want("next of a cost without a rate", q.NextOf(20), time.Time{})
}
