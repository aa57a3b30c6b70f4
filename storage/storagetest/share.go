package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func shareRules() []rule {
	return slices.Concat(shareFirstRules(), shareCountRules(), shareRestRules(), shareMoveRules(),
		shareWeightRules(), shareOwnRules(), shareTurnRules())
}

func shareFirstRules() []rule {
	return []rule{
		state("share/concurrency", shareConcurrency,
			"No more tasks of a partition are pending than the limit of partitions admits. Other partitions and the "+
				"tasks without one go on. Held names the queue, and its tasks do not count for More."),
		state("share/last slot", shareLastSlot,
			"A claim that takes the last task that the Concurrency of a partition admits names the queue in Held, "+
				"also "+
				"if no other task waits there."),
		state("share/every end", shareEnds,
			"Each end of a pending task makes room in its partition: every outcome, a cancel and a recovery."),
		state("share/rate", shareRate,
			"The starts of a partition use up its rate, by their costs. It rests until the rate admits its next "+
				"task, "+
				"which NextDue covers, while other partitions go on."),
		state("share/empty", shareEmpty,
			"A partition without tasks is there while tasks of it run, and while its starts count for its rate."),
		state("share/declined", shareDeclined,
			"The limit of partitions holds for declined tasks of a partition too."),
		state("share/throttle", shareThrottle,
			"A Release with a Delay puts the partition of the task to rest, also while it is paused, and the later "+
				"of two "+
				"rests holds. Other partitions and the tasks without one go on. A resume does not end the rest."),
		state("share/rest of an empty partition", shareRestEmpty,
			"A task that joins a resting partition without other tasks is claimed once the rest is over, whether "+
				"tasks of "+
				"the partition run then, or starts count."),
		state("share/throttle without a partition", shareThrottleOrdinary,
			"A Release with a Delay of a task without a partition puts all these tasks to rest, and no partition."),
		state("share/loosened", shareLoosened,
			"A limit of partitions that is raised or cleared holds at once, also for a partition that rests because "+
				"of its "+
				"rate. Tasks that were claimed before a Concurrency was set do not count for it."),
		state("share/model", shareModel,
			"After random steps no partition is over its limits, each line was served in its order, what is counted "+
				"is "+
				"what runs, and a task waits only if something holds it back."),
	}
}

// brevity is the Per of a rate, or a rest, that a rule lets pass.
const brevity = 3 * time.Second

// inEach returns a limit of partitions.
func inEach(concurrency int, r storage.Rate) storage.Settings {
	return limiting(storage.Limit{Partition: storage.PartitionLimit{Concurrency: concurrency, Rate: r}})
}

// heldBack fails the rule unless a claim takes nothing, and the limit of partitions is the cause.
func (r *rig) heldBack(when string) {
	r.Helper()
	c := r.claim(ask(9))
	r.want("claimed, more, bounded "+when,
		[3]any{ids(c.Tasks), c.More, len(c.Bounded)}, [3]any{[]string{}, false, 0})
	r.want("held "+when, c.Held, []string{mainQueue})
}

