package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// shareRestRules state when a partition rests, and how its rests, its pause and its rate go together.
func shareRestRules() []rule {
	return []rule{
		state("share/many spent", shareManySpent,
			"Partitions that have used up their rates hide no others behind them, however many there are: claims "+
				"set More until one takes a task of these."),
		state("share/pause, rest and rate", shareOrders,
			"A pause, a rest and the rate of a partition begin and end alone, in whatever order: the partition is "+
				"served once the last of them is over."),
		state("share/later rest", shareLaterRest,
			"Of two rests of a partition the later one holds, whichever began first, and NextDue is its end."),
		state("share/rest and declined", shareRestDeclined,
			"A rest of a partition holds its declined tasks too. The rest of the tasks without a partition holds all "+
				"declined tasks, and no other tasks of partitions."),
		state("share/throttled declined task", shareThrottleDeclined,
			"A declined task that is throttled goes to the head of its partition, which rests."),
		state("share/throttled suspect", shareThrottleSuspect,
			"A suspect that is throttled stays a suspect, and its partition rests."),
		state("share/many declined of a full partition", shareDeclinedMany,
			"Declined tasks of a partition at its limit, or of a resting one, do not hold back those of others "+
				"behind them in the line of their kind."),
		state("share/rest in a paused queue", shareRestPaused,
			"A rest runs on in a paused queue, and a resume of the queue does not end it."),
		state("share/rest of all in a paused queue", shareRestOrdinaryPaused,
			"A resume of the queue does not end the rest of the tasks without a partition."),
		state("share/next due", shareNextDue,
			"NextDue is the earliest of the ends of rests, pauses and rates, also of a partition without tasks."),
		state("share/many rests end", shareRestsEnd,
			"If more than MaxRest rests are over at once, Claims end them in the order of their ends, and set More "+
				"until all tasks are taken."),
		state("share/rest is told", shareRestTold,
			"Stats of a partition return the end of its rest, which is the Delay after the release, and its waiting "+
				"tasks."),
		state("share/loosened beside a rest", shareLoosenedRest,
			"A change of the limit of partitions ends no rest and no pause."),
		state("share/resumed after a dear task", shareResumedRate,
			"A pause and a resume put a partition that rests because of its rate at the end of the ring, so that the "+
				"next claim examines its first task anew, such as once a costly one is gone."),
		state("share/wakes", shareWakes,
			"A limit of partitions that is raised or cleared, and a resume of a partition at its limit, wake all "+
				"callers."),
		state("share/held names", shareHeld,
			"Held names a queue only if the claim takes tasks from it: none with MaxNone or MaxFull, no paused "+
				"queue, and none of which the partition at its limit has no waiting task."),
		state("share/removal", shareRemoval,
			"A queue with tasks of a resting partition is not removed. The removal of one without tasks removes its "+
				"rests, and what its partitions have used up of their rates."),
		state("share/holds the queue", shareStays,
			"A queue in which a partition rests is not removed for being empty, and the rest lasts for days."),
	}
}

// throttle puts the partition of a claimed task to rest.
func (r *rig) throttle(h held, d time.Duration) {
	r.Helper()
	r.pace.rely(d)
	r.settle(h, storage.Settle{Outcome: storage.Release, Delay: d})
}

// passes lets time pass until d and a little more after a moment.
func (r *rig) passes(from time.Time, d time.Duration) {
	r.Helper()
	r.passTo(from.Add(d + 20*time.Millisecond))
}

func shareManySpent(r *rig) {
	const parts = 50
	r.configure(inEach(0, storage.Rate{N: 1, Per: time.Hour}))
	ins := make([]storage.Insert, 0, 2*parts)
	for i := range parts {
		key := fmt.Sprintf("key%02d-", i)
		ins = append(ins, keyed(key, key+"0"), keyed(key, key+"1"))
	}
	r.insert(ins...)
	r.hold(ask(parts), parts)
	r.addKeyed("z", 1)
	c := r.claim(ask(1))
	for n := 0; n < parts && len(c.Tasks) == 0 && c.More; n++ {
		c = r.claim(ask(1))
	}
	r.want("claimed behind those that are spent", ids(c.Tasks), []string{"z0"})
	r.between("next due", c.NextDue, c.Now, c.Now.Add(time.Hour+time.Hour/storage.RateParts))
	r.nothing("once all are spent")
}

