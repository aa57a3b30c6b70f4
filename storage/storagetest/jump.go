package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

func jumpRules() []rule {
	return []rule{
		state("jump/ahead and back", jumpAhead,
			"While the clock is ahead for less than JumpWait, and after that, nothing is promoted, recovered, "+
				"ticked or expired before its moment; then all goes on at its moment."),
		state("jump/again", jumpAgain,
			"A second jump, as far as an earlier one or during its wait, is believed no sooner than the first."),
		state("jump/pause", jumpPause,
			"A queue that is paused for a time stays paused while a wait is on."),
		state("jump/told", jumpTold,
			"Describe warns while a wait is on, and while the mark is far ahead of the clock."),
		state("jump/next due", jumpNextDue,
			"While a wait is on, More is not set for what waits on it, and NextDue is no later than its end."),
		state("jump/ahead for good", jumpStays,
			"A jump that stays is believed after JumpWait: what is due by the clock happens."),
		state("jump/looked at regularly", jumpLooked,
			"A Claim moves the mark even where it finds nothing: a queue that is claimed from regularly begins "+
				"no wait."),
		state("jump/stamped meanwhile", jumpStamped,
			"What was stamped while the clock was ahead keeps its moment; an Extend overwrites its lease."),
		state("jump/declined meanwhile", jumpDeclined,
			"A task that was declined while the clock was ahead keeps none behind it from dying of DeclinedFor.",
		).under(storage.Limits{DeclinedFor: time.Hour}),
		state("jump/back", jumpBack,
			"After the clock was set back, everything timed happens by the clock as it is."),
		state("jump/claimed after it was set back", jumpClaimed,
			"After the clock was set back, a task was claimed when the clock says so, whatever its version."),
		state("jump/claimed again after it was set back", jumpClaimedAgain,
			"After the clock was set back, a repeated Claim says when the first one was made."),
		state("jump/inserted after it was set back", jumpInserted,
			"After the clock was set back, an Apply says when it made a task, and a repeated Apply says so too."),
		state("jump/ended after it was set back", jumpEnded,
			"After the clock was set back, the times of tasks and attempts are those of the clock, not of versions."),
		state("jump/versions", jumpVersions,
			"Versions grow whatever the clock does."),
		state("jump/callers", jumpCallers,
			"A session goes on after the clock was set ahead or back: it asks for the time again."),
	}
}

// far is how far the clock is set.
const far = 2 * time.Hour

// jumps reports whether the clock can be set. At the end of the rule it sets the clock right again.
func (r *rig) jumps() bool {
	r.Helper()
	if r.Jump == nil {
		r.Log("not tested: the clock of this storage cannot be set")
		return false
	}
	r.pace.rely(storage.JumpWait)
	jump, ahead := r.Jump, time.Duration(0)
	r.Jump = func(d time.Duration) {
		ahead += d
		jump(d)
	}
	r.Cleanup(func() { jump(-ahead) })
	return true
}

// timed lists records that time changes within an hour.
var timed = []string{"scheduled", "retry", "done", "held", "cursor.hour"}

// time makes the timed records, a unique window and a runner, all of which time ends within an hour.
func (r *rig) time() {
	r.Helper()
	window := delayed("scheduled", time.Hour)
	window.Unique = storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: time.Hour}
	r.stand("retry", storage.Retry)
	r.stand("done", storage.Completed)
	r.holding(job("held"))
	r.insert(window, cursor("cursor.hour", r.now().Add(time.Hour)))
	r.heartbeat(storage.RunnerInfo{ID: "r1", For: time.Hour})
}

// quiet fails the rule if a claim finds anything.
func (r *rig) quiet(when string) storage.Claimed {
	r.Helper()
	c := r.claim(ask(5))
	r.want("claimed "+when, ids(c.Tasks), []string{})
	r.want("ticks "+when, ids(c.Ticks), []string{})
	r.want("ended, more "+when, [2]any{len(c.Ended), c.More}, [2]any{0, false})
	return c
}

