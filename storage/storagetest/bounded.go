package storagetest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

func boundedRules() []rule {
	rules := []rule{
		state("bounded/concurrency", boundedConcurrency,
			"Over all claims, never more tasks of a queue are pending than its Concurrency."),
		state("bounded/many claimers", boundedClaimers,
			"Callers that claim at the same time, from several processes, do not take the same slot."),
		state("bounded/no room", boundedRoom,
			"A task that a limit admits and that has no room in the answer counts no start and takes no slot."),
		state("bounded/slots come back", boundedSlots,
			"Each outcome, and the recovery of an expired lease, gives the slot of a task back."),
		state("bounded/ahead", boundedAhead,
			"A Concurrency admits tasks ahead in its first half; a rate and a limit of partitions admit none."),
		state("bounded/rate", boundedRate,
			"Never more than N tasks start in any span of Per. NextDue is the moment of the next start, which is "+
				"at most a part of Per late."),
		state("bounded/no refund", boundedRefund,
			"A rate takes no start back: neither by a release, nor by a decline, nor by a failure."),
		state("bounded/repeated", boundedRepeated,
			"A repeat of a Claim counts no start, and takes no slot."),
		state("bounded/named", boundedNamed,
			"Bounded names a queue whose limit admits no task of the claim, whether tasks wait or not, and these "+
				"tasks do not count for More. It never names a queue with MaxNone or MaxFull, nor one without a limit."),
		state("bounded/other queues", boundedOthers,
			"A queue at its limit holds back no other queue of a claim, neither tasks that start nor tasks ahead."),
		state("bounded/changed", boundedChanged,
			"A limit that is lowered stops no task that runs. One that is raised or cleared wakes all callers."),
		state("bounded/rate changed", boundedRateChanged,
			"A change of the Rate leaves the starts counted, unless there is no Rate any more."),
		state("bounded/operator", boundedOperator,
			"The limit of an operator stands above the declared one, and the zero limit of an operator lifts it; "+
				"once the operator clears it, the declared limit holds again."),
		state("bounded/told", boundedTold,
			"Stats returns the limits as they were written, with what a declaration has replaced."),
		state("bounded/makes a queue", boundedMakes,
			"Setting a limit makes a queue, clearing makes none. A removal of the queue removes its limits."),
		state("bounded/stays", boundedStays,
			"A queue with a limit is not removed for being empty."),
		state("bounded/priorities", boundedPriorities,
			"Under a limit tasks are claimed by priority as ever, and a release goes to the head."),
		state("bounded/kinds", boundedKinds,
			"Declined tasks take a slot as other tasks do, and wait in their line while there is none."),
		state("bounded/suspects", boundedSuspects,
			"A suspect takes a slot as other tasks do, and one that the claim passes over takes none."),
		state("bounded/clock ahead", boundedClockAhead,
			"During a wait of the clock no start ceases to count."),
		state("bounded/clock back", boundedClockBack,
			"After the clock was set back, starts that lie ahead count as made now: for Per, and no longer."),
		state("bounded/told while the clock is ahead", boundedToldAhead,
			"During a wait of the clock Stats tells the starts that count."),
		state("bounded/next due while the clock is ahead", boundedNextAhead,
			"During a wait of the clock the NextDue of a queue at its rate is neither past nor after the end of the "+
				"wait."),
		state("bounded/shorter span", boundedShorter,
			"A start that was counted in a part of a longer Per counts for the new Per at most, from the first Claim "+
				"after the change."),
		state("bounded/valid", boundedValid,
			"A limit out of bounds is an InvalidError and changes nothing."),
		state("bounded/model", boundedModel,
			"After random steps the tasks pending are within the Concurrency, and the starts within the Rate."),
	}
	return slices.Concat(rules, boundedCostRules())
}

