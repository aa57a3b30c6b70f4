package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func changeRequeue(r *rig) {
	end := map[storage.State]storage.Outcome{
		storage.Completed: storage.Complete, storage.Cancelled: storage.Cancel, storage.Dead: storage.Bury,
	}
	for i, state := range storage.StatesWhere(storage.State.Ended) {
		id := string(state)
		r.insert(kept(id))
		r.crash(id)
		r.end(r.take(ask(1), id), storage.Fail)
		r.end(r.take(ask(1), id), storage.Snooze)
		last := storage.Settle{Outcome: end[state]}
		if state == storage.Completed {
			last.Result = []byte("result")
		}
		r.settle(r.take(ask(1), id), last)
		before := r.is(id, state)
		p := r.changeNow(id, storage.Change{Requeue: true})
		r.want("placed", p.State, storage.Waiting)
		t := r.is(id, storage.Waiting)
		r.want("counters", [3]int{t.Retries, t.Crashes, t.Snoozes}, [3]int{})
		r.want("the end", [4]any{t.Reason, len(t.Result), t.Ended.IsZero(), t.Expires.IsZero()},
			[4]any{"", 0, true, true})
		r.want("SnoozedSince", t.SnoozedSince.IsZero(), true)
		r.want("version grown", [2]bool{p.Version > before.Version, p.Version == t.Version}, [2]bool{true, true})
		r.want("requeued", r.stats().Totals.Requeued, int64(i+1))
		r.end(r.take(ask(1), id), storage.Complete)
	}
	s := r.stats()
	r.want("dead, live", [4]int64{s.Dead, s.Cancelled, s.Totals.Dead, s.Live()}, [4]int64{0, 0, 1, 0})
}

func changeRequeueDelayed(r *rig) {
	r.bury(job("a"))
	r.want("placed", r.changeNow("a", storage.Change{Requeue: true, Delay: time.Hour}).State, storage.Scheduled)
	s := r.stats()
	r.want("stats", [3]int64{s.Scheduled, s.Dead, s.Totals.Requeued}, [3]int64{1, 0, 1})
	r.bury(job("b"))
	past := storage.Change{Requeue: true, At: r.now().Add(-time.Hour)}
	r.want("placed by a past moment", r.changeNow("b", past).State, storage.Waiting)
	r.want("claimed", r.drain(), []string{"b"})
}

func changeRequeueHistory(r *rig) {
	h := r.holding(kept("a"))
	r.extend(storage.Extension{Fence: h.Fence, Progress: []byte("half"), Checkpoint: []byte("page 7")})
	r.settle(h, storage.Settle{Outcome: storage.Bury, Error: "boom", Stack: "stack"})
	want := r.read("a")
	for range storage.MaxAttempts + 1 { // so often that the history must drop its oldest attempts
		from := r.now()
		r.changeNow("a", storage.Change{Requeue: true})
		got := r.is("a", storage.Waiting)
		r.want("attempts", len(got.Attempts), min(len(want.Attempts)+1, storage.MaxAttempts))
		last := got.Attempts[len(got.Attempts)-1]
		r.between("the attempt's At", last.At, from, r.now())
		r.want("the attempt", last, storage.Attempt{At: last.At, Outcome: storage.AttemptRequeued})
		want.Attempts = append(want.Attempts, last)
		want.Attempts = want.Attempts[max(0, len(want.Attempts)-storage.MaxAttempts):]
		r.want("attempts", got.Attempts, want.Attempts)
		r.want("stack, progress, checkpoint", [3]string{got.Stack, string(got.Progress), string(got.Checkpoint)},
			[3]string{"stack", "half", "page 7"})
		r.cancel("a")
	}
}

func changeRequeueForgets(r *rig) { r.requeues(false) }

func changeFromStart(r *rig) { r.requeues(true) }

// requeues puts tasks with a progress and a checkpoint into each state but pending, requeues each, and fails
// the rule unless it then has the data that its state and fromStart leave.
func (r *rig) requeues(fromStart bool) {
	r.Helper()
	for state, outcome := range map[storage.State]storage.Outcome{
		storage.Waiting: storage.Release, storage.Scheduled: storage.Snooze, storage.Retry: storage.Fail,
		storage.Completed: storage.Complete, storage.Cancelled: storage.Cancel, storage.Dead: storage.Bury,
	} {
		id := string(state)
		h := r.holding(kept(id))
		r.extend(storage.Extension{Fence: h.Fence, Progress: []byte("half"), Checkpoint: []byte("page 7")})
		se := storage.Settle{Outcome: outcome}
		switch outcome {
		case storage.Snooze:
			se.Delay = time.Hour
		case storage.Fail:
			se.Delay, se.Stack = time.Hour, "stack"
		default:
		}
		r.settle(h, se)
		before := r.is(id, state)
		ch := before.Requeued()
		ch.FromStart = fromStart
		r.changeNow(id, ch)
		t := r.is(id, storage.Waiting)
		want := [3]string{before.Stack, "half", "page 7"}
		if fromStart || state == storage.Completed {
			want[1], want[2] = "", ""
		}
		r.want(id+": stack, progress, checkpoint",
			[3]string{t.Stack, string(t.Progress), string(t.Checkpoint)}, want)
		r.want(id+": counters, history", [2]int{t.Retries + t.Crashes, len(t.Attempts) - len(before.Attempts)},
			[2]int{before.Retries * count(!ch.Requeue), count(ch.Requeue)})
		r.end(r.take(ask(1), id), storage.Complete)
	}
}

