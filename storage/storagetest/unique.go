package storagetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

func uniqueRules() []rule {
	return []rule{
		state("unique/held for life", uniqueHeld,
			"A UniqueLife key is held from the insert on, in every state before the end; a collision "+
				"names the holder."),
		state("unique/released at the end", uniqueReleased,
			"A UniqueLife key is released in the step in which its task ends: completed, cancelled, "+
				"dead, deleted or moved away."),
		state("unique/released by a crash loop", uniqueReleasedByCrashes,
			"A UniqueLife key is released by the recovery that ends its task."),
		state("unique/skipped", uniqueSkipped,
			"With OnConflict Skip an insert whose key is taken is left out, the rest proceeds, and "+
				"Placed names the holder."),
		state("unique/skipped for one that ends", uniqueSkippedEnding,
			"A holder that ends in the same Tx holds its key still. A skip tells where the Tx left it; where it is "+
				"gone it is named, with neither version nor state."),
		state("unique/skipped for one that is gone", uniqueSkippedGone,
			"A skip for a window whose task is gone names the task, with neither version nor state."),
		state("unique/per queue", uniquePerQueue,
			"A unique key belongs to a queue: another queue knows nothing of it."),
		state("unique/repeat of the holder", uniqueRepeat,
			"The same insert again finds its own task, not a collision with itself."),
		state("unique/once in a Tx", uniqueOnceInTx,
			"Two inserts of one Tx never both get the same key."),
		state("unique/once in a call", uniqueOnceInCall,
			"Inserts in several Txs of one call never get the same key, and a Tx takes a key that an earlier one "+
				"freed."),
		state("unique/window outlasts the task", uniqueWindow,
			"A UniqueWindow key is held for exactly Unique.For from the insert, whatever becomes of the task."),
		state("unique/requeue takes the key", uniqueRequeue,
			"Requeueing a finished task takes its UniqueLife key again."),
		state("unique/requeue before insert", uniqueRequeueFirst,
			"A task that a Tx requeues or moves takes its key before the inserts of the Tx."),
		state("unique/requeue collides", uniqueRequeueCollides,
			"Requeueing a finished task whose UniqueLife key is taken is refused, naming the holder."),
		state("unique/moves along", uniqueMoves,
			"A UniqueLife key moves with its task and collides where it is taken."),
		state("unique/among many at once", uniqueAmongMany,
			"Of many concurrent inserts with one key exactly one is stored, and all others are given its ref."),
	}
}

// keyTaken tests that an insert with a unique key collides with this holder.
func (r *rig) keyTaken(when, key, holder string) {
	r.Helper()
	dep := r.refuse(storage.Tx{Inserts: []storage.Insert{life("probe", key)}})
	r.want("a key "+when, dep.Colliding,
		[]storage.Collision{{Ref: in("probe"), Holder: in(holder), Unique: true}})
}

// keyFree tests that an insert with the unique key k succeeds, and deletes the task again.
func (r *rig) keyFree(when string) {
	r.Helper()
	_, err := r.session.ApplyOne(r.ctx, storage.Tx{Inserts: []storage.Insert{life("probe", "k")}})
	r.must("insert with a key "+when, err)
	r.delete("probe")
}

func uniqueHeld(r *rig) {
	r.insert(life("a", "k"))
	r.keyTaken("of a waiting task", "k", "a")
	h := r.take(ask(1), "a")
	r.keyTaken("of a pending task", "k", "a")
	r.settle(h, storage.Settle{Outcome: storage.Fail, Delay: time.Hour})
	r.keyTaken("of a task in retry", "k", "a")
	r.changeNow("a", storage.Change{Now: true})
	r.settle(r.take(ask(1), "a"), storage.Settle{Outcome: storage.Snooze, Delay: time.Hour})
	r.keyTaken("of a snoozed task", "k", "a")
	r.changeNow("a", storage.Change{Now: true})
	r.end(r.take(ask(1), "a"), storage.Release)
	r.keyTaken("of a released task", "k", "a")
	h = r.take(brief(1), "a")
	r.expire(h)
	r.keyTaken("of a recovered task", "k", "a")
}

func uniqueReleased(r *rig) {
	for what, end := range map[string]func(id string){
		"completed":         func(id string) { r.end(r.take(ask(1), id), storage.Complete) },
		"dead":              func(id string) { r.end(r.take(ask(1), id), storage.Bury) },
		"cancelled":         func(id string) { r.cancel(id) },
		"cancelled-running": func(id string) { r.end(r.take(ask(1), id), storage.Cancel) },
		"deleted":           func(id string) { r.delete(id) },
		"out-of-retries": func(id string) {
			for range 3 {
				r.end(r.take(ask(1), id), storage.Fail)
			}
			r.end(r.take(ask(1), id), storage.Fail)
			r.is(id, storage.Dead)
		},
	} {
		for _, keep := range []time.Duration{0, time.Hour} {
			id := fmt.Sprintf("%s-%d", what, keep/time.Hour)
			j := life(id, "k")
			j.Keep.For = keep
			r.insert(j)
			r.keyTaken("of a live task", "k", id)
			end(id)
			r.keyFree("of a task that is " + what)
		}
	}
}

