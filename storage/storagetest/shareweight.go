package storagetest

import (
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// shareWeightRules state how many tasks a claim takes of a partition in one turn, and how the limit of one
// partition stands in the place of that of all.
func shareWeightRules() []rule {
	return []rule{
		state("share/turns by weight", shareWeight,
			"A claim takes as many tasks of a partition in one turn as its weight says, round after round. The tasks "+
				"without a partition have the weight 1."),
		state("share/weight in order", shareWeightOrder,
			"Within a turn the tasks of a partition come by priority. A claim goes on with others if it can take no "+
				"other task of the partition: it has none, all others are suspects, or its limit is reached."),
		state("share/weight and declined", shareWeightDeclined,
			"Declined tasks of a partition are served with the tasks without one, whatever its weight."),
		state("share/own limit", shareOwn,
			"The limit of one partition stands in the place of the limit of all, higher or lower, and whole: a bound "+
				"that it does not set is none. Once it is cleared, that of all partitions holds again."),
		state("share/own limit alone", shareOwnAlone,
			"The limit of one partition holds in a queue without a limit too. No task of that partition is claimed "+
				"ahead, and those of the others are."),
		state("share/own rate", shareOwnRate,
			"The rate of one partition counts its starts alone, and NextDue covers its next start."),
		state("share/own limit kept", shareOwnKept,
			"A partition keeps its own limit without tasks, is listed with it, and holds its queue. The removal of "+
				"the queue removes the limit."),
		state("share/own limit cleared", shareOwnCleared,
			"Nothing is left of an empty partition whose own limit is cleared. To clear a limit where there is none "+
				"does nothing, and makes no queue."),
		state("share/own limit loosened", shareOwnLoosened,
			"A limit of one partition that is raised or cleared holds at once, also if the partition rests "+
				"because of its rate. It ends no rest and no pause, and a pause leaves the limit."),
		state("share/own limit beside that of all", shareOwnBeside,
			"A change of the limit of all partitions leaves the limit of one as it is."),
		state("share/own limit of declined", shareOwnDeclined,
			"The limit of one partition holds for its declined tasks too."),
		state("share/own limit without a weight", shareOwnPlain,
			"A limit of one partition without a weight has the weight 1, whatever that of all is."),
	}
}

// bounding returns the settings that set the limit of one partition.
func bounding(key string, l storage.PartitionLimit) storage.Settings {
	return storage.Settings{
		Partition: key, Limit: &storage.OperatorLimit{On: true, Limit: storage.Limit{Partition: l}},
	}
}

// unbounding returns the settings that clear the limit of one partition.
func unbounding(key string) storage.Settings {
	return storage.Settings{Partition: key, Limit: new(storage.OperatorLimit)}
}

// weighing returns a limit of partitions that sets a weight alone.
func weighing(n int) storage.PartitionLimit { return storage.PartitionLimit{Weight: n} }

// turns fails the rule unless a claim of up to n tasks takes these, by their ids with spaces between.
func (r *rig) turns(when string, n int, want string) {
	r.Helper()
	r.want("claimed "+when, strings.Join(ids(r.claim(ask(n)).Tasks), " "), want)
}

func shareWeight(r *rig) {
	r.configure(bounding("a", weighing(3)))
	r.addKeyed("a", 8)
	r.addKeyed("b", 3)
	r.add("x", "y", "z")
	r.turns("at first", 10, "x a0 a1 a2 b0 y a3 a4 a5 b1")
	r.turns("then", 9, "z a6 a7 b2")
	r.configure(unbounding("a"))
	r.configure(limiting(storage.Limit{Partition: weighing(2)}))
	r.addKeyed("c", 3)
	r.addKeyed("d", 3)
	r.add("v", "w")
	r.turns("with a weight of all", 9, "v c0 c1 d0 d1 w c2 d2")
}

func shareWeightOrder(r *rig) {
	r.suspectIn("b", "s")
	r.configure(limiting(storage.Limit{Partition: weighing(3)}))
	r.configure(bounding("c", storage.PartitionLimit{Concurrency: 2, Weight: 5}))
	low, high := keyed("a", "low"), keyed("a", "high")
	low.Priority, high.Priority = -1, 1
	r.insert(low, keyed("a", "a0"), high, keyed("a", "a1"))
	r.addKeyed("b", 1)
	r.addKeyed("c", 4)
	r.turns("at first", 9, "b0 high a0 a1 c0 c1 low")
	r.want("the suspect", ids(r.claim(asking(9)).Tasks), []string{"s"})
	r.heldBack("behind all turns")
}

func shareWeightDeclined(r *rig) {
	mail := of("mail", "m0")
	mail.Partition = "a"
	other := mail
	other.Ref.ID = "m1"
	r.decline(mail, other)
	r.configure(limiting(storage.Limit{Partition: weighing(3)}))
	r.addKeyed("a", 4)
	r.addKeyed("b", 1)
	c := r.claim(knows(9, "mail", "job"))
	r.want("claimed", strings.Join(ids(c.Tasks), " "), "m0 a0 a1 a2 b0 m1 a3")
}

func shareOwn(r *rig) {
	r.configure(inEach(2, storage.Rate{N: 9, Per: time.Hour}))
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 1}))
	r.configure(bounding("b", storage.PartitionLimit{Concurrency: 3}))
	r.configure(bounding("c", storage.PartitionLimit{}))
	for _, key := range []string{"a", "b", "c", "d"} {
		r.addKeyed(key, 5)
	}
	r.turns("at first", 20, "a0 b0 c0 d0 b1 c1 d1 b2 c2 c3 c4")
	r.heldBack("at their limits")
	r.want("starts of b", len(r.partition("b").Counts), 0)
	l := r.partition("b").Limit
	r.want("limit of b", l != nil && *l == storage.PartitionLimit{Concurrency: 3}, true)
	r.want("limit of d", r.partition("d").Limit == nil, true)
	r.configure(unbounding("a"))
	r.turns("once it is cleared", 20, "a1")
	r.counted("once it is cleared", "a", 2, 1)
	r.configure(bounding("d", storage.PartitionLimit{Concurrency: 4}))
	r.turns("of a partition with tasks", 20, "d2 d3")
}

