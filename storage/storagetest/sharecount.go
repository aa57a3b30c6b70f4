package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// shareCountRules state which tasks count for the limit of partitions, and when they cease to.
func shareCountRules() []rule {
	return []rule{
		state("share/suspects", shareSuspects,
			"A suspect, and a task that is claimed only to start at once, take a slot of their partition as other "+
				"tasks do, and none while a Claim passes them over."),
		state("share/priorities", sharePriorities,
			"Under a limit of partitions the tasks of a partition are claimed by priority, and a release goes to the "+
				"head."),
		state("share/with slots of the queue", shareQueueSlots,
			"A task is claimed only if its queue and its partition both admit it. A partition at its limit keeps its "+
				"turn, and takes no slot of the queue."),
		state("share/with a rate of the queue", shareQueueRate,
			"Nothing overtakes a task that the rate of the queue does not admit, but a task of a partition at its "+
				"limit holds nothing of other partitions back."),
		state("share/charged once admitted", shareAdmitted,
			"A task that its partition admits and its queue does not is not charged to its partition."),
		state("share/repeated", shareRepeated,
			"A repeat of a Claim charges nothing to a partition, and takes no slot of it."),
		state("share/no room", shareRoom,
			"A task that the limit of partitions admits and that has no room in the answer counts no start and takes "+
				"no slot."),
		state("share/damaged while it runs", shareDamaged,
			"A counted task whose record cannot be read frees its slot once it is set apart."),
		state("share/damaged while it waits", shareDamagedWaiting,
			"A waiting task whose record cannot be read is neither counted nor charged."),
		state("share/costs", shareCosts,
			"A cost over N counts as N in the rate of a partition, and a rate that is spent admits no task of it, "+
				"even if the task costs nothing."),
		state("share/extended", shareExtended,
			"An extended lease keeps its slot in the partition, and counts no start."),
		state("share/never ahead", shareAhead,
			"Nothing of a queue whose limit bounds partitions is claimed ahead, also not of its tasks without one."),
		state("share/expired together", shareExpired,
			"All slots of a partition are free once the leases of its tasks have been recovered, however many."),
		state("share/lowered", shareLowered,
			"A limit of partitions that is lowered stops no task that runs, and nothing starts until there is room."),
		state("share/cleared while tasks run", shareCleared,
			"Tasks that were counted count on if the limit of partitions is cleared and set again. Those claimed in "+
				"between do not."),
	}
}

// gets fails the rule unless a claim takes exactly these tasks, in this order. It returns them.
func (r *rig) gets(when string, req storage.ClaimRequest, want ...string) []held {
	r.Helper()
	c := r.claim(req)
	if got := ids(c.Tasks); !slices.Equal(got, want) {
		r.Fatalf("claimed %s: got %v, want %v", when, got, want)
	}
	holds := make([]held, len(want))
	for i := range holds {
		holds[i] = held{c.Tasks[i], c.Fences[i]}
	}
	return holds
}

// counted fails the rule unless these many tasks of a partition run, and starts of these costs count.
func (r *rig) counted(when, key string, running, started int64) {
	r.Helper()
	p := r.partition(key)
	got := [2]int64{p.Running, storage.Started(p.Counts)}
	r.want("running, started of "+key+" "+when, got, [2]int64{running, started})
}

// costly returns a job of a cost in a partition.
func costly(key, id string, c storage.Cost) storage.Insert {
	j := keyed(key, id)
	j.Cost = c
	return j
}