func uniqueReleasedByCrashes(r *rig) {
	j := life("a", "k")
	j.CrashLimit = 1
	r.insert(j)
	r.crash("a")
	r.is("a", storage.Dead)
	r.keyFree("of a task that died of crashes")
}

func uniqueSkipped(r *rig) {
	r.insert(life("a", "k"))
	r.take(ask(1), "a")
	skip := life("b", "k")
	skip.OnConflict = storage.Skip
	p := r.insert(job("before"), skip, job("after"))
	r.want("placed", p[1],
		storage.Placed{Ref: in("a"), Version: r.read("a").Version, State: storage.Pending, Existing: true})
	r.want("the rest", [2]bool{p[0].Existing, p[2].Existing}, [2]bool{})
	r.gone("b")
	r.want("enqueued", r.stats().Totals.Enqueued, int64(3))
	r.want("claimed", r.drain(), []string{"before", "after"})
}

func uniqueSkippedEnding(r *rig) {
	beside := func(j storage.Insert) storage.Applied {
		tx := settling(r.holding(j))
		tx.Inserts = []storage.Insert{skipping("b")}
		return r.apply(tx)
	}
	r.want("placed", beside(life("a", "k")).Inserted[0], storage.Placed{Ref: in("a"), Existing: true})
	r.gone("a", "b")
	j := life("a", "k")
	j.Keep.For = time.Hour
	a := beside(j)
	r.want("placed beside one that is kept", a.Inserted[0], storage.Placed{
		Ref: in("a"), Version: a.Settled[0].Version, State: storage.Completed, Existing: true,
	})
	r.gone("b")
	r.delete("a")
	r.insert(life("a", "k"))
	tx := storage.Tx{
		Deletes: []storage.Delete{deleting("a", r.read("a").Version)},
		Inserts: []storage.Insert{skipping("b")},
	}
	r.want("placed beside a delete", r.apply(tx).Inserted[0], storage.Placed{Ref: in("a"), Existing: true})
	r.gone("a", "b")
}

func uniqueSkippedGone(r *rig) {
	j := job("a")
	j.Unique = storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: time.Hour}
	r.insert(j)
	r.delete("a")
	r.want("placed", r.insert(skipping("b"))[0], storage.Placed{Ref: in("a"), Existing: true})
	dep := r.refuse(inserting(life("c", "k")))
	r.want("colliding", dep.Colliding, []storage.Collision{{Ref: in("c"), Holder: in("a"), Unique: true}})
}

func uniquePerQueue(r *rig) {
	r.insert(life("a", "k"))
	j := life("a", "k")
	j.Ref.Queue = sideQueue
	r.want("Existing", r.insert(j)[0].Existing, false)
}

func uniqueRepeat(r *rig) {
	skip := life("a", "k")
	skip.OnConflict = storage.Skip
	for _, j := range []storage.Insert{life("a", "k"), life("a", "k"), skip} {
		r.want("placed", r.insert(j)[0].Ref, in("a"))
	}
	r.want("enqueued", r.stats().Totals.Enqueued, int64(1))
}

func uniqueOnceInTx(r *rig) {
	_, err := r.session.ApplyOne(r.ctx, storage.Tx{Inserts: []storage.Insert{life("a", "k"), life("b", "k")}})
	if err == nil {
		r.Fatalf("two inserts with one key in a Tx: got no error, want a collision")
	}
	r.gone("a", "b")
	skip := life("b", "k")
	skip.OnConflict = storage.Skip
	p := r.insert(life("a", "k"), skip)
	r.want("placed second", [2]any{p[1].Ref, p[1].Existing}, [2]any{in("a"), true})
	r.want("claimed", r.drain(), []string{"a"})
}

func uniqueOnceInCall(r *rig) {
	skip := life("c", "k")
	skip.OnConflict = storage.Skip
	collides := &storage.DependencyError{
		Colliding: []storage.Collision{{Ref: in("b"), Holder: in("a"), Unique: true}},
	}
	a, err := r.session.Apply(r.ctx, inserting(life("a", "k")), inserting(life("b", "k")), inserting(skip))
	r.must("apply", err)
	r.want("error of the second", a[1].Err, error(collides))
	r.want("placed third", [2]any{a[2].Inserted[0].Ref, a[2].Inserted[0].Existing}, [2]any{in("a"), true})
	collides.Colliding[0] = storage.Collision{Ref: in("e"), Holder: in("d"), Unique: true}
	a, err = r.session.Apply(r.ctx,
		storage.Tx{Deletes: []storage.Delete{{Ref: in("a"), Version: r.read("a").Version}}},
		inserting(life("d", "k")), inserting(life("e", "k")))
	r.must("apply after a delete", err)
	r.want("errors", [3]error{a[0].Err, a[1].Err, a[2].Err}, [3]error{nil, nil, collides})
	r.want("claimed", r.drain(), []string{"d"})
}