func shareOwnAlone(r *rig) {
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 2}))
	r.addKeyed("a", 4)
	r.addKeyed("b", 3)
	req := ask(0)
	req.Ahead = 9
	r.want("claimed ahead", ids(r.claim(req).Tasks), []string{"b0", "b1", "b2"})
	r.addKeyed("c", 2)
	req.Start = 1
	c := r.claim(req)
	r.want("claimed and ahead", strings.Join(ids(c.Tasks), " "), "a0 c0 c1")
	r.want("started", c.Tasks[0].Started, true)
	r.turns("to start", 9, "a1")
	r.heldBack("at its limit")
	r.want("running", [2]int64{r.partition("a").Running, r.partition("b").Running}, [2]int64{2, 0})
}

func shareOwnRate(r *rig) {
	const per = 2 * time.Second
	r.pace.rely(per)
	r.configure(bounding("a", storage.PartitionLimit{Rate: storage.Rate{N: 2, Per: per}}))
	r.addKeyed("a", 4)
	r.addKeyed("b", 3)
	from := r.now()
	r.turns("at first", 9, "a0 b0 a1 b1 b2")
	c := r.claim(ask(9))
	r.want("claimed, more over the rate", [2]any{ids(c.Tasks), c.More}, [2]any{[]string{}, false})
	r.between("next due", c.NextDue, from.Add(per), r.now().Add(per+per/storage.RateParts))
	r.counted("over the rate", "a", 0, 2)
	r.want("next", r.partition("a").Next.Equal(c.NextDue), true)
	r.passTo(c.NextDue.Add(10 * time.Millisecond))
	r.turns("after the rate", 9, "a2 a3")
}

func shareOwnKept(r *rig) {
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 1, Weight: 2}))
	r.want("partitions at first", r.keys(), []string{"a"})
	for range 2 {
		r.addKeyed("a", 2)
		r.complete(r.take(ask(9), "a0"))
		r.complete(r.take(ask(9), "a1"))
		r.want("partitions without tasks", r.keys(), []string{"a"})
	}
	for range 5 {
		if r.Advance != nil { // else days would have to pass
			r.pass(12 * time.Hour)
			r.maintain()
		}
	}
	l := r.partition("a").Limit
	r.want("limit after days", l != nil && *l == storage.PartitionLimit{Concurrency: 1, Weight: 2}, true)
	r.configure(storage.Settings{Remove: true})
	r.want("partitions of the removed queue", r.keys(), []string{})
	r.addKeyed("a", 2)
	r.turns("in a new queue", 9, "a0 a1")
}

