package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func changeRules() []rule {
	return []rule{
		state("change/fields", changeFields,
			"A Change replaces what it names and leaves the rest as it is."),
		state("change/table of states", changeTable,
			"A Change leads a task from each state that Permitted names to its Target; in any other it is Barred, "+
				"naming the state."),
		state("change/not pending", changePending,
			"A pending task changes only by its fence, the cancel mark apart: changes and deletes are Barred."),
		state("change/at its version", changeStale,
			"A Change at another version is Stale, with both versions, and changes nothing."),
		state("change/missing", changeMissing,
			"A change, delete or dependency of a task that is not there is Missing, an ErrNotFound."),
		state("change/due", changeDue,
			"Delay and At give a task a new moment: scheduled, or retry where it is in retry; a past one "+
				"is due now."),
		state("change/run now", changeRunNow,
			"A scheduled or retried task changed to waiting is due now, its retries as they were."),
		state("change/requeue", changeRequeue,
			"Requeueing an ended task starts it anew: retries, crashes and snoozes are zero, reason and result "+
				"are gone."),
		state("change/requeue keeps the history", changeRequeueHistory,
			"A requeue of a dead or cancelled task keeps attempts, stack, progress and checkpoint, and appends an "+
				"attempt with outcome requeue."),
		state("change/requeue of a completed task", changeRequeueForgets,
			"A requeue of a completed task clears its progress and checkpoint; one of a dead or cancelled task, "+
				"and Now, keep them."),
		state("change/from the start", changeFromStart,
			"A requeue or a Now with FromStart clears progress and checkpoint, whatever the state of the task, "+
				"and nothing else."),
		state("change/requeue may be ahead", changeRequeueAhead,
			"A requeued task can be claimed ahead, whatever it was before it ended."),
		state("change/requeue edits", changeRequeueEdits,
			"A requeue can bring a new payload, headers and priority."),
		state("change/requeue of what lives", changeRequeueBarred,
			"A requeue of a task that has not ended is Barred, naming the state."),
		state("change/dead is edited", changeDead,
			"A dead task takes a new payload, headers and priority, and a move, and stays dead."),
		state("change/ended refuses", changeEnded,
			"A completed or cancelled task refuses every Change but a requeue, and a cancelled one lets itself "+
				"be cancelled again; a dead one refuses states and moments."),
		state("change/at once", changeAtOnce,
			"A Delay of less than a microsecond is due now: the task waits at the tail."),
		state("change/requeue with a delay", changeRequeueDelayed,
			"An ended task can be requeued into scheduled; a moment that has come leads to waiting."),
		state("change/move", changeMove,
			"A Change of the queue moves a task: the old ref is gone, the new one joins the tail."),
		state("change/move keeps the rest", changeMoveKeeps,
			"A move leaves a task in its state, with its moment, counters and history; one that ended counts "+
				"in no totals."),
		state("change/move edits", changeMoveEdits,
			"A move can bring a new payload, headers, cost and priority, whatever the state of the task."),
		state("change/move collides", changeMoveCollides,
			"A move to a queue where the id is taken is a collision and changes nothing."),
		state("change/move collides twice", changeMoveCollidesTwice,
			"A move that collides by id and by unique key reports both. Collision.Ref is the task's ref before it."),
		state("change/delete", changeDelete,
			"A Delete removes a task in any state but pending, at its version; a live one counts as deleted."),
		state("change/depend", changeDepend,
			"A Depend requires a task at a version whatever its state, and changes nothing of it."),
	}
}

func changeFields(r *rig) {
	j := job("a")
	j.Headers = map[string]string{"x": "y", "z": "w"}
	j.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
	r.insert(j)
	five := 5
	want := r.read("a")
	step := func(ch storage.Change, alter func(*storage.Task)) {
		p := r.changeNow("a", ch)
		got := r.read("a")
		r.want("placed", p, storage.Placed{Ref: in("a"), Version: got.Version, State: storage.Waiting})
		if got.Version <= want.Version {
			r.Fatalf("version: got %d, want more than %d", got.Version, want.Version)
		}
		alter(&want)
		want.Version, want.Due = got.Version, got.Due
		r.want("task", got, want)
	}
	step(storage.Change{Priority: &five}, func(t *storage.Task) { t.Priority = 5 })
	step(storage.Change{Headers: map[string]string{"n": "m"}}, func(t *storage.Task) {
		t.Headers = map[string]string{"n": "m"}
	})
	step(storage.Change{Encoding: "json", Payload: []byte("{}")}, func(t *storage.Task) {
		t.Encoding, t.Payload = "json", []byte("{}")
	})
	step(storage.Change{Now: true}, func(*storage.Task) {})
}

