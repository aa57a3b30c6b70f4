package storagetest

import (
	"errors"
	"time"

	"github.com/midgehq/midge/storage"
)

func listRules() []rule {
	return []rule{
		state("list/in order", listInOrder,
			"Waiting tasks are listed in the order of their claim, scheduled and retried ones by when they are due, "+
				"pending ones by when their lease ends, ended ones by when they expire, cursors by "+
				"when they are handed out next, those that are never due last."),
		state("list/another page", listForeign,
			"An After that is the Next of another listing gives an InvalidError or tasks of the listing asked for."),
	}
}

func listInOrder(r *rig) {
	r.suspects("poison")
	r.add("cold")
	r.expire(r.take(ahead(), "cold"))
	r.insert(prioritised("urgent", 5), prioritised("idle", -5), job("z"), job("a"))
	r.listedAs(storage.Waiting, "urgent", "cold", "poison", "z", "a", "idle")
	holds := r.hold(asking(6), 6)
	for i, h := range holds {
		r.extend(storage.Extension{Fence: h.Fence, For: time.Hour - time.Duration(i)*time.Minute})
	}
	r.listedAs(storage.Pending, "idle", "a", "z", "poison", "cold", "urgent")
	r.insert(delayed("late", 2*time.Hour), delayed("soon", time.Hour))
	r.listedAs(storage.Scheduled, "soon", "late")
	for id, delay := range map[string]time.Duration{"slow": 2 * time.Hour, "quick": time.Hour} {
		r.settle(r.holding(job(id)), storage.Settle{Outcome: storage.Fail, Delay: delay})
	}
	r.listedAs(storage.Retry, "quick", "slow")
	for _, o := range []storage.Outcome{storage.Complete, storage.Cancel} {
		long, short := kept("long-"+string(o)), kept("short-"+string(o))
		long.Keep.For = 2 * time.Hour
		r.end(r.holding(long), o)
		r.end(r.holding(short), o)
	}
	r.listedAs(storage.Completed, "short-complete", "long-complete")
	r.listedAs(storage.Cancelled, "short-cancel", "long-cancel")
	r.stand("second", storage.Dead)
	r.stand("third", storage.Dead)
	r.listedAs(storage.Dead, "second", "third")
	now := r.now()
	r.insert(cursor("cursor.b", now.Add(time.Hour)))
	r.insert(cursor("cursor.c", time.Time{}))
	r.insert(cursor("cursor.a", now.Add(2*time.Hour)))
	r.listedAs(storage.Cursors, "cursor.b", "cursor.a", "cursor.c")
}

// listedAs fails the rule where a state of main is not listed in this order, at once and in
// pages.
func (r *rig) listedAs(state storage.State, want ...string) {
	r.Helper()
	r.want("listed as "+string(state), ids(r.list(state)), want)
	var got []string
	query := storage.TasksQuery{State: state, Limit: 1}
	for range len(want) + 1 {
		p := r.page(query)
		got = append(got, ids(p.Tasks)...)
		if query.After = p.Next; query.After == "" {
			break
		}
	}
	r.want("listed in pages as "+string(state), got, want)
}

func listForeign(r *rig) {
	for _, s := range storage.States()[1:7] {
		r.stand("a-"+string(s), s)
	}
	r.standInEach()
	r.add("a-waiting")
	r.insert(cursor("cursor.a", time.Time{}), cursor("cursor.b", time.Time{}))
	for _, from := range storage.States() {
		next := r.page(storage.TasksQuery{State: from, Limit: 1}).Next
		for _, queue := range []string{mainQueue, sideQueue} {
			for _, to := range storage.States() {
				p, err := r.store.Tasks(r.ctx, storage.TasksQuery{Queue: queue, State: to, After: next})
				var invalid *storage.InvalidError
				if err != nil && !errors.As(err, &invalid) {
					r.Fatalf("%s after a page of %s: got error %v, want none or an *InvalidError", to, from, err)
				}
				for _, t := range p.Tasks {
					r.want("a task listed", [2]any{t.Queue, t.State}, [2]any{queue, to})
				}
			}
		}
	}
	for _, after := range []string{"x", "1", "-1.5", "9999999999999999999999", "%", "main", "cursor.a"} {
		_, err := r.store.Tasks(r.ctx, storage.TasksQuery{Queue: mainQueue, State: storage.Waiting, After: after})
		if err != nil {
			r.wantInvalid("a page after "+after, err)
		}
	}
}
