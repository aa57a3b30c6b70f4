package storagetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

func settleRules() []rule {
	return []rule{
		state("settle/complete", settleComplete,
			"Complete ends in completed; with nothing to keep the record is gone in the same step."),
		state("settle/fail", settleFail,
			"Fail adds one to Retries and waits in retry for its Delay, with an attempt and the full error."),
		state("settle/out of retries", settleOutOfRetries,
			"A failure past MaxRetries is dead, reason \"out of retries\": the storage counts."),
		state("settle/no retries", settleNoRetries,
			"With MaxRetries 0 the first failure is dead."),
		state("settle/snooze", settleSnooze,
			"Snooze puts a task into scheduled for Delay, uncharged and with no attempt."),
		state("settle/snoozes in a row", settleSnoozes,
			"A task counts its snoozes in a row and keeps the time of the first; any other settle clears both."),
		state("settle/reason of a snooze", settleSnoozeReason,
			"A snooze may say why: the reason stays until the next settle, recovery or requeue."),
		state("settle/no delay", settleNoDelay,
			"A failure or snooze with no Delay leads to retry or scheduled, from where the next Claim takes it."),
		state("settle/release", settleRelease,
			"Release puts a task back into waiting, uncharged and with no attempt."),
		state("settle/bury", settleBury,
			"Bury ends in dead with the reason given, whatever retries are left."),
		state("settle/as the caller says", settleAs,
			"The history calls an attempt what its settle does, and one of no name failed, discarded or cancelled."),
		state("settle/cancel", settleCancel,
			"Cancel ends in cancelled."),
		state("settle/complete beats a cancel", settleCompleteBeatsCancel,
			"A completion under a valid fence wins even after a cancel was asked."),
		state("settle/cancel beats the rest", settleCancelBeatsRest,
			"Where a cancel was asked, every outcome but Complete ends in cancelled."),
		state("settle/stale fence", settleStale,
			"A settle without the valid fence (version and token) is ErrLeaseLost and changes nothing."),
		state("settle/once", settleOnce,
			"A fence settles once."),
		state("settle/earlier life", settleEarlierLife,
			"A fence of an earlier task of the same id is not valid for a later one."),
		state("settle/with follow-ups", settleFollowUps,
			"Inserts beside a settle commit with it, or not at all."),
		state("settle/all or none", settleAll,
			"Of several settles in one Tx one lost lease undoes all, and only the lost one is listed."),
		state("settle/history", settleHistory,
			"History is the last ten attempts, oldest first, with 1 KiB of error each; stack and full "+
				"error are those of the last."),
		state("settle/success of a kept task", settleSuccess,
			"A completion of a task that is kept appends an attempt with outcome succeeded, and keeps the stack."),
		state("settle/checkpoint stays", settleCheckpointStays,
			"A checkpoint written under one lease is there for the next attempt."),
		state("settle/clears the claim", settleClears,
			"A settled task shows no runner, lease, start or cancel of the claim that ended."),
		state("settle/across queues", settleAcross,
			"A Tx across queues is whole, or refused with ErrSpan."),
	}
}

func settleComplete(r *rig) {
	h := r.holding(job("a"))
	p := r.end(h, storage.Complete)
	r.want("placed", [2]any{p.Ref, p.State}, [2]any{in("a"), storage.Completed})
	if p.Version <= h.Version {
		r.Fatalf("version: got %d, want more than %d", p.Version, h.Version)
	}
	r.gone("a")
	s := r.stats()
	r.want("stats", [3]int64{s.Totals.Completed, s.Completed, s.Live()}, [3]int64{1, 0, 0})
}

func settleFail(r *rig) {
	h := r.holding(job("a"))
	full := strings.Repeat("smtp refused ", 200)
	from := r.now()
	p := r.settle(h, storage.Settle{Outcome: storage.Fail, Delay: time.Hour, Error: full, Stack: "goroutine 1"})
	to := r.now()
	t := r.is("a", storage.Retry)
	r.want("placed", p, storage.Placed{Ref: in("a"), Version: t.Version, State: storage.Retry})
	r.want("retries, crashes", [2]int{t.Retries, t.Crashes}, [2]int{1, 0})
	r.between("Due", t.Due, from.Add(time.Hour), to.Add(time.Hour))
	r.want("attempts", len(t.Attempts), 1)
	at := t.Attempts[0]
	r.between("attempt's time", at.At, from, to)
	r.want("attempt", [4]any{at.Version, at.Runner, at.Outcome, at.Error},
		[4]any{h.Version, runner, storage.AttemptFailed, storage.CleanText(full, storage.MaxAttemptError)})
	if !strings.Contains(t.Stack, "goroutine 1") || !strings.Contains(t.Stack, full) {
		r.Fatalf("Stack: got %d bytes, want stack and full error", len(t.Stack))
	}
	s := r.stats()
	r.want("retry, failed", [3]int64{s.Retry, s.Totals.Failed, s.Totals.Dead}, [3]int64{1, 1, 0})
}