func jumpAhead(r *rig) {
	if !r.jumps() {
		return
	}
	const soon = 4 * time.Second
	r.time()
	req := ask(1)
	req.Lease = soon
	r.insert(job("crashing"))
	h := r.take(req, "crashing")
	r.insert(delayed("soon", soon), cursor("cursor.soon", r.now().Add(soon)))
	due := r.read("soon").Due
	r.unchanged(func() {
		r.Jump(far)
		for range 3 {
			r.quiet("while the clock is ahead")
			r.pass(200 * time.Millisecond)
		}
		r.Jump(-far)
		r.quiet("when it is right again")
		r.want("window", r.insert(skipping("other"))[0].Existing, true)
		r.want("runners", len(r.runners()), 1)
	}, timed...)
	r.passTo(due)
	r.passTo(h.LeaseUntil)
	c := r.claim(ask(5))
	r.want("claimed", ids(c.Tasks), []string{"crashing", "soon"})
	r.want("ticks", ids(c.Ticks), []string{"cursor.soon"})
}

func jumpDeclined(r *rig) {
	if !r.jumps() {
		return
	}
	const year, step = 365 * 24 * time.Hour, storage.JumpAfter / 2
	other := ask(1) // does not name the kind of the declined tasks
	other.Kinds = []string{"other"}
	decline := func(id string) {
		r.add(id)
		r.end(r.take(other, id), storage.Decline)
	}
	r.Jump(year)
	decline("first")
	r.Jump(-year)
	decline("second")
	var ended []string
	claim := func() {
		for _, e := range r.claim(other).Ended {
			ended = append(ended, e.Ref.ID)
		}
	}
	r.pass(time.Second) // maintenance may be put off for less than a second
	claim()
	for range 14 {
		r.Jump(step)
		claim()
	}
	for range 3 {
		r.pass(500 * time.Millisecond)
		claim()
	}
	r.want("ended", ended, []string{"second"})
}

func jumpAgain(r *rig) {
	if !r.jumps() {
		return
	}
	r.time()
	r.unchanged(func() {
		for range 3 {
			r.Jump(far)
			r.quiet("while the clock is ahead")
			r.Jump(far)
			r.quiet("while it is further ahead")
			r.Jump(-2 * far)
			r.quiet("when it is right again")
		}
	}, timed...)
}

func jumpPause(r *rig) {
	if !r.jumps() {
		return
	}
	r.configure(storage.Settings{Pause: &storage.Pause{On: true, For: time.Hour}})
	r.add("a")
	r.Jump(far)
	c := r.quiet("while the clock is ahead")
	r.want("NextDue ahead", c.NextDue.After(c.Now), true)
	r.Jump(-far)
	r.quiet("when it is right again")
	r.want("paused", r.stats().Paused, true)
	r.Jump(far)
	r.quiet("when it has jumped for good")
	r.pass(storage.JumpWait + time.Millisecond)
	r.take(ask(1), "a")
}

// skipping returns an insert that is left out if the unique key k is taken.
func skipping(id string) storage.Insert {
	j := life(id, "k")
	j.OnConflict = storage.Skip
	return j
}

func jumpTold(r *rig) {
	if !r.jumps() {
		return
	}
	warnings := func() int {
		d, err := r.store.Describe(r.ctx)
		r.must("describe", err)
		n := 0
		for _, w := range d.Warnings { // other warnings may come and go as the clock is set
			if strings.HasPrefix(w, "the clock ") {
				n++
			}
		}
		return n
	}
	r.add("a")
	before := warnings()
	r.Jump(far)
	r.maintain()
	r.want("warnings while a wait is on", warnings(), before+1)
	r.Jump(-far)
	r.maintain()
	r.want("warnings while the mark is ahead", warnings(), before+1)
	r.Jump(far)
	r.maintain()
	r.want("warnings while another wait is on", warnings(), before+1)
	r.pass(storage.JumpWait + time.Millisecond)
	r.maintain()
	r.want("warnings when the clock has come there", warnings(), before)
}

func jumpNextDue(r *rig) {
	if !r.jumps() {
		return
	}
	r.time()
	r.Jump(far)
	c := r.quiet("while the clock is ahead")
	end := c.Now.Add(storage.JumpWait)
	for range 2 {
		if c.NextDue.IsZero() || c.NextDue.After(end) {
			r.Fatalf("NextDue at %v: got %v, want a moment until %v", c.Now, c.NextDue, end)
		}
		r.pass(100 * time.Millisecond)
		c = r.quiet("while the wait goes on")
	}
	r.Jump(-far)
	c = r.quiet("when it is right again")
	r.want("NextDue", c.NextDue.Equal(r.read("scheduled").Due) || c.NextDue.Equal(r.read("retry").Due), true)
}