// standInEach puts a task into each state. The state is the id of the task.
func (r *rig) standInEach() {
	r.Helper()
	for _, s := range []storage.State{
		storage.Pending, storage.Retry, storage.Completed, storage.Cancelled, storage.Dead,
		storage.Scheduled, storage.Waiting, // last, so that no waiting task is claimed before the others
	} {
		r.stand(string(s), s)
	}
}

// stand makes a task and puts it into a state.
func (r *rig) stand(id string, state storage.State) {
	r.Helper()
	j := kept(id)
	switch state {
	case storage.Waiting:
		r.insert(j)
	case storage.Pending:
		r.holding(j)
	case storage.Scheduled:
		j.Delay = time.Hour
		r.insert(j)
	case storage.Retry:
		r.settle(r.holding(j), storage.Settle{Outcome: storage.Fail, Delay: time.Hour})
	case storage.Completed:
		r.end(r.holding(j), storage.Complete)
	case storage.Cancelled:
		r.end(r.holding(j), storage.Cancel)
	case storage.Dead:
		r.bury(j)
	default:
		r.Fatalf("no task can stand in %s", state)
	}
	r.is(id, state)
}

func changeTable(r *rig) {
	for _, from := range storage.States()[:7] {
		if from == storage.Pending {
			continue // the next rule tests it
		}
		for what, ch := range map[string]storage.Change{
			"now": {Now: true}, "later": {Delay: time.Hour}, "requeue": {Requeue: true},
			"requeue later": {Requeue: true, Delay: time.Hour}, "cancel": {Cancel: true},
		} {
			r.stand("a", from)
			ch.Ref, ch.Version = in("a"), r.read("a").Version
			if what += " in " + string(from); ch.Permitted(from) {
				to := ch.Target(from)
				r.want("placed by "+what, r.change(ch).State, to)
				r.is("a", to)
			} else {
				r.barred("a", from, ch)
			}
			r.delete("a")
		}
	}
}

func changePending(r *rig) {
	h := r.holding(job("a"))
	five := 5
	barred := storage.DependencyError{Barred: []storage.Barred{{Ref: in("a"), State: storage.Pending}}}
	for _, ch := range []storage.Change{
		{Now: true},
		{Priority: &five},
		{Headers: map[string]string{}},
		{Encoding: "raw", Payload: []byte("x")},
		{Delay: time.Hour},
		{},
	} {
		ch.Ref, ch.Version = in("a"), h.Version
		r.unchanged(func() {
			r.want("a change", *r.refuse(storage.Tx{Changes: []storage.Change{ch}}), barred)
		}, "a")
	}
	r.unchanged(func() {
		r.want("a delete", *r.refuse(storage.Tx{Deletes: []storage.Delete{deleting("a", h.Version)}}), barred)
	}, "a")
	r.end(h, storage.Complete)
}

func changeStale(r *rig) {
	r.add("a")
	old := r.read("a").Version
	now := r.changeNow("a", storage.Change{Headers: map[string]string{"x": "y"}}).Version
	stale := storage.DependencyError{Stale: []storage.Stale{{Ref: in("a"), Want: old, Have: now}}}
	r.unchanged(func() {
		for what, tx := range map[string]storage.Tx{
			"change":     {Changes: []storage.Change{{Ref: in("a"), Version: old, Now: true}}},
			"delete":     {Deletes: []storage.Delete{{Ref: in("a"), Version: old}}},
			"dependency": {Depends: []storage.Depend{{Ref: in("a"), Version: old}}},
		} {
			r.want(what, *r.refuse(tx), stale)
		}
	}, "a")
}

