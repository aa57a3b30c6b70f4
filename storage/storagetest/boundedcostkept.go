package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// boundedCostKeptRules state that a task has its cost through all changes of state, until a change replaces
// it.
func boundedCostKeptRules() []rule {
	return []rule{
		state("bounded/cost stored", costStored,
			"Task, Tasks and Claim return the cost of a task as it was inserted, alone or by a large call."),
		state("bounded/cost kept", costKept,
			"A task keeps its cost through each outcome, a crash, a promotion and a requeue."),
		state("bounded/cost of the same task", costExisting,
			"An insert that finds its task there, or the holder of its key, leaves the cost of that task as it is."),
		state("bounded/cost of a schedule", costSchedule,
			"A cursor keeps its cost, which a change may replace, and its tasks get it."),
		state("bounded/cost moved", costMoved,
			"A moved task keeps its cost, and the rate of the other queue is charged."),
		state("bounded/cost replaced", costReplaced,
			"Change.Cost replaces the cost of a task and leaves it in its state and place."),
		state("bounded/cost replaced with others", costReplacedWith,
			"Change.Cost goes with the operations that an edit goes with, and a change without it leaves the cost as "+
				"it is."),
		state("bounded/cost of a task that runs", costRefused,
			"A task that runs, or has ended other than as dead, takes no new cost."),
	}
}

// repriced returns a change of the cost.
func repriced(c storage.Cost) storage.Change { return storage.Change{Cost: &c} }

// costs fails the rule unless a task has this cost, as it is read and listed.
func (r *rig) costs(when, id string, state storage.State, want storage.Cost) {
	r.Helper()
	r.want("cost of "+id+" "+when, r.is(id, state).Cost.N(), want.N())
	listed := r.list(state)
	at := slices.Index(ids(listed), id)
	if at < 0 {
		r.Fatalf("listed in %s %s: got %v, want %s among them", state, when, ids(listed), id)
	}
	r.want("cost of "+id+" as listed "+when, listed[at].Cost.N(), want.N())
}

func costStored(r *rig) {
	all := []storage.Cost{0, storage.NoCost, 1, 2, 127, 128, 1000, storage.MaxCost}
	cost := func(i int) storage.Cost { return all[i%len(all)] }
	made := func(i int) storage.Insert {
		j := costing(cost(i), fmt.Sprintf("t%03d", i))
		if i%3 == 0 {
			j.Partition = "p"
		}
		if i%2 == 0 {
			j.Headers = map[string]string{"x": "y"}
		}
		return j
	}
	const few, tasks = 16, 136 // enough for the way of a storage for large calls
	for i := range few {
		r.insert(made(i))
		r.costs("as inserted", made(i).Ref.ID, storage.Waiting, cost(i))
	}
	txs := make([]storage.Tx, 0, tasks)
	for i := few; i < tasks; i++ {
		txs = append(txs, inserting(made(i)))
	}
	_, err := r.session.Apply(r.ctx, txs...)
	r.must("apply", err)
	found := map[string][]storage.Task{"listed": r.list(storage.Waiting), "claimed": r.claim(ask(tasks)).Tasks}
	found["running"] = r.list(storage.Pending)
	for what, all := range found {
		r.want(what, len(all), tasks)
		for _, t := range all {
			var i int
			_, _ = fmt.Sscanf(t.ID, "t%03d", &i)
			r.want("cost of "+t.ID+" as "+what, t.Cost.N(), cost(i).N())
		}
	}
	r.costs("as it runs", "t003", storage.Pending, cost(3))
}