func jumpStays(r *rig) {
	if !r.jumps() {
		return
	}
	r.time()
	r.Jump(far)
	r.quiet("when the clock has jumped")
	r.pass(storage.JumpWait + time.Millisecond)
	var tasks, ticks []string
	for more := true; more; {
		c := r.claim(ask(5))
		tasks, ticks, more = append(tasks, ids(c.Tasks)...), append(ticks, ids(c.Ticks)...), c.More
	}
	slices.Sort(tasks)
	r.want("claimed", tasks, []string{"held", "retry", "scheduled"})
	r.want("ticks", ticks, []string{"cursor.hour"})
	r.gone("done")
	r.want("window", r.insert(skipping("other"))[0].Existing, false)
	r.want("runners", len(r.runners()), 0)
}

func jumpLooked(r *rig) {
	if !r.jumps() {
		return
	}
	r.insert(delayed("a", time.Hour))
	const step = storage.JumpAfter - time.Minute
	for range time.Hour / step {
		r.Jump(step)
		r.quiet("before its moment")
	}
	r.Jump(step)
	r.take(ask(1), "a")
}

func jumpStamped(r *rig) {
	if !r.jumps() {
		return
	}
	h := r.holding(job("held"))
	r.Jump(far)
	from := r.now()
	r.insert(delayed("later", time.Minute))
	r.extend(storage.Extension{Fence: h.Fence, For: long})
	until := r.now()
	r.Jump(-far)
	r.quiet("when it is right again")
	r.between("Due", r.is("later", storage.Scheduled).Due, from.Add(time.Minute), until.Add(time.Minute))
	r.between("lease", r.is("held", storage.Pending).LeaseUntil, from.Add(long), until.Add(long))
	from = r.now()
	r.extend(storage.Extension{Fence: h.Fence, For: storage.MinLease})
	t := r.is("held", storage.Pending)
	r.between("lease", t.LeaseUntil, from.Add(storage.MinLease), r.now().Add(storage.MinLease))
	r.passTo(t.LeaseUntil)
	r.take(ask(1), "held")
}

func jumpBack(r *rig) {
	if !r.jumps() {
		return
	}
	r.insert(delayed("before", time.Second))
	r.Jump(-far)
	from := r.now()
	r.add("crashing")
	h := r.take(brief(1), "crashing")
	r.between("lease", h.LeaseUntil, from.Add(storage.MinLease), r.now().Add(storage.MinLease))
	r.insert(delayed("soon", time.Second), cursor("cursor.soon", r.now().Add(time.Second)))
	t := r.is("soon", storage.Scheduled)
	r.between("Created", t.Created, from, r.now())
	r.passTo(t.Due)
	c := r.claim(ask(5))
	r.want("claimed", ids(c.Tasks), []string{"crashing", "soon"})
	r.want("ticks", ids(c.Ticks), []string{"cursor.soon"})
	r.is("before", storage.Scheduled)
}

func jumpClaimed(r *rig) {
	if !r.jumps() {
		return
	}
	r.add("a", "b")
	r.Jump(-far)
	from := r.now()
	c := r.claim(ask(2))
	r.want("claimed", ids(c.Tasks), []string{"a", "b"})
	for _, t := range slices.Concat(c.Tasks, r.list(storage.Pending)) {
		r.between("Claimed of "+t.ID, t.Claimed, from, r.now())
	}
	r.between("StartedAt", r.read("a").StartedAt(), from, r.now())
	r.extend(storage.Extension{Fence: c.Fences[1], For: long, Progress: []byte("p")})
	r.cancel("b")
	r.between("StartedAt after an extension", r.read("b").StartedAt(), from, r.now())
}

