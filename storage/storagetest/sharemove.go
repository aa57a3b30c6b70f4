package storagetest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// shareMoveRules state how the limits and the rests of partitions go with changes of tasks, with many
// partitions, and with a clock that is set.
func shareMoveRules() []rule {
	return []rule{
		state("share/moved", shareMoved,
			"A moved task leaves no slot behind and takes no start along: the old queue counts the start that was "+
				"made there, and the new queue those that it makes."),
		state("share/changed partition", shareRekeyed,
			"A waiting task that gets another partition stands under the limit and the rest of that one, and under "+
				"none without a partition."),
		state("share/requeued", shareRequeued,
			"A requeued task waits for a slot of its partition as any other, and its next start is charged again."),
		state("share/cancelled and deleted", shareCancelled,
			"The waiting tasks of a resting partition, and of one at its limit, can be cancelled and deleted, and "+
				"the rest and the slots that are taken stay."),
		state("share/unique", shareUnique,
			"A task that waits for its partition holds its unique key until its end."),
		state("share/promoted into a rest", sharePromoted,
			"What is promoted, retried or recovered into a resting partition waits for the end of the rest."),
		state("share/first after a rate", shareFirst,
			"If another task becomes the first of a partition that rests for its rate, nothing of it is claimed "+
				"before the rate admits that task."),
		state("share/only task changed in a rest", shareOnlyChanged,
			"A partition that rests because of its rate joins the end of the ring if its only task joins the tail "+
				"again."),
		state("share/many at their limit", shareManyHeld,
			"Behind MaxTurns partitions at their limit, others are reached by later claims."),
		state("share/many loosened", shareManyLoosened,
			"A raised rate of partitions is in force for all that rest because of it, soon or at the end of their "+
				"rest."),
		state("share/loosened in order", shareLoosenedOrder,
			"Partitions that rest for their rate until the same moment come in the order of their keys after a "+
				"change of the limit."),
		state("share/lowered Per", shareLoweredPer,
			"A lowered Per of partitions counts from the end of the part in which a start was made, also for a "+
				"partition without tasks."),
		state("share/gone with its last task", shareGone,
			"A partition whose starts have ceased to count is gone with its last task. The claim that takes it "+
				"neither sets More nor has a NextDue for the partition."),
		state("share/nothing left", shareLeft,
			"When all tasks, pauses, rests and starts are over, no partition is left, however many there were."),
		state("share/clock ahead", shareClockAhead,
			"During a wait of the clock no rest ends, and NextDue is no later than the end of the wait."),
		state("share/clock ahead of a rate", shareClockAheadRate,
			"During a wait of the clock no start of a partition ceases to count."),
		state("share/clock back", shareClockBack,
			"After the clock was set back, starts of a partition that lie ahead count as made now: for Per, and no "+
				"longer."),
		state("share/clock back in a rate", shareClockBackRate,
			"A partition that rests because of its rate when the clock is set back starts again within Per of that "+
				"clock."),
		state("share/clock back beside others", shareClockBackOthers,
			"After the clock was set back, a rest ends at its moment, and other partitions are served meanwhile."),
	}
}

func shareMoved(r *rig) {
	if !storage.Spans(r.store, mainQueue, sideQueue) {
		r.Log("not tested: main and side cannot share a Tx")
		return
	}
	r.configure(inEach(1, storage.Rate{N: 9, Per: time.Hour}))
	side := func() storage.PartitionStats {
		r.Helper()
		p, err := storage.PartitionOf(r.ctx, r.store, sideQueue, "a")
		r.must("partition of side", err)
		return p
	}
	for i, s := range []storage.Settle{
		{Outcome: storage.Fail, Delay: time.Hour},
		{Outcome: storage.Snooze, Delay: time.Hour},
		{Outcome: storage.Bury},
		{Outcome: storage.Release},
	} {
		id := fmt.Sprint("t", i)
		r.insert(keyed("a", id), keyed("a", "next"))
		r.settle(r.take(ask(9), id), s)
		r.changeNow(id, storage.Change{Queue: sideQueue})
		r.complete(r.take(ask(9), "next"))
		r.counted("after the move", "a", 0, int64(2*i+2))
		p := side()
		r.want("running, starts in side", [2]int{int(p.Running), len(p.Counts)}, [2]int{0, 0})
	}
	l := inEach(1, storage.Rate{N: 2, Per: time.Hour})
	r.must("configure side", r.session.Configure(r.ctx, sideQueue, l))
	req := ask(9)
	req.Queues[0].Name = sideQueue
	c := r.claim(req)
	r.want("claimed from side", ids(c.Tasks), []string{"t3"})
	p := side()
	r.want("running, started in side", [2]int64{p.Running, storage.Started(p.Counts)}, [2]int64{1, 1})
	r.counted("in main", "a", 0, 8)
	r.end(held{c.Tasks[0], c.Fences[0]}, storage.Complete)
}

