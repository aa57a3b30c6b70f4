package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

func recoverRules() []rule {
	return []rule{
		state("recover/crash is charged", recoverCharged,
			"Recovery of a started task adds a crash and no retry, appends an attempt and puts it back "+
				"into waiting."),
		state("recover/ahead is not charged", recoverAhead,
			"A task whose lease expires while it is only claimed ahead is not charged."),
		state("recover/never ahead again", recoverNeverAhead,
			"A task whose lease expired while it was claimed ahead is never claimed ahead again."),
		state("recover/passed over", recoverPassedOver,
			"A task that a Claim passes over stays waiting, and what the Claim takes instead is claimed once."),
		state("recover/started by extend", recoverStarted,
			"A task claimed ahead counts as started from the next Extend that says so."),
		state("recover/crash loop", recoverCrashLoop,
			"A task whose crashes reach its crash limit is dead, with the reason \"crash loop\"."),
		state("recover/ends told", recoverEndsTold,
			"The Claim that recovers a task into a crash loop or into cancelled names it in Ended, and no other "+
				"Claim does."),
		state("recover/lease holds", recoverLeaseHolds,
			"A lease holds until its deadline, and an extension moves the deadline."),
		state("recover/late settle", recoverLateSettle,
			"A lease that expired but was not recovered yet can still be settled."),
		state("recover/put off", recoverPutOff,
			"A Claim recovers no lease that ended at its RecoverBefore or later, and sets no More for it: such a "+
				"lease can be extended and settled, and another Claim recovers it."),
		state("recover/fence ends", recoverFenceEnds,
			"A recovery ends the fence: settle and extension of the earlier claim are refused and change nothing."),
		state("recover/cancelled", recoverCancelled,
			"A task whose cancel was asked ends in cancelled when its lease expires."),
		state("recover/keeps snoozes", recoverKeepsSnoozes,
			"A recovery is no settle: Snoozes and SnoozedSince stay."),
		state("recover/many at once", recoverMany,
			"Recovery goes in bounded batches, and goes on until all that expired was recovered."),
		state("suspect/passed over", suspectPassedOver,
			"A suspect is passed over by a Claim that does not ask for one, and blocks nobody behind it."),
		state("suspect/one at a time", suspectOne,
			"A Claim takes at most one suspect, and only where it asks for one."),
		state("suspect/starts at once", suspectStarts,
			"A suspect is claimed only to start at once, never ahead."),
		state("suspect/keeps its place", suspectPlace,
			"A suspect's place in the order is that of any other task."),
		state("suspect/joins the tail", suspectJoins,
			"A suspect that is promoted to the tail of its priority stands before the tasks that join later, "+
				"whatever the same Claim promotes and takes."),
		state("suspect/counted as waiting", suspectCounted,
			"Suspects are counted and listed as waiting."),
		state("suspect/no work at once", suspectNoMore,
			"More is not set for what the same Claim would pass over again: suspects, and tasks that may "+
				"not be claimed ahead."),
		state("suspect/told", passedOverTold,
			"A read of a waiting task says whether Claims pass it over, as start-only or as a suspect; a read of "+
				"any other task does not."),
		state("suspect/a limit of one", suspectLimitOne,
			"A task with no crash is no suspect, whatever its limit."),
	}
}

func recoverCharged(r *rig) {
	r.add("a")
	h := r.take(brief(1), "a")
	r.passTo(h.LeaseUntil)
	from := r.now()
	r.maintain()
	t := r.is("a", storage.Waiting)
	r.want("crashes, retries", [2]int{t.Crashes, t.Retries}, [2]int{1, 0})
	r.want("holder", [3]any{t.Runner, t.LeaseUntil.IsZero(), t.Started}, [3]any{"", true, false})
	r.want("attempts", len(t.Attempts), 1)
	at := t.Attempts[0]
	r.want("attempt", [3]any{at.Version, at.Runner, at.Outcome},
		[3]any{h.Version, runner, storage.AttemptCrashed})
	r.between("attempt's time", at.At, from, r.now())
	s := r.stats()
	r.want("crashed, pending, waiting", [3]int64{s.Totals.Crashed, s.Pending, s.Waiting}, [3]int64{1, 0, 1})
}

// ahead returns a claim of the next task that does not start it.
func ahead() storage.ClaimRequest {
	req := brief(1)
	req.Start, req.Ahead = 0, req.Start
	return req
}