// count returns 1 for true.
func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

func changeRequeueAhead(r *rig) {
	r.add("a")
	r.expire(r.take(ahead(), "a"))
	r.end(r.take(ask(1), "a"), storage.Bury)
	r.changeNow("a", storage.Change{Requeue: true})
	r.want("started", r.take(ahead(), "a").Started, false)
}

func changeRequeueEdits(r *rig) {
	five := 5
	for _, state := range storage.StatesWhere(storage.State.Ended) {
		id := string(state)
		r.stand(id, state)
		r.changeNow(id, storage.Change{
			Requeue: true, Priority: &five, Headers: map[string]string{"x": "y"},
			Encoding: "json", Payload: []byte("{}"),
		})
		t := r.take(ask(1), id)
		r.want("edited", [4]any{t.Priority, t.Headers["x"], t.Encoding, string(t.Payload)},
			[4]any{5, "y", "json", "{}"})
	}
}

func changeRequeueBarred(r *rig) {
	r.standInEach()
	for _, s := range storage.States()[:4] {
		r.barred(string(s), s, storage.Change{Requeue: true})
	}
}

// barred fails the rule unless a change of a task of main is refused because the task is in this state.
func (r *rig) barred(id string, state storage.State, ch storage.Change) {
	r.Helper()
	ch.Ref = in(id)
	if !ch.Cancel {
		ch.Version = r.read(id).Version
	}
	r.unchanged(func() {
		r.want(string(state), *r.refuse(storage.Tx{Changes: []storage.Change{ch}}),
			storage.DependencyError{Barred: []storage.Barred{{Ref: in(id), State: state}}})
	}, id)
}

func changeDead(r *rig) {
	r.stand("other", storage.Dead)
	r.stand("a", storage.Dead)
	want := r.read("a")
	five := 5
	p := r.changeNow("a", storage.Change{
		Priority: &five, Headers: map[string]string{"x": "y"}, Encoding: "json", Payload: []byte("{}"),
	})
	r.want("placed", p, storage.Placed{Ref: in("a"), Version: p.Version, State: storage.Dead})
	r.want("version grown", p.Version > want.Version, true)
	want.Version, want.Priority, want.Headers = p.Version, 5, map[string]string{"x": "y"}
	want.Encoding, want.Payload = "json", []byte("{}")
	r.want("edited", r.read("a"), want)
	r.want("order", ids(r.list(storage.Dead)), []string{"other", "a"})
	s := r.stats()
	r.want("requeued, dead", [2]int64{s.Totals.Requeued, s.Dead}, [2]int64{0, 2})
	r.changeNow("a", storage.Change{Requeue: true})
	r.want("claimed", string(r.take(ask(1), "a").Payload), "{}")
}

func changeEnded(r *rig) {
	five := 5
	for _, state := range storage.StatesWhere(storage.State.Ended) {
		id := string(state)
		r.stand(id, state)
		for _, ch := range []storage.Change{
			{Now: true},
			{Delay: time.Hour},
			{At: r.now().Add(time.Hour)},
			{Now: true, Priority: &five},
		} {
			r.barred(id, state, ch)
		}
		if state == storage.Dead {
			continue
		}
		for _, ch := range []storage.Change{
			{}, {Priority: &five}, {Headers: map[string]string{}}, {Encoding: "raw", Payload: []byte("x")},
		} {
			r.barred(id, state, ch)
		}
		to := storage.Ref{Queue: sideQueue, ID: id}
		if ch := (storage.Change{Ref: in(id), Version: r.read(id).Version, Queue: sideQueue}); r.spans(
			storage.Tx{Changes: []storage.Change{ch}}, in(id), to) {
			r.barred(id, state, ch)
		}
	}
	r.unchanged(func() { r.cancel(string(storage.Cancelled)) }, string(storage.Cancelled))
}

func changeAtOnce(r *rig) {
	for id, state := range map[string]storage.State{
		"a": storage.Waiting, "b": storage.Scheduled, "c": storage.Retry, "d": storage.Dead,
	} {
		r.stand(id, state)
		r.add("before-" + id)
		p := r.changeNow(id, storage.Change{Delay: time.Microsecond - 1, Requeue: state == storage.Dead})
		r.want("placed from "+string(state), p.State, storage.Waiting)
		r.want("claimed", r.drain(), []string{"before-" + id, id})
	}
}
