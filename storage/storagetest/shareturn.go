package storagetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// shareTurnRules state how a turn by weight goes on over claims, and when its rest is lost.
func shareTurnRules() []rule {
	return []rule{
		state("share/turn over claims", shareTurnOverClaims,
			"A turn goes on over claims: if a claim ends within the turn of a partition, the next claim goes on with "+
				"the rest of it."),
		state("share/turn and new partitions", shareTurnNew,
			"A partition that begins while the turn of another goes on waits for its end. The tasks without a "+
				"partition keep their place meanwhile."),
		state("share/turn over claims of two queues", shareTurnQueues,
			"A turn of one queue goes on whatever claims take from another."),
		state("share/turn of an emptied partition", shareTurnEmptied,
			"The rest of a turn is lost if the partition has no waiting task any more, because all were claimed, "+
				"cancelled or moved. It has a whole turn at the end of the ring once it has tasks again."),
		state("share/turn and rests", shareTurnRests,
			"The rest of a turn is lost if the partition is paused, or rests because of a throttled task or of its "+
				"rate. It has a whole turn at the end of the ring then."),
		state("share/turn under another weight", shareTurnChanged,
			"A change of the weight leaves the place of a partition whose turn goes on, and at most as many tasks "+
				"of the turn as the new weight says."),
		state("share/turn passed over", shareTurnPassed,
			"A partition whose turn goes on, and of which a claim can take no task, holds no other back and keeps "+
				"the rest of its turn."),
		state("share/turn in a claim that goes on", shareTurnGoesOn,
			"A claim that can take no other task of a partition within its turn takes tasks of others, and leaves "+
				"the rest of the turn to the next claim: if the partition is full, if its tasks may not be claimed "+
				"ahead, or if all others are suspects."),
		state("share/turn and declined tasks", shareTurnDeclined,
			"A task of a turn that is declined or released counts for the turn. A released one is served in its "+
				"partition, and a declined one with the tasks without a partition."),
	}
}

// oneByOne fails the rule unless as many claims of one task take these tasks.
func (r *rig) oneByOne(when, want string) {
	r.Helper()
	for id := range strings.FieldsSeq(want) {
		r.turns(when+", before "+id, 1, id)
	}
}

func shareTurnOverClaims(r *rig) {
	r.configure(bounding("a", weighing(3)))
	r.addKeyed("a", 9)
	r.addKeyed("b", 4)
	r.oneByOne("one by one", "a0 a1 a2 b0 a3 a4 a5 b1")
	r.turns("by two", 2, "a6 a7")
	r.turns("by three", 3, "a8 b2 b3")
	r.configure(limiting(storage.Limit{Partition: weighing(3)}))
	r.configure(unbounding("a"))
	r.addKeyed("c", 9)
	r.addKeyed("d", 9)
	r.turns("by two, of a weight of all", 2, "c0 c1")
	r.turns("by two, then", 2, "c2 d0")
	r.turns("by one", 1, "d1")
	r.turns("by many", 9, "d2 c3 c4 c5 d3 d4 d5 c6 c7")
	r.oneByOne("one by one again", "c8 d6 d7 d8")
}

func shareTurnNew(r *rig) {
	r.configure(limiting(storage.Limit{Partition: weighing(3)}))
	r.addKeyed("a", 5)
	r.oneByOne("alone", "a0 a1")
	r.addKeyed("b", 2)
	high := keyed("a", "high")
	high.Priority = 1
	r.insert(high)
	r.oneByOne("beside a new partition", "high b0 b1 a2 a3")
	r.add("x", "y") // in a turn that is long over
	r.oneByOne("beside tasks without a partition", "x a4 y")
}

func shareTurnQueues(r *rig) {
	r.configure(limiting(storage.Limit{Partition: weighing(2)}))
	settings := limiting(storage.Limit{Partition: weighing(3)})
	r.must("configure side", r.session.Configure(r.ctx, sideQueue, settings))
	r.addKeyed("a", 4)
	r.addKeyed("b", 2)
	for _, id := range []string{"a0", "a1", "a2", "a3"} {
		j := keyed("a", "side-"+id)
		j.Ref.Queue = sideQueue
		r.insert(j)
	}
	other := keyed("b", "side-b0")
	other.Ref.Queue = sideQueue
	r.insert(other)
	order := "a0 side-a0 a1 side-a1 side-a2 b0 side-b0 b1 a2 side-a3 a3"
	for want := range strings.FieldsSeq(order) {
		req := ask(1)
		if strings.HasPrefix(want, "side-") {
			req.Queues = []storage.ClaimQueue{{Name: sideQueue}}
		}
		if got := ids(r.claim(req).Tasks); len(got) != 1 || got[0] != want {
			r.Fatalf("got %v, want %s", got, want)
		}
	}
}

func shareTurnEmptied(r *rig) {
	r.configure(bounding("a", weighing(3)))
	r.addKeyed("b", 7)
	b := 0
	ofB := func(when string) {
		r.oneByOne(when, fmt.Sprint("b", b))
		b++
	}
	ofB("at first")
	for _, empty := range []func(){
		func() { r.complete(r.take(ask(1), "last")) },
		func() { r.cancel("last") },
		func() {
			r.changeNow("last", rekeyed(""))
			r.cancel("last")
		},
	} {
		r.insert(keyed("a", "first"), keyed("a", "last"))
		ofB("before the turn")
		r.complete(r.take(ask(1), "first"))
		empty()
		r.addKeyed("a", 3)
		ofB("before a new turn")
		for _, id := range []string{"a0", "a1", "a2"} {
			r.complete(r.take(ask(1), id))
		}
	}
}