func shareSuspects(r *rig) {
	r.suspectIn("a", "s")
	r.insert(keyed("b", "cold"))
	r.expire(r.take(ahead(), "cold"))
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("a", 1)
	holds := r.gets("beside a suspect", ask(9), "a0", "cold")
	c := r.claim(asking(9))
	r.want("claimed, more, held with a suspect", [3]any{ids(c.Tasks), c.More, c.Held},
		[3]any{[]string{}, false, []string{mainQueue}})
	r.counted("beside a suspect", "b", 1, 0)
	r.complete(holds...)
	c = r.claim(ask(9))
	r.want("claimed, more, held without a suspect", [3]any{ids(c.Tasks), c.More, len(c.Held)},
		[3]any{[]string{}, false, 0})
	r.counted("passed over", "a", 0, 0)
	h := r.take(asking(1), "s")
	r.insert(keyed("a", "next"))
	r.heldBack("beside the suspect")
	r.complete(h)
	r.complete(r.take(ask(9), "next"))
	r.want("partitions at the end", r.keys(), []string{})
}

func sharePriorities(r *rig) {
	r.configure(inEach(1, storage.Rate{}))
	for id, p := range map[string]int{"low": -1, "middle": 0, "high": 1} {
		j := keyed("a", id)
		j.Priority = p
		r.insert(j)
	}
	h := r.take(ask(9), "high")
	r.insert(costly("a", "late", 0))
	r.end(h, storage.Release)
	for _, id := range []string{"high", "middle", "late", "low"} {
		h = r.take(ask(9), id)
		if id != "low" {
			r.heldBack("beside " + id)
		}
		r.complete(h)
	}
}

func shareQueueSlots(r *rig) {
	limit := storage.Limit{Concurrency: 3, Partition: storage.PartitionLimit{Concurrency: 2}}
	r.configure(limiting(limit))
	r.addKeyed("a", 4)
	r.addKeyed("b", 4)
	first := r.gets("at first", ask(9), "a0", "b0", "a1")
	r.full("at the limit of the queue")
	r.complete(first[1])
	b1 := r.gets("after an end", ask(9), "b1")
	r.full("at the limit of the queue again")
	r.complete(b1...)
	r.gets("beside a full partition", ask(9), "b2")
	r.full("at the limit of the queue once more")
	r.complete(first[0])
	r.gets("in the turn that was kept", ask(9), "a2")
	r.counted("at the limit of the queue", "a", 2, 0)
	limit.Concurrency = 9
	r.configure(limiting(limit))
	r.gets("below the limit of the queue", ask(9), "b3")
	r.heldBack("below the limit of the queue")
}

func shareQueueRate(r *rig) {
	r.configure(limiting(storage.Limit{
		Rate: storage.Rate{N: 4, Per: time.Hour}, Partition: storage.PartitionLimit{Concurrency: 1},
	}))
	r.insert(keyed("a", "a0"), costly("a", "dear", 4), keyed("b", "b0"))
	first := r.gets("at first", ask(9), "a0", "b0")
	r.heldBack("beside a0")
	r.insert(keyed("c", "c0"))
	r.gets("past a partition at its limit", ask(9), "c0")
	r.complete(first[0])
	r.insert(keyed("d", "d0"))
	c := r.full("behind a task that the rate does not admit")
	r.want("next due is set", c.NextDue.IsZero(), false)
	r.inLine("behind it", "d", "d0")
	r.delete("dear")
	r.gets("once the task is gone", ask(9), "d0")
}

func shareAdmitted(r *rig) {
	r.configure(limiting(storage.Limit{
		Concurrency: 1, Partition: storage.PartitionLimit{Concurrency: 2, Rate: storage.Rate{N: 2, Per: time.Hour}},
	}))
	r.addKeyed("a", 4)
	for i := range 2 {
		h := r.take(ask(9), fmt.Sprint("a", i))
		r.full("at the limit of the queue")
		r.counted("at the limit of the queue", "a", 1, int64(i+1))
		r.complete(h)
	}
	c := r.claim(ask(9))
	r.want("claimed, more over the rate", [2]any{ids(c.Tasks), c.More}, [2]any{[]string{}, false})
	r.counted("over the rate", "a", 0, 2)
}

