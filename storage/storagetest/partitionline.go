package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

// partitionLineRules state that after every step a task stands in the line of its partition.
func partitionLineRules() []rule {
	return []rule{
		state("partition/inserted", partitionInserted,
			"An inserted task joins the tail of the line of its partition; reads, listings and claims show its "+
				"key."),
		state("partition/settled", partitionSettled,
			"A task keeps its partition through each outcome, and is back in its line once it waits again."),
		state("partition/released", partitionReleased,
			"What is released goes to the head of the line of its partition, which joins the end of the ring "+
				"where it had no task."),
		state("partition/promoted", partitionPromoted,
			"What is promoted, retried or snoozed joins the tail of the line of its partition."),
		state("partition/recovered", partitionRecovered,
			"What is recovered goes to the head of the line of its partition, as a suspect or start-only task "+
				"too."),
		state("partition/declined", partitionDeclined,
			"A declined task stands in the line of its kind and is back in that of its partition after a "+
				"release, a recovery, a promotion, a requeue, a new priority, a new partition, and Now."),
		state("partition/requeued", partitionRequeued,
			"A requeued task joins the tail of the line of its partition, whatever it had ended as."),
		state("partition/rescheduled", partitionRescheduled,
			"A new priority leads to the tail of it within the partition, a later moment out of the line, and "+
				"a new payload or Now leaves a task in its place."),
		state("partition/changed", partitionChanged,
			"A waiting task whose partition is replaced joins the tail of the new line, also where the key is "+
				"the same; any other task gets the new key and stays where it is."),
		state("partition/moved", partitionMoved,
			"A moved task keeps its partition, and joins the tail of its line in the other queue."),
		state("partition/ended", partitionEnded,
			"A cancel, a delete and an end take a task out of the line; a partition without tasks leaves "+
				"nothing behind."),
		state("partition/schedule", partitionSchedule,
			"A cursor keeps its partition, which a change may replace, and its tasks get it."),
		state("partition/unique", partitionUnique,
			"Ids and unique keys belong to the queue, not to a partition, and an insert that finds its task "+
				"there leaves that in its partition."),
	}
}

func partitionInserted(r *rig) {
	r.insert(keyed("a", "a0"), keyed("b", "b0"), keyed("a", "a1"))
	later := keyed("a", "later")
	later.Delay = time.Hour
	r.insert(later)
	r.inLine("after inserts", "a", "a0", "a1")
	r.inLine("after inserts", "b", "b0")
	r.want("partition of a scheduled task", r.is("later", storage.Scheduled).Partition, "a")
	r.want("partition as listed", r.list(storage.Scheduled)[0].Partition, "a")
	h := r.take(ask(1), "a0")
	r.want("partition as claimed", h.Partition, "a")
	r.want("partition as read", r.is("a0", storage.Pending).Partition, "a")
	r.want("partition as listed", r.list(storage.Pending)[0].Partition, "a")
	r.inLine("after a claim", "a", "a1")
}

func partitionSettled(r *rig) {
	for _, outcome := range outcomes() {
		id := string(outcome)
		j := kept(id)
		j.Partition = "a"
		p := r.settle(r.holding(j), storage.Settle{Outcome: outcome, Delay: settleDelay(outcome)})
		r.want("partition after "+id, r.is(id, p.State).Partition, "a")
		if outcome != storage.Release {
			r.inLine("after "+id, "a")
			r.changeNow(id, storage.Change{Requeue: p.State.Ended(), Now: !p.State.Ended()})
		}
		r.inLine("back after "+id, "a", id)
		r.end(r.take(ask(1), id), storage.Complete)
	}
}

func partitionReleased(r *rig) {
	r.addKeyed("a", 3)
	r.addKeyed("b", 2)
	holds := r.hold(ask(3), 3) // a0, b0, a1
	r.end(holds[2], storage.Release)
	r.end(holds[0], storage.Release)
	r.inLine("after releases", "a", "a0", "a1", "a2")
	last := r.take(ask(1), "b1")
	r.addKeyed("c", 1)
	r.end(last, storage.Release)
	r.inLine("after a release", "b", "b1")
	r.want("claimed", r.drain(), []string{"a0", "c0", "b1", "a1", "a2"})
}