func jumpClaimedAgain(r *rig) {
	if !r.jumps() {
		return
	}
	r.add("a", "b")
	r.Jump(-far)
	from := r.now()
	req := ask(2)
	req.Call, req.Token = r.first(), storage.NewToken()
	r.want("claimed", len(r.claimedAs(req)), 2)
	until := r.now()
	r.pass(10 * time.Millisecond)
	again := r.claimedAs(req)
	r.want("claimed again", len(again), 2)
	for _, h := range again {
		r.between("Claimed of "+h.ID, h.Claimed, from, until)
	}
}

func jumpInserted(r *rig) {
	if !r.jumps() {
		return
	}
	r.want("Created while the version tells it", r.insert(job("before"))[0].Created, time.Time{})
	r.Jump(-far)
	large := make([]storage.Insert, 120) // enough for the way of a storage for large calls
	for i := range large {
		large[i] = job(fmt.Sprint("large-", i))
	}
	for i, ins := range [][]storage.Insert{
		{job("plain")}, {delayed("later", time.Hour)}, {life("unique", "k")}, large,
	} {
		call, txs := r.first(), make([]storage.Tx, len(ins))
		for i := range ins {
			txs[i] = inserting(ins[i])
		}
		once := r.called(call, txs...)
		for _, a := range once {
			p := a.Inserted[0]
			r.want("Created of "+p.Ref.ID, p.Created, r.read(p.Ref.ID).Created)
			r.want("CreatedAt of "+p.Ref.ID, p.CreatedAt(), p.Created)
		}
		r.want(fmt.Sprint("repeated ", i), r.called(call, txs...), once)
	}
	there := r.insert(job("plain"))[0]
	r.want("Existing, Created", [2]any{there.Existing, there.Created}, [2]any{true, time.Time{}})
}

func jumpEnded(r *rig) {
	if !r.jumps() {
		return
	}
	r.add("before")
	r.Jump(-far)
	from := r.now()
	r.end(r.take(ask(1), "before"), storage.Complete)
	for _, outcome := range []storage.Outcome{
		storage.Fail, storage.Bury, storage.Cancel, storage.Complete, storage.Snooze, storage.Decline,
	} {
		id, se := string(outcome), storage.Settle{Outcome: outcome}
		if outcome == storage.Fail || outcome == storage.Snooze {
			se.Delay = time.Hour
		}
		r.settle(r.holding(kept(id)), se)
		r.between("Created of "+id, r.read(id).Created, from, r.now())
	}
	r.between("Due", r.read("fail").Due, from.Add(time.Hour), r.now().Add(time.Hour))
	r.insert(job("crashed"))
	req := brief(1)
	req.Kinds = []string{"other"} // passes over the declined task
	r.passTo(r.take(req, "crashed").LeaseUntil)
	r.maintain()
	for _, id := range []string{"fail", "bury", "cancel", "crashed"} {
		a := r.read(id).Attempts[0]
		r.between("Attempt.At of "+id, a.At, from, r.now())
		r.between("Attempt.Claimed of "+id, a.Claimed, from, r.now())
		r.want("Took of "+id, a.Took(), a.At.Sub(a.Claimed))
	}
	for _, id := range []string{"complete", "bury", "cancel"} {
		r.between("Ended of "+id, r.read(id).Ended, from, r.now())
	}
	r.between("SnoozedSince", r.read("snooze").SnoozedSince, from, r.now())
	r.between("Declined", r.read("decline").Declined, from, r.now())
}

func jumpVersions(r *rig) {
	if !r.jumps() {
		return
	}
	r.insert(delayed("a", time.Hour))
	last := r.read("a").Version
	for _, d := range []time.Duration{far, -far, -far, far} {
		r.Jump(d)
		for range 3 {
			v := r.changeNow("a", storage.Change{Headers: map[string]string{"x": "y"}}).Version
			if v <= last {
				r.Fatalf("version after the clock was set by %v: got %d, want more than %d", d, v, last)
			}
			last = v
		}
	}
}

func jumpCallers(r *rig) {
	if !r.jumps() {
		return
	}
	for i, d := range []time.Duration{0, far, -far, -far, far} {
		r.Jump(d)
		id := string(rune('a' + i))
		r.want("Existing", r.insert(job(id))[0].Existing, false)
		r.end(r.take(ask(1), id), storage.Complete)
	}
}