func settleOutOfRetries(r *rig) {
	j := job("a")
	j.MaxRetries = 2
	r.insert(j)
	for n := range 2 {
		r.end(r.take(ask(1), "a"), storage.Fail)
		r.want("retries", r.read("a").Retries, n+1)
	}
	p := r.settle(r.take(ask(1), "a"), storage.Settle{Outcome: storage.Fail, Delay: time.Hour, Error: "again"})
	r.want("placed", p.State, storage.Dead)
	t := r.is("a", storage.Dead)
	r.want("retries, reason", [2]any{t.Retries, t.Reason}, [2]any{3, storage.ReasonRetries})
	r.want("ended, due", [2]bool{t.Ended.IsZero(), t.Due.IsZero()}, [2]bool{false, true})
	s := r.stats()
	r.want("dead, failed", [3]int64{s.Dead, s.Totals.Dead, s.Totals.Failed}, [3]int64{1, 1, 3})
}

func settleNoRetries(r *rig) {
	j := job("a")
	j.MaxRetries = 0
	h := r.holding(j)
	r.want("placed", r.settle(h, storage.Settle{Outcome: storage.Fail, Delay: time.Hour}).State, storage.Dead)
	r.want("reason", r.is("a", storage.Dead).Reason, storage.ReasonRetries)
}

func settleSnooze(r *rig) {
	h := r.holding(job("a"))
	from := r.now()
	p := r.settle(h, storage.Settle{Outcome: storage.Snooze, Delay: time.Hour})
	r.want("placed", p.State, storage.Scheduled)
	t := r.is("a", storage.Scheduled)
	r.between("Due", t.Due, from.Add(time.Hour), r.now().Add(time.Hour))
	r.want("charges", [3]int{t.Retries, t.Crashes, len(t.Attempts)}, [3]int{})
	s := r.stats()
	r.want("scheduled, failed", [2]int64{s.Scheduled, s.Totals.Failed}, [2]int64{1, 0})
}

func settleSnoozes(r *rig) {
	r.add("a")
	for _, other := range []storage.Outcome{storage.Release, storage.Fail} {
		var since time.Time
		for n := range 3 {
			r.pass(2 * time.Millisecond)
			from := r.now()
			r.end(r.take(ask(1), "a"), storage.Snooze)
			t := r.read("a")
			if n == 0 {
				since = t.SnoozedSince
				r.between("SnoozedSince", since, from, r.now())
			}
			r.want("snoozes", [2]any{t.Snoozes, t.SnoozedSince}, [2]any{n + 1, since})
		}
		h := r.take(ask(1), "a")
		r.want("snoozes while it runs", [2]any{h.Snoozes, h.SnoozedSince.Equal(since)}, [2]any{3, true})
		r.end(h, other)
		t := r.read("a")
		r.want("snoozes after "+string(other), [2]any{t.Snoozes, t.SnoozedSince.IsZero()}, [2]any{0, true})
	}
}

func settleSnoozeReason(r *rig) {
	const why = "parameters do not fit"
	r.insert(kept("a"))
	snooze := func(reason string) {
		r.settle(r.take(ask(1), "a"), storage.Settle{Outcome: storage.Snooze, Reason: reason})
	}
	snooze(why)
	r.want("reason", r.is("a", storage.Scheduled).Reason, why)
	r.want("reason listed", r.list(storage.Scheduled)[0].Reason, why)
	r.changeNow("a", storage.Change{Now: true})
	r.want("reason while it waits", r.is("a", storage.Waiting).Reason, why)
	snooze(odd)
	r.want("another reason, cleaned", r.read("a").Reason, storage.CleanText(odd, storage.MaxReason))
	snooze("")
	r.want("reason after a snooze without", r.read("a").Reason, "")
	for _, o := range outcomes() {
		snooze(why)
		r.end(r.take(ask(1), "a"), o)
		want := ""
		if o == storage.Snooze || o == storage.Bury {
			want = r.read("a").Reason // the reason of this outcome
			r.want("a reason of before after "+string(o), want == why, false)
		}
		r.want("reason after "+string(o), r.read("a").Reason, want)
		if r.read("a").State.Ended() {
			r.changeNow("a", storage.Change{Requeue: true})
		}
	}
	snooze(why)
	r.crash("a")
	r.want("reason after a recovery", r.is("a", storage.Waiting).Reason, "")
}