func shareRekeyed(r *rig) {
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("a", 4)
	h := r.take(ask(9), "a0")
	r.changeNow("a1", rekeyed("b"))
	r.gets("in another partition", ask(9), "a1")
	r.counted("in another partition", "b", 1, 0)
	r.changeNow("a2", rekeyed("b"))
	r.heldBack("in another partition at its limit")
	r.changeNow("a2", rekeyed(""))
	r.gets("without a partition", ask(9), "a2")
	r.end(h, storage.Release)
	r.changeNow("a0", rekeyed("c"))
	r.counted("after the release", "a", 0, 0)
	c := r.gets("of both", ask(9), "a3", "a0")
	r.throttle(c[1], time.Hour)
	r.changeNow("a0", rekeyed("d"))
	d := r.gets("of a partition that does not rest", ask(9), "a0")
	r.end(d[0], storage.Release)
	r.changeNow("a0", rekeyed("c"))
	r.nothing("in the resting partition")
	r.inLine("while it rests", "c", "a0")
}

func shareRequeued(r *rig) {
	r.configure(inEach(1, storage.Rate{N: 3, Per: time.Hour}))
	j := kept("t")
	j.Partition = "a"
	r.insert(j)
	r.end(r.take(ask(9), "t"), storage.Bury)
	r.addKeyed("a", 1)
	h := r.take(ask(9), "a0")
	r.changeNow("t", storage.Change{Requeue: true})
	r.heldBack("after the requeue")
	r.counted("after the requeue", "a", 1, 2)
	r.complete(h)
	r.complete(r.take(ask(9), "t"))
	r.counted("at the end", "a", 0, 3)
	r.changeNow("t", storage.Change{Requeue: true})
	r.nothing("over the rate")
	r.inLine("over the rate", "a", "t")
}

func shareCancelled(r *rig) {
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("a", 4)
	r.addKeyed("b", 3)
	holds := r.gets("at first", ask(9), "a0", "b0")
	r.throttle(holds[0], time.Second)
	rests := r.partition("a").Rests
	r.cancel("a0")
	r.delete("a1")
	r.cancel("a2")
	r.delete("a3")
	r.cancel("b1")
	r.delete("b2")
	r.want("partition a", r.partition("a"), storage.PartitionStats{Key: "a", Rests: rests})
	r.want("partition b", r.partition("b"), storage.PartitionStats{Key: "b", Running: 1})
	c := r.nothing("of both")
	r.want("held", len(c.Held), 0)
	r.want("next due", c.NextDue.Equal(rests), true)
	r.insert(keyed("b", "new"))
	r.heldBack("at the limit still")
	r.delete("new")
	r.complete(holds[1])
	r.passes(rests, 0)
	r.want("next due after the rest", r.maintain().NextDue.IsZero(), true)
	r.want("partitions at the end", r.keys(), []string{})
}

func shareUnique(r *rig) {
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("a", 1)
	h := r.take(ask(9), "a0")
	u := life("u", "k")
	u.Partition = "a"
	r.insert(u)
	r.heldBack("with a key")
	r.keyTaken("at the limit", "k", "u")
	r.throttle(h, time.Second)
	r.keyTaken("during the rest", "k", "u")
	r.passes(r.partition("a").Rests, 0)
	r.complete(r.take(ask(9), "a0"))
	r.complete(r.take(ask(9), "u"))
	r.keyFree("after the end")
}