func uniqueWindow(r *rig) {
	const window = 1500 * time.Millisecond
	j := job("a")
	j.Unique = storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: window}
	r.insert(j)
	until := r.read("a").Created.Add(window)
	r.end(r.take(ask(1), "a"), storage.Complete)
	r.gone("a")
	taken := func(when string) {
		_, err := r.session.ApplyOne(r.ctx, storage.Tx{Inserts: []storage.Insert{life("b", "k")}})
		if err == nil && r.now().Before(until) {
			r.Fatalf("insert with a key %s its window: got no error, want a collision", when)
		}
		if err == nil { // the machine was slow: the window is over
			r.delete("b")
		}
	}
	taken("within")
	r.pass(until.Sub(r.now()) - 100*time.Millisecond)
	taken("at the end of")
	r.passTo(until)
	r.want("Existing after the window", r.insert(life("c", "k"))[0].Existing, false)
}

func uniqueRequeue(r *rig) {
	j := life("a", "k")
	r.bury(j)
	r.keyFree("of a dead task")
	r.changeNow("a", storage.Change{Requeue: true})
	r.keyTaken("of a requeued task", "k", "a")
	r.end(r.take(ask(1), "a"), storage.Complete)
	r.keyFree("of a requeued task that completed")
}

func uniqueRequeueFirst(r *rig) {
	r.bury(life("a", "k"))
	skip := life("b", "k")
	skip.OnConflict = storage.Skip
	placed := r.apply(storage.Tx{
		Inserts: []storage.Insert{skip},
		Changes: []storage.Change{{Ref: in("a"), Version: r.read("a").Version, Requeue: true}},
	})
	r.want("requeued", [2]any{placed.Changed[0].Ref, placed.Changed[0].State}, [2]any{in("a"), storage.Waiting})
	r.want("skipped for", [2]any{placed.Inserted[0].Ref, placed.Inserted[0].Existing}, [2]any{in("a"), true})
	r.keyTaken("of a requeued task", "k", "a")
}

func uniqueRequeueCollides(r *rig) {
	r.bury(life("a", "k"))
	r.insert(life("b", "k"))
	r.unchanged(func() {
		dep := r.refuse(storage.Tx{Changes: []storage.Change{
			{Ref: in("a"), Version: r.read("a").Version, Requeue: true},
		}})
		r.want("colliding", dep.Colliding, []storage.Collision{{Ref: in("a"), Holder: in("b"), Unique: true}})
	}, "a", "b")
}

func uniqueMoves(r *rig) {
	there := life("b", "taken")
	there.Ref.Queue = sideQueue
	r.insert(life("a", "k"), life("c", "taken"))
	r.insert(there)
	move := func(id string) storage.Tx {
		return storage.Tx{Changes: []storage.Change{{Ref: in(id), Version: r.read(id).Version, Queue: sideQueue}}}
	}
	if !r.spans(move("a"), in("a"), there.Ref) {
		return
	}
	r.apply(move("a"))
	r.keyFree("that moved away")
	probe := life("d", "k")
	probe.Ref.Queue = sideQueue
	moved := storage.Ref{Queue: sideQueue, ID: "a"}
	r.want("where it moved", r.refuse(storage.Tx{Inserts: []storage.Insert{probe}}).Colliding,
		[]storage.Collision{{Ref: probe.Ref, Holder: moved, Unique: true}})
	r.unchanged(func() {
		dep := r.refuse(move("c"))
		r.want("colliding", len(dep.Colliding), 1)
		r.want("its holder", [2]any{dep.Colliding[0].Holder, dep.Colliding[0].Unique}, [2]any{there.Ref, true})
	}, "c")
	r.keyTaken("of a move that was refused", "taken", "c")
}

func uniqueAmongMany(r *rig) {
	const callers = 30
	placed := make([]storage.Placed, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			j := life(fmt.Sprintf("t%d", i), "k")
			j.OnConflict = storage.Skip
			a, err := r.session.ApplyOne(r.ctx, storage.Tx{Inserts: []storage.Insert{j}})
			if err != nil {
				r.Errorf("insert: %v", err)
				return
			}
			placed[i] = a.Inserted[0]
		})
	}
	all.Wait()
	stored := 0
	for _, p := range placed {
		if !p.Existing {
			stored++
		}
		r.want("ref given", p.Ref, placed[0].Ref)
	}
	r.want("stored", stored, 1)
	r.want("claimed", r.drain(), []string{placed[0].Ref.ID})
}
