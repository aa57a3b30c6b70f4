package storagetest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

func readRules() []rule {
	return []rule{
		state("read/not found", readNotFound,
			"Task answers ErrNotFound where there is none."),
		state("read/no token", readNoToken,
			"No read returns a token, and no claim, fence or error prints one."),
		state("read/caller's own slices", readIsolated,
			"A storage neither keeps nor changes the slices and maps given to it, and those it returns "+
				"belong to the caller."),
		state("list/each state", listStates,
			"Tasks lists each state by itself, and every task is in exactly one."),
		state("list/lean", listLean,
			"Listed tasks leave out stack, result, progress and checkpoint, and hold all else."),
		state("list/pages", listPages,
			"Tasks come a page of Limit at a time, none twice and none left out; Next is empty on the last page."),
		state("list/stable", listStable,
			"What leaves a state meanwhile makes the next page neither skip nor repeat those that stay."),
		state("queues/listed", queuesListed,
			"A queue is listed from its first task or setting, sorted by name."),
		state("queues/prefix and pages", queuesPages,
			"Queues lists the names with a prefix, a page of Limit at a time."),
		state("stats/sizes", statsSizes,
			"Stats give the size of each state of the queues named, in their order; of a queue that does "+
				"not exist zeros."),
		state("stats/oldest", statsOldest,
			"Stats.Oldest tells how long the first task that joined the tail of its line has stood there, of all "+
				"lines but those of declined tasks."),
		state("stats/oldest joins the tail", statsOldestJoins,
			"A task is as old as its time at the tail: from its insert, promotion, requeue or new priority on."),
		state("stats/model", statsModel,
			"After any sequence of steps every task is in the state that the state machine says, sizes "+
				"and listings agree, claims come in order, and Enqueued + Requeued = Completed + Dead + "+
				"Cancelled + Deleted + live."),
		state("describe/tells", describeTells,
			"Describe tells the storage, what an acknowledgement is worth, and the time."),
		state("describe/limits", describeLimits,
			"Describe tells the limits that the storage was opened with, defaults filled.",
		).under(storage.Limits{MaxPayload: 1000, DeadFor: time.Minute}),
		state("describe/time goes on", describeTime,
			"The storage's time goes on, whoever asks, unless its clock is set."),
	}
}

func readNotFound(r *rig) {
	r.gone("a")
	r.add("b")
	r.gone("a")
	_, err := r.store.Task(r.ctx, storage.Ref{Queue: sideQueue, ID: "b"})
	r.wantError("the id in another queue", err, storage.ErrNotFound)
}

func readNoToken(r *rig) {
	r.insert(kept("a"))
	req := ask(1)
	req.Token = storage.Token([]byte("0123456789abcdef"))
	c := r.claim(req)
	x := storage.ExtendRequest{
		Runner: storage.RunnerInfo{ID: runner, For: time.Hour, Running: []storage.Running{{Ref: in("a")}}},
		Leases: []storage.Extension{{Fence: c.Fences[0], Progress: []byte("p")}},
	}
	extended, err := r.session.Extend(r.ctx, x)
	r.must("extend", err)
	held := r.read("a")
	pending := r.list(storage.Pending)
	runners := r.runners()
	stale := c.Fences[0]
	stale.Version++
	dep := r.refuse(storage.Tx{Settles: []storage.Settle{{Fence: stale, Outcome: storage.Complete}}})
	_, err = r.session.Apply(r.ctx, storage.Tx{Settles: []storage.Settle{{Fence: stale, Outcome: "nonsense"}}})
	r.apply(storage.Tx{Settles: []storage.Settle{{Fence: c.Fences[0], Outcome: storage.Complete}}})
	secrets := []string{
		string(req.Token[:]), hex.EncodeToString(req.Token[:]), strings.ToUpper(hex.EncodeToString(req.Token[:])),
		base64.StdEncoding.EncodeToString(req.Token[:]), base64.RawURLEncoding.EncodeToString(req.Token[:]),
		strings.Trim(fmt.Sprintf("%d", req.Token[:]), "[]"),
	}
	for _, v := range []any{held, pending, runners, extended, dep, err, c, c.Fences, r.read("a"), r.stats()} {
		text, jsonErr := json.Marshal(v)
		r.must("marshal", jsonErr)
		all := fmt.Sprintf("%v %+v %#v %s %s", v, v, v, v, text)
		if i := slices.IndexFunc(secrets, func(s string) bool { return strings.Contains(all, s) }); i >= 0 {
			r.Fatalf("a %T shows the token: %.300s", v, all)
		}
	}
}