func shareOwnCleared(r *rig) {
	r.configure(unbounding("a"))
	page, err := r.store.Queues(r.ctx, storage.QueuesQuery{Prefix: mainQueue, Limit: 1})
	r.must("queues", err)
	r.want("queues", len(page.Names), 0)
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 1}))
	r.addKeyed("b", 1)
	r.configure(unbounding("b"))
	r.want("partitions with it", r.keys(), []string{"a", "b"})
	r.configure(unbounding("a"))
	r.want("partitions without it", r.keys(), []string{"b"})
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 1}))
	r.addKeyed("a", 2)
	holds := r.hold(ask(9), 2)
	r.configure(unbounding("a"))
	holds = append(holds, r.take(ask(9), "a1"))
	r.complete(holds...)
	r.want("partitions at the end", r.keys(), []string{})
}

func shareOwnLoosened(r *rig) {
	hour := func(n int) storage.PartitionLimit {
		return storage.PartitionLimit{Rate: storage.Rate{N: n, Per: time.Hour}}
	}
	r.configure(bounding("a", hour(1)))
	r.addKeyed("a", 6)
	r.addKeyed("b", 1)
	r.turns("at first", 9, "a0 b0")
	r.nothing("over the rate")
	r.configure(bounding("a", hour(2)))
	r.turns("once it is raised", 9, "a1")
	r.nothing("over the raised rate")
	r.configure(unbounding("a"))
	r.turns("once it is cleared", 1, "a2")
	r.configure(bounding("a", hour(1)))
	r.configure(pausingOf("a", 0))
	r.configure(bounding("a", hour(9)))
	r.nothing("while it is paused")
	r.configure(resumingOf("a"))
	l := r.partition("a").Limit
	r.want("limit after the pause", l != nil && *l == hour(9), true)
	c := r.hold(ask(1), 1)
	r.throttle(c[0], time.Hour)
	r.configure(bounding("a", hour(99)))
	r.nothing("while it rests")
}

func shareOwnBeside(r *rig) {
	own := storage.PartitionLimit{Rate: storage.Rate{N: 1, Per: time.Hour}}
	r.configure(bounding("a", own))
	r.addKeyed("a", 3)
	r.addKeyed("b", 3)
	r.turns("at first", 2, "a0 b0")
	r.configure(inEach(1, storage.Rate{}))
	r.turns("under a limit of all", 9, "b1")
	r.configure(inEach(0, storage.Rate{N: 9, Per: time.Minute}))
	r.turns("under another limit of all", 9, "b2")
	r.configure(clearing())
	r.nothing("under its own limit")
	r.counted("under its own limit", "a", 0, 1)
	r.want("limit", *r.partition("a").Limit == own, true)
}

func shareOwnDeclined(r *rig) {
	mails := make([]storage.Insert, 3)
	for i, id := range []string{"m0", "m1", "m2"} {
		mails[i] = of("mail", id)
		mails[i].Partition = "a"
	}
	r.decline(mails...)
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 2}))
	req := knows(0, "mail")
	req.Ahead = 9
	r.want("claimed ahead", ids(r.claim(req).Tasks), []string{})
	high := job("x")
	high.Priority, req.Start = 1, 1
	r.insert(high)
	r.want("claimed and ahead", ids(r.claim(req).Tasks), []string{"x"})
	c := r.claim(knows(9, "mail"))
	r.want("claimed", ids(c.Tasks), []string{"m0", "m1"})
	r.want("held", r.claim(knows(9, "mail")).Held, []string{mainQueue})
}

func shareOwnPlain(r *rig) {
	r.configure(limiting(storage.Limit{Partition: weighing(3)}))
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 9}))
	r.addKeyed("a", 4)
	r.addKeyed("b", 4)
	r.turns("by their weights", 9, "a0 b0 b1 b2 a1 b3 a2 a3")
}