func partitionPromoted(r *rig) {
	const delay = 50 * time.Millisecond
	r.addKeyed("a", 2)
	failed, snoozed := r.take(ask(1), "a0"), r.take(ask(1), "a1")
	r.insert(keyed("a", "first"))
	r.addKeyed("b", 1)
	r.settle(snoozed, storage.Settle{Outcome: storage.Snooze, Delay: delay})
	r.pass(time.Millisecond)
	r.settle(failed, storage.Settle{Outcome: storage.Fail, Delay: delay})
	r.pass(time.Millisecond)
	for _, key := range []string{"a", "c"} {
		later := keyed(key, "later-"+key)
		later.Delay = delay
		r.insert(later)
		r.pass(time.Millisecond)
	}
	r.inLine("before", "a", "first")
	r.passTo(r.read("later-c").Due)
	r.maintain()
	r.inLine("after a promotion", "a", "first", "a1", "a0", "later-a")
	r.inLine("after a promotion", "c", "later-c")
	r.want("claimed", r.drain(), []string{"first", "b0", "later-c", "a1", "a0", "later-a"})
}

func partitionRecovered(r *rig) {
	r.addKeyed("a", 3)
	r.addKeyed("b", 1)
	h := r.take(brief(1), "a0")
	r.expire(h)
	r.inLine("after a recovery", "a", "a0", "a1", "a2")
	r.want("claimed", r.claims(2), []string{"b0", "a0"})
	h = r.take(ahead(), "a1")
	r.expire(h)
	r.want("passed over", r.read("a1").PassedOver, storage.PassedOverStartOnly)
	r.inLine("after a recovery of a task claimed ahead", "a", "a1", "a2")
	r.want("claimed", r.drain(), []string{"a1", "a2"})
	r.suspectIn("c", "s")
	r.addKeyed("d", 1)
	r.inLine("after the crash of a suspect", "c", "s")
	r.want("claimed", r.drain(), []string{"d0"})
	req := brief(1)
	req.Suspect = true
	h = r.take(req, "s")
	r.inLine("while it runs", "c")
	r.expire(h)
	r.want("partition of a dead task", r.is("s", storage.Dead).Partition, "c")
	r.want("partitions", len(r.keys()), 0)
}

func partitionDeclined(r *rig) {
	j := keyed("a", "t")
	j.Kind = "mail"
	r.insert(j)
	mail := knows(1, "mail")
	out := func(by string) {
		r.Helper()
		r.declineNext("t")
		r.inLine("after a decline", "a")
		r.want("declined before "+by, r.read("t").Declined.IsZero(), false)
	}
	back := func(by, key string) {
		r.Helper()
		r.inLine("after "+by, key, "t")
	}
	out("a release")
	r.end(r.take(mail, "t"), storage.Release)
	back("a release", "a")
	out("a recovery")
	short := mail
	short.Lease = storage.MinLease
	r.expire(r.take(short, "t"))
	back("a recovery", "a")
	out("a promotion")
	r.changeNow("t", storage.Change{Delay: 50 * time.Millisecond})
	r.passTo(r.read("t").Due)
	r.maintain()
	back("a promotion", "a")
	out("a requeue")
	r.settle(r.take(mail, "t"), storage.Settle{Outcome: storage.Bury})
	r.changeNow("t", storage.Change{Requeue: true})
	back("a requeue", "a")
	out("a new priority")
	r.changeNow("t", storage.Change{Priority: new(int)})
	back("a new priority", "a")
	out("Now")
	r.changeNow("t", storage.Change{Now: true})
	back("Now", "a")
	out("a new partition")
	r.changeNow("t", rekeyed("b"))
	back("a new partition", "b")
	r.want("partitions", r.keys(), []string{"b"})
}

