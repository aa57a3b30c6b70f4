package storagetest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

func kindRules() []rule {
	brief := storage.Limits{DeclinedFor: time.Second}
	return []rule{
		state("kind/declined", kindDeclined,
			"Decline puts a task back into waiting, uncharged, with no attempt and a grown version; a read "+
				"says since when it is declined."),
		state("kind/named alone", kindNamedAlone,
			"A declined task is taken by a Claim that names its kind or no kinds, and by no other; the ordinary "+
				"tasks are taken whatever a Claim names."),
		state("kind/no work for others", kindNoWork,
			"A declined task counts neither for the More nor for the NextDue of a Claim that does not name its kind."),
		state("kind/order", kindOrder,
			"Declined tasks of a kind are claimed by priority, then by when they were declined, and before other "+
				"tasks of their priority."),
		state("kind/many kinds", kindMany,
			"A Claim that names several kinds takes the declined tasks of all of them in one order."),
		state("kind/start-only and suspects", kindHeld,
			"A declined task that is start-only or a suspect is claimed as such, and blocks nobody in its line."),
		state("kind/once for each joining", kindRejoins,
			"Release, recovery, promotion, requeue, a new priority, Now and a move lead a declined task back "+
				"to where every Claim may take it; other changes leave it in its line."),
		state("kind/cancelled and deleted", kindEnds,
			"A declined task is cancelled and deleted as any waiting task is; where a cancel was asked Decline ends "+
				"in cancelled."),
		state("kind/wakes", kindWakes,
			"A decline wakes a Wait for new work."),
		state("kind/listed last", kindListed,
			"Declined tasks are listed as waiting, behind the others, by kind and in the order of their line."),
		state("kind/counted", kindCounted,
			"Stats counts declined tasks as waiting, and names the first kinds with how many tasks each has."),
		state("kind/unknown dies", kindDies,
			"A declined task is dead, reason \"unknown kind\", once no Claim named its kind for DeclinedFor; "+
				"the Claim that finds it so names it in Ended.").under(brief),
		state("kind/maintained alone", kindMaintained,
			"A Claim with MaxNone names no kinds in the queue: it keeps no declined task alive, and gives "+
				"none and no More for any.").under(brief),
		state("kind/full queue", kindFull,
			"A Claim with MaxFull takes nothing from the queue and names its kinds there: declined tasks of these "+
				"kinds live, also in a queue that is behind.").under(brief),
		state("kind/known lives", kindLives,
			"A declined task lives while Claims name its kind, even if they do not take it, and while its queue is "+
				"paused.").under(brief),
		state("kind/many die", kindManyDie,
			"Declined tasks of all priorities die in bounded batches, until all that waited too long are dead, and "+
				"none that has not.").under(brief),
		state("kind/dead are bounded", kindDeadBounded,
			"Tasks that die of an unknown kind count among the dead that a queue keeps.",
		).under(storage.Limits{DeclinedFor: time.Second, DeadMax: 3}),
		state("kind/repeated", kindRepeated,
			"A repeated Claim gives the declined tasks that it took, and takes no others."),
		state("kind/runners tell", kindRunners,
			"A heartbeat keeps the kinds of its runner."),
		state("kind/valid", kindValid,
			"A Claim names at most MaxKinds kinds, and a heartbeat too, each a valid name."),
	}
}

// knows returns a claim of up to n tasks by a runner that knows these kinds.
func knows(n int, kinds ...string) storage.ClaimRequest {
	req := asking(n)
	req.Kinds = kinds
	return req
}

// of returns a job of a kind.
func of(kind, id string) storage.Insert {
	j := job(id)
	j.Kind = kind
	return j
}

// decline inserts jobs, claims and declines them, one after the other.
func (r *rig) decline(js ...storage.Insert) {
	r.Helper()
	for _, j := range js {
		r.insert(j)
		r.declineNext(j.Ref.ID)
	}
}

// declineNext claims the next task, which must be this one, and declines it.
func (r *rig) declineNext(id string) {
	r.Helper()
	r.end(r.take(knows(1, "another"), id), storage.Decline)
}