func recoverAhead(r *rig) {
	r.add("a")
	h := r.take(ahead(), "a")
	r.expire(h)
	t := r.is("a", storage.Waiting)
	r.want("crashes", t.Crashes, 0)
	r.want("attempts", len(t.Attempts), 1)
	r.want("attempt", [2]any{t.Attempts[0].Version, t.Attempts[0].Outcome},
		[2]any{h.Version, storage.AttemptLeaseLost})
	r.want("crashed", r.stats().Totals.Crashed, int64(0))
}

func recoverNeverAhead(r *rig) {
	r.add("a", "b", "c")
	r.expire(r.take(ahead(), "a"))
	req := ask(2)
	req.Start, req.Ahead = 0, req.Start
	holds := r.hold(req, 2)
	r.want("claimed ahead", [2]string{holds[0].ID, holds[1].ID}, [2]string{"b", "c"})
	r.want("claimed ahead with it alone there", len(r.claim(req).Tasks), 0)
	r.want("started", r.take(ask(1), "a").Started, true)
}

func recoverPassedOver(r *rig) {
	r.add("a")
	r.expire(r.take(ahead(), "a"))
	r.settle(r.take(ask(1), "a"), storage.Settle{Outcome: storage.Snooze, Delay: time.Hour})
	r.changeNow("a", storage.Change{Now: true})
	low := job("low")
	low.Priority = -storage.MaxPriority
	r.insert(low)
	h := r.take(ahead(), "low")
	r.want("waiting", ids(r.list(storage.Waiting)), []string{"a"})
	r.settle(h, storage.Settle{Outcome: storage.Complete})
	r.take(ask(1), "a")
	r.hold(ask(2), 0)
}

func recoverStarted(r *rig) {
	r.add("a", "b")
	first, second := r.take(ahead(), "a"), r.take(ahead(), "b")
	r.extend(storage.Extension{Fence: first.Fence, Started: true})
	r.want("started", r.read("a").Started, true)
	r.want("started beside", r.read("b").Started, false)
	r.expire(second)
	r.want("crashes", [2]int{r.read("a").Crashes, r.read("b").Crashes}, [2]int{1, 0})
}

func recoverCrashLoop(r *rig) {
	j := job("a")
	j.CrashLimit = 2
	r.insert(j)
	r.crash("a")
	r.want("crashes", r.is("a", storage.Waiting).Crashes, 1)
	r.crash("a")
	t := r.is("a", storage.Dead)
	r.want("crashes, reason", [2]any{t.Crashes, t.Reason}, [2]any{2, storage.ReasonCrashes})
	r.want("ended", [2]bool{t.Ended.IsZero(), t.Expires.IsZero()}, [2]bool{})
	s := r.stats()
	r.want("dead", [3]int64{s.Dead, s.Totals.Dead, s.Totals.Crashed}, [3]int64{1, 1, 2})
	r.want("claimed", r.drain(), []string{})
}

func recoverEndsTold(r *rig) {
	last, first, asked := job("a"), job("b"), kept("c")
	last.CrashLimit, first.CrashLimit = 1, 3
	last.Kind, asked.Kind = "poison", "endless"
	r.insert(last, first, asked, job("d"))
	r.passTo(r.hold(brief(4), 4)[3].LeaseUntil)
	for _, id := range []string{"c", "d"} {
		r.cancel(id)
	}
	c := r.claim(ask(1))
	r.want("taken", ids(c.Tasks), []string{"b"})
	slices.SortFunc(c.Ended, func(a, b storage.Ended) int { return strings.Compare(a.Ref.ID, b.Ref.ID) })
	r.want("ended", c.Ended, []storage.Ended{
		{Ref: in("a"), Kind: "poison", State: storage.Dead, Reason: storage.ReasonCrashes},
		{Ref: in("c"), Kind: "endless", State: storage.Cancelled},
		{Ref: in("d"), Kind: first.Kind, State: storage.Cancelled},
	})
	r.want("ended by a later claim", len(r.maintain().Ended), 0)
	r.is("a", storage.Dead)
	r.is("c", storage.Cancelled)
	r.gone("d")
}

