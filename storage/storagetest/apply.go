package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func applyRules() []rule {
	return []rule{
		state("apply/lists everything", applyListsEverything,
			"A DependencyError lists everything missing, stale, colliding, lost and barred at once."),
		state("apply/all or nothing", applyAllOrNothing,
			"A Tx happens whole or not at all: whichever operation fails, all the others are undone."),
		state("apply/independent", applyIndependent,
			"The Txs of one Apply are independent: one that is refused leaves the others done."),
		state("apply/in order", applyInOrder,
			"Txs of one Apply happen in order where they concern one queue."),
		state("apply/everything at once", applyEverything,
			"A Tx can insert, change, delete, depend and settle at once."),
		state("apply/many queues", applyManyQueues,
			"The Txs of one Apply may concern different queues, whether or not those can share a Tx."),
		state("apply/refused in each queue", applySpan,
			"A Tx whose queues cannot share a step is refused with ErrSpan, and the others of the call happen."),
		state("apply/no trace", applyNoTrace,
			"A refused Tx leaves no trace: a queue that only it named is not in Queues."),
	}
}

// lineUp makes a Tx with good operations of each kind, and returns the ids in it.
func (r *rig) lineUp() (storage.Tx, []string) {
	r.Helper()
	h := r.holding(job("held"))
	r.add("changed", "deleted", "depended")
	version := func(id string) int64 { return r.read(id).Version }
	return storage.Tx{
		Inserts: []storage.Insert{job("new"), delayed("later", time.Hour)},
		Changes: []storage.Change{
			{Ref: in("changed"), Version: version("changed"), Headers: map[string]string{"x": "y"}},
		},
		Deletes: []storage.Delete{{Ref: in("deleted"), Version: version("deleted")}},
		Depends: []storage.Depend{{Ref: in("depended"), Version: version("depended")}},
		Settles: []storage.Settle{{Fence: h.Fence, Outcome: storage.Complete}},
	}, []string{"held", "new", "later", "changed", "deleted", "depended"}
}

func applyListsEverything(r *rig) {
	lost := r.holding(job("lost"))
	r.end(lost, storage.Complete)
	r.holding(job("pending"))
	pending := r.read("pending").Version
	r.insert(job("stale1"), job("stale2"), job("stale3"), job("taken"), life("holder", "k"), job("live"))
	version := r.read("stale1").Version
	other := job("taken")
	other.Kind = "other"
	dep := r.refuse(storage.Tx{
		Inserts: []storage.Insert{job("fine"), other, life("second", "k")},
		Changes: []storage.Change{
			{Ref: in("missing1"), Version: 7, Now: true},
			{Ref: in("stale1"), Version: version + 1, Now: true},
			{Ref: in("pending"), Version: pending, Now: true},
			{Ref: in("live"), Version: r.read("live").Version, Requeue: true},
		},
		Deletes: []storage.Delete{{Ref: in("missing2"), Version: 7}, {Ref: in("stale2"), Version: 7}},
		Depends: []storage.Depend{{Ref: in("missing3"), Version: 7}, {Ref: in("stale3"), Version: 8}},
		Settles: []storage.Settle{{Fence: lost.Fence, Outcome: storage.Complete}},
	})
	r.want("lost", dep.Lost, []storage.Ref{in("lost")})
	r.want("missing", sorted(dep.Missing), []string{"main/missing1", "main/missing2", "main/missing3"})
	stale, barred, colliding := make([]string, 0, 3), make([]string, 0, 2), make([]string, 0, 2)
	for _, s := range dep.Stale {
		r.want("Have", s.Have, r.read(s.Ref.ID).Version)
		stale = append(stale, s.Ref.ID)
	}
	for _, b := range dep.Barred {
		barred = append(barred, b.Ref.ID+" is "+string(b.State))
	}
	for _, c := range dep.Colliding {
		colliding = append(colliding, fmt.Sprint(c.Ref.ID, " with ", c.Holder.ID, " ", c.Unique))
	}
	slices.Sort(stale)
	slices.Sort(barred)
	slices.Sort(colliding)
	r.want("stale", stale, []string{"stale1", "stale2", "stale3"})
	r.want("barred", barred, []string{"live is waiting", "pending is pending"})
	r.want("colliding", colliding, []string{"second with holder true", "taken with taken false"})
}