func kindDeclined(r *rig) {
	h := r.holding(of("mail", "a"))
	from := r.now()
	p := r.settle(h, storage.Settle{Outcome: storage.Decline})
	got := r.is("a", storage.Waiting)
	r.want("placed", p, storage.Placed{Ref: in("a"), Version: got.Version, State: storage.Waiting})
	if got.Version <= h.Version {
		r.Fatalf("version: got %d, want more than %d", got.Version, h.Version)
	}
	r.between("Declined", got.Declined, from, r.now())
	r.want("passed over", got.PassedOver, storage.PassedOverKind)
	r.want("retries, crashes, snoozes, attempts, runner",
		[5]any{got.Retries, got.Crashes, got.Snoozes, len(got.Attempts), got.Runner}, [5]any{0, 0, 0, 0, ""})
	listed := r.list(storage.Waiting)[0]
	r.want("listed", [2]any{listed.Declined, listed.PassedOver}, [2]any{got.Declined, got.PassedOver})
	h = r.take(knows(1, "mail"), "a")
	r.want("claimed", [2]any{h.Declined.IsZero(), h.PassedOver}, [2]any{true, ""})
	now := r.is("a", storage.Pending)
	r.want("read", [2]any{now.Declined.IsZero(), now.PassedOver}, [2]any{true, ""})
	r.end(h, storage.Complete)
	r.gone("a")
}

func kindNamedAlone(r *rig) {
	r.decline(of("mail", "a"), of("mail", "b"))
	r.insert(of("mail", "c"), of("news", "d"))
	r.want("claimed by another", ids(r.claim(knows(9, "news")).Tasks), []string{"c", "d"})
	r.want("claimed again by another", ids(r.claim(knows(9, "news", "mailer", "mai")).Tasks), []string{})
	r.take(knows(1, "news", "mail"), "a")
	r.take(knows(1), "b")
}