func partitionRequeued(r *rig) {
	for _, s := range []storage.State{storage.Completed, storage.Cancelled, storage.Dead} {
		j := kept(string(s))
		j.Partition = "a"
		r.end(r.holding(j), endings[s])
		r.want("partition of an ended task", r.is(string(s), s).Partition, "a")
		r.want("partition as listed", r.list(s)[0].Partition, "a")
	}
	r.insert(keyed("a", "first"), keyed("b", "b0"))
	for _, id := range []string{"dead", "completed"} {
		r.changeNow(id, storage.Change{Requeue: true})
	}
	r.changeNow("cancelled", storage.Change{Requeue: true, Delay: time.Hour})
	r.inLine("after requeues", "a", "first", "dead", "completed")
	r.changeNow("cancelled", storage.Change{Now: true})
	r.inLine("after a requeue with a delay", "a", "first", "dead", "completed", "cancelled")
	r.want("claimed", r.claims(3), []string{"first", "b0", "dead"})
}

func partitionRescheduled(r *rig) {
	five, zero := 5, 0
	r.addKeyed("a", 4)
	r.addKeyed("b", 1)
	r.changeNow("a2", storage.Change{Priority: &five})
	r.inLine("after a new priority", "a", "a2", "a0", "a1", "a3")
	r.changeNow("a0", storage.Change{Priority: &zero})
	r.inLine("after the same priority", "a", "a2", "a1", "a3", "a0")
	r.changeNow("a1", storage.Change{Headers: map[string]string{"x": "y"}})
	r.changeNow("a1", storage.Change{Encoding: "raw", Payload: []byte("new")})
	r.changeNow("a1", storage.Change{Now: true})
	r.inLine("after new content and Now", "a", "a2", "a1", "a3", "a0")
	r.changeNow("a1", storage.Change{Delay: time.Hour})
	r.want("partition of a scheduled task", r.is("a1", storage.Scheduled).Partition, "a")
	r.inLine("after a delay", "a", "a2", "a3", "a0")
	r.changeNow("b0", storage.Change{Delay: time.Hour})
	r.want("partitions", r.keys(), []string{"a"})
	r.changeNow("a1", storage.Change{Now: true, Priority: &five})
	r.inLine("after Now", "a", "a2", "a1", "a3", "a0")
	r.changeNow("b0", storage.Change{Now: true})
	r.want("claimed", r.drain(), []string{"a2", "b0", "a1", "a3", "a0"})
}

// rekeyed returns a change of the partition.
func rekeyed(key string) storage.Change { return storage.Change{Partition: &key} }

func partitionChanged(r *rig) {
	r.addKeyed("a", 3)
	r.addKeyed("b", 1)
	r.changeNow("a0", rekeyed("b"))
	r.inLine("after a change", "a", "a1", "a2")
	r.inLine("after a change", "b", "b0", "a0")
	r.changeNow("b0", rekeyed("b"))
	r.inLine("after the same key", "b", "a0", "b0")
	r.changeNow("a1", rekeyed(""))
	r.changeNow("a2", rekeyed("c"))
	r.want("partitions", r.keys(), []string{"b", "c"})
	r.want("partition of a task without one", r.is("a1", storage.Waiting).Partition, "")
	five := rekeyed("c")
	five.Priority = new(int)
	*five.Priority = 5
	r.changeNow("b0", five)
	r.inLine("after a change with a priority", "c", "b0", "a2")
	r.want("waiting, partitioned", [2]int64{r.stats().Waiting, r.stats().Partitioned}, [2]int64{4, 3})
	for _, s := range []storage.State{storage.Scheduled, storage.Retry, storage.Dead} {
		id := string(s)
		r.drain()
		r.stand(id, s)
		r.changeNow(id, rekeyed("d"))
		r.want("partition of a task in "+id, r.is(id, s).Partition, "d")
		r.want("partitions", len(r.keys()), 0)
		r.changeNow(id, storage.Change{Requeue: s.Ended(), Now: !s.Ended()})
		r.inLine("after it waits again", "d", id)
	}
}