// sorted returns refs as text, sorted.
func sorted(refs []storage.Ref) []string {
	got := make([]string, len(refs))
	for i, ref := range refs {
		got[i] = ref.String()
	}
	slices.Sort(got)
	return got
}

func applyAllOrNothing(r *rig) {
	r.bury(life("dead", "k"))
	r.insert(life("holder", "k"))
	h := r.take(ask(1), "holder")
	r.stand("ended", storage.Completed)
	good, ids := r.lineUp()
	for what, bad := range badOperations(h, r.read("dead").Version) {
		tx := storage.Tx{
			Inserts: append(bad.Inserts, good.Inserts...), Changes: append(bad.Changes, good.Changes...),
			Deletes: append(bad.Deletes, good.Deletes...), Depends: append(bad.Depends, good.Depends...),
			Settles: append(bad.Settles, good.Settles...),
		}
		before := r.stats()
		r.unchanged(func() { _ = r.refuse(tx) }, append(ids, "x", "dead", "holder", "ended")...)
		r.want("stats after a Tx with a "+what, r.stats(), before)
	}
	r.apply(good)
}

// badOperations returns Txs of one operation each, all of which must be refused. dead is the
// version of the task "dead", whose unique key the claimed task h holds.
func badOperations(h held, dead int64) map[string]storage.Tx {
	other := job("holder")
	other.Kind = "other"
	lost := h.Fence
	lost.Token = storage.NewToken()
	change := func(ch storage.Change) storage.Tx { return storage.Tx{Changes: []storage.Change{ch}} }
	return map[string]storage.Tx{
		"insert of a taken id":  inserting(other),
		"insert of a taken key": inserting(life("x", "k")),
		"missing change":        change(storage.Change{Ref: in("x"), Version: 1}),
		"change of a pending":   change(storage.Change{Ref: in("holder"), Version: h.Version}),
		"cancel of an ended":    change(storage.Change{Ref: in("ended"), Cancel: true}),
		"colliding requeue":     change(storage.Change{Ref: in("dead"), Version: dead, Requeue: true}),
		"stale delete":          {Deletes: []storage.Delete{deleting("dead", 1)}},
		"missing delete":        {Deletes: []storage.Delete{deleting("x", 1)}},
		"stale depend":          {Depends: []storage.Depend{{Ref: in("dead"), Version: 1}}},
		"missing depend":        {Depends: []storage.Depend{{Ref: in("x"), Version: 1}}},
		"lost settle":           {Settles: []storage.Settle{{Fence: lost, Outcome: storage.Complete}}},
	}
}

func applyEverything(r *rig) {
	tx, _ := r.lineUp()
	a := r.apply(tx)
	r.want("inserted", [2]storage.State{a.Inserted[0].State, a.Inserted[1].State},
		[2]storage.State{storage.Waiting, storage.Scheduled})
	r.want("changed, settled", [2]storage.State{a.Changed[0].State, a.Settled[0].State},
		[2]storage.State{storage.Waiting, storage.Completed})
	r.gone("held", "deleted")
	r.want("changed", r.read("changed").Headers, map[string]string{"x": "y"})
	r.want("claimed", r.drain(), []string{"changed", "depended", "new"})
}

func applyIndependent(r *rig) {
	r.add("a")
	other := job("a")
	other.Kind = "other"
	applied, err := r.session.Apply(r.ctx,
		storage.Tx{Inserts: []storage.Insert{job("b")}},
		storage.Tx{Inserts: []storage.Insert{other, job("never")}},
		storage.Tx{Inserts: []storage.Insert{job("c")}},
	)
	r.must("apply", err)
	r.want("answers", len(applied), 3)
	r.want("refused", [3]bool{applied[0].Err != nil, applied[1].Err != nil, applied[2].Err != nil},
		[3]bool{false, true, false})
	r.want("placed", applied[2].Inserted[0].Ref, in("c"))
	r.want("claimed", r.drain(), []string{"a", "b", "c"})
}