func recoverLeaseHolds(r *rig) {
	r.add("a", "b")
	a, b := r.take(brief(1), "a"), r.take(brief(1), "b")
	r.extend(storage.Extension{Fence: b.Fence, For: long})
	r.pass(500 * time.Millisecond)
	c := r.maintain()
	if c.Now.Before(a.LeaseUntil) {
		r.is("a", storage.Pending)
	}
	r.expire(a)
	r.is("a", storage.Waiting)
	r.is("b", storage.Pending)
}

func recoverPutOff(r *rig) {
	r.add("a", "b", "c", "d")
	a := r.take(brief(1), "a")
	r.pass(10 * time.Millisecond)
	b := r.take(brief(1), "b")
	others := r.hold(brief(2), 2)
	r.passTo(others[1].LeaseUntil)
	bounded := maintaining()
	bounded.RecoverBefore = b.LeaseUntil
	r.expireBy(a, bounded)
	r.is("a", storage.Waiting)
	r.want("more", r.claim(bounded).More, false)
	for _, id := range []string{"b", "c", "d"} {
		r.is(id, storage.Pending)
	}
	r.want("settled", r.end(b, storage.Complete).State, storage.Completed)
	r.want("lost", len(r.extend(storage.Extension{Fence: others[0].Fence, For: long}).Lost), 0)
	r.expire(others[1])
	r.is("c", storage.Pending)
	r.want("crashes", [2]int{r.is("d", storage.Waiting).Crashes, int(r.stats().Totals.Crashed)}, [2]int{1, 2})
}

func recoverLateSettle(r *rig) {
	r.add("a")
	h := r.take(brief(1), "a")
	r.passTo(h.LeaseUntil.Add(100 * time.Millisecond))
	r.want("settled", r.end(h, storage.Complete).State, storage.Completed)
	r.gone("a")
	r.maintain()
	s := r.stats()
	r.want("completed, crashed, live", [3]int64{s.Totals.Completed, s.Totals.Crashed, s.Live()},
		[3]int64{1, 0, 0})
}

func recoverFenceEnds(r *rig) {
	r.add("a")
	old := r.take(brief(1), "a")
	r.expire(old)
	lost := func() {
		r.want("settle", r.refuse(settling(old)).Lost, []storage.Ref{in("a")})
		x := r.extend(storage.Extension{
			Fence: old.Fence, For: long, Progress: []byte("p"), Checkpoint: []byte("c"),
		})
		r.want("extension", x.Lost, []storage.Ref{in("a")})
	}
	r.unchanged(lost, "a")
	again := r.take(ask(1), "a")
	r.unchanged(lost, "a")
	r.end(again, storage.Complete)
	lost()
}

// settling returns a Tx that completes a claimed task.
func settling(h held) storage.Tx {
	return storage.Tx{Settles: []storage.Settle{{Fence: h.Fence, Outcome: storage.Complete}}}
}

func recoverCancelled(r *rig) {
	r.insert(kept("a"), kept("b"))
	a, b := r.take(brief(1), "a"), r.take(ahead(), "b")
	r.cancel("a")
	r.cancel("b")
	r.passTo(a.LeaseUntil)
	r.expire(b)
	r.want("crashes", [2]int{r.is("a", storage.Cancelled).Crashes, r.is("b", storage.Cancelled).Crashes},
		[2]int{1, 0})
	s := r.stats()
	r.want("cancelled, crashed", [3]int64{s.Cancelled, s.Totals.Cancelled, s.Totals.Crashed}, [3]int64{2, 2, 1})
}

func recoverKeepsSnoozes(r *rig) {
	r.add("a")
	for range 2 {
		r.end(r.take(ask(1), "a"), storage.Snooze)
	}
	before := r.read("a")
	for _, req := range []storage.ClaimRequest{ahead(), brief(1)} {
		r.expire(r.take(req, "a"))
		t := r.is("a", storage.Waiting)
		r.want("snoozes", [2]any{t.Snoozes, t.SnoozedSince}, [2]any{2, before.SnoozedSince})
	}
	r.end(r.take(ask(1), "a"), storage.Snooze)
	t := r.read("a")
	r.want("snoozes", [2]any{t.Snoozes, t.SnoozedSince}, [2]any{3, before.SnoozedSince})
}