func shareOrders(r *rig) {
	const first, second, third = time.Second, 2 * time.Second, 3 * time.Second
	for i, o := range []struct{ pause, rest, rate time.Duration }{
		{first, second, third},
		{first, third, second},
		{second, first, third},
		{second, third, first},
		{third, first, second},
		{third, second, first},
	} {
		key := fmt.Sprint("key", i)
		per := o.rate
		r.pace.rely(per)
		r.configure(clearing())
		r.configure(inEach(0, storage.Rate{N: 1, Per: per}))
		r.addKeyed(key, 1)
		from := r.now()
		h := r.take(ask(1), key+"0")
		if i%2 > 0 {
			r.configure(pausingOf(key, o.pause))
		}
		r.throttle(h, o.rest)
		r.configure(pausingOf(key, o.pause))
		set := r.now() // the rest and the pause began before it, however slow the storage is
		for _, d := range []time.Duration{0, first, second} {
			r.passes(from, d)
			r.want(fmt.Sprintf("claimed %v after %+v", d, o), ids(r.claim(ask(9)).Tasks), []string{})
		}
		r.passes(set, third+per/storage.RateParts)
		r.want(fmt.Sprintf("claimed after %+v", o), r.finish(9), []string{key + "0"})
	}
}

func shareLaterRest(r *rig) {
	const short, late = time.Second, 2 * time.Second
	r.addKeyed("a", 2)
	r.addKeyed("b", 2)
	r.addKeyed("c", 1)
	holds := r.hold(ask(9), 5) // a0, b0, c0, a1, b1
	from := r.now()
	r.throttle(holds[0], short)
	r.throttle(holds[3], late)
	r.throttle(holds[1], late)
	until := r.partition("b").Rests
	r.throttle(holds[4], short)
	r.want("rest of b after a shorter one", r.partition("b").Rests.Equal(until), true)
	r.complete(holds[2])
	r.between("rest of a", r.partition("a").Rests, from.Add(late), r.now().Add(late))
	r.passes(r.now(), short)
	c := r.nothing("after the shorter rests")
	first := slices.MinFunc([]storage.PartitionStats{r.partition("a"), r.partition("b")},
		func(a, b storage.PartitionStats) int { return a.Rests.Compare(b.Rests) })
	r.want("next due", c.NextDue.Equal(first.Rests), true)
	r.pass(late)
	r.want("claimed after both", r.finish(9), []string{"a1", "b1", "a0", "b0"})
	r.want("partitions at the end", r.keys(), []string{})
}

func shareRestDeclined(r *rig) {
	const d = time.Second
	mail := of("mail", "m-a")
	mail.Partition = "a"
	r.decline(mail, of("mail", "m"))
	r.addKeyed("a", 1)
	r.addKeyed("b", 1)
	holds := r.gets("of no declined kind", knows(9, "news"), "a0", "b0")
	r.throttle(holds[0], d)
	r.gets("of the kind while a rests", knows(1, "mail"), "m")
	r.gets("of the kind while a rests again", knows(9, "mail"))
	r.passes(r.partition("a").Rests, 0)
	rest := r.gets("after the rest", knows(9, "mail"), "m-a", "a0")
	r.end(rest[0], storage.Decline)
	r.complete(rest[1])
	r.add("x")
	r.end(holds[1], storage.Release)
	x := r.gets("without a partition", knows(1, "news"), "x")
	r.throttle(x[0], d)
	from := r.now()
	r.complete(r.gets("while these rest", knows(9, "mail"), "b0")...)
	r.gets("while these rest", knows(9, "mail"))
	r.passes(from, d)
	got := ids(r.claim(knows(9, "mail")).Tasks)
	slices.Sort(got)
	r.want("claimed after the rest", got, []string{"m-a", "x"})
}

func shareThrottleDeclined(r *rig) {
	mail := of("mail", "m")
	mail.Partition = "a"
	r.decline(mail)
	r.addKeyed("a", 1)
	r.add("x")
	h := r.take(knows(1, "mail"), "m")
	r.throttle(h, time.Second)
	r.inLine("after the release", "a", "m", "a0")
	r.want("claimed beside the rest", r.finish(9), []string{"x"})
	r.nothing("during the rest")
	r.passes(r.partition("a").Rests, 0)
	r.want("claimed after the rest", ids(r.claim(knows(9, "news")).Tasks), []string{"m", "a0"})
}