func changeMissing(r *rig) {
	missing := storage.DependencyError{Missing: []storage.Ref{in("a")}}
	for what, tx := range map[string]storage.Tx{
		"change":     {Changes: []storage.Change{{Ref: in("a"), Version: 1, Now: true}}},
		"delete":     {Deletes: []storage.Delete{{Ref: in("a"), Version: 1}}},
		"dependency": {Depends: []storage.Depend{{Ref: in("a"), Version: 1}}},
	} {
		dep := r.refuse(tx)
		r.want(what, *dep, missing)
		r.wantError(what, dep, storage.ErrNotFound)
	}
}

func changeDue(r *rig) {
	at := r.now().Add(30 * time.Minute).Truncate(time.Microsecond)
	for from, want := range map[storage.State]storage.State{
		storage.Waiting: storage.Scheduled, storage.Scheduled: storage.Scheduled, storage.Retry: storage.Retry,
	} {
		r.stand(string(from), from)
		from := string(from)
		r.want("placed from "+from, r.changeNow(from, storage.Change{At: at}).State, want)
		r.want("Due from "+from, r.is(from, want).Due.Equal(at), true)
		before := r.now()
		r.changeNow(from, storage.Change{Delay: 2 * time.Hour})
		r.between("Due after a delay", r.is(from, want).Due, before.Add(2*time.Hour), r.now().Add(2*time.Hour))
		r.changeNow(from, storage.Change{At: at.Add(-time.Hour)})
		r.want("claimed", r.drain(), []string{from})
	}
}

func changeRunNow(r *rig) {
	r.stand("retry", storage.Retry)
	r.want("placed", r.changeNow("retry", storage.Change{Now: true}).State, storage.Waiting)
	t := r.is("retry", storage.Waiting)
	r.want("retries, attempts", [2]int{t.Retries, len(t.Attempts)}, [2]int{1, 1})
	r.stand("scheduled", storage.Scheduled)
	r.changeNow("scheduled", storage.Change{Now: true})
	s := r.stats()
	r.want("requeued", s.Totals.Requeued, int64(0))
	r.want("claimed", r.drain(), []string{"retry", "scheduled"})
}

func changeMove(r *rig) {
	there := job("there")
	there.Ref.Queue = sideQueue
	r.insert(there)
	r.add("a")
	before := r.read("a")
	to := storage.Ref{Queue: sideQueue, ID: "a"}
	tx := storage.Tx{Changes: []storage.Change{{Ref: in("a"), Version: before.Version, Queue: sideQueue}}}
	if !r.spans(tx, in("a"), to) {
		return
	}
	p := r.apply(tx).Changed[0]
	r.want("placed", [2]any{p.Ref, p.State}, [2]any{to, storage.Waiting})
	r.gone("a")
	s, err := r.store.Stats(r.ctx, mainQueue, sideQueue)
	r.must("stats", err)
	r.want("from", [4]int64{s[0].Waiting, s[0].Totals.Enqueued, s[0].Totals.Deleted, s[0].Totals.Cancelled},
		[4]int64{0, 1, 1, 0})
	r.want("to", [2]int64{s[1].Waiting, s[1].Totals.Enqueued}, [2]int64{2, 2})
	req := ask(5)
	req.Queues[0].Name = sideQueue
	holds := r.hold(req, 2)
	r.want("claimed", [2]string{holds[0].ID, holds[1].ID}, [2]string{"there", "a"})
	r.want("what moved", [2]any{string(holds[1].Payload), holds[1].Kind},
		[2]any{string(before.Payload), before.Kind})
}

func changeMoveKeeps(r *rig) {
	r.stand("retry", storage.Retry)
	r.stand("dead", storage.Dead)
	for _, id := range []string{"retry", "dead"} {
		before := r.read(id)
		to := storage.Ref{Queue: sideQueue, ID: id}
		tx := storage.Tx{Changes: []storage.Change{{Ref: in(id), Version: before.Version, Queue: sideQueue}}}
		if !r.spans(tx, in(id), to) {
			return
		}
		p := r.apply(tx).Changed[0]
		after, err := r.store.Task(r.ctx, to)
		r.must("read", err)
		r.want("version grown", p.Version > before.Version, true)
		before.Ref, before.Version = to, p.Version
		r.want("what moved", after, before)
	}
	s, err := r.store.Stats(r.ctx, mainQueue, sideQueue)
	r.must("stats", err)
	r.balanced(s[0])
	r.balanced(s[1])
	r.want("sizes", [4]int64{s[0].Live(), s[0].Dead, s[1].Retry, s[1].Dead}, [4]int64{0, 0, 1, 1})
	r.want("totals", [3]int64{s[0].Totals.Deleted, s[1].Totals.Enqueued, s[1].Totals.Dead}, [3]int64{1, 1, 0})
}