func shareRepeated(r *rig) {
	r.configure(inEach(2, storage.Rate{N: 5, Per: time.Hour}))
	r.addKeyed("a", 4)
	r.addKeyed("b", 1)
	req := ask(9)
	req.Call, req.Token = r.first(), storage.NewToken()
	first := r.claimedAs(req)
	r.want("claimed", len(first), 3)
	repeated := func(when string, n int, running, started int64) {
		r.Helper()
		for range 3 {
			r.want("repeated "+when, len(r.claimedAs(req)), n)
		}
		r.counted(when, "a", running, started)
	}
	repeated("at once", 3, 2, 2)
	r.complete(first[0])
	repeated("after an end", 2, 1, 2)
	r.gets("by the next", ask(9), "a2")
	repeated("after another claim", 2, 2, 3)
	r.heldBack("after all")
}

func shareRoom(r *rig) {
	const n = 6
	for i := range n {
		j := keyed("a", fmt.Sprint("t", i))
		j.Payload = make([]byte, 1<<20)
		r.insert(j)
	}
	r.configure(inEach(n, storage.Rate{N: n, Per: time.Hour}))
	for taken := 0; taken < n; {
		c := r.claim(ask(n))
		if taken += len(c.Tasks); len(c.Tasks) == 0 || len(c.Tasks) == n {
			r.Fatalf("claimed: got %d of %d tasks of 1 MiB, want as many as have room in an answer", len(c.Tasks), n)
		}
		r.want("more", c.More, taken < n)
		r.counted("so far", "a", int64(taken), int64(taken))
	}
}

func shareDamaged(r *rig) {
	if r.Damage == nil {
		r.Log("not tested: the records of this storage cannot be damaged")
		return
	}
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("a", 2)
	h := r.take(brief(1), "a0")
	r.Damage(r.TB, in("a0"))
	r.passTo(h.LeaseUntil)
	until := r.now().Add(2 * time.Second) // a storage may put off a recovery
	c := r.claim(ask(9))
	for len(c.Tasks) == 0 && c.Now.Before(until) {
		r.pass(50 * time.Millisecond)
		c = r.claim(ask(9))
	}
	r.want("claimed", ids(c.Tasks), []string{"a1"})
	r.want("damaged", r.stats().Damaged, int64(1))
	r.counted("beside a damaged record", "a", 1, 0)
	r.end(held{c.Tasks[0], c.Fences[0]}, storage.Complete)
	r.want("partitions at the end", r.keys(), []string{})
}

func shareDamagedWaiting(r *rig) {
	if r.Damage == nil {
		r.Log("not tested: the records of this storage cannot be damaged")
		return
	}
	r.configure(inEach(1, storage.Rate{N: 3, Per: time.Hour}))
	r.addKeyed("a", 3)
	r.Damage(r.TB, in("a0"))
	var got []string
	for range 3 { // a storage may end a claim with the record that it sets apart
		got = append(got, ids(r.claim(ask(9)).Tasks)...)
	}
	r.want("claimed", got, []string{"a1"})
	r.counted("beside a damaged record", "a", 1, 1)
	r.heldBack("beside a1")
}

func shareCosts(r *rig) {
	const per = 2 * time.Second
	r.pace.rely(per)
	r.configure(inEach(0, storage.Rate{N: 3, Per: per}))
	r.insert(costly("a", "vast", 100), costly("a", "free", storage.NoCost))
	r.insert(costly("b", "free-b", storage.NoCost),
		costly("b", "two", 2), costly("b", "two-more", 2), costly("b", "one", 1))
	r.want("claimed", r.finish(9), []string{"vast", "free-b", "two"})
	r.counted("after a cost over N", "a", 0, 3)
	r.counted("after a cost of 2", "b", 0, 2)
	r.want("claimed while both rest", r.finish(9), []string{})
	r.pass(per + per/storage.RateParts + 10*time.Millisecond)
	got := r.finish(9)
	slices.Sort(got)
	r.want("claimed after the rate", got, []string{"free", "one", "two-more"})
}