// limiting returns settings that set the limit of an operator.
func limiting(l storage.Limit) storage.Settings {
	return storage.Settings{Limit: &storage.OperatorLimit{On: true, Limit: l}}
}

// clearing returns settings that clear the limit of an operator.
func clearing() storage.Settings { return storage.Settings{Limit: &storage.OperatorLimit{}} }

// declaring returns settings that declare a limit.
func declaring(l storage.Limit) storage.Settings {
	return storage.Settings{Declared: &storage.DeclaredLimit{Limit: l}}
}

// slotsOf returns a limit of the tasks that are pending at once.
func slotsOf(n int) storage.Limit { return storage.Limit{Concurrency: n} }

// starting returns a limit of the starts in a span of time.
func starting(n int, per time.Duration) storage.Limit {
	return storage.Limit{Rate: storage.Rate{N: n, Per: per}}
}

// addMany inserts n jobs, t0 and so on.
func (r *rig) addMany(n int) {
	r.Helper()
	for i := range n {
		r.add(fmt.Sprint("t", i))
	}
}

// full fails the rule unless the limit of main admits no task now.
func (r *rig) full(when string) storage.Claimed {
	r.Helper()
	c := r.claim(ask(5))
	r.want("claimed "+when, ids(c.Tasks), []string{})
	r.want("bounded, more "+when, [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
	return c
}

func boundedConcurrency(r *rig) {
	r.configure(limiting(slotsOf(3)))
	r.addMany(8)
	r.hold(ask(1), 1)
	other := ask(8)
	other.Runner = "runner-2"
	holds := r.hold(other, 2)
	r.full("at the limit")
	r.want("pending", r.stats().Pending, int64(3))
	r.end(holds[0], storage.Complete)
	r.hold(ask(8), 1)
	r.full("at the limit again")
	r.want("pending", len(r.list(storage.Pending)), 3)
}

func boundedClaimers(r *rig) {
	const limit, tasks, claimers = 2, 120, 6
	r.configure(limiting(slotsOf(limit)))
	r.addMany(tasks)
	var running, most, ended atomic.Int64
	var all sync.WaitGroup
	for i := range claimers {
		own := r
		if other, ok := r.again(); ok && i > 0 {
			own = other
		}
		all.Go(func() { own.boundedWork(&running, &most, &ended, tasks) })
	}
	all.Wait()
	r.want("ended", ended.Load(), int64(tasks))
	if n := most.Load(); n > limit {
		r.Fatalf("pending: got %d at once, want at most %d", n, limit)
	}
	r.want("pending", r.stats().Pending, int64(0))
}

// boundedWork claims and completes tasks until all have ended, and counts the running ones.
func (r *rig) boundedWork(running, most, ended *atomic.Int64, tasks int64) {
	for ended.Load() < tasks {
		c, err := r.session.Claim(r.ctx, ask(3))
		if err != nil {
			r.Errorf("claim: %v", err)
			return
		}
		n := running.Add(int64(len(c.Tasks)))
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); {
			was = most.Load()
		}
		if len(c.Tasks) == 0 {
			runtime.Gosched()
			continue
		}
		for _, f := range c.Fences {
			running.Add(-1) // before the slot is free
			settle := storage.Settle{Fence: f, Outcome: storage.Complete}
			if _, err := r.session.ApplyOne(r.ctx, storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
				r.Errorf("complete: %v", err)
				return
			}
			ended.Add(1)
		}
	}
}

func boundedRoom(r *rig) {
	const n = 6
	for i := range n {
		j := job(fmt.Sprint("t", i))
		j.Payload = make([]byte, 1<<20)
		r.insert(j)
	}
	r.configure(limiting(storage.Limit{Concurrency: n, Rate: storage.Rate{N: n, Per: time.Hour}}))
	for taken := 0; taken < n; {
		c := r.claim(ask(n))
		if taken += len(c.Tasks); len(c.Tasks) == 0 || len(c.Tasks) == n {
			r.Fatalf("claimed: got %d of %d tasks of 1 MiB, want as many as have room in an answer", len(c.Tasks), n)
		}
		s := r.stats()
		r.want("a limit", s.Limit != nil, true)
		r.want("started, pending", [2]int64{s.Limit.Started, s.Pending}, [2]int64{int64(taken), int64(taken)})
	}
}

func boundedSlots(r *rig) {
	r.configure(declaring(slotsOf(1)))
	for _, outcome := range outcomes() {
		id := string(outcome)
		h := r.holding(kept(id))
		r.full("before " + id)
		r.settle(h, storage.Settle{Outcome: outcome, Delay: settleDelay(outcome)})
		r.add("after-" + id)
		if outcome == storage.Release || outcome == storage.Decline {
			r.end(r.take(ask(1), id), storage.Complete)
		}
		r.end(r.take(ask(1), "after-"+id), storage.Complete)
	}
	h := r.holding(job("cancelled"))
	r.cancel("cancelled")
	r.full("while the job ignores its cancel")
	r.end(h, storage.Complete)
	r.add("expired")
	r.expire(r.take(brief(1), "expired"))
	r.take(ask(1), "expired")
	r.full("after the recovery")
}

// settleDelay is the delay of an outcome that puts a task off.
func settleDelay(o storage.Outcome) time.Duration {
	if o == storage.Fail || o == storage.Snooze {
		return time.Hour
	}
	return 0
}

func boundedRate(r *rig) {
	const n, per = 3, 2 * time.Second
	r.pace.rely(per)
	r.configure(limiting(starting(n, per)))
	r.addMany(3 * n)
	var starts []time.Time
	for most := 1; len(starts) < 3*n; most = n {
		c := r.claim(ask(most))
		for _, t := range c.Tasks {
			starts = append(starts, t.Claimed)
		}
		if len(c.Tasks) > 0 {
			continue
		}
		first := starts[len(starts)-n] // the oldest of the n starts that count
		r.between("NextDue", c.NextDue, first.Add(per), first.Add(per+per/storage.RateParts))
		if s := r.stats().Limit; s.Started == n && s.Next.Before(c.NextDue) {
			r.Fatalf("next start: got %v, want %v, the NextDue of the claim", s.Next, c.NextDue)
		}
		r.passTo(c.NextDue)
	}
	r.want("starts", len(starts), 3*n)
	for i := n; i < len(starts); i++ {
		if span := starts[i].Sub(starts[i-n]); span < per {
			r.Fatalf("%d starts: got them in %v, want at most %d in %v", n+1, span, n, per)
		}
	}
}

func boundedRefund(r *rig) {
	r.configure(limiting(starting(4, time.Hour)))
	for i, outcome := range []storage.Outcome{storage.Release, storage.Decline, storage.Fail, storage.Complete} {
		id := string(outcome)
		h := r.holding(job(id))
		r.settle(h, storage.Settle{Outcome: outcome, Delay: settleDelay(outcome)})
		r.want("started", r.stats().Limit.Started, int64(i+1))
		if outcome == storage.Release || outcome == storage.Decline {
			r.delete(id)
		}
	}
	r.add("next")
	c := r.full("after all starts")
	r.want("NextDue is set", c.NextDue.IsZero(), false)
}

func boundedRepeated(r *rig) {
	r.configure(limiting(storage.Limit{Concurrency: 4, Rate: storage.Rate{N: 5, Per: time.Hour}}))
	r.addMany(8)
	req := ask(2)
	req.Call, req.Token = r.first(), storage.NewToken()
	first := r.claimedAs(req)
	for range 3 {
		r.want("repeated", len(r.claimedAs(req)), len(first))
	}
	r.want("started", r.stats().Limit.Started, int64(2))
	for _, h := range append(first, r.hold(ask(8), 2)...) {
		r.end(h, storage.Complete)
	}
	r.hold(ask(8), 1)
	r.full("after five starts")
}

func boundedNamed(r *rig) {
	named := func(what string, req storage.ClaimRequest, want ...string) {
		r.Helper()
		c := r.claim(req)
		r.want("claimed "+what, len(c.Tasks), 0)
		if len(c.Bounded) != len(want) || len(want) > 0 && c.Bounded[0] != want[0] {
			r.Fatalf("bounded %s: got %v, want %v", what, c.Bounded, want)
		}
		r.want("more "+what, c.More, false)
	}
	named("without a limit", ask(1))
	r.configure(limiting(slotsOf(1)))
	named("in an empty queue with room", ask(1))
	h := r.holding(job("a"))
	named("at the limit, nothing waits", ask(1), mainQueue)
	r.add("b")
	named("at the limit, a task waits", ask(1), mainQueue)
	for _, none := range []int{storage.MaxNone, storage.MaxFull} {
		req := ask(1)
		req.Queues[0].Max = none
		named(fmt.Sprint("with Max ", none), req)
	}
	r.configure(clearing())
	r.configure(limiting(starting(1, time.Hour)))
	r.end(h, storage.Complete)
	h = r.take(ask(1), "b")
	r.end(h, storage.Complete)
	named("at the rate, nothing waits", ask(1), mainQueue)
}

func boundedOthers(r *rig) {
	r.configure(limiting(slotsOf(1)))
	r.addMany(3)
	r.hold(ask(1), 1)
	for i := range 5 {
		j := job(fmt.Sprint("s", i))
		j.Ref.Queue = sideQueue
		r.insert(j)
	}
	req := ask(2)
	req.Ahead = 2
	req.Queues = []storage.ClaimQueue{{Name: mainQueue}, {Name: sideQueue}}
	c := r.claim(req)
	r.want("claimed", ids(c.Tasks), []string{"s0", "s1", "s2", "s3"})
	r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, true})
	c = r.claim(req)
	r.want("claimed", ids(c.Tasks), []string{"s4"})
	r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
}