func shareThrottleSuspect(r *rig) {
	r.suspectIn("a", "poison")
	r.addKeyed("a", 1)
	h := r.take(asking(1), "poison")
	r.throttle(h, time.Second)
	r.want("crashes, passed over", [2]any{r.read("poison").Crashes, r.read("poison").PassedOver},
		[2]any{1, storage.PassedOverSuspect})
	r.nothing("during the rest")
	r.passes(r.partition("a").Rests, 0)
	r.gets("without a suspect", ask(9), "a0")
	r.gets("with a suspect", asking(9), "poison")
}

func shareDeclinedMany(r *rig) {
	const many = 90
	r.configure(inEach(many, storage.Rate{}))
	ins := make([]storage.Insert, many)
	for i := range ins {
		ins[i] = of("mail", fmt.Sprintf("m%02d", i))
		ins[i].Partition = "a"
	}
	r.insert(ins...)
	var declines storage.Tx
	for _, h := range r.hold(ask(many), many) {
		declines.Settles = append(declines.Settles, storage.Settle{Fence: h.Fence, Outcome: storage.Decline})
	}
	r.apply(declines)
	last := of("mail", "last")
	last.Partition = "b"
	r.insert(last)
	r.declineNext("last")
	r.addKeyed("a", 1)
	h := r.take(knows(1, "news"), "a0")
	r.configure(inEach(1, storage.Rate{}))
	l := r.gets("beside a full partition", knows(9, "mail"), "last")
	c := r.claim(knows(9, "mail"))
	r.want("claimed, held", [2]any{ids(c.Tasks), c.Held}, [2]any{[]string{}, []string{mainQueue}})
	r.end(l[0], storage.Decline)
	r.throttle(h, time.Second)
	r.gets("beside a resting partition", knows(9, "mail"), "last")
	r.passes(r.partition("a").Rests, 0)
	r.gets("after the rest", knows(9, "mail"), "m00")
}

func shareRestPaused(r *rig) {
	const d = time.Second
	r.addKeyed("a", 1)
	r.addKeyed("b", 1)
	holds := r.hold(ask(2), 2)
	r.throttle(holds[0], d)
	r.configure(pausing(0))
	r.throttle(holds[1], 3*d)
	r.passes(r.partition("a").Rests, 0)
	r.nothing("in a paused queue")
	r.configure(resuming())
	r.want("claimed after the resume", r.finish(9), []string{"a0"})
	r.want("rests", r.partition("b").Rests.IsZero(), false)
	r.configure(pausing(0))
	r.configure(resuming())
	r.nothing("after a pause within the rest")
	r.passes(r.partition("b").Rests, 0)
	r.want("claimed after the rest", r.finish(9), []string{"b0"})
	r.want("partitions at the end", r.keys(), []string{})
}

func shareRestOrdinaryPaused(r *rig) {
	const d = 2 * time.Second
	r.add("x")
	h := r.take(ask(1), "x")
	from := r.now()
	r.throttle(h, d)
	r.configure(pausing(0))
	r.configure(resuming())
	c := r.nothing("after a pause within the rest")
	r.between("next due", c.NextDue, from.Add(d), r.now().Add(d))
	r.configure(pausing(0))
	r.passes(r.now(), d)
	r.nothing("in a paused queue after the rest")
	r.configure(resuming())
	r.want("claimed after the resume", r.finish(9), []string{"x"})
	r.want("next due", r.nothing("at the end").NextDue.IsZero(), true)
}

func shareNextDue(r *rig) {
	r.configure(inEach(0, storage.Rate{N: 1, Per: 4 * time.Hour}))
	next := func(what string, from, d time.Duration) {
		r.Helper()
		c := r.claim(ask(9))
		r.want("claimed, more with "+what, [2]any{ids(c.Tasks), c.More}, [2]any{[]string{}, false})
		r.between("next due with "+what, c.NextDue, c.Now.Add(from-time.Minute), c.Now.Add(d))
	}
	r.addKeyed("a", 2)
	r.complete(r.take(ask(1), "a0"))
	next("a rate", 4*time.Hour, 4*time.Hour+4*time.Hour/storage.RateParts)
	r.insert(keyed("b", "b0"))
	r.settle(r.take(ask(1), "b0"), storage.Settle{Outcome: storage.Release, Delay: 3 * time.Hour})
	next("a rest", 3*time.Hour, 3*time.Hour)
	r.delete("b0")
	next("a rest without tasks", 3*time.Hour, 3*time.Hour)
	r.configure(pausingOf("c", 2*time.Hour))
	next("a pause", 2*time.Hour, 2*time.Hour)
	r.add("x")
	r.settle(r.take(ask(1), "x"), storage.Settle{Outcome: storage.Release, Delay: time.Hour})
	next("a rest of all without a partition", time.Hour, time.Hour)
	r.insert(delayed("later", 30*time.Minute))
	next("a scheduled task", 30*time.Minute, 30*time.Minute)
}