func recoverMany(r *rig) {
	const tasks = 700
	ins := make([]storage.Insert, tasks)
	for i := range ins {
		ins[i] = job(fmt.Sprintf("t%03d", i))
	}
	r.insert(ins...)
	holds := r.hold(brief(tasks), tasks)
	r.passTo(holds[tasks-1].LeaseUntil)
	for range tasks {
		more := r.maintain().More
		if s := r.stats(); s.Waiting == tasks && s.Pending == 0 {
			return
		}
		r.want("More with maintenance left over", more, true)
	}
	r.Fatalf("recovered: got %d of %d", r.stats().Waiting, tasks)
}

// suspects makes a suspect of each id, in this order.
func (r *rig) suspects(ids ...string) {
	r.Helper()
	var last held
	for _, id := range ids {
		j := job(id)
		j.CrashLimit = 2
		r.insert(j)
		last = r.take(brief(1), id)
	}
	r.expire(last)
	for _, id := range ids {
		r.want("crashes of "+id, r.is(id, storage.Waiting).Crashes, 1)
	}
}

// asking returns a claim that may take a suspect.
func asking(n int) storage.ClaimRequest {
	req := ask(n)
	req.Suspect = true
	return req
}

func suspectPassedOver(r *rig) {
	r.suspects("poison")
	r.want("claimed with it alone there", r.drain(), []string{})
	r.add("a", "b")
	r.want("claimed", r.drain(), []string{"a", "b"})
	r.take(asking(1), "poison")
}

func suspectOne(r *rig) {
	r.suspects("poison1", "poison2", "poison3")
	r.add("a", "b")
	r.hold(asking(5), 3)
	s := r.stats()
	r.want("waiting, pending", [2]int64{s.Waiting, s.Pending}, [2]int64{2, 3})
	r.hold(asking(5), 1)
	r.hold(asking(5), 1)
}

func suspectStarts(r *rig) {
	r.suspects("poison")
	r.add("a", "b")
	req := asking(5)
	req.Start, req.Ahead = 0, req.Start
	r.hold(req, 2)
	r.want("started", r.take(asking(1), "poison").Started, true)
}

func suspectPlace(r *rig) {
	r.suspects("poison")
	r.insert(prioritised("urgent", 5))
	r.add("a")
	c := r.claim(asking(3))
	r.want("claimed", ids(c.Tasks), []string{"urgent", "poison", "a"})
}

func suspectJoins(r *rig) {
	r.suspects("poison")
	h := r.take(asking(1), "poison")
	r.insert(delayed("a", time.Second))
	r.settle(h, storage.Settle{Outcome: storage.Snooze, Delay: time.Second})
	r.passTo(r.read("poison").Due)
	r.take(ask(1), "a")
	r.maintain()
	r.add("later")
	want := []string{"poison", "later"}
	r.want("listed", ids(r.list(storage.Waiting)), want)
	r.want("claimed", ids(r.claim(asking(2)).Tasks), want)
}

func suspectCounted(r *rig) {
	r.suspects("poison")
	r.add("a")
	r.want("waiting", r.stats().Waiting, int64(2))
	r.want("listed", len(r.list(storage.Waiting)), 2)
	r.take(asking(1), "poison")
	r.want("waiting, one claimed", r.stats().Waiting, int64(1))
}

func suspectNoMore(r *rig) {
	r.add("cold")
	r.expire(r.take(ahead(), "cold"))
	r.want("More with a task not to be claimed ahead", r.claim(ahead()).More, false)
	r.take(ask(1), "cold")
	r.suspects("poison")
	r.want("More with a suspect", r.claim(ask(5)).More, false)
}

func passedOverTold(r *rig) {
	told := func(id, want string) {
		r.want("passed over, "+id+" read", r.read(id).PassedOver, want)
		for _, t := range r.list(storage.Waiting) {
			if t.ID == id {
				r.want("passed over, "+id+" listed", t.PassedOver, want)
			}
		}
	}
	r.insert(job("cold"))
	told("cold", "")
	r.expire(r.take(ahead(), "cold"))
	told("cold", storage.PassedOverStartOnly)
	h := r.take(ask(1), "cold")
	r.want("passed over, claimed", h.PassedOver, "")
	told("cold", "")
	r.settle(h, storage.Settle{Outcome: storage.Snooze, Delay: time.Hour})
	told("cold", "")
	r.suspects("poison")
	told("poison", storage.PassedOverSuspect)
}

func suspectLimitOne(r *rig) {
	j := job("a")
	j.CrashLimit = 1
	r.insert(j)
	r.take(ask(1), "a")
}