func changeMoveEdits(r *rig) {
	five, cost := 5, storage.Cost(3)
	for _, state := range []storage.State{storage.Waiting, storage.Scheduled, storage.Retry, storage.Dead} {
		id := string(state)
		r.stand(id, state)
		want, to := r.read(id), storage.Ref{Queue: sideQueue, ID: id}
		tx := storage.Tx{Changes: []storage.Change{{
			Ref: in(id), Version: want.Version, Queue: sideQueue, Priority: &five, Cost: &cost,
			Headers: map[string]string{"x": "y", "z": ""}, Encoding: "json", Payload: []byte("{}"),
		}}}
		if !r.spans(tx, in(id), to) {
			return
		}
		p := r.apply(tx).Changed[0]
		r.want("placed", [2]any{p.Ref, p.State}, [2]any{to, state})
		got, err := r.store.Task(r.ctx, to)
		r.must("read", err)
		want.Ref, want.Version, want.Priority, want.Cost = to, p.Version, 5, cost
		want.Headers, want.Encoding, want.Payload = map[string]string{"x": "y", "z": ""}, "json", []byte("{}")
		r.want("edited", got, want)
	}
}

func changeMoveCollides(r *rig) {
	there := job("a")
	there.Ref.Queue = sideQueue
	r.insert(there)
	r.add("a")
	tx := storage.Tx{Changes: []storage.Change{{Ref: in("a"), Version: r.read("a").Version, Queue: sideQueue}}}
	if !r.spans(tx, in("a"), there.Ref) {
		return
	}
	r.unchanged(func() {
		dep := r.refuse(tx)
		r.want("colliding", dep.Colliding, []storage.Collision{{Ref: in("a"), Holder: there.Ref}})
	}, "a")
	r.want("there", r.snapshot(there.Ref) != nil, true)
}

func changeMoveCollidesTwice(r *rig) {
	byID, byKey := job("a"), life("b", "k")
	byID.Ref.Queue, byKey.Ref.Queue = sideQueue, sideQueue
	r.insert(byID)
	r.insert(byKey)
	r.insert(life("a", "k"))
	tx := storage.Tx{Changes: []storage.Change{{Ref: in("a"), Version: r.read("a").Version, Queue: sideQueue}}}
	if !r.spans(tx, in("a"), byID.Ref) {
		return
	}
	r.unchanged(func() {
		r.want("colliding", r.refuse(tx).Colliding, []storage.Collision{
			{Ref: in("a"), Holder: byID.Ref}, {Ref: in("a"), Holder: byKey.Ref, Unique: true},
		})
	}, "a")
}

func changeDelete(r *rig) {
	live := int64(0)
	for _, s := range storage.States()[:7] {
		if s == storage.Pending {
			continue
		}
		r.stand("a", s)
		r.delete("a")
		r.gone("a")
		if !s.Ended() {
			live++
		}
		r.want("deleted after one in "+string(s), r.stats().Totals.Deleted, live)
	}
	s := r.stats()
	r.want("sizes", [5]int64{s.Live(), s.Completed, s.Cancelled, s.Dead, s.Cursors}, [5]int64{})
	r.want("claimed", r.drain(), []string{})
}

func changeDepend(r *rig) {
	r.standInEach()
	for _, s := range storage.States()[:7] {
		id := string(s)
		r.unchanged(func() {
			r.apply(storage.Tx{
				Depends: []storage.Depend{{Ref: in(id), Version: r.read(id).Version}},
				Inserts: []storage.Insert{delayed("beside-"+id, time.Hour)},
			})
		}, id)
		r.is("beside-"+id, storage.Scheduled)
	}
}