func kindNoWork(r *rig) {
	r.decline(of("mail", "a"), of("mail", "b"))
	c := r.claim(knows(1, "news"))
	r.want("claimed and More of another", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	c = r.claim(knows(1, "mail"))
	r.want("claimed and More", [2]any{ids(c.Tasks)[0], c.More}, [2]any{"a", true})
	r.configure(pausing(time.Hour))
	r.want("NextDue of another", r.claim(knows(1, "news")).NextDue.IsZero(), true)
	r.want("NextDue", r.claim(knows(1, "mail")).NextDue.IsZero(), false)
	none := knows(1, "mail")
	none.Queues[0].Max = storage.MaxNone
	r.want("NextDue of a caller that takes nothing", r.claim(none).NextDue.IsZero(), true)
	r.configure(resuming())
	c = r.claim(knows(1, "mail"))
	r.want("claimed and More of the last", [2]any{ids(c.Tasks)[0], c.More}, [2]any{"b", false})
}

func kindOrder(r *rig) {
	low, high := of("mail", "low"), of("mail", "high")
	low.Priority, high.Priority = -9, 9
	r.decline(of("mail", "z"), low, of("mail", "a"), high)
	r.add("released")
	h := r.take(knows(1, "another"), "released")
	r.insert(prioritised("urgent", 9), job("plain"), prioritised("idle", -9))
	r.end(h, storage.Release)
	r.want("claimed", ids(r.claim(knows(9, "mail", "job")).Tasks),
		[]string{"high", "urgent", "z", "a", "released", "plain", "low", "idle"})
}

func kindMany(r *rig) {
	kinds := make([]string, 0, 30)
	for i := range 30 {
		kind := fmt.Sprintf("kind%02d", (i*7)%30)
		kinds = append(kinds, kind)
		r.decline(of(kind, fmt.Sprintf("t%02d", i)))
	}
	var want []string
	for i := range 30 {
		if (i*7)%30 < 20 {
			want = append(want, fmt.Sprintf("t%02d", i))
		}
	}
	named := []string{"kind00", "none", "kind00"}
	for _, k := range kinds {
		if k < "kind20" {
			named = append(named, k)
		}
	}
	got := make([]string, 0, 28)
	for range 4 {
		got = append(got, ids(r.claim(knows(7, named...)).Tasks)...)
	}
	r.want("claimed", got, want)
	r.want("left", len(r.claim(knows(30)).Tasks), 10)
}

func kindHeld(r *rig) {
	r.suspects("poison")
	r.declineNext("poison")
	r.add("cold")
	r.expire(r.take(ahead(), "cold"))
	r.declineNext("cold")
	r.decline(job("a"), job("b"))
	r.want("passed over", r.read("poison").PassedOver, storage.PassedOverKind)
	req := knows(0, "job")
	req.Ahead = 1
	r.want("claimed ahead", ids(r.claim(req).Tasks), []string{"a"})
	req = knows(1, "job")
	req.Suspect = false
	r.want("claimed without a suspect", ids(r.claim(req).Tasks), []string{"cold"})
	r.want("claimed without a suspect again", ids(r.claim(req).Tasks), []string{"b"})
	c := r.claim(req)
	r.want("claimed and More with a suspect alone", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	r.suspects("second")
	r.declineNext("second")
	r.want("claimed with a suspect", ids(r.claim(knows(5, "job")).Tasks), []string{"poison"})
	r.want("claimed with the next", ids(r.claim(knows(5, "job")).Tasks), []string{"second"})
}

func kindRejoins(r *rig) {
	joined := func(after string) {
		r.Helper()
		r.want("after "+after+" declined", !r.read("a").Declined.IsZero(), false)
		r.declineNext("a")
	}
	r.decline(of("mail", "edited"))
	at := r.read("edited").Declined
	r.changeNow("edited", storage.Change{Headers: map[string]string{"x": "y"}})
	r.changeNow("edited", storage.Change{Encoding: "raw", Payload: []byte("new")})
	r.want("declined after an edit", r.read("edited").Declined, at)
	r.want("payload", string(r.take(knows(1, "mail"), "edited").Payload), "new")

	r.decline(of("mail", "a"))
	r.end(r.take(knows(1, "mail"), "a"), storage.Release)
	joined("a release")
	req := knows(1, "mail")
	req.Lease = storage.MinLease
	r.expire(r.take(req, "a"))
	joined("a recovery")
	r.changeNow("a", storage.Change{Priority: new(int)})
	joined("a new priority")
	r.changeNow("a", storage.Change{Now: true})
	joined("Now")
	r.want("delayed", r.changeNow("a", storage.Change{Delay: 50 * time.Millisecond}).State, storage.Scheduled)
	r.want("declined while it is scheduled", r.read("a").Declined.IsZero(), true)
	r.pass(60 * time.Millisecond)
	r.maintain()
	joined("a promotion")
	r.settle(r.take(knows(1, "mail"), "a"), storage.Settle{Outcome: storage.Bury})
	r.changeNow("a", storage.Change{Requeue: true})
	joined("a requeue")
	if !storage.Spans(r.store, mainQueue, sideQueue) {
		return
	}
	r.changeNow("a", storage.Change{Queue: sideQueue})
	moved, err := r.store.Task(r.ctx, storage.Ref{Queue: sideQueue, ID: "a"})
	r.must("read", err)
	r.want("moved", [2]any{moved.State, moved.Declined.IsZero()}, [2]any{storage.Waiting, true})
	r.want("left in main", [2]any{r.stats().Waiting, len(r.stats().Declined)}, [2]any{int64(0), 0})
}

func kindEnds(r *rig) {
	unique := life("a", "key")
	unique.Kind = "mail"
	r.decline(unique, of("mail", "b"), of("mail", "c"))
	r.want("cancelled", r.cancel("a").State, storage.Cancelled)
	r.delete("b")
	r.gone("a", "b")
	r.insert(life("next", "key"))
	r.take(knows(1, "another"), "next")
	h := r.take(knows(1, "mail"), "c")
	r.cancel("c")
	r.want("declined after a cancel", r.end(h, storage.Decline).State, storage.Cancelled)
	s := r.stats()
	r.want("waiting", s.Waiting, int64(0))
	r.want("cancelled, deleted", [2]int64{s.Totals.Cancelled, s.Totals.Deleted}, [2]int64{2, 1})
	r.want("kinds", len(s.Declined), 0)
	r.balanced(s)
}

func kindWakes(r *rig) {
	h := r.holding(of("mail", "a"))
	c := r.claim(knows(1, "mail"))
	done := r.waiting(storage.WaitRequest{Queues: []string{mainQueue}, Since: c.Since})
	r.end(h, storage.Decline)
	r.woken("a decline", done)
	r.take(knows(1, "mail"), "a")
}

func kindListed(r *rig) {
	low := of("b", "b-low")
	low.Priority = -3
	r.decline(low, of("b", "b-first"), of("a", "a-first"), of("b", "b-second"), of("c.d", "c-first"))
	r.insert(prioritised("last", -9), prioritised("first", 9))
	r.listedAs(storage.Waiting, "first", "last", "a-first", "b-first", "b-second", "b-low", "c-first")
}

func kindCounted(r *rig) {
	want := make([]storage.KindSize, 0, storage.MaxStatsKinds+3)
	for i := range storage.MaxStatsKinds + 3 {
		kind := fmt.Sprintf("kind%02d", i)
		for n := range i%3 + 1 {
			r.decline(of(kind, fmt.Sprintf("t%d.%d", i, n)))
		}
		want = append(want, storage.KindSize{Kind: kind, Tasks: int64(i%3 + 1)})
	}
	r.add("plain")
	s := r.stats()
	r.want("declined", s.Declined, want[:storage.MaxStatsKinds])
	r.want("waiting", s.Waiting, int64(len(r.list(storage.Waiting))))
	r.take(knows(1, "kind00"), "t0.0")
	r.take(knows(1, "kind01"), "t1.0")
	s = r.stats()
	r.want("declined after claims", s.Declined[0], storage.KindSize{Kind: "kind01", Tasks: 1})
	r.want("kinds after claims", s.Declined[1:], want[2:storage.MaxStatsKinds+1])
	r.balanced(s)
}

// another makes a claim of no tasks for a runner that knows only other kinds.
func (r *rig) another() storage.Claimed {
	r.Helper()
	req := knows(0, "another")
	return r.claim(req)
}

// dies lets time pass until a task is dead, and returns the answer of the last claim of another.
func (r *rig) dies(id string) storage.Claimed {
	r.Helper()
	for from := r.now(); ; r.pass(100 * time.Millisecond) {
		c := r.another()
		if r.read(id).State == storage.Dead {
			return c
		}
		if c.Now.Sub(from) > 10*time.Second {
			r.Fatalf("%s is not dead after 10 s", id)
		}
	}
}

func kindDies(r *rig) {
	r.decline(of("mail", "a"))
	since := r.read("a").Declined
	r.pass(700 * time.Millisecond)
	c := r.another()
	if r.now().Sub(since) < 900*time.Millisecond { // later if the machine was slow
		r.is("a", storage.Waiting)
	}
	if len(c.Ended) == 0 {
		c = r.dies("a")
	}
	got := r.read("a")
	r.want("ended", c.Ended, []storage.Ended{
		{Ref: in("a"), Kind: "mail", State: storage.Dead, Reason: storage.ReasonKind},
	})
	r.want("reason, attempts", [2]any{got.Reason, len(got.Attempts)}, [2]any{storage.ReasonKind, 0})
	r.want("declined, passed over", [2]any{got.Declined.IsZero(), got.PassedOver}, [2]any{true, ""})
	if waited := got.Ended.Sub(since); waited < time.Second {
		r.Fatalf("dead after %v, want 1s at least", waited)
	}
	s := r.stats()
	r.want("dead, waiting, kinds", [4]any{s.Dead, s.Totals.Dead, s.Waiting, len(s.Declined)},
		[4]any{int64(1), int64(1), int64(0), 0})
	r.balanced(s)
	r.changeNow("a", storage.Change{Requeue: true})
	r.take(ask(1), "a")
}

func kindMaintained(r *rig) {
	r.decline(of("mail", "a"))
	req := ask(5)
	req.Queues[0].Max = storage.MaxNone
	for from := r.now(); r.read("a").State != storage.Dead; r.pass(100 * time.Millisecond) {
		c := r.claim(req)
		r.want("claimed, More", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
		if c.Now.Sub(from) > 10*time.Second {
			r.Fatalf("a is not dead after 10 s")
		}
	}
	r.want("reason", r.read("a").Reason, storage.ReasonKind)
}

func kindFull(r *rig) {
	r.decline(of("mail", "a"), of("other", "b"))
	r.insert(of("mail", "c"))
	req := asking(5)
	req.Kinds = []string{"mail"}
	req.Queues[0].Max = storage.MaxFull
	for from := r.now(); r.read("b").State != storage.Dead; r.pass(100 * time.Millisecond) {
		r.insert(delayed(storage.NewID(), time.Millisecond)) // something is due in each Claim
		c := r.claim(req)
		r.want("claimed, More", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
		if c.Now.Sub(from) > 10*time.Second {
			r.Fatalf("b is not dead after 10 s")
		}
	}
	r.is("a", storage.Waiting)
	r.is("c", storage.Waiting)
}

func kindLives(r *rig) {
	r.decline(of("mail", "a"), of("other", "b"))
	for range 15 {
		r.pass(100 * time.Millisecond)
		r.claim(knows(0, "mail"))
		r.is("a", storage.Waiting)
	}
	r.dies("b")
	r.is("a", storage.Waiting)
	r.configure(pausing(0))
	for range 3 {
		r.pass(700 * time.Millisecond)
		r.another()
	}
	r.is("a", storage.Waiting)
	r.configure(resuming())
	r.dies("a")
}

func kindManyDie(r *rig) {
	const tasks = 300
	js := make([]storage.Insert, tasks)
	for i := range js {
		js[i] = of(fmt.Sprintf("kind%d", i%3), fmt.Sprintf("t%03d", i))
		js[i].Priority = i%19 - 9
	}
	r.insert(js...)
	var tx storage.Tx
	for _, h := range r.hold(knows(tasks, "another"), tasks) {
		tx.Settles = append(tx.Settles, storage.Settle{Fence: h.Fence, Outcome: storage.Decline})
	}
	r.apply(tx)
	r.pass(500 * time.Millisecond)
	urgent := of("kind0", "urgent")
	urgent.Priority = 9
	r.decline(urgent)
	since := r.read("urgent").Declined
	told, before := 0, r.stats().Dead // the claims of decline may have ended some of the tasks, or all
	for from := r.now(); r.stats().Dead < tasks; r.pass(50 * time.Millisecond) {
		c := r.another()
		told += len(c.Ended)
		if c.Now.Sub(from) > 15*time.Second {
			r.Fatalf("dead: got %d, want %d", r.stats().Dead, tasks)
		}
		if r.now().Before(since.Add(900 * time.Millisecond)) {
			r.is("urgent", storage.Waiting)
		}
	}
	r.dies("urgent")
	r.want("waiting, dead", [2]int64{r.stats().Waiting, r.stats().Totals.Dead}, [2]int64{0, tasks + 1})
	if told == 0 && before < tasks {
		r.Fatalf("told: got none of %d", tasks)
	}
}

func kindDeadBounded(r *rig) {
	for i := range 8 {
		r.decline(of("mail", fmt.Sprintf("t%d", i)))
	}
	r.pass(time.Second)
	from := r.now()
	for s := r.stats(); s.Totals.Dead < 8 || s.Dead > 3; s = r.stats() {
		if c := r.another(); c.Now.Sub(from) > 10*time.Second {
			r.Fatalf("after 10 s: got %d kept of %d dead, want 3 of 8", s.Dead, s.Totals.Dead)
		}
		r.pass(50 * time.Millisecond)
	}
	r.want("kept", len(r.list(storage.Dead)), 3)
}

func kindRepeated(r *rig) {
	r.decline(of("mail", "a"), of("mail", "b"))
	req := knows(1, "mail")
	req.Call, req.Token = r.first(), storage.NewToken()
	for range 2 {
		c, err := r.store.Claim(r.ctx, req)
		r.must("claim", err)
		r.want("claimed", ids(c.Tasks), []string{"a"})
	}
	r.take(knows(1, "mail"), "b")
}

func kindRunners(r *rig) {
	kinds := []string{"mail", "news"}
	_, err := r.session.Extend(r.ctx, storage.ExtendRequest{
		Runner: storage.RunnerInfo{ID: runner, Kinds: kinds, For: time.Minute},
	})
	r.must("extend", err)
	all, err := r.store.Runners(r.ctx)
	r.must("runners", err)
	r.want("runners", len(all), 1)
	r.want("kinds", all[0].Kinds, kinds)
}

func kindValid(r *rig) {
	kinds := make([]string, storage.MaxKinds+1)
	for i := range kinds {
		kinds[i] = fmt.Sprintf("kind%d", i)
	}
	r.decline(of("kind999", "a"))
	r.take(knows(1, kinds[:storage.MaxKinds]...), "a")
	for what, bad := range map[string][]string{"too many": kinds, "an empty": {""}, "a bad": {"no spaces"}} {
		_, err := r.session.Claim(r.ctx, knows(1, bad...))
		r.wantInvalid("a claim of "+what, err)
		_, err = r.session.Extend(r.ctx, storage.ExtendRequest{
			Runner: storage.RunnerInfo{ID: runner, Kinds: bad, For: time.Minute},
		})
		r.wantInvalid("a heartbeat of "+what, err)
	}
}