func sharePromoted(r *rig) {
	r.configure(inEach(9, storage.Rate{}))
	for _, id := range []string{"retry", "crash", "rest"} {
		r.insert(keyed("a", id))
	}
	retry := r.take(ask(1), "retry")
	crash := r.take(brief(1), "crash")
	rest := r.take(ask(1), "rest")
	later := keyed("a", "later")
	later.Delay = 50 * time.Millisecond
	r.insert(later)
	r.settle(retry, storage.Settle{Outcome: storage.Fail, Delay: 50 * time.Millisecond})
	r.throttle(rest, 4*time.Second)
	r.expire(crash)
	c := r.nothing("during the rest")
	r.want("next due", c.NextDue.Equal(r.partition("a").Rests), true)
	r.want("waiting", r.partition("a").Waiting, int64(4))
	r.counted("after the recovery", "a", 0, 0)
	r.passes(r.partition("a").Rests, 0)
	r.gets("after the rest", ask(9), "crash", "rest", "later", "retry")
}

func shareFirst(r *rig) {
	const per = 2 * time.Second
	r.pace.rely(per)
	r.configure(inEach(0, storage.Rate{N: 4, Per: per}))
	r.insert(costly("a", "first", 3), costly("a", "dear", 4))
	from := r.now()
	r.want("claimed at first", r.finish(9), []string{"first"})
	urgent := costly("a", "urgent", 4)
	urgent.Priority = 5
	r.insert(urgent)
	r.nothing("of the urgent task")
	r.delete("urgent")
	r.delete("dear")
	r.insert(costly("a", "new", 4))
	r.nothing("of the new task")
	r.passes(from, per/2)
	r.nothing("within the rate")
	r.passes(r.now(), per/2+per/storage.RateParts)
	r.want("claimed after the rate", r.finish(9), []string{"new"})
}

// addParts inserts n tasks of each of the first parts partitions, a hundred in a Tx.
func (r *rig) addParts(parts, n int) {
	r.Helper()
	for from := 0; from < parts; from += 100 {
		var ins []storage.Insert
		for i := from; i < min(from+100, parts); i++ {
			for t := range n {
				ins = append(ins, keyed(fmt.Sprintf("key%04d", i), fmt.Sprintf("t%04d.%d", i, t)))
			}
		}
		r.insert(ins...)
	}
}

// claimAll claims until n tasks are taken, and returns them.
func (r *rig) claimAll(n int) []held {
	r.Helper()
	var got []held
	for len(got) < n {
		c := r.claim(ask(storage.MaxClaim))
		if len(c.Tasks) == 0 {
			r.Fatalf("claimed: got none after %d of %d", len(got), n)
		}
		for i, t := range c.Tasks {
			got = append(got, held{t, c.Fences[i]})
		}
	}
	return got
}

func shareOnlyChanged(r *rig) {
	r.configure(inEach(0, storage.Rate{N: 3, Per: time.Hour}))
	dear := keyed("a", "dear")
	dear.Cost = 3
	r.insert(keyed("a", "a0"), dear, keyed("b", "b0"), keyed("b", "b1"))
	r.want("claimed", r.finish(2), []string{"a0", "b0"})
	r.want("claimed beside a dear task", r.finish(9), []string{"b1"})
	r.addKeyed("c", 1)
	ch := repriced(0)
	ch.Priority = new(int)
	r.changeNow("dear", ch)
	r.want("claimed after the change", r.finish(9), []string{"c0", "dear"})
}