func boundedChanged(r *rig) {
	r.configure(limiting(slotsOf(3)))
	r.addMany(6)
	holds := r.hold(ask(5), 3)
	r.configure(limiting(slotsOf(1)))
	for i, h := range holds {
		r.full("below what runs")
		x := r.extend(storage.Extension{Fence: h.Fence, For: long})
		r.want("lost", len(x.Lost), 0)
		r.end(h, storage.Complete)
		r.want("pending", r.stats().Pending, int64(2-i))
	}
	r.hold(ask(5), 1)
	for by, s := range map[string]storage.Settings{
		"a raised limit": limiting(slotsOf(2)), "a cleared limit": clearing(),
	} {
		since := r.claim(ask(1)).Since
		waits := make([]<-chan error, 2)
		for i := range waits {
			waits[i] = r.waiting(storage.WaitRequest{Queues: []string{mainQueue}, Since: since})
		}
		r.configure(s)
		for _, done := range waits {
			r.woken(by, done)
		}
		r.configure(limiting(slotsOf(1)))
	}
	r.configure(clearing())
	r.want("bounded once it is cleared", len(r.claim(ask(5)).Bounded), 0)
}

func boundedRateChanged(r *rig) {
	r.configure(limiting(starting(2, time.Hour)))
	r.addMany(9)
	r.hold(ask(9), 2)
	r.configure(limiting(starting(3, time.Hour)))
	r.hold(ask(9), 1)
	r.configure(limiting(starting(2, time.Hour)))
	r.full("below the starts")
	r.configure(limiting(slotsOf(3)))
	r.full("at three that run")
	r.configure(limiting(starting(1, time.Hour)))
	r.hold(ask(9), 1)
	r.full("after the rate was gone for a while")
	both := declaring(starting(2, time.Hour))
	both.Limit = clearing().Limit
	r.configure(both)
	r.hold(ask(9), 1)
	r.full("by a declared rate instead of the operator's")
}