func shareRestsEnd(r *rig) {
	const parts, d = storage.MaxRest + 20, 3 * time.Second
	ins := make([]storage.Insert, parts)
	for i := range ins {
		ins[i] = keyed(fmt.Sprintf("key%03d", i), fmt.Sprintf("t%03d", i))
	}
	r.insert(ins...)
	var rests storage.Tx
	r.pace.rely(d)
	for i, h := range r.hold(ask(parts), parts) {
		rests.Settles = append(rests.Settles, storage.Settle{
			Fence: h.Fence, Outcome: storage.Release, Delay: d + time.Duration(i*7%parts)*storage.MinSpan,
		})
	}
	r.apply(rests)
	r.nothing("while all rest")
	all := r.partitions(storage.PartitionsQuery{}).Partitions
	slices.SortFunc(all, func(a, b storage.PartitionStats) int { return a.Rests.Compare(b.Rests) })
	r.passTo(all[parts-1].Rests)
	want, got := make([]string, parts), make([]string, 0, parts)
	for i, p := range all {
		want[i] = p.Key
	}
	for c := (storage.Claimed{More: true}); c.More; {
		c = r.claim(ask(storage.MaxClaim))
		for _, t := range c.Tasks {
			got = append(got, t.Partition)
		}
	}
	r.want("claimed", got, want)
	r.want("partitions", r.keys(), []string{})
}

func shareRestTold(r *rig) {
	r.addKeyed("a", 2)
	h := r.take(ask(1), "a0")
	from := r.now()
	r.throttle(h, time.Hour)
	p := r.partition("a")
	r.between("rests", p.Rests, from.Add(time.Hour), r.now().Add(time.Hour))
	rests := p.Rests
	p.Rests = time.Time{}
	r.want("all else", p, storage.PartitionStats{Key: "a", Waiting: 2})
	r.inLine("after the release", "a", "a0", "a1")
	r.cancel("a0")
	r.delete("a1")
	r.want("without tasks", r.partition("a"), storage.PartitionStats{Key: "a", Rests: rests})
	r.insert(keyed("a", "b"))
	r.changeNow("b", rekeyed("c"))
	r.want("claimed from another", r.finish(9), []string{"b"})
	r.insert(keyed("d", "d"))
	r.changeNow("d", rekeyed("a"))
	r.nothing("in the resting partition")
	r.want("partitions", r.keys(), []string{"a"})
}

func shareLoosenedRest(r *rig) {
	r.configure(inEach(0, storage.Rate{N: 1, Per: time.Hour}))
	for _, key := range []string{"paused", "resting", "spent"} {
		r.insert(keyed(key, key), keyed(key, key+"-next"))
	}
	holds := r.gets("at first", ask(9), "paused", "resting", "spent")
	r.nothing("while all are spent")
	r.settle(holds[1], storage.Settle{Outcome: storage.Release, Delay: time.Hour})
	r.configure(pausingOf("paused", 0))
	r.complete(holds[0], holds[2])
	r.configure(inEach(0, storage.Rate{N: 2, Per: time.Hour}))
	r.want("claimed once it is raised", r.finish(9), []string{"spent-next"})
	r.configure(clearing())
	r.nothing("once it is cleared")
	r.configure(resumingOf("paused"))
	r.want("claimed after the resume", r.finish(9), []string{"paused-next"})
	r.nothing("during the rest")
}

func shareResumedRate(r *rig) {
	r.configure(inEach(0, storage.Rate{N: 10, Per: 24 * time.Hour}))
	for _, key := range []string{"a", "b"} {
		r.insert(keyed(key, key+"0"), costly(key, "dear-"+key, 10), keyed(key, "cheap-"+key))
	}
	r.want("claimed at first", r.finish(9), []string{"a0", "b0"})
	r.nothing("while the dear tasks are the next")
	resume := func(key string) {
		r.configure(pausingOf(key, 0))
		r.configure(resumingOf(key))
	}
	resume("a")
	resume("b")
	r.nothing("after a resume before the dear tasks")
	r.cancel("dear-a")
	r.delete("dear-b")
	resume("a")
	r.want("claimed after the resume of one", r.finish(9), []string{"cheap-a"})
	resume("b")
	r.want("claimed after the resume of the other", r.finish(9), []string{"cheap-b"})
}

