package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

func listRules() []rule {
	return []rule{
		state("list/in order", listInOrder,
			"Waiting tasks are listed in the order of their claim, scheduled and retried ones by when they are due, "+
				"pending ones by when their lease ends, ended ones by when they expire, cursors by "+
				"when they are handed out next, those that are never due last."),
		state("list/newest first", listNewest,
			"With Newest ended tasks come in the reverse of their order, the same tasks in pages of any size; "+
				"other states refuse it."),
		state("list/newest stable", listNewestStable,
			"With Newest, too, each task that stays is on one page, whatever leaves or enters its state meanwhile."),
		state("list/newest beside damage", listNewestDamaged,
			"With Newest, too, a listing leaves a damaged record out and goes on behind it."),
		state("list/another page", listForeign,
			"An After that is the Next of another listing gives an InvalidError or tasks of the listing asked for."),
		state("list/longest names", listLongest,
			"The Next of a page is an After, however long the ids, kinds, partitions and queues: tasks of each state "+
				"and order, partitions and queues come in pages of one."),
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

// listedAs fails the rule unless a state of main is listed in this order, both in long pages and in
// pages of one task.
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

// pages returns the ids of all tasks of a query, read page after page.
func (r *rig) pages(query storage.TasksQuery) (got []string) {
	r.Helper()
	for {
		p := r.page(query)
		got = append(got, ids(p.Tasks)...)
		if query.After = p.Next; p.Next == "" {
			return got
		}
	}
}

// endings maps each ended state to the outcome that leads to it.
var endings = map[storage.State]storage.Outcome{
	storage.Completed: storage.Complete, storage.Cancelled: storage.Cancel, storage.Dead: storage.Bury,
}

// ended makes n tasks end in a state, half of them in one Tx, so that they may share a moment.
func (r *rig) ended(state storage.State, prefix string, n int) {
	r.Helper()
	ins := make([]storage.Insert, n)
	for i := range ins {
		ins[i] = kept(fmt.Sprintf("%s-%03d", prefix, i))
	}
	r.insert(ins...)
	var tx storage.Tx
	for i, h := range r.hold(ask(n), n) {
		if i%2 == 0 {
			r.end(h, endings[state])
			continue
		}
		tx.Settles = append(tx.Settles, storage.Settle{Fence: h.Fence, Outcome: endings[state]})
	}
	r.apply(tx)
}

func listNewest(r *rig) {
	for _, s := range storage.States() {
		query := storage.TasksQuery{Queue: mainQueue, State: s, Newest: true}
		if !s.Ended() {
			_, err := r.store.Tasks(r.ctx, query)
			r.wantInvalid("the newest of "+string(s), err)
			continue
		}
		r.want("an empty state", len(r.pages(query)), 0)
		r.ended(s, string(s), 30)
		want := ids(r.list(s))
		slices.Reverse(want)
		r.want("tasks of "+string(s), len(want), 30)
		for _, query.Limit = range []int{0, 1, 7, 29, 30, 31, storage.MaxPage} {
			r.want(fmt.Sprintf("the newest of %s in pages of %d", s, query.Limit), r.pages(query), want)
		}
	}
	long, short := kept("long"), kept("short")
	long.Keep.For = 2 * long.Keep.For
	r.end(r.holding(long), storage.Complete)
	r.end(r.holding(short), storage.Complete)
	first := r.page(storage.TasksQuery{State: storage.Completed, Newest: true, Limit: 2})
	r.want("the newest completed", ids(first.Tasks), []string{"long", "short"})
}

func listNewestStable(r *rig) {
	for s := range endings {
		r.ended(s, string(s), 30)
		query := storage.TasksQuery{State: s, Newest: true, Limit: 10}
		first := r.page(query)
		seen := ids(first.Tasks)
		r.want("a page", len(seen), 10)
		want := ids(r.list(s))
		slices.Reverse(want)
		for _, id := range []string{seen[0], seen[4], seen[9], want[10], want[15]} {
			r.delete(id)
		}
		want = slices.Delete(slices.Delete(want, 15, 16), 10, 11)
		late := kept(string(s) + "-late")
		late.Keep.For = 3 * late.Keep.For
		r.end(r.holding(late), endings[s])
		query.After = first.Next
		r.want("the newest of "+string(s), append(seen, r.pages(query)...), want)
	}
}

func listNewestDamaged(r *rig) {
	if r.Damage == nil {
		r.Log("not tested: no record of this storage can be damaged")
		return
	}
	r.ended(storage.Dead, "dead", 6)
	want := ids(r.list(storage.Dead))
	slices.Reverse(want)
	for _, id := range []string{want[0], want[3], want[5]} {
		r.Damage(r.TB, in(id))
	}
	want = []string{want[1], want[2], want[4]}
	for _, limit := range []int{1, 2, 6} {
		query := storage.TasksQuery{State: storage.Dead, Newest: true, Limit: limit}
		r.want("the newest dead", r.pages(query), want)
	}
}

func listLongest(r *rig) {
	long := func(name, end string) string {
		return strings.Repeat(name, storage.MaxName)[:storage.MaxName-len(end)] + end
	}
	each := []string{"1", "2", "3"}
	for _, s := range storage.States()[1:7] {
		for _, end := range each {
			r.stand(long(string(s), end), s)
		}
	}
	key := []string{long("k", "1"), long("k", "2"), long("é", "")}
	kind := []string{long("k", "1"), long("k", "1"), long("k", "2")}
	for i, end := range each {
		j := of(kind[i], long("d", end))
		j.Partition = key[i]
		r.decline(j)
	}
	want := []string{long("h", "1"), long("h", "2"), long("l", "1"), long("l", "2")}
	r.insert(prioritised(want[0], storage.MaxPriority), prioritised(want[1], storage.MaxPriority),
		prioritised(want[2], -storage.MaxPriority), prioritised(want[3], -storage.MaxPriority))
	want = append(want, long("d", "1"), long("d", "2"), long("d", "3"))
	for i, k := range key {
		line := []string{long("a", each[i]), long("b", each[i])}
		r.insert(keyed(k, line[0]), keyed(k, line[1]))
		r.inLine("with long ids", k, line...)
		want = append(want, line...)
	}
	r.listedAs(storage.Waiting, want...)
	r.insert(cursor(long("cursor.", "1"), time.Time{}), cursor(long("cursor.", "2"), time.Time{}))
	for _, s := range storage.States() {
		query := storage.TasksQuery{State: s, Limit: 1}
		want := ids(r.list(s))
		r.want("in pages as "+string(s), r.pages(query), want)
		if slices.Reverse(want); s.Ended() {
			query.Newest = true
			r.want("the newest in pages as "+string(s), r.pages(query), want)
		}
	}
	query := storage.PartitionsQuery{Limit: 1}
	got := make([]string, 0, len(key))
	for range key {
		p := r.partitions(query)
		got = append(got, p.Partitions[0].Key)
		query.After = p.Next
	}
	r.want("partitions in pages", got, key)
	r.longQueues(long("m", "1"), long("m", "2"), long("m", "3"))
}

// longQueues makes queues of these names, and lists them in pages of one.
func (r *rig) longQueues(names ...string) {
	r.Helper()
	for _, name := range names {
		r.must("create", r.session.Configure(r.ctx, name, storage.Settings{Create: true}))
	}
	query := storage.QueuesQuery{Prefix: names[0][:len(names[0])-1], Limit: 1}
	got := make([]string, 0, len(names))
	for range names {
		p, err := r.store.Queues(r.ctx, query)
		r.must("queues", err)
		got = append(got, p.Names...)
		query.After = p.Next
	}
	r.want("queues in pages", [2]any{got, query.After}, [2]any{names, ""})
}

func listForeign(r *rig) {
	for _, s := range storage.States()[1:7] {
		r.stand("a-"+string(s), s)
	}
	r.standInEach()
	r.add("a-waiting")
	r.insert(cursor("cursor.a", time.Time{}), cursor("cursor.b", time.Time{}))
	var all []storage.TasksQuery
	for _, s := range storage.States() {
		all = append(all, storage.TasksQuery{State: s})
		if s.Ended() {
			all = append(all, storage.TasksQuery{State: s, Newest: true})
		}
	}
	for _, from := range all {
		from.Limit = 1
		next := r.page(from).Next
		for _, to := range all {
			for _, to.Queue = range []string{mainQueue, sideQueue} {
				to.After = next
				p, err := r.store.Tasks(r.ctx, to)
				var invalid *storage.InvalidError
				if err != nil && !errors.As(err, &invalid) {
					r.Fatalf("%+v after a page of %+v: got error %v, want none or an *InvalidError", to, from, err)
				}
				for _, t := range p.Tasks {
					r.want("a task listed", [2]any{t.Queue, t.State}, [2]any{to.Queue, to.State})
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