func readIsolated(r *rig) {
	payload, headers := []byte("payload"), map[string]string{"x": "y"}
	j := job("a")
	j.Payload, j.Headers = payload, headers
	r.insert(j)
	payload[0], headers["x"], headers["new"] = 'X', "z", "w"
	whole := func(what string, t storage.Task) {
		r.want(what, [2]any{string(t.Payload), t.Headers}, [2]any{"payload", map[string]string{"x": "y"}})
		t.Payload[0], t.Headers["x"] = 'Y', "changed"
	}
	whole("read", r.read("a"))
	whole("listed", r.list(storage.Waiting)[0])
	h := r.take(ask(1), "a")
	whole("claimed", h.Task)
	progress := []byte("progress")
	r.extend(storage.Extension{Fence: h.Fence, Progress: progress, Checkpoint: progress})
	progress[0] = 'X'
	t := r.read("a")
	r.want("progress", string(t.Progress)+string(t.Checkpoint), "progressprogress")
	t.Progress[0], t.Checkpoint[0] = 'Y', 'Y'
	r.want("progress again", string(r.read("a").Progress)+string(r.read("a").Checkpoint), "progressprogress")
	r.settle(h, storage.Settle{Outcome: storage.Fail, Error: "e"})
	r.read("a").Attempts[0].Error = "changed"
	r.want("attempt", r.read("a").Attempts[0].Error, "e")
	whole("after it all", r.read("a"))
	c := cursor("cursor.c", time.Time{})
	r.insert(c)
	declaration := c.Cursor.Declaration
	c.Cursor.Declaration = "changed"
	r.read("cursor.c").Cursor.Declaration = "changed"
	r.want("cursor", r.read("cursor.c").Cursor.Declaration, declaration)
}

func listStates(r *rig) {
	r.standInEach()
	r.insert(cursor("cursor.c", time.Time{}))
	for _, s := range storage.States() {
		listed := r.list(s)
		want := string(s)
		if s == storage.Cursors {
			want = "cursor.c"
		}
		r.want("listed as "+string(s), ids(listed), []string{want})
		r.want("state", listed[0].State, s)
	}
}

func listLean(r *rig) {
	h := r.holding(kept("a"))
	r.extend(storage.Extension{Fence: h.Fence, Progress: []byte("p"), Checkpoint: []byte("c")})
	r.settle(h, storage.Settle{Outcome: storage.Fail, Error: "e", Stack: "s"})
	h = r.take(ask(1), "a")
	r.settle(h, storage.Settle{Outcome: storage.Complete, Result: []byte("r")})
	got, want := r.list(storage.Completed)[0], r.read("a")
	r.want("result", string(want.Result), "r")
	r.want("left out", [4]int{len(got.Stack), len(got.Result), len(got.Progress), len(got.Checkpoint)}, [4]int{})
	want.Stack, want.Result, want.Progress, want.Checkpoint = "", nil, nil, nil
	r.want("listed, beside read", lean(got), want)
}

// many inserts n tasks and returns their ids.
func (r *rig) many(n int, alter func(*storage.Insert)) []string {
	r.Helper()
	ins, names := make([]storage.Insert, n), make([]string, n)
	for i := range ins {
		ins[i] = job(fmt.Sprintf("t%03d", i))
		names[i] = ins[i].Ref.ID
		if alter != nil {
			alter(&ins[i])
		}
	}
	r.insert(ins...)
	return names
}

// page lists one page of the tasks of main.
func (r *rig) page(query storage.TasksQuery) storage.TasksPage {
	r.Helper()
	query.Queue = mainQueue
	p, err := r.store.Tasks(r.ctx, query)
	r.must("list", err)
	if want := max(query.Limit, 1); query.Limit > 0 && len(p.Tasks) > want {
		r.Fatalf("page: got %d tasks, want at most %d", len(p.Tasks), want)
	}
	return p
}

func listPages(r *rig) {
	names := r.many(120, nil)
	for limit, pages := range map[int]int{0: 3, 1: 120, 7: 18, 40: 3, 119: 2, 120: 1, 200: 1} {
		query := storage.TasksQuery{State: storage.Waiting, Limit: limit}
		var got []string
		n := 1
		for ; ; n++ {
			p := r.page(query)
			got = append(got, ids(p.Tasks)...)
			if p.Next == "" {
				break
			}
			query.After = p.Next
		}
		slices.Sort(got)
		r.want("listed", got, names)
		if n > pages+1 { // the last page may be empty if the page before was full
			r.Fatalf("pages of %d: got %d, want %d", limit, n, pages)
		}
	}
	empty := r.page(storage.TasksQuery{State: storage.Dead})
	r.want("an empty state", [2]any{len(empty.Tasks), empty.Next}, [2]any{0, ""})
}

