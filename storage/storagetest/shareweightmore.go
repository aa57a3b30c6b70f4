package storagetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// shareOwnRules state how weights and limits of one partition meet the rate of the queue, a clock that was
// set back, and each other.
func shareOwnRules() []rule {
	return []rule{
		state("share/weight and a rate of the queue", shareWeightRated,
			"A task of a partition whose cost the rate of the queue does not admit ends the claim within the turn "+
				"of the partition. The turn goes on with that task: so the queue is bounded."),
		state("share/own limit of none cleared", shareOwnNoneCleared,
			"To clear a limit that a partition does not have leaves its rest, and its place among the others."),
		state("share/own rate in a clock set back", shareOwnBack,
			"After the clock was set back, the starts of a partition with a rate of its own count as made now, "+
				"also if the rate of all others has a longer span, or a shorter one."),
		state("share/rest until a dear task", shareDear,
			"A partition rests until its rate admits its next task by the cost of that task, and not until it "+
				"admits a cheaper one."),
		state("share/weight in a clock set back", shareWeightBack,
			"Turns by weight go on after the clock was set back."),
		state("share/own limit cleared while tasks run", shareOwnUnbound,
			"A concurrency of one partition that is cleared while its tasks run counts none that start then, and "+
				"these do not count once it is set again. A rate that is cleared forgets its starts."),
		state("share/own limits of many", shareOwnMany,
			"Many partitions without tasks that have limits of their own are listed in pages, and keep no claim "+
				"from the tasks of others."),
		state("share/own limit and why", shareOwnWhy,
			"Why names the limit of one partition that holds its task back, and not that of all partitions."),
	}
}

func shareWeightRated(r *rig) {
	l := storage.Limit{Rate: storage.Rate{N: 5, Per: time.Hour}, Partition: weighing(3)}
	r.configure(limiting(l))
	dear := keyed("a", "a1")
	dear.Cost = 5
	r.insert(keyed("a", "a0"), dear, keyed("b", "b0"))
	for _, want := range [][]string{{"a0"}, {}} {
		c := r.claim(ask(9))
		r.want("claimed, more, bounded", [3]any{ids(c.Tasks), c.More, c.Bounded},
			[3]any{want, false, []string{mainQueue}})
	}
	r.cancel("a1")
	r.turns("without that task", 9, "b0")
}

func shareOwnNoneCleared(r *rig) {
	const per = 2 * time.Second
	r.pace.rely(per)
	r.configure(inEach(0, storage.Rate{N: 1, Per: per}))
	r.addKeyed("a", 2)
	r.turns("at first", 9, "a0")
	r.nothing("over the rate")
	next := r.partition("a").Next
	r.configure(unbounding("a"))
	r.configure(pausing(0)) // so that no claim reads the partition before it is ready
	r.addKeyed("b", 1)
	r.passTo(next.Add(10 * time.Millisecond))
	r.configure(resuming())
	r.turns("after the rest", 9, "b0 a1")
}

func shareOwnBack(r *rig) {
	if !r.jumps() {
		return
	}
	const per = 2 * time.Second
	for i, all := range []time.Duration{storage.MaxPer, time.Second} {
		key := fmt.Sprint("key", i)
		r.pace.rely(per)
		r.configure(inEach(0, storage.Rate{N: 1, Per: all}))
		r.configure(bounding(key, storage.PartitionLimit{Rate: storage.Rate{N: 1, Per: per}}))
		r.addKeyed(key, 2)
		r.want("claimed at first", r.finish(9), []string{key + "0"})
		r.Jump(-far)
		c := r.nothing("after the clock was set back")
		r.between("NextDue", c.NextDue, c.Now, c.Now.Add(per+per/storage.RateParts))
		r.pass(per + per/storage.RateParts + 10*time.Millisecond)
		r.want("claimed a span later", r.finish(9), []string{key + "1"})
	}
}