func shareTurnRests(r *rig) {
	const per = 2 * time.Second
	r.pace.rely(per)
	r.configure(bounding("a", weighing(3)))
	r.addKeyed("a", 12)
	r.addKeyed("b", 9)
	r.oneByOne("before a pause", "a0")
	r.configure(pausingOf("a", 0))
	r.configure(resumingOf("a"))
	r.oneByOne("after a pause", "b0 a1 a2 a3 b1")
	h := r.take(ask(1), "a4")
	r.throttle(h, per)
	r.oneByOne("during a rest", "b2 b3")
	r.pass(per + 20*time.Millisecond)
	r.oneByOne("after a rest", "b4 a4 a5 a6 b5")
	r.configure(bounding("a", storage.PartitionLimit{Rate: storage.Rate{N: 2, Per: per}, Weight: 3}))
	r.oneByOne("under a rate", "a7 a8")
	r.turns("over the rate", 1, "b6")
	r.configure(bounding("a", weighing(3)))
	r.oneByOne("after the rate", "b7 a9 a10 a11 b8")
}

func shareTurnChanged(r *rig) {
	r.configure(limiting(storage.Limit{Partition: weighing(5)}))
	r.addKeyed("a", 20)
	r.addKeyed("b", 20)
	r.oneByOne("of five", "a0")
	r.configure(limiting(storage.Limit{Partition: weighing(2)}))
	r.oneByOne("of five, then two", "a1 a2 b0 b1")
	r.oneByOne("of two", "a3")
	r.configure(bounding("a", weighing(4)))
	r.oneByOne("of two, then four", "a4 b2 b3 a5 a6")
	r.configure(unbounding("a"))
	r.oneByOne("of four, then two", "a7 a8 b4 b5 a9")
	r.configure(clearing())
	r.oneByOne("of two, then one", "a10 b6 a11")
	r.configure(limiting(storage.Limit{Partition: weighing(2)}))
	r.oneByOne("of one, then two", "b7 b8 a12 a13 b9")
	r.configure(clearing())
	r.oneByOne("of one", "b10 a14 b11 a15")
}

func shareTurnPassed(r *rig) {
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 1, Weight: 3}))
	r.addKeyed("a", 5)
	r.addKeyed("b", 4)
	r.addKeyed("e", 2)
	h := r.take(ask(1), "a0")
	r.oneByOne("beside a full one", "b0")
	r.complete(h)
	h = r.take(ask(1), "a1")
	r.oneByOne("beside a full one again", "e0 b1 e1 b2")
	r.complete(h)
	r.complete(r.take(ask(1), "a2"))
	r.oneByOne("after the turn", "b3 a3")
	r.configure(limiting(storage.Limit{Partition: weighing(2)}))
	r.suspectIn("c", "s")
	r.insert(keyed("c", "c0"))
	r.addKeyed("d", 2)
	r.oneByOne("beside a suspect", "c0 d0")
	r.insert(keyed("c", "c1"), keyed("c", "c2"))
	r.oneByOne("beside a suspect again", "c1 d1 c2")
}

func shareTurnGoesOn(r *rig) {
	r.configure(bounding("a", storage.PartitionLimit{Concurrency: 1, Weight: 3}))
	r.addKeyed("a", 4)
	r.addKeyed("b", 5)
	r.addKeyed("c", 5)
	for i, want := range [][]string{{"a0", "b0"}, {"a1", "c0"}, {"a2", "b1"}, {"c1"}, {"a3", "b2"}} {
		r.complete(r.gets(fmt.Sprint("to the end of the slots, ", i), ask(len(want)), want...)...)
	}
	r.configure(bounding("a", weighing(3)))
	for i := range 3 {
		r.insert(keyed("a", fmt.Sprint("x", i)))
	}
	req := ask(1)
	req.Ahead = 1
	for i, want := range [][]string{{"c2", "b3"}, {"x0", "c3"}, {"x1", "b4"}, {"x2", "c4"}} {
		r.gets(fmt.Sprint("with one ahead, ", i), req, want...)
	}
	r.configure(limiting(storage.Limit{Partition: weighing(2)}))
	r.suspectIn("d", "s")
	r.insert(keyed("d", "d0"))
	r.addKeyed("e", 3)
	r.turns("to a suspect", 2, "d0 e0")
	r.insert(keyed("d", "d1"))
	r.oneByOne("behind a suspect", "d1 e1 e2")
}

func shareTurnDeclined(r *rig) {
	r.configure(bounding("a", weighing(3)))
	mail := of("mail", "m0")
	mail.Partition = "a"
	r.insert(mail)
	r.addKeyed("a", 6)
	r.addKeyed("b", 5)
	r.declineNext("m0")
	h := r.take(knows(1, "another"), "a0")
	r.end(h, storage.Release)
	r.want("claimed again", ids(r.claim(knows(1, "another")).Tasks), []string{"a0"})
	r.want("behind the turn", ids(r.claim(knows(1, "another")).Tasks), []string{"b0"})
	r.want("declined", ids(r.claim(knows(1, "mail")).Tasks), []string{"m0"})
	r.oneByOne("in the next turns", "a1 a2 a3 b1 a4 a5 b2")
}