func shareExtended(r *rig) {
	r.configure(inEach(1, storage.Rate{N: 9, Per: time.Hour}))
	r.addKeyed("a", 2)
	h := r.take(brief(1), "a0")
	x := r.extend(storage.Extension{Fence: h.Fence, For: long})
	r.want("lost", len(x.Lost), 0)
	r.passTo(h.LeaseUntil.Add(storage.MinLease))
	r.heldBack("under the extended lease")
	r.counted("under the extended lease", "a", 1, 1)
	r.complete(h)
	r.take(ask(9), "a1")
	r.counted("after its end", "a", 1, 2)
}

func shareAhead(r *rig) {
	for _, s := range []storage.Settings{
		inEach(9, storage.Rate{}), inEach(0, storage.Rate{N: 99, Per: time.Hour}),
	} {
		r.configure(s)
		r.add("x", "y")
		r.addKeyed("a", 2)
		req := ask(0)
		req.Ahead = 9
		c := r.claim(req)
		r.want("claimed ahead", ids(c.Tasks), []string{})
		r.want("bounded, more of a claim ahead", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
		req.Start = 3
		holds := append(r.hold(req, 3), r.hold(ask(9), 1)...)
		for _, h := range holds {
			r.want("started", h.Started, true)
			r.complete(h)
		}
	}
}

func shareExpired(r *rig) {
	const n = 30
	r.configure(inEach(n, storage.Rate{}))
	r.addKeyed("a", n)
	r.addKeyed("b", n)
	holds := r.hold(brief(2*n), 2*n)
	r.counted("before", "a", n, 0)
	r.passTo(holds[2*n-1].LeaseUntil)
	until := r.now().Add(2 * time.Second)
	for r.stats().Pending > 0 && r.now().Before(until) {
		r.maintain()
		r.pass(50 * time.Millisecond)
	}
	r.counted("after the recovery", "a", 0, 0)
	r.counted("after the recovery", "b", 0, 0)
	r.complete(r.hold(ask(3*n), 2*n)...)
	r.want("partitions at the end", r.keys(), []string{})
}

func shareLowered(r *rig) {
	r.configure(inEach(3, storage.Rate{N: 9, Per: time.Hour}))
	r.addKeyed("a", 6)
	holds := r.hold(ask(9), 3)
	r.configure(inEach(1, storage.Rate{N: 9, Per: time.Hour}))
	for i, h := range holds {
		r.heldBack("below what runs")
		x := r.extend(storage.Extension{Fence: h.Fence, For: long})
		r.want("lost", len(x.Lost), 0)
		r.complete(h)
		r.counted("below what runs", "a", int64(2-i), 3)
	}
	h := r.gets("once all have ended", ask(9), "a3")
	r.heldBack("at the lowered limit")
	r.complete(h...)
	r.configure(inEach(1, storage.Rate{N: 2, Per: time.Hour}))
	c := r.claim(ask(9))
	r.want("claimed, more below the starts", [2]any{ids(c.Tasks), c.More}, [2]any{[]string{}, false})
	r.configure(inEach(1, storage.Rate{N: 5, Per: time.Hour}))
	r.gets("once the rate is raised", ask(9), "a4")
	r.counted("after the last", "a", 1, 5)
}

func shareCleared(r *rig) {
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("a", 5)
	first := r.take(ask(9), "a0")
	r.configure(clearing())
	between := r.take(ask(1), "a1")
	r.counted("while there is no limit", "a", 1, 0)
	r.configure(inEach(1, storage.Rate{}))
	r.heldBack("beside the first")
	r.complete(first)
	second := r.take(ask(9), "a2")
	r.heldBack("beside the next")
	r.complete(between)
	r.heldBack("after the end of a task that does not count")
	r.configure(clearing())
	r.complete(second)
	r.complete(r.hold(ask(9), 2)...)
	r.want("partitions at the end", r.keys(), []string{})
}