func shareDear(r *rig) {
	const per = 20 * time.Second
	r.pace.rely(per)
	r.configure(bounding("a", storage.PartitionLimit{Rate: storage.Rate{N: 3, Per: per}}))
	dear := []storage.Insert{keyed("a", "a1"), keyed("a", "a2")}
	dear[0].Cost, dear[1].Cost = 2, 3
	r.addKeyed("a", 1)
	r.turns("at first", 9, "a0")
	r.pass(per/storage.RateParts + 10*time.Millisecond)
	r.insert(dear...)
	r.turns("in another part", 1, "a1")
	counts := r.partition("a").Counts
	r.want("parts with starts", len(counts), 2)
	c := r.nothing("over the rate")
	r.want("next due", c.NextDue.Equal(counts[1].Until), true)
	c = r.nothing("in the rest")
	r.want("next due in the rest", c.NextDue.Equal(counts[1].Until), true)
}

func shareWeightBack(r *rig) {
	if !r.jumps() {
		return
	}
	r.configure(bounding("a", weighing(2)))
	r.addKeyed("a", 5)
	r.addKeyed("b", 3)
	r.turns("at first", 3, "a0 a1 b0")
	r.Jump(-far)
	r.turns("after the clock was set back", 4, "a2 a3 b1 a4")
	r.addKeyed("a", 1)
	r.want("limit", r.partition("a").Limit.Weight, 2)
}

func shareOwnUnbound(r *rig) {
	hour := storage.Rate{N: 1, Per: time.Hour}
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 1}))
	r.addKeyed("a", 6)
	h := r.take(ask(9), "a0")
	r.configure(unbounding("a"))
	others := r.gets("once it is cleared", ask(2), "a1", "a2")
	r.counted("once it is cleared", "a", 1, 0)
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 2}))
	r.turns("under another limit", 9, "a3")
	r.counted("under another limit", "a", 2, 0)
	r.complete(others...)
	r.heldBack("after the end of others")
	r.complete(h)
	r.turns("after its end", 9, "a4")
	r.configure(bounding("a", storage.PartitionLimit{Rate: hour}))
	r.turns("under a rate", 9, "a5")
	r.counted("under a rate", "a", 2, 1)
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 9}))
	r.configure(bounding("a", storage.PartitionLimit{Rate: hour}))
	r.counted("once it was cleared", "a", 2, 0)
}

func shareOwnMany(r *rig) {
	const many = 120 // more than a page
	for i := range many {
		r.configure(bounding(fmt.Sprintf("p%03d", i), storage.PartitionLimit{Concurrency: 1 + i}))
	}
	r.add("x", "y")
	r.addKeyed("z", 1)
	req := ask(0)
	req.Ahead = 9
	c := r.claim(req)
	r.want("claimed ahead, more", [2]any{strings.Join(ids(c.Tasks), " "), c.More}, [2]any{"x z0 y", false})
	r.want("NextDue", c.NextDue.IsZero(), true)
	page := r.partitions(storage.PartitionsQuery{Queue: mainQueue, Limit: many - 1})
	r.want("listed, next", [2]any{len(page.Partitions), page.Next}, [2]any{many - 1, "p118"})
	r.want("limit of the last", page.Partitions[many-2].Limit.Concurrency, many-1)
	r.configure(inEach(1, storage.Rate{}))
	r.addKeyed("p005", 9)
	r.want("claimed of one", len(r.claim(ask(9)).Tasks), 6)
	for i := range many {
		r.configure(unbounding(fmt.Sprintf("p%03d", i)))
	}
	r.want("partitions that are left", r.keys(), []string{"p005"})
}

func shareOwnWhy(r *rig) {
	r.serves("nobody", 9, 0, "job")
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 1}))
	r.addKeyed("a", 2)
	r.turns("at first", 9, "a0")
	v := r.why("a1", storage.CausePartitionLimit)
	r.want("limit", v.Limit.Partition, storage.PartitionLimit{Concurrency: 1})
	r.configure(inEach(1, storage.Rate{}))
	r.configure(bounding("a", storage.PartitionLimit{}))
	r.why("a1", storage.CauseInLine)
	r.configure(bounding("a", storage.PartitionLimit{Rate: storage.Rate{N: 1, Per: time.Hour}}))
	r.turns("under a rate", 9, "a1")
	r.addKeyed("a", 3)
	r.why("a2", storage.CausePartitionRate)
}