func boundedOperator(r *rig) {
	r.configure(declaring(slotsOf(2)))
	r.addMany(9)
	r.hold(ask(9), 2)
	r.configure(limiting(slotsOf(4)))
	r.hold(ask(9), 2)
	r.full("at the operator's limit")
	r.configure(declaring(slotsOf(3)))
	r.full("with another declaration")
	r.configure(limiting(storage.Limit{}))
	r.hold(ask(2), 2)
	r.configure(clearing())
	r.full("once the operator's limit is cleared")
	r.configure(declaring(storage.Limit{}))
	r.hold(ask(9), 3)
	r.want("limit", r.stats().Limit == nil, true)
}

func boundedTold(r *rig) {
	r.want("limit of a queue without one", r.stats().Limit == nil, true)
	d := storage.DeclaredLimit{Limit: storage.Limit{Concurrency: 7, Rate: storage.Rate{N: 9, Per: time.Minute}}}
	for i := range storage.MaxReplaced {
		d.Replaced = append(d.Replaced, starting(i+1, time.Duration(i+1)*time.Second))
	}
	r.configure(storage.Settings{Declared: &d})
	got := r.stats().Limit
	r.want("declared", *got.Declared, d)
	r.want("operator, started, next", [3]any{got.Operator == nil, got.Started, got.Next.IsZero()},
		[3]any{true, int64(0), true})
	highest := storage.Limit{
		Concurrency: storage.MaxLimitConcurrency, Rate: storage.Rate{N: storage.MaxRate, Per: storage.MaxPer},
	}
	r.configure(limiting(highest))
	got = r.stats().Limit
	r.want("operator", *got.Operator, highest)
	r.want("declared beside it", *got.Declared, d)
	r.want("in force", got.InForce(), highest)
	r.configure(pausing(0))
	r.want("operator after a pause", *r.stats().Limit.Operator, highest)
	r.configure(limiting(storage.Limit{}))
	r.want("the operator's zero limit", *r.stats().Limit.Operator, storage.Limit{})
	r.configure(clearing())
	r.want("operator once cleared", r.stats().Limit.Operator == nil, true)
	r.configure(declaring(storage.Limit{}))
	r.want("limit once all is cleared", r.stats().Limit == nil, true)
}