// finish claims up to n tasks, completes them, and returns their ids.
func (r *rig) finish(n int) []string {
	r.Helper()
	c := r.claim(ask(n))
	for _, f := range c.Fences {
		r.apply(storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
	}
	return ids(c.Tasks)
}

func shareConcurrency(r *rig) {
	r.configure(inEach(2, storage.Rate{}))
	r.addKeyed("a", 4)
	r.addKeyed("b", 1)
	r.add("x", "y", "z")
	got := r.hold(ask(9), 6)
	claimed := make([]string, 0, len(got))
	for _, h := range got {
		claimed = append(claimed, h.Ref.ID)
	}
	r.want("claimed", claimed, []string{"x", "a0", "b0", "y", "a1", "z"})
	r.want("running", [2]int64{r.partition("a").Running, r.partition("b").Running}, [2]int64{2, 1})
	r.heldBack("at the limit")
	ahead := ask(9)
	ahead.Start, ahead.Ahead = 0, 9
	r.want("claimed ahead", ids(r.claim(ahead).Tasks), []string{})
	r.end(got[1], storage.Complete)
	r.take(ask(9), "a2")
	r.heldBack("at the limit again")
}

func shareLastSlot(r *rig) {
	r.configure(inEach(2, storage.Rate{}))
	for _, c := range []struct {
		what string
		held []string
	}{{"the first", nil}, {"the last", []string{mainQueue}}} {
		r.insert(keyed("a", c.what[4:]))
		r.want("held after "+c.what, r.claim(ask(9)).Held, c.held)
	}
	r.insert(keyed("b", "b"))
	r.want("held beside it", r.claim(ask(9)).Held, []string(nil))
}

func shareEnds(r *rig) {
	r.configure(inEach(1, storage.Rate{}))
	for i, s := range []storage.Settle{
		{Outcome: storage.Complete},
		{Outcome: storage.Fail, Delay: time.Hour},
		{Outcome: storage.Snooze, Delay: time.Hour},
		{Outcome: storage.Bury, Reason: "no"},
		{Outcome: storage.Cancel},
		{Outcome: storage.Release},
	} {
		what := fmt.Sprint(s.Outcome)
		j := keyed("a", what)
		j.MaxRetries, j.Priority = 3, 9-i
		r.insert(j, keyed("a", "next"))
		h := r.take(ask(9), what)
		r.heldBack("beside " + what)
		r.settle(h, s)
		if s.Outcome == storage.Release {
			r.delete(what)
		}
		r.end(r.take(ask(9), "next"), storage.Complete)
	}
	r.insert(keyed("a", "asked"), keyed("a", "n"))
	h := r.take(ask(9), "asked")
	r.cancel("asked")
	r.heldBack("beside a task whose cancel was asked")
	r.end(h, storage.Cancel)
	r.end(r.take(ask(9), "n"), storage.Complete)
	crash := keyed("a", "crash")
	crash.CrashLimit = 1
	r.insert(crash, keyed("a", "m"))
	r.expire(r.take(brief(1), "crash"))
	r.end(r.take(ask(9), "m"), storage.Complete)
	r.want("partitions at the end", r.keys(), []string{})
}

func shareRate(r *rig) {
	r.pace.timed.Store(true)
	r.configure(inEach(0, storage.Rate{N: 3, Per: brevity}))
	r.addKeyed("a", 2)
	dear := keyed("a", "dear")
	dear.Cost = 2
	r.insert(dear, keyed("a", "last"))
	r.addKeyed("b", 1)
	r.want("claimed", r.finish(9), []string{"a0", "b0", "a1"})
	c := r.claim(ask(9))
	r.want("claimed, more", [2]any{ids(c.Tasks), c.More}, [2]any{[]string{}, false})
	r.between("next due", c.NextDue, r.now(), r.now().Add(brevity+brevity/32))
	r.add("x")
	r.want("claimed beside it", r.finish(9), []string{"x"})
	r.passTo(c.NextDue)
	r.want("claimed when the rate admits it", r.finish(9), []string{"dear", "last"})
	r.want("starts that count", storage.Started(r.partition("a").Counts), int64(3))
}

func shareEmpty(r *rig) {
	r.pace.timed.Store(true)
	r.configure(inEach(1, storage.Rate{N: 2, Per: brevity}))
	r.addKeyed("a", 1)
	h := r.take(ask(9), "a0")
	p := r.partition("a")
	r.want("waiting, running, starts",
		[3]int64{p.Waiting, p.Running, storage.Started(p.Counts)}, [3]int64{0, 1, 1})
	r.insert(keyed("a", "b"))
	r.heldBack("beside the first")
	r.end(h, storage.Complete)
	r.end(r.take(ask(9), "b"), storage.Complete)
	r.insert(keyed("a", "c"))
	r.want("claimed over the rate", ids(r.claim(ask(9)).Tasks), []string{})
	r.delete("c")
	p = r.partition("a")
	r.want("waiting, running, starts at the end", [3]int64{p.Waiting, p.Running, storage.Started(p.Counts)},
		[3]int64{0, 0, 2})
	r.pass(brevity + brevity/32)
	r.maintain()
	r.want("partitions a span later", r.keys(), []string{})
}

func shareDeclined(r *rig) {
	r.configure(inEach(1, storage.Rate{}))
	d := of("mail", "d")
	d.Partition = "a"
	e := of("mail", "e")
	e.Partition = "b"
	r.decline(d)
	r.decline(e)
	r.addKeyed("a", 1)
	h := r.take(knows(1, "news"), "a0")
	r.take(knows(9, "mail"), "e")
	c := r.claim(knows(9, "mail"))
	r.want("claimed, held beside a task of the partition",
		[2]any{ids(c.Tasks), c.Held}, [2]any{[]string{}, []string{mainQueue}})
	r.end(h, storage.Complete)
	r.take(knows(9, "mail"), "d")
	r.want("running", r.partition("a").Running, int64(1))
}

func shareThrottle(r *rig) {
	r.pace.timed.Store(true)
	r.addKeyed("a", 2)
	r.addKeyed("b", 1)
	h := r.hold(ask(2), 2)
	r.settle(h[0], storage.Settle{Outcome: storage.Release, Delay: 2 * brevity})
	r.add("x")
	r.want("claimed beside it", r.finish(9), []string{"x"})
	r.want("rest of a", r.partition("a").Rests.IsZero(), false)
	c := r.nothing("during the rest")
	r.between("next due", c.NextDue, r.now(), r.now().Add(2*brevity))
	r.insert(keyed("a", "late"))
	r.nothing("after an insert into the partition")
	r.configure(pausingOf("a", 0))
	r.configure(resumingOf("a"))
	r.nothing("after a pause within the rest")
	r.settle(h[1], storage.Settle{Outcome: storage.Release, Delay: brevity / 4})
	r.configure(pausingOf("a", time.Minute))
	r.pass(brevity/4 + time.Millisecond)
	r.want("claimed after the rest of b", r.finish(9), []string{"b0"})
	r.pass(2 * brevity)
	r.nothing("during the pause after the rest")
	r.configure(resumingOf("a"))
	r.want("claimed after the rest", ids(r.claim(ask(9)).Tasks), []string{"a0", "a1", "late"})
}

func shareRestEmpty(r *rig) {
	r.pace.timed.Store(true)
	r.configure(inEach(3, storage.Rate{N: 9, Per: 2 * brevity}))
	r.addKeyed("a", 2)
	h := r.hold(ask(2), 2)
	r.settle(h[0], storage.Settle{Outcome: storage.Release, Delay: brevity / 4})
	r.delete("a0")
	r.nothing("without tasks")
	r.insert(keyed("a", "b"))
	r.nothing("during the rest")
	r.pass(brevity/4 + time.Millisecond)
	r.want("claimed beside a running task", r.finish(9), []string{"b"})
	r.insert(keyed("a", "c"))
	r.settle(r.take(ask(9), "c"), storage.Settle{Outcome: storage.Release, Delay: brevity / 4})
	r.delete("c")
	r.end(h[1], storage.Complete)
	r.insert(keyed("a", "d"))
	r.nothing("during the second rest")
	r.pass(brevity/4 + time.Millisecond)
	r.want("claimed while starts count", r.finish(9), []string{"d"})
	r.pass(2*brevity + brevity/16)
	r.maintain()
	r.want("partitions at the end", r.keys(), []string{})
}

func shareThrottleOrdinary(r *rig) {
	r.pace.timed.Store(true)
	r.add("x", "y")
	r.addKeyed("a", 1)
	h := r.take(ask(1), "x")
	r.settle(h, storage.Settle{Outcome: storage.Release, Delay: brevity})
	r.want("claimed beside it", r.finish(9), []string{"a0"})
	c := r.nothing("during the rest")
	r.between("next due", c.NextDue, r.now(), r.now().Add(brevity))
	req := ask(1)
	req.Queues[0].Max = storage.MaxNone
	r.between("next due for no kinds", r.claim(req).NextDue, r.now(), r.now().Add(brevity))
	r.between("rest in the stats", r.stats().Rests, r.now(), r.now().Add(brevity))
	r.add("z")
	r.nothing("after an insert")
	r.pass(brevity + time.Millisecond)
	r.want("rest in the stats after it", r.stats().Rests.IsZero(), true)
	r.want("claimed after the rest", ids(r.claim(ask(9)).Tasks), []string{"x", "y", "z"})
}

func shareLoosened(r *rig) {
	r.addKeyed("a", 6)
	h := r.take(ask(1), "a0")
	r.configure(inEach(1, storage.Rate{}))
	r.take(ask(9), "a1")
	r.end(h, storage.Complete)
	r.heldBack("beside the counted task")
	r.configure(inEach(2, storage.Rate{}))
	r.take(ask(9), "a2")
	r.configure(inEach(0, storage.Rate{N: 1, Per: time.Hour}))
	r.take(ask(9), "a3")
	r.want("claimed over the rate", ids(r.claim(ask(9)).Tasks), []string{})
	r.configure(inEach(0, storage.Rate{N: 2, Per: time.Hour}))
	r.take(ask(9), "a4")
	r.want("claimed over the raised rate", ids(r.claim(ask(9)).Tasks), []string{})
	r.configure(clearing())
	r.take(ask(9), "a5")
}
