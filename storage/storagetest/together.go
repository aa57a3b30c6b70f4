package storagetest

import (
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// togetherRules state in which order the tasks stand that one moment, step or call brings to a line.
func togetherRules() []rule {
	return []rule{
		state("order/due together", orderDueTogether,
			"Tasks due at the same moment are listed and promoted in the order in which their moments were set, "+
				"and where one Tx set them in the order of its operations."),
		state("order/released together", orderReleasedTogether,
			"Of tasks that one Tx or call releases, each goes to the head, so that the last one is claimed first."),
		state("order/recovered together", orderRecoveredTogether,
			"Of tasks that one Claim recovers, those that were claimed first wait first, whenever their leases "+
				"ended."),
		state("order/within a Tx", orderWithinTx,
			"Within a Tx what is changed joins the tail before what is inserted."),
		state("order/kept by its own state", orderOwnState,
			"A Change that names neither a priority nor a moment leaves a task in its place and at its moment, "+
				"and so does one that has a waiting task be due now."),
	}
}

func orderDueTogether(r *rig) {
	at := r.now().Add(2 * time.Second).Truncate(time.Second)
	due := func(id string) storage.Insert {
		j := job(id)
		j.At = at
		return j
	}
	r.insert(due("z"))
	r.insert(delayed("k", time.Hour), delayed("l", time.Hour))
	r.insert(due("m"), due("b"))
	r.apply(storage.Tx{Changes: []storage.Change{
		{Ref: in("l"), Version: r.read("l").Version, At: at}, {Ref: in("k"), Version: r.read("k").Version, At: at},
	}})
	r.insert(due("a"))
	want := []string{"z", "m", "b", "l", "k", "a"}
	r.want("listed", ids(r.list(storage.Scheduled)), want)
	first := r.page(storage.TasksQuery{State: storage.Scheduled, Limit: 2})
	rest := r.page(storage.TasksQuery{State: storage.Scheduled, Limit: 10, After: first.Next})
	r.want("in pages", append(ids(first.Tasks), ids(rest.Tasks)...), want)
	r.passTo(at)
	r.want("claimed", r.drain(), want)
}

func orderReleasedTogether(r *rig) {
	r.add("a", "b", "c", "d", "e")
	holds := r.hold(ask(4), 4)
	release := func(h held) storage.Settle {
		return storage.Settle{Fence: h.Fence, Outcome: storage.Release}
	}
	r.apply(storage.Tx{Settles: []storage.Settle{release(holds[0]), release(holds[1])}})
	applied, err := r.session.Apply(r.ctx, storage.Tx{Settles: []storage.Settle{release(holds[2])}},
		storage.Tx{Settles: []storage.Settle{release(holds[3])}})
	r.must("apply", err)
	r.want("refused", [2]error{applied[0].Err, applied[1].Err}, [2]error{})
	r.want("claimed", r.drain(), []string{"d", "c", "b", "a", "e"})
}

func orderRecoveredTogether(r *rig) {
	r.add("z", "m", "a", "later", "sooner", "rest")
	var x storage.ExtendRequest
	for _, h := range r.hold(brief(3), 3) { // in another order
		x.Leases = slices.Insert(x.Leases, 0, storage.Extension{Fence: h.Fence, For: storage.MinLease})
	}
	_, err := r.session.Extend(r.ctx, x)
	r.must("extend", err)
	later := r.take(brief(1), "later")
	sooner := r.take(brief(1), "sooner")
	r.extend(storage.Extension{Fence: later.Fence, For: 2 * storage.MinLease})
	r.passTo(sooner.LeaseUntil)
	r.passTo(r.read("later").LeaseUntil)
	r.want("claimed", r.drain(), []string{"z", "m", "a", "later", "sooner", "rest"})
}

func orderWithinTx(r *rig) {
	r.insert(delayed("b", time.Hour), delayed("a", time.Hour))
	r.apply(storage.Tx{
		Inserts: []storage.Insert{job("y"), job("x")},
		Changes: []storage.Change{
			{Ref: in("b"), Version: r.read("b").Version, Now: true},
			{Ref: in("a"), Version: r.read("a").Version, Now: true},
		},
	})
	r.want("claimed", r.drain(), []string{"b", "a", "y", "x"})
}

func orderOwnState(r *rig) {
	r.add("a", "b")
	r.changeNow("a", storage.Change{Now: true})
	r.want("claimed", r.drain(), []string{"a", "b"})
	r.stand("retry", storage.Retry)
	r.stand("scheduled", storage.Scheduled)
	for _, s := range []storage.State{storage.Scheduled, storage.Retry} {
		before := r.read(string(s))
		p := r.changeNow(string(s), storage.Change{Headers: map[string]string{"x": "y"}})
		r.want("placed", p.State, s)
		r.want("Due", r.is(string(s), s).Due, before.Due)
	}
}