func boundedMakes(r *rig) {
	exists := func(when string, want int) {
		r.Helper()
		p, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
		r.must("queues", err)
		r.want("queues "+when, len(p.Names), want)
	}
	r.configure(clearing())
	r.configure(declaring(storage.Limit{}))
	exists("after limits were cleared", 0)
	for what, s := range map[string]storage.Settings{
		"an operator's limit": limiting(slotsOf(1)), "an operator's zero limit": limiting(storage.Limit{}),
		"a declaration": declaring(slotsOf(1)),
	} {
		r.configure(s)
		exists("after "+what, 1)
		r.configure(storage.Settings{Remove: true})
		exists("after the removal", 0)
		r.want("limit after the removal", r.stats().Limit == nil, true)
	}
	r.addMany(2)
	r.hold(ask(2), 2)
}

func boundedStays(r *rig) {
	if r.Advance == nil {
		r.Log("not tested: a day would have to pass")
		return
	}
	r.configure(declaring(slotsOf(1)))
	for range 5 {
		r.pass(12 * time.Hour)
		r.maintain()
	}
	p, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", p.Names, []string{mainQueue})
	r.want("declared", r.stats().Limit.InForce(), slotsOf(1))
}

func boundedPriorities(r *rig) {
	r.configure(limiting(slotsOf(1)))
	for id, p := range map[string]int{"low": -1, "middle": 0, "high": 1} {
		j := job(id)
		j.Priority = p
		r.insert(j)
	}
	r.end(r.take(ask(1), "high"), storage.Release)
	for _, id := range []string{"high", "middle", "low"} {
		h := r.take(ask(1), id)
		r.full("while " + id + " runs")
		r.end(h, storage.Complete)
	}
}