func costKept(r *rig) {
	for i, outcome := range outcomes() {
		id, cost := string(outcome), []storage.Cost{7, storage.NoCost}[i%2]
		j := kept(id)
		j.Cost = cost
		p := r.settle(r.holding(j), storage.Settle{Outcome: outcome, Delay: settleDelay(outcome)})
		r.costs("after "+id, id, p.State, cost)
		if outcome != storage.Release {
			r.changeNow(id, storage.Change{Requeue: p.State.Ended(), Now: !p.State.Ended()})
			r.costs("back after "+id, id, storage.Waiting, cost)
		}
		h := r.take(ask(1), id)
		r.want("cost as claimed after "+id, h.Cost, cost)
		r.end(h, storage.Complete)
		r.costs("at the end", id, storage.Completed, cost)
	}
	j := costing(7, "t")
	j.CrashLimit = 2
	r.insert(j)
	r.expire(r.take(ahead(), "t"))
	r.costs("after a lease that was lost", "t", storage.Waiting, 7)
	for n, s := range []storage.State{storage.Waiting, storage.Dead} {
		r.crash("t")
		r.costs(fmt.Sprint("after crash ", n+1), "t", s, 7)
	}
	later := costing(7, "later")
	later.Delay = 20 * time.Millisecond
	r.insert(later)
	r.costs("before it is due", "later", storage.Scheduled, 7)
	r.passTo(r.read("later").Due)
	r.maintain()
	r.costs("after its promotion", "later", storage.Waiting, 7)
	r.want("cost as claimed", r.take(ask(1), "later").Cost, storage.Cost(7))
}

func costExisting(r *rig) {
	a := life("a", "k")
	a.Cost = 3
	r.insert(a)
	for _, c := range []storage.Cost{0, storage.NoCost, 5} {
		same := a
		same.Cost = c
		r.want("placed again", r.insert(same)[0].Existing, true)
		other := skipping("b")
		other.Unique, other.Cost = a.Unique, c
		r.want("skipped", r.insert(other)[0].Ref, in("a"))
		r.costs("after all", "a", storage.Waiting, 3)
	}
	r.hourly(9)
	r.take(ask(1), "a")
	r.charged("at the end", 3)
}

func costSchedule(r *rig) {
	c := cursor("cursor.c", r.now().Add(time.Hour))
	c.Cost = 4
	r.insert(c)
	r.costs("as inserted", "cursor.c", storage.Cursors, 4)
	next := *c.Cursor
	next.Next = next.Next.Add(time.Hour)
	r.changeNow("cursor.c", storage.Change{Cursor: &next})
	r.costs("after a tick", "cursor.c", storage.Cursors, 4)
	for _, cost := range []storage.Cost{4, storage.NoCost, 6} {
		before := r.read("cursor.c")
		r.changeNow("cursor.c", repriced(cost))
		r.costs("after a change", "cursor.c", storage.Cursors, cost)
		r.want("the cursor", r.read("cursor.c").Cursor, before.Cursor)
		ref, err := r.session.RunSchedule(r.ctx, in("cursor.c"))
		r.must("run", err)
		r.costs("after a run", ref.ID, storage.Waiting, cost)
		r.want("cost as claimed", r.take(ask(1), ref.ID).Cost, cost)
	}
	due := next
	due.Next = r.now()
	r.changeNow("cursor.c", storage.Change{Cursor: &due})
	r.want("cost as it ticks", r.tick().Cost, storage.Cost(6))
}

func costMoved(r *rig) {
	if !storage.Spans(r.store, mainQueue, sideQueue) {
		r.Log("not tested: main and side cannot share a Tx")
		return
	}
	side := ask(9)
	side.Queues[0].Name = sideQueue
	for i, c := range []storage.Cost{3, storage.NoCost, 5} {
		id := fmt.Sprint("t", i)
		j := costing(c, id)
		j.Ref.Queue = sideQueue
		p := r.insert(j)[0]
		p = r.change(storage.Change{Ref: p.Ref, Version: p.Version, Queue: mainQueue})
		r.costs("after a move", id, storage.Waiting, c)
		r.want("version", r.read(id).Version, p.Version)
	}
	r.hourly(9)
	ch := repriced(2)
	ch.Queue = sideQueue
	r.changeNow("t1", ch)
	r.want("claimed", ids(r.claim(ask(9)).Tasks), []string{"t0", "t2"})
	r.charged("in the queue to which they moved", 8)
	h := r.hold(side, 1)[0]
	r.want("cost after a move and a change", h.Cost, storage.Cost(2))
	r.charged("after a claim from the other queue", 8)
}