func applyInOrder(r *rig) {
	r.insert(delayed("a", time.Hour))
	version := r.read("a").Version
	applied, err := r.session.Apply(r.ctx,
		storage.Tx{Changes: []storage.Change{{Ref: in("a"), Version: version, Now: true}}},
		cancelOf(in("a")),
		storage.Tx{Inserts: []storage.Insert{job("a")}},
		storage.Tx{Inserts: []storage.Insert{job("a")}},
		storage.Tx{Changes: []storage.Change{{Ref: in("a"), Version: version, Now: true}}},
	)
	r.must("apply", err)
	for i, a := range applied[:4] {
		r.want("refused", [2]any{i, a.Err}, [2]any{i, nil})
	}
	r.want("placed", [2]storage.State{applied[0].Changed[0].State, applied[1].Changed[0].State},
		[2]storage.State{storage.Waiting, storage.Cancelled})
	r.want("Existing", [2]bool{applied[2].Inserted[0].Existing, applied[3].Inserted[0].Existing},
		[2]bool{false, true})
	r.want("an earlier life's version refused", applied[4].Err != nil, true)
	r.want("claimed", r.drain(), []string{"a"})
}

func applyManyQueues(r *rig) {
	queues := []string{mainQueue, sideQueue, "third", mainQueue}
	txs := make([]storage.Tx, len(queues))
	for i, q := range queues {
		j := job(fmt.Sprintf("t%d", i))
		j.Ref.Queue = q
		txs[i] = inserting(j)
	}
	applied, err := r.session.Apply(r.ctx, txs...)
	r.must("apply", err)
	for i, a := range applied {
		r.must("a Tx", a.Err)
		r.want("placed", a.Inserted[0].Ref, txs[i].Inserts[0].Ref)
	}
	s, err := r.store.Stats(r.ctx, "third", sideQueue, mainQueue)
	r.must("stats", err)
	r.want("waiting", [3]int64{s[0].Waiting, s[1].Waiting, s[2].Waiting}, [3]int64{1, 1, 2})
}

func applySpan(r *rig) {
	there := job("b")
	there.Ref.Queue = sideQueue
	both := inserting(job("a"), there)
	applied, err := r.session.Apply(r.ctx, inserting(job("c")), both, inserting(job("d")))
	r.must("apply", err)
	r.want("the others", [2]error{applied[0].Err, applied[2].Err}, [2]error{})
	r.is("c", storage.Waiting)
	r.is("d", storage.Waiting)
	if storage.Spans(r.store, mainQueue, sideQueue) {
		r.must("a Tx across queues", applied[1].Err)
		r.want("there", [2]bool{r.snapshot(in("a")) != nil, r.snapshot(there.Ref) != nil}, [2]bool{true, true})
		return
	}
	r.wantError("a Tx across queues that do not span", applied[1].Err, storage.ErrSpan)
	r.want("placed", applied[1].Inserted, []storage.Placed(nil))
	r.gone("a")
	r.want("there", r.snapshot(there.Ref), nil)
}

func applyNoTrace(r *rig) {
	txs := map[string]storage.Tx{
		"new": inserting(job("a")), "changed": {Changes: []storage.Change{{Ref: in("a"), Version: 1}}},
		"cancelled": cancelOf(in("a")),
		"deleted":   {Deletes: []storage.Delete{deleting("a", 1)}},
		"depended":  {Depends: []storage.Depend{{Ref: in("a"), Version: 1}}},
		"settled":   settling(held{Fence: storage.Fence{Ref: in("a"), Version: 1}}),
	}
	for queue, tx := range txs {
		for i := range tx.Inserts {
			tx.Inserts[i].Ref.Queue = queue
			tx.Depends = []storage.Depend{{Ref: storage.Ref{Queue: queue, ID: "b"}, Version: 1}}
		}
		for i := range tx.Changes {
			tx.Changes[i].Ref.Queue = queue
		}
		for i := range tx.Deletes {
			tx.Deletes[i].Ref.Queue = queue
		}
		for i := range tx.Settles {
			tx.Settles[i].Fence.Queue = queue
		}
		_ = r.refuse(tx)
	}
	p, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", len(p.Names), 0)
}