func shareManyHeld(r *rig) {
	const parts = storage.MaxTurns + 100
	r.configure(inEach(1, storage.Rate{}))
	r.addParts(parts, 2)
	holds := r.claimAll(parts)
	r.want("claimed", len(holds), parts)
	r.insert(keyed("last", "last"))
	got := make([]string, 0, 2)
	for range 3 {
		c := r.claim(ask(9))
		r.want("held", c.Held, []string{mainQueue})
		got = append(got, ids(c.Tasks)...)
	}
	r.want("claimed behind those at their limit", got, []string{"last"})
	r.complete(holds[parts-50 : parts-48]...)
	r.want("claimed after two ends", len(r.claims(9, 9, 9)), 2)
	r.heldBack("after all")
}

func shareManyLoosened(r *rig) {
	const parts = 150
	rate := storage.Rate{N: 1, Per: time.Hour}
	r.configure(inEach(0, rate))
	r.addParts(parts, 2)
	r.complete(r.claimAll(parts)...)
	for range 3 {
		r.want("claimed over the rate", r.finish(storage.MaxClaim), []string{})
	}
	rate.N = 2
	r.configure(inEach(0, rate))
	r.complete(r.claimAll(parts)...)
	r.want("claimed over the raised rate", r.finish(storage.MaxClaim), []string{})
	r.want("waiting", r.stats().Waiting, int64(0))
}

func shareLoosenedOrder(r *rig) {
	rate := storage.Rate{N: 1, Per: time.Hour}
	r.configure(inEach(0, rate))
	for _, key := range []string{"c", "a", "b"} {
		r.addKeyed(key, 2)
	}
	r.want("claimed at first", r.finish(9), []string{"c0", "a0", "b0"})
	r.nothing("over the rate")
	rate.N = 2
	r.configure(inEach(0, rate))
	r.want("claimed over the raised rate", r.finish(9), []string{"a1", "b1", "c1"})
}

func shareLoweredPer(r *rig) {
	const before, after = time.Hour, time.Minute
	r.configure(inEach(0, storage.Rate{N: 2, Per: before}))
	r.addKeyed("a", 1)
	r.want("claimed", r.finish(9), []string{"a0"})
	until := r.partition("a").Counts[0].Until.Add(after - before)
	r.configure(inEach(0, storage.Rate{N: 2, Per: after}))
	r.between("next due", r.maintain().NextDue, until, until)
}

func shareGone(r *rig) {
	const per = time.Second
	r.pace.rely(per)
	r.configure(inEach(0, storage.Rate{N: 2, Per: per}))
	free := keyed("a", "free")
	free.Cost = storage.NoCost
	r.insert(keyed("a", "counted"), free)
	r.want("claimed at first", r.finish(1), []string{"counted"})
	r.pass(per + per/storage.RateParts + 20*time.Millisecond)
	c := r.claim(ask(9))
	r.want("claimed, more", [2]any{ids(c.Tasks), c.More}, [2]any{[]string{"free"}, false})
	r.want("next due", c.NextDue.IsZero(), true)
	r.want("partitions", r.keys(), []string{})
}

func shareLeft(r *rig) {
	const parts, per = 250, time.Second
	r.pace.rely(per)
	r.configure(inEach(1, storage.Rate{N: 5, Per: per}))
	r.addParts(parts, 1)
	holds := r.claimAll(parts)
	ends := storage.Tx{}
	for i, h := range holds {
		s := storage.Settle{Fence: h.Fence, Outcome: storage.Complete}
		if i%3 == 0 {
			s.Outcome, s.Delay = storage.Release, time.Duration(1+i)*storage.MinSpan
		}
		ends.Settles = append(ends.Settles, s)
	}
	r.apply(ends)
	for i := range 20 {
		r.configure(pausingOf(fmt.Sprintf("key%04d", i), time.Duration(1+i)*storage.MinSpan))
	}
	r.pass(per/2 + 20*time.Millisecond)
	r.complete(r.claimAll((parts + 2) / 3)...)
	r.pass(per + per/storage.RateParts + 20*time.Millisecond)
	for range 2 + parts/storage.MaxRest {
		r.maintain()
	}
	r.want("partitions at the end", r.keys(), []string{})
	r.want("next due at the end", r.maintain().NextDue.IsZero(), true)
	r.configure(clearing())
	r.configure(storage.Settings{Remove: true})
}