func costReplaced(r *rig) {
	r.decline(of("mail", "d0"), of("mail", "d1"))
	r.add("a", "b", "c")
	r.addKeyed("p", 3)
	at := r.now().Add(time.Hour)
	for _, id := range []string{"s0", "s1"} {
		j := job(id)
		j.At = at
		r.insert(j)
	}
	for _, id := range []string{"b", "p1", "d0", "s0"} {
		before, state := r.read(id), r.read(id).State
		listed := ids(r.list(state))
		for _, c := range []storage.Cost{5, storage.NoCost, 0, storage.MaxCost} {
			p := r.changeNow(id, repriced(c))
			r.want("placed", p, storage.Placed{Ref: in(id), Version: r.read(id).Version, State: state})
			r.costs("after a change", id, state, c)
			r.want("listed after a change of "+id, ids(r.list(state)), listed)
		}
		after := r.read(id)
		if after.Version <= before.Version {
			r.Fatalf("version of %s: got %d, want more than %d", id, after.Version, before.Version)
		}
		after.Cost, after.Version = before.Cost, before.Version
		r.want(id+" but for its cost and version", after, before)
	}
	for _, c := range r.claim(knows(9, "mail")).Tasks {
		want := storage.Cost(0)
		if slices.Contains([]string{"b", "p1", "d0"}, c.ID) {
			want = storage.MaxCost
		}
		r.want("cost of "+c.ID+" as claimed", c.Cost, want)
	}
	for _, s := range []storage.State{storage.Retry, storage.Dead} {
		r.stand(string(s), s)
		r.changeNow(string(s), repriced(4))
		r.costs("after a change", string(s), s, 4)
	}
}

func costReplacedWith(r *rig) {
	with := func(id string, c storage.Cost, ch storage.Change, want storage.State) {
		r.Helper()
		if c != 0 {
			ch.Cost = &c
		}
		r.changeNow(id, ch)
		r.costs("after a change with others", id, want, max(c, 3))
	}
	for _, c := range []storage.Cost{0, 8} {
		r.insert(costing(3, "a"), costing(3, "b"), costing(3, "c"))
		with("a", c, storage.Change{Encoding: "raw", Payload: []byte("new")}, storage.Waiting)
		with("a", c, storage.Change{Headers: map[string]string{"x": "y"}}, storage.Waiting)
		with("b", c, storage.Change{Now: true}, storage.Waiting)
		r.want("listed", ids(r.list(storage.Waiting)), []string{"a", "b", "c"})
		with("a", c, storage.Change{Priority: new(int)}, storage.Waiting)
		r.want("listed after a priority", ids(r.list(storage.Waiting)), []string{"b", "c", "a"})
		with("b", c, rekeyed("p"), storage.Waiting)
		r.want("listed after a partition", ids(r.list(storage.Waiting)), []string{"c", "a", "b"})
		with("c", c, storage.Change{Delay: time.Hour}, storage.Scheduled)
		with("c", c, storage.Change{At: r.now().Add(2 * time.Hour)}, storage.Scheduled)
		with("c", c, storage.Change{Now: true, FromStart: true}, storage.Waiting)
		for _, h := range r.hold(ask(9), 3) {
			r.end(h, storage.Bury)
		}
		with("a", c, storage.Change{Requeue: true}, storage.Waiting)
		with("b", c, storage.Change{Requeue: true, Delay: time.Hour}, storage.Scheduled)
		h := r.take(ask(1), "a")
		r.want("cost as claimed", h.Cost, max(c, 3))
		r.end(h, storage.Complete)
		r.delete("b")
		r.delete("c")
	}
}

func costRefused(r *rig) {
	r.standInEach()
	for _, s := range []storage.State{storage.Pending, storage.Completed, storage.Cancelled} {
		ch := repriced(5)
		ch.Ref, ch.Version = in(string(s)), r.read(string(s)).Version
		r.unchanged(func() {
			dep := r.refuse(storage.Tx{Changes: []storage.Change{ch}})
			r.want("barred", dep.Barred, []storage.Barred{{Ref: ch.Ref, State: s}})
		}, string(s))
	}
}