func settleNoDelay(r *rig) {
	for o, state := range map[storage.Outcome]storage.State{
		storage.Fail: storage.Retry, storage.Snooze: storage.Scheduled,
	} {
		r.want("placed", r.end(r.holding(job(string(o))), o).State, state)
		r.is(string(o), state)
		r.end(r.take(ask(1), string(o)), storage.Complete)
	}
}

func settleRelease(r *rig) {
	h := r.holding(job("a"))
	r.want("placed", r.end(h, storage.Release).State, storage.Waiting)
	t := r.is("a", storage.Waiting)
	r.want("charges", [3]int{t.Retries, t.Crashes, len(t.Attempts)}, [3]int{})
	s := r.stats()
	r.want("waiting, failed", [2]int64{s.Waiting, s.Totals.Failed}, [2]int64{1, 0})
}

func settleBury(r *rig) {
	h := r.holding(job("a"))
	p := r.settle(h, storage.Settle{Outcome: storage.Bury, Reason: "refused", Error: "bad input"})
	r.want("placed", p.State, storage.Dead)
	t := r.is("a", storage.Dead)
	r.want("reason, retries", [2]any{t.Reason, t.Retries}, [2]any{"refused", 0})
	r.want("attempts", len(t.Attempts), 1)
	r.want("attempt", [2]string{t.Attempts[0].Outcome, t.Attempts[0].Error},
		[2]string{storage.AttemptDiscarded, "bad input"})
	s := r.stats()
	r.want("dead, live", [3]int64{s.Dead, s.Totals.Dead, s.Live()}, [3]int64{1, 1, 0})
}

func settleAs(r *rig) {
	words := []string{
		storage.AttemptFailed, storage.AttemptTimedOut, storage.AttemptPanicked, storage.AttemptDiscarded,
		storage.AttemptExpired, storage.AttemptUndecodable, storage.AttemptCancelled,
	}
	j := kept("a")
	j.MaxRetries = len(words)
	r.insert(j)
	want := make([]string, 0, len(words)+4)
	for _, as := range words {
		r.settle(r.take(ask(1), "a"), storage.Settle{Outcome: storage.Fail, As: as, Error: "boom"})
		want = append(want, as)
	}
	for _, s := range []storage.Settle{
		{Outcome: storage.Bury, As: storage.AttemptExpired}, {Outcome: storage.Cancel, As: storage.AttemptTimedOut},
	} {
		r.settle(r.take(ask(1), "a"), s)
		r.changeNow("a", storage.Change{Requeue: true})
		want = append(want, s.As, storage.AttemptRequeued)
	}
	attempts := r.is("a", storage.Waiting).Attempts
	got := make([]string, 0, len(attempts))
	for _, a := range attempts {
		got = append(got, a.Outcome)
	}
	r.want("outcomes", strings.Join(got, " "), strings.Join(want[len(want)-len(got):], " "))
	if len(got) < 5 {
		r.Fatalf("%d attempts, want what is left of %d", len(got), len(want))
	}
}

func settleCancel(r *rig) {
	r.want("placed", r.end(r.holding(job("gone")), storage.Cancel).State, storage.Cancelled)
	r.gone("gone")
	r.settle(r.holding(kept("a")), storage.Settle{Outcome: storage.Cancel, Error: "told to"})
	t := r.is("a", storage.Cancelled)
	r.want("attempts", len(t.Attempts), 1)
	r.want("attempt", [2]string{t.Attempts[0].Outcome, t.Attempts[0].Error},
		[2]string{storage.AttemptCancelled, "told to"})
	s := r.stats()
	r.want("cancelled", [2]int64{s.Cancelled, s.Totals.Cancelled}, [2]int64{1, 2})
}

func settleCompleteBeatsCancel(r *rig) {
	h := r.holding(kept("a"))
	r.cancel("a")
	r.want("placed", r.settle(h, storage.Settle{Outcome: storage.Complete, Result: []byte("r")}).State,
		storage.Completed)
	r.want("result", string(r.is("a", storage.Completed).Result), "r")
	s := r.stats()
	r.want("completed, cancelled", [2]int64{s.Totals.Completed, s.Totals.Cancelled}, [2]int64{1, 0})
}

