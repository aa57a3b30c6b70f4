package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func keepRules() []rule {
	return []rule{
		state("keep/as long as asked", keepAsAsked,
			"A completed or cancelled task is kept for Keep.For, then its record and indexes go together."),
		state("keep/result by default", keepResult,
			"A completion with a result and no Keep is kept for an hour."),
		state("keep/until read", keepUntilRead,
			"UntilRead keeps a completed task for at most seven days unless Keep.For says otherwise; its "+
				"reader deletes it."),
		state("keep/result of any bytes", keepAnyResult,
			"A result of any bytes comes back as it was given; an empty one is a result too."),
		state("keep/dead for a time", deadByAge,
			"Dead tasks are kept for Limits.DeadFor.",
		).under(storage.Limits{DeadFor: time.Second}),
		state("keep/dead at most so many", deadByCount,
			"A queue keeps at most Limits.DeadMax dead tasks, the oldest going first, records and indexes "+
				"together; Totals.Evicted counts these.",
		).under(storage.Limits{DeadMax: 3}),
		state("keep/dead without limit", deadWithoutLimit,
			"With Limits.DeadMax at NoLimit a queue keeps all its dead tasks for Limits.DeadFor.",
		).under(storage.Limits{DeadMax: storage.NoLimit}),
		state("keep/evicted stays counted", evictedStays,
			"Totals.Evicted counts no dead task that expires, and lasts as long as the other totals of a queue.",
		).under(storage.Limits{DeadMax: 2, DeadFor: time.Second}),
		state("keep/dead of a crash loop", deadOfCrashes,
			"Tasks that die in recovery are bounded like any other dead.",
		).under(storage.Limits{DeadMax: 1}),
		state("keep/requeued is not trimmed", keepRequeued,
			"A task requeued from an ended state is not trimmed at the end of what it was kept for.",
		).under(storage.Limits{DeadFor: time.Second}),
	}
}

func keepAsAsked(r *rig) {
	j, k := job("a"), job("b")
	j.Keep.For, k.Keep.For = time.Second, time.Second
	r.end(r.holding(j), storage.Complete)
	r.insert(k)
	r.cancel("b")
	for id, state := range map[string]storage.State{"a": storage.Completed, "b": storage.Cancelled} {
		t := r.is(id, state)
		r.want("kept", t.Expires.Sub(t.Ended), time.Second)
	}
	last := r.read("b").Expires
	c := r.maintain()
	if c.Now.Before(r.keptUntil("a", c.Now)) {
		r.is("a", storage.Completed)
	}
	r.passTo(last)
	r.maintain()
	r.gone("a", "b")
	s := r.stats()
	r.want("sizes", [2]int64{s.Completed, s.Cancelled}, [2]int64{0, 0})
	r.want("totals", [3]int64{s.Totals.Completed, s.Totals.Cancelled, s.Totals.Deleted}, [3]int64{1, 1, 0})
	r.want("listed", len(r.list(storage.Completed))+len(r.list(storage.Cancelled)), 0)
}

// keptUntil returns when a task expires, or gone if the task is gone.
func (r *rig) keptUntil(id string, gone time.Time) time.Time {
	r.Helper()
	if t, ok := r.snapshot(in(id)).(storage.Task); ok {
		return t.Expires
	}
	return gone
}

func keepResult(r *rig) {
	p := r.settle(r.holding(job("a")), storage.Settle{Outcome: storage.Complete, Result: []byte("r")})
	r.want("placed", p.State, storage.Completed)
	t := r.is("a", storage.Completed)
	r.want("kept, result", [2]any{t.Expires.Sub(t.Ended), string(t.Result)},
		[2]any{storage.DefaultResultKeep, "r"})
	r.want("completed", r.stats().Completed, int64(1))
	r.settle(r.holding(kept("b")), storage.Settle{Outcome: storage.Complete, Result: []byte("r")})
	t = r.read("b")
	r.want("kept with Keep.For", t.Expires.Sub(t.Ended), time.Hour)
}

func keepUntilRead(r *rig) {
	j, k := job("a"), job("b")
	j.Keep = storage.Keep{UntilRead: true}
	k.Keep = storage.Keep{UntilRead: true, For: time.Minute}
	r.settle(r.holding(j), storage.Settle{Outcome: storage.Complete, Result: []byte("r")})
	r.end(r.holding(k), storage.Complete)
	for id, want := range map[string]time.Duration{"a": storage.DefaultUnreadKeep, "b": time.Minute} {
		t := r.is(id, storage.Completed)
		r.want("kept", t.Expires.Sub(t.Ended), want)
		r.delete(id)
		r.gone(id)
	}
	r.want("completed", r.stats().Completed, int64(0))
}