func shareWakes(r *rig) {
	const waiters = 3
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("a", 4)
	r.take(ask(1), "a0")
	for _, by := range []struct {
		what string
		s    storage.Settings
	}{
		{"a raised limit", inEach(2, storage.Rate{})},
		{"a cleared limit", clearing()},
		{"a limit of one partition", bounding("a", storage.PartitionLimit{Concurrency: 1})},
		{"a cleared limit of one partition", unbounding("a")},
	} {
		woken := r.idle(waiters)
		r.configure(by.s)
		for range waiters {
			r.woken(by.what, woken)
		}
		r.configure(inEach(1, storage.Rate{}))
	}
	r.configure(pausingOf("a", 0))
	woken := r.idle(waiters)
	r.configure(resumingOf("a"))
	for range waiters {
		r.woken("a resume", woken)
	}
}

func shareHeld(r *rig) {
	names := func(what string, req storage.ClaimRequest, want ...string) {
		r.Helper()
		c := r.claim(req)
		r.want("claimed "+what, ids(c.Tasks), []string{})
		if !slices.Equal(c.Held, want) {
			r.Fatalf("held %s: got %v, want %v", what, c.Held, want)
		}
	}
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("a", 1)
	h := r.take(ask(9), "a0")
	names("with no waiting task", ask(9))
	r.insert(keyed("a", "next"))
	names("with a waiting task", ask(9), mainQueue)
	for _, none := range []int{storage.MaxNone, storage.MaxFull} {
		req := ask(9)
		req.Queues[0].Max = none
		names(fmt.Sprint("with Max ", none), req)
	}
	r.configure(pausing(0))
	names("in a paused queue", ask(9))
	r.configure(resuming())
	r.configure(pausingOf("a", 0))
	names("in a paused partition", ask(9))
	r.configure(resumingOf("a"))
	names("after the resumes", ask(9), mainQueue)
	req := ask(9)
	req.Queues = []storage.ClaimQueue{{Name: sideQueue}, {Name: mainQueue}}
	names("beside another queue", req, mainQueue)
	r.throttle(h, time.Hour)
	names("in a resting partition", ask(9))
}

func shareRemoval(r *rig) {
	remove := storage.Settings{Remove: true}
	r.configure(inEach(1, storage.Rate{N: 1, Per: time.Hour}))
	r.addKeyed("a", 1)
	h := r.take(ask(9), "a0")
	r.wantError("remove while a task runs", r.session.Configure(r.ctx, mainQueue, remove), storage.ErrNotEmpty)
	r.settle(h, storage.Settle{Outcome: storage.Release, Delay: time.Hour})
	r.wantError("remove while a task rests", r.session.Configure(r.ctx, mainQueue, remove), storage.ErrNotEmpty)
	r.want("rests after a refusal", r.partition("a").Rests.IsZero(), false)
	r.delete("a0")
	r.add("x")
	r.settle(r.take(ask(1), "x"), storage.Settle{Outcome: storage.Release, Delay: time.Hour})
	r.delete("x")
	r.want("partitions", r.keys(), []string{"a"})
	r.configure(remove)
	r.want("partitions after the removal", r.keys(), []string{})
	r.configure(inEach(1, storage.Rate{N: 1, Per: time.Hour}))
	r.insert(keyed("a", "a1"), job("y"))
	r.want("claimed", r.finish(9), []string{"y", "a1"})
}

func shareStays(r *rig) {
	if r.Advance == nil {
		r.Log("not tested: a day would have to pass")
		return
	}
	const days = 4 * 24 * time.Hour
	r.addKeyed("a", 1)
	r.settle(r.take(ask(1), "a0"), storage.Settle{Outcome: storage.Release, Delay: days})
	r.delete("a0")
	for range 5 {
		r.pass(12 * time.Hour)
		r.maintain()
	}
	page, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", page.Names, []string{mainQueue})
	r.want("partitions during the rest", r.keys(), []string{"a"})
	r.addKeyed("a", 1)
	r.nothing("during the rest")
	r.pass(days)
	r.maintain()
	r.pass(storage.JumpWait + time.Millisecond)
	r.want("claimed after the rest", r.finish(9), []string{"a0"})
	r.want("partitions after the rest", r.keys(), []string{})
}