func settleCancelBeatsRest(r *rig) {
	for _, o := range outcomes()[1:] {
		id := string(o)
		h := r.holding(kept(id))
		r.cancel(id)
		r.want("placed by "+id, r.end(h, o).State, storage.Cancelled)
		t := r.is(id, storage.Cancelled)
		r.want("reason", t.Reason, "")
	}
	s := r.stats()
	r.want("cancelled, dead, live", [3]int64{s.Totals.Cancelled, s.Totals.Dead, s.Live()}, [3]int64{6, 0, 0})
	r.want("failed", s.Totals.Failed, int64(1))
}

func settleStale(r *rig) {
	h := r.holding(job("a"))
	r.add("b")
	stale := map[string]storage.Fence{
		"a version too high": {Ref: in("a"), Version: h.Version + 1, Token: h.Fence.Token},
		"a version too low":  {Ref: in("a"), Version: h.Version - 1, Token: h.Fence.Token},
		"another token":      {Ref: in("a"), Version: h.Version, Token: storage.NewToken()},
		"no token":           {Ref: in("a"), Version: h.Version},
		"a waiting task":     {Ref: in("b"), Version: r.read("b").Version, Token: h.Fence.Token},
		"a missing task":     {Ref: in("c"), Version: h.Version, Token: h.Fence.Token},
	}
	for what, f := range stale {
		for _, o := range outcomes() {
			r.unchanged(func() {
				dep := r.refuse(storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: o}}})
				r.wantError(what, dep, storage.ErrLeaseLost)
				r.want(what, *dep, storage.DependencyError{Lost: []storage.Ref{f.Ref}})
			}, "a", "b", "c")
		}
	}
	r.end(h, storage.Complete)
}

func settleOnce(r *rig) {
	for _, o := range outcomes() {
		j := kept(string(o))
		h := r.holding(j)
		r.settle(h, storage.Settle{Outcome: o})
		r.unchanged(func() {
			r.wantError("a second settle after "+string(o), r.refuse(settling(h)), storage.ErrLeaseLost)
		}, h.ID)
		r.delete(h.ID)
	}
}

func settleEarlierLife(r *rig) {
	old := r.holding(job("a"))
	r.end(old, storage.Complete)
	req := ask(1)
	req.Token = old.Fence.Token
	r.add("a")
	r.hold(req, 1)
	r.unchanged(func() { r.wantError("the earlier fence", r.refuse(settling(old)), storage.ErrLeaseLost) }, "a")
}

func settleFollowUps(r *rig) {
	h := r.holding(job("a"))
	tx := settling(h)
	tx.Inserts = []storage.Insert{job("next1"), delayed("next2", time.Hour)}
	a := r.apply(tx)
	r.want("placed", [3]storage.State{a.Settled[0].State, a.Inserted[0].State, a.Inserted[1].State},
		[3]storage.State{storage.Completed, storage.Waiting, storage.Scheduled})
	tx.Inserts = []storage.Insert{job("never")}
	r.wantError("follow-ups of a lost lease", r.refuse(tx), storage.ErrLeaseLost)
	r.gone("never")
	r.want("enqueued", r.stats().Totals.Enqueued, int64(3))
}

func settleAll(r *rig) {
	r.add("a", "b", "c")
	holds := r.hold(ask(3), 3)
	r.end(holds[1], storage.Release)
	var tx storage.Tx
	for _, h := range holds {
		tx.Settles = append(tx.Settles, storage.Settle{Fence: h.Fence, Outcome: storage.Complete})
	}
	r.unchanged(func() {
		r.want("refused", *r.refuse(tx), storage.DependencyError{Lost: []storage.Ref{in("b")}})
	}, "a", "b", "c")
	tx.Settles = []storage.Settle{tx.Settles[2], tx.Settles[0]}
	a := r.apply(tx)
	r.want("settled in order", [2]string{a.Settled[0].Ref.ID, a.Settled[1].Ref.ID}, [2]string{"c", "a"})
}