func keepAnyResult(r *rig) {
	for id, result := range map[string]string{
		"nul": "\x00", "bytes": "\xff\xfe\x00\n\"'\\", "text": "Grüße", "empty": "",
	} {
		r.settle(r.holding(job(id)), storage.Settle{Outcome: storage.Complete, Result: []byte(result)})
		r.want("result", string(r.is(id, storage.Completed).Result), result)
	}
}

func deadByAge(r *rig) {
	r.bury(job("a"))
	t := r.is("a", storage.Dead)
	r.want("kept", t.Expires.Sub(t.Ended), time.Second)
	r.passTo(t.Expires)
	r.maintain()
	r.gone("a")
	s := r.stats()
	r.want("dead", [3]int64{s.Dead, s.Totals.Dead, s.Totals.Deleted}, [3]int64{0, 1, 0})
	r.want("listed", len(r.list(storage.Dead)), 0)
}

func deadByCount(r *rig) {
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r.bury(life(id, "key-"+id))
		r.pass(time.Millisecond)
	}
	r.maintain()
	r.gone("a", "b")
	listed := ids(r.list(storage.Dead))
	r.want("listed", len(listed), 3)
	for _, id := range []string{"c", "d", "e"} {
		r.is(id, storage.Dead)
	}
	s := r.stats()
	r.want("dead", [4]int64{s.Dead, s.Totals.Dead, s.Totals.Deleted, s.Totals.Evicted}, [4]int64{3, 5, 0, 2})
	r.want("Existing of an id that was trimmed", r.insert(job("a"))[0].Existing, false)
	h, d := r.take(ask(1), "a"), r.read("d")
	r.apply(storage.Tx{
		Changes: []storage.Change{{Ref: d.Ref, Version: d.Version, Requeue: true}},
		Settles: []storage.Settle{{Fence: h.Fence, Outcome: storage.Bury}},
	})
	r.maintain()
	r.want("evicted where one leaves as another dies", r.stats().Totals.Evicted, int64(2))
	for _, id := range []string{"a", "c", "e"} {
		r.is(id, storage.Dead)
	}
}

func deadWithoutLimit(r *rig) {
	for _, id := range []string{"a", "b", "c"} {
		r.bury(job(id))
	}
	r.maintain()
	s := r.stats()
	r.want("dead, evicted", [2]int64{s.Dead, s.Totals.Evicted}, [2]int64{3, 0})
	r.want("listed", ids(r.list(storage.Dead)), []string{"a", "b", "c"})
}

func evictedStays(r *rig) {
	for _, id := range []string{"a", "b", "c"} {
		r.bury(job(id))
	}
	r.passTo(r.read("c").Expires)
	r.maintain()
	s := r.stats()
	if s.Totals.Evicted == 0 && s.Dead == 0 {
		return // the machine was slow: a has expired before c died
	}
	r.want("dead, evicted", [3]int64{s.Dead, s.Totals.Dead, s.Totals.Evicted}, [3]int64{0, 3, 1})
	r.configure(storage.Settings{Remove: true})
	r.want("totals of a removed queue", r.stats().Totals, storage.Totals{})
}

func deadOfCrashes(r *rig) {
	var last held
	for _, id := range []string{"a", "b", "c"} {
		j := job(id)
		j.CrashLimit = 1
		r.insert(j)
		last = r.take(brief(1), id)
	}
	r.expire(last)
	r.maintain()
	s := r.stats()
	r.want("dead", [4]int64{s.Dead, s.Totals.Dead, s.Totals.Evicted, s.Live()}, [4]int64{1, 3, 2, 0})
	r.want("listed", len(r.list(storage.Dead)), 1)
}

func keepRequeued(r *rig) {
	j := job("completed")
	j.Keep.For = time.Second
	r.end(r.holding(j), storage.Complete)
	r.bury(job("dead"))
	until := r.read("dead").Expires
	for _, id := range []string{"completed", "dead"} {
		if r.snapshot(in(id)) == nil {
			return // the machine was slow: the record has expired
		}
		r.changeNow(id, storage.Change{Requeue: true, Delay: time.Hour})
	}
	r.passTo(until)
	r.maintain()
	r.is("completed", storage.Scheduled)
	r.is("dead", storage.Scheduled)
}