func boundedKinds(r *rig) {
	r.configure(limiting(slotsOf(1)))
	r.decline(of("mail", "a"), of("mail", "b"))
	r.add("c")
	h := r.take(knows(1, "mail"), "a")
	c := r.claim(knows(5, "mail"))
	r.want("claimed at the limit", len(c.Tasks), 0)
	r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
	r.want("declined", r.stats().Declined, []storage.KindSize{{Kind: "mail", Tasks: 1}})
	r.end(h, storage.Decline)
	r.take(knows(1, "another"), "c")
	c = r.claim(knows(5, "mail"))
	r.want("claimed at the limit", len(c.Tasks), 0)
	r.want("pending", r.stats().Pending, int64(1))
}

func boundedSuspects(r *rig) {
	r.configure(limiting(slotsOf(1)))
	r.suspects("s")
	r.add("a")
	h := r.take(ask(1), "a")
	req := ask(5)
	req.Suspect = true
	c := r.claim(req)
	r.want("claimed at the limit", len(c.Tasks), 0)
	r.want("more at the limit", c.More, false)
	r.end(h, storage.Complete)
	r.add("b")
	req.Start = 1
	h = r.take(req, "s")
	r.full("while a suspect runs")
	r.end(h, storage.Complete)
	ahead := brief(0)
	ahead.Ahead = 1
	r.configure(clearing())
	r.expire(r.take(ahead, "b"))
	r.configure(limiting(slotsOf(1)))
	h = r.take(ask(1), "b") // it may only start at once
	r.full("while it runs")
	r.end(h, storage.Complete)
}

func boundedValid(r *rig) {
	bad := []alter[storage.Limit]{
		{"a negative concurrency", func(l *storage.Limit) { l.Concurrency = -1 }},
		{"a concurrency of 10,001", func(l *storage.Limit) { l.Concurrency = storage.MaxLimitConcurrency + 1 }},
		{"a rate without Per", func(l *storage.Limit) { l.Rate.Per = 0 }},
		{"a rate without N", func(l *storage.Limit) { l.Rate.N = 0 }},
		{"a negative rate", func(l *storage.Limit) { l.Rate.N = -1 }},
		{"a rate too high", func(l *storage.Limit) { l.Rate.N = storage.MaxRate + 1 }},
		{"a Per under 1ms", func(l *storage.Limit) { l.Rate.Per = storage.MinSpan - 1 }},
		{"a Per over 31 days", func(l *storage.Limit) { l.Rate.Per = storage.MaxPer + 1 }},
	}
	good := storage.Limit{Concurrency: 1, Rate: storage.Rate{N: 1, Per: time.Second}}
	refused := func(what string, s storage.Settings) {
		r.Helper()
		r.wantInvalid(what, r.session.Configure(r.ctx, mainQueue, s))
	}
	for _, b := range bad {
		l := good
		b.alter(&l)
		refused("an operator's limit with "+b.what, limiting(l))
		refused("a declaration with "+b.what, declaring(l))
		refused("a replaced declaration with "+b.what,
			storage.Settings{Declared: &storage.DeclaredLimit{Limit: good, Replaced: []storage.Limit{l}}})
	}
	many := make([]storage.Limit, storage.MaxReplaced+1)
	for i := range many {
		many[i] = slotsOf(i + 1)
	}
	refused("11 replaced", storage.Settings{Declared: &storage.DeclaredLimit{Limit: good, Replaced: many}})
	for _, s := range []storage.Settings{limiting(good), declaring(good)} {
		s.Remove = true
		refused("a limit and a removal", s)
		s.Remove, s.Create = false, true
		refused("a limit and a creation", s)
	}
	p, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", len(p.Names), 0)
}