func settleHistory(r *rig) {
	j := job("a")
	j.MaxRetries = 50
	r.insert(j)
	text := func(n int) string { return fmt.Sprint(n, strings.Repeat("é", 1000)) }
	versions := make([]int64, storage.MaxAttempts+3)
	for n := range versions {
		h := r.take(ask(1), "a")
		versions[n] = h.Version
		r.settle(h, storage.Settle{Outcome: storage.Fail, Error: text(n), Stack: fmt.Sprintf("stack %d.", n)})
	}
	t := r.read("a")
	r.want("attempts", len(t.Attempts), storage.MaxAttempts)
	for i, version := range versions[3:] {
		at := t.Attempts[i]
		r.want("attempt's version", at.Version, version)
		r.want("attempt's error", at.Error, storage.CleanText(text(i+3), storage.MaxAttemptError))
	}
	last := strings.Contains(t.Stack, "stack 12.") && strings.Contains(t.Stack, text(12))
	if !last || strings.Contains(t.Stack, "stack 11.") {
		r.Fatalf("Stack: got %q, want stack and error of the last attempt", t.Stack)
	}
	listed := r.list(storage.Retry)
	r.want("attempts listed", [2]any{len(listed[0].Attempts), listed[0].Stack}, [2]any{storage.MaxAttempts, ""})
}

func settleSuccess(r *rig) {
	untilRead := job("until read")
	untilRead.Keep.UntilRead = true
	for _, j := range []storage.Insert{kept("for a time"), untilRead, job("for its result")} {
		j.MaxRetries, j.Ref.ID = 1, strings.ReplaceAll(j.Ref.ID, " ", "-")
		r.settle(r.holding(j), storage.Settle{Outcome: storage.Fail, Error: "boom", Stack: "stack"})
		h, from := r.take(ask(1), j.Ref.ID), r.now()
		done := storage.Settle{Outcome: storage.Complete}
		if j.Keep == (storage.Keep{}) {
			done.Result = []byte("result")
		}
		r.settle(h, done)
		t := r.is(j.Ref.ID, storage.Completed)
		last := t.Attempts[len(t.Attempts)-1]
		r.want("attempts", len(t.Attempts), 2)
		r.between("the attempt's At", last.At, from, r.now())
		r.want("the attempt", last, storage.Attempt{
			At: t.Ended, Version: h.Version, Claimed: h.Claimed, Runner: runner, Outcome: storage.AttemptSucceeded,
		})
		success, ok := t.Success()
		r.want("the success", [2]any{success, ok}, [2]any{last, true})
		r.want("last error, stack", [2]string{t.LastError(), t.Stack}, [2]string{"boom", "stack"})
		r.want("listed", r.list(storage.Completed)[0].Attempts, t.Attempts)
		r.changeNow(j.Ref.ID, storage.Change{Requeue: true})
		got := r.is(j.Ref.ID, storage.Waiting).Attempts
		r.want("requeued", [2]any{len(got), got[1]}, [2]any{3, last})
		r.end(r.take(ask(1), j.Ref.ID), storage.Bury)
	}
}

func settleCheckpointStays(r *rig) {
	h := r.holding(job("a"))
	r.extend(storage.Extension{Fence: h.Fence, Progress: []byte("half"), Checkpoint: []byte("page 7")})
	r.end(h, storage.Fail)
	r.want("checkpoint in retry", string(r.read("a").Checkpoint), "page 7")
	h = r.take(brief(1), "a")
	r.want("checkpoint of the next attempt", string(r.read("a").Checkpoint), "page 7")
	r.expire(h)
	r.want("checkpoint after a crash", string(r.read("a").Checkpoint), "page 7")
}

func settleClears(r *rig) {
	for _, o := range outcomes() {
		h := r.holding(kept(string(o)))
		r.end(h, o)
		t := r.read(h.ID)
		r.want("the claim after "+h.ID, [4]any{t.Runner, t.LeaseUntil.IsZero(), t.Started, t.CancelAsked},
			[4]any{"", true, false, false})
		r.delete(h.ID)
	}
}

func settleAcross(r *rig) {
	h := r.holding(kept("a"))
	there := job("b")
	there.Ref.Queue = sideQueue
	tx := settling(h)
	tx.Inserts = []storage.Insert{there}
	if !r.spans(tx, in("a"), there.Ref) {
		r.end(h, storage.Complete)
		return
	}
	r.apply(tx)
	r.is("a", storage.Completed)
	r.want("there", r.snapshot(there.Ref) != nil, true)
	there.Ref.ID = "never"
	tx.Inserts = []storage.Insert{there}
	r.wantError("a lost lease across queues", r.refuse(tx), storage.ErrLeaseLost)
	r.want("not there", r.snapshot(there.Ref), nil)
}