func partitionMoved(r *rig) {
	r.addKeyed("a", 2)
	if !storage.Spans(r.store, mainQueue, sideQueue) {
		r.Log("not tested: main and side cannot share a Tx")
		return
	}
	s := keyed("a", "s0")
	s.Ref.Queue = sideQueue
	r.insert(s)
	later := keyed("a", "later")
	later.Delay = time.Hour
	r.insert(later)
	for _, id := range []string{"a0", "later"} {
		r.changeNow(id, storage.Change{Queue: sideQueue})
	}
	zone := rekeyed("z")
	zone.Queue = sideQueue
	r.changeNow("a1", zone)
	r.want("partitions left", len(r.keys()), 0)
	r.want("partitioned left", r.stats().Partitioned, int64(0))
	page, err := r.store.Partitions(r.ctx, storage.PartitionsQuery{Queue: sideQueue})
	r.must("partitions", err)
	want := []storage.PartitionStats{{Key: "a", Waiting: 2}, {Key: "z", Waiting: 1}}
	r.want("partitions", page.Partitions, want)
	t, err := r.store.Task(r.ctx, storage.Ref{Queue: sideQueue, ID: "later"})
	r.must("read", err)
	r.want("partition of a scheduled task", [2]any{t.State, t.Partition}, [2]any{storage.Scheduled, "a"})
	req := ask(9)
	req.Queues[0].Name = sideQueue
	r.want("claimed", ids(r.claim(req).Tasks), []string{"s0", "a1", "a0"})
}

func partitionEnded(r *rig) {
	r.addKeyed("a", 3)
	r.addKeyed("b", 1)
	r.cancel("a1")
	r.inLine("after a cancel", "a", "a0", "a2")
	r.delete("a0")
	r.inLine("after a delete", "a", "a2")
	r.cancel("b0")
	r.want("partitions", r.keys(), []string{"a"})
	h := r.take(ask(1), "a2")
	r.want("partitions while it runs", len(r.keys()), 0)
	r.cancel("a2")
	r.want("state", r.end(h, storage.Release).State, storage.Cancelled)
	s := r.stats()
	r.want("waiting, partitioned", [2]int64{s.Waiting, s.Partitioned}, [2]int64{0, 0})
	r.want("partitions at the end", len(r.keys()), 0)
	r.balanced(s)
	r.addKeyed("b", 1)
	r.insert(keyed("a", "a3"))
	r.want("claimed", r.drain(), []string{"b0", "a3"})
}

func partitionSchedule(r *rig) {
	c := cursor("cursor.c", r.now().Add(time.Hour))
	c.Partition = "a"
	r.insert(c)
	r.want("partition", r.is("cursor.c", storage.Cursors).Partition, "a")
	r.want("partition as listed", r.list(storage.Cursors)[0].Partition, "a")
	next := *c.Cursor
	next.Next = next.Next.Add(time.Hour)
	r.changeNow("cursor.c", storage.Change{Cursor: &next})
	r.want("partition after a tick", r.is("cursor.c", storage.Cursors).Partition, "a")
	r.want("partitions", len(r.keys()), 0)
	ref, err := r.session.RunSchedule(r.ctx, in("cursor.c"))
	r.must("run", err)
	r.inLine("after a run", "a", ref.ID)
	r.changeNow("cursor.c", rekeyed("b"))
	second, err := r.session.RunSchedule(r.ctx, in("cursor.c"))
	r.must("run", err)
	r.inLine("after another run", "b", second.ID)
	r.want("claimed", r.drain(), []string{ref.ID, second.ID})
	due := *c.Cursor
	due.Next = r.now()
	r.changeNow("cursor.c", storage.Change{Cursor: &due})
	r.want("partition as it ticks", r.tick().Partition, "b")
}

func partitionUnique(r *rig) {
	a := life("a", "k")
	a.Partition = "one"
	r.insert(a)
	other := skipping("b")
	other.Partition = "two"
	p := r.insert(other)[0]
	r.want("skipped", [2]any{p.Existing, p.Ref}, [2]any{true, in("a")})
	r.keyTaken("in another partition", "k", "a")
	same := life("a", "k")
	same.Partition = "two"
	r.want("the same task", r.insert(same)[0].Existing, true)
	r.inLine("after all", "one", "a")
	r.want("partitions", r.keys(), []string{"one"})
	r.changeNow("a", rekeyed("two"))
	r.keyTaken("after a change of the partition", "k", "a")
	r.end(r.take(ask(1), "a"), storage.Complete)
	r.keyFree("after the end")
}