func listStable(r *rig) {
	for _, s := range []storage.State{storage.Waiting, storage.Scheduled, storage.Cancelled} {
		names := r.many(60, func(j *storage.Insert) {
			j.Keep.For = time.Hour
			if s == storage.Scheduled {
				j.Delay = time.Hour
			}
		})
		if s == storage.Cancelled {
			for _, id := range names {
				r.cancel(id)
			}
		}
		first := r.page(storage.TasksQuery{State: s, Limit: 20})
		seen := ids(first.Tasks)
		r.want("a page", len(seen), 20)
		left := map[string]bool{}
		for _, id := range []string{seen[0], seen[7], seen[19]} {
			r.delete(id)
			left[id] = true
		}
		query := storage.TasksQuery{State: s, Limit: 20, After: first.Next}
		for query.After != "" {
			p := r.page(query)
			seen = append(seen, ids(p.Tasks)...)
			query.After = p.Next
		}
		slices.Sort(seen)
		r.want("listed in "+string(s), seen, names)
		for _, id := range names {
			if !left[id] {
				r.delete(id)
			}
		}
	}
}

func queuesListed(r *rig) {
	names := func() []string {
		p, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
		r.must("queues", err)
		return append([]string{}, p.Names...)
	}
	r.want("queues", names(), []string{})
	r.add("a")
	r.must("configure", r.session.Configure(r.ctx, "alone", pausing(0)))
	j := job("a")
	j.Ref.Queue = "Zoo"
	r.insert(j)
	c := cursor("cursor.c", time.Time{})
	c.Ref.Queue = "cursors"
	r.insert(c)
	r.want("queues", names(), []string{"Zoo", "alone", "cursors", mainQueue})
	r.end(r.take(ask(1), "a"), storage.Complete)
	r.want("queues, one emptied", names(), []string{"Zoo", "alone", "cursors", mainQueue})
}

func queuesPages(r *rig) {
	want := make([]string, 0, 25)
	for i := range cap(want) {
		j := job("a")
		j.Ref.Queue = fmt.Sprintf("mail.%02d", i)
		want = append(want, j.Ref.Queue)
		r.insert(j)
	}
	for _, q := range []string{"mai", "mailer", "Mail.00"} {
		j := job("a")
		j.Ref.Queue = q
		r.insert(j)
	}
	for _, limit := range []int{0, 1, 7, 25, 1000} {
		query := storage.QueuesQuery{Prefix: "mail.", Limit: limit}
		var got []string
		for n := 0; n <= len(want)+1; n++ {
			p, err := r.store.Queues(r.ctx, query)
			r.must("queues", err)
			if limit > 0 && len(p.Names) > limit {
				r.Fatalf("page: got %d names, want at most %d", len(p.Names), limit)
			}
			got = append(got, p.Names...)
			if query.After = p.Next; p.Next == "" {
				break
			}
		}
		r.want("queues", got, want)
	}
}

func statsSizes(r *rig) {
	r.standInEach()
	r.insert(cursor("cursor.c", time.Time{}))
	s, err := r.store.Stats(r.ctx, "nowhere", mainQueue, sideQueue)
	r.must("stats", err)
	s[1].Oldest = 0
	r.want("stats", s, []storage.Stats{
		{Queue: "nowhere"},
		{
			Queue: mainQueue, Waiting: 1, Pending: 1, Scheduled: 1, Retry: 1,
			Completed: 1, Cancelled: 1, Dead: 1, Cursors: 1,
			Totals: storage.Totals{Enqueued: 7, Completed: 1, Dead: 1, Cancelled: 1, Failed: s[1].Totals.Failed},
		},
		{Queue: sideQueue},
	})
	none, err := r.store.Stats(r.ctx)
	r.must("stats of no queue", err)
	r.want("stats of no queue", len(none), 0)
}

func describeTells(r *rig) {
	d, err := r.store.Describe(r.ctx)
	r.must("describe", err)
	if d.Storage == "" || d.Durability == "" || d.Now.IsZero() {
		r.Fatalf("describe: got %+v, want a storage, its durability and its time", d)
	}
}

func describeLimits(r *rig) {
	d, err := r.store.Describe(r.ctx)
	r.must("describe", err)
	r.want("limits", d.Limits, r.limits.WithDefaults())
}

func describeTime(r *rig) {
	last := r.now()
	for i := range 30 {
		r.add(fmt.Sprintf("t%d", i))
		c := r.claim(ask(1))
		for what, now := range map[string]time.Time{"claim": c.Now, "describe": r.now()} {
			if now.Add(time.Millisecond).Before(last) {
				r.Fatalf("time told by %s: got %v after %v", what, now, last)
			}
		}
		last = r.now()
	}
}
