package storagetest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

func claimRules() []rule {
	return []rule{
		state("claim/takes under a lease", claimTakes,
			"A claimed task is pending, its version grown, held by the runner for the lease, with a "+
				"fence of its version and the call's token."),
		state("claim/whole task", claimWhole,
			"A Claim returns all of a task but attempts, stack, result, progress and checkpoint."),
		state("claim/nothing", claimNothing,
			"A Claim that finds no tasks is not an error, on a queue that does not exist neither, and creates none."),
		state("claim/max", claimMax,
			"A Claim takes at most Start and Ahead tasks together, and ClaimQueue.Max from one queue; a negative "+
				"one takes nothing."),
		state("claim/none maintains", claimMaxZero,
			"A Claim with neither Start nor Ahead takes nothing and still promotes and recovers."),
		state("claim/more", claimMore,
			"More says that another call would find work at once, and is not set where it would find none."),
		state("claim/more of another queue", claimMoreOfAnother,
			"More is set for a task for which no room was left, even at the head of the highest priority."),
		state("claim/start", claimStart,
			"Of the tasks of a Claim the first Start are started, the others claimed ahead."),
		state("claim/never early", claimNeverEarly,
			"A task is never claimable before its moment by the storage's clock, and is soon after."),
		state("claim/next due", claimNextDue,
			"NextDue is the earliest moment at which something scheduled, retried or ticking is due, "+
				"zero if nothing is."),
		state("claim/time", claimTime,
			"Claimed.Now is the storage's time."),
		state("claim/4 MiB", claimBytes,
			"A Claim returns at most MaxClaimBytes of payload, or one task where that is larger.",
		).under(storage.Limits{MaxPayload: 8 << 20}),
		state("claim/many due at once", claimManyDue,
			"Maintenance goes in bounded batches, and goes on until all that is due was promoted."),
		state("claim/no task twice", claimDisjoint,
			"Concurrent claims never take one task twice, and leave none behind."),
		state("claim/versions grow", claimVersions,
			"A version grows on insert, change, claim, recovery and settle, and not on extend, progress "+
				"or a cancel request."),
		state("claim/other queues untouched", claimOtherQueues,
			"A Claim takes from the queues that it names alone."),
	}
}

func claimTakes(r *rig) {
	inserted := r.insert(job("a"))[0]
	req := ask(1)
	req.Token = storage.NewToken()
	from := r.now()
	h := r.hold(req, 1)[0]
	if h.Version <= inserted.Version {
		r.Fatalf("version: got %d, want more than %d", h.Version, inserted.Version)
	}
	r.want("fence", h.Fence, storage.Fence{Ref: in("a"), Version: h.Version, Token: req.Token})
	for what, t := range map[string]storage.Task{"claimed": h.Task, "read": r.read("a")} {
		r.want(what+" state and runner", [2]any{t.State, t.Runner}, [2]any{storage.Pending, runner})
		r.want(what+" version", t.Version, h.Version)
		r.want(what+" started", t.Started, true)
		r.between(what+" LeaseUntil", t.LeaseUntil, from.Add(long), r.now().Add(long))
	}
	s := r.stats()
	r.want("waiting, pending", [2]int64{s.Waiting, s.Pending}, [2]int64{0, 1})
}

func claimWhole(r *rig) {
	j := job("a")
	j.Headers, j.Priority, j.Timeout = map[string]string{"x": "y"}, 3, time.Minute
	j.Keep = storage.Keep{For: time.Hour, UntilRead: true}
	j.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
	h := r.holding(j)
	r.extend(storage.Extension{Fence: h.Fence, Progress: []byte("p"), Checkpoint: []byte("c")})
	r.settle(h, storage.Settle{Outcome: storage.Fail, Error: "e", Stack: "s"})
	h = r.take(ask(1), "a")
	r.want("history", [5]int{len(h.Attempts), len(h.Stack), len(h.Result), len(h.Progress), len(h.Checkpoint)},
		[5]int{})
	got, want := h.Task, r.read("a")
	r.want("attempts read", len(want.Attempts), 1)
	for _, t := range []*storage.Task{&got, &want} {
		t.Attempts, t.Stack, t.Result, t.Progress, t.Checkpoint = nil, "", nil, nil, nil
	}
	r.want("task claimed, beside the task read", got, want)
}

func claimNothing(r *rig) {
	c := r.claim(ask(10))
	r.want("claimed", [2]int{len(c.Tasks), len(c.Ticks)}, [2]int{})
	page, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", len(page.Names), 0)
}

func claimMax(r *rig) {
	r.add("a", "b", "c", "d", "e")
	r.hold(ask(2), 2)
	req := ask(5)
	req.Queues[0].Max = 1
	r.hold(req, 1)
	req.Queues[0].Max = -1
	r.hold(req, 0)
	r.want("claimed", r.drain(), []string{"d", "e"})
}

func claimMaxZero(r *rig) {
	r.add("a")
	h := r.take(brief(1), "a")
	r.insert(delayed("b", 10*time.Millisecond), job("c"))
	r.passTo(h.LeaseUntil)
	r.want("claimed", len(r.maintain().Tasks), 0)
	for _, id := range []string{"a", "b", "c"} {
		r.is(id, storage.Waiting)
	}
	s := r.stats()
	r.want("waiting, scheduled, pending", [3]int64{s.Waiting, s.Scheduled, s.Pending}, [3]int64{3, 0, 0})
	req := ask(0)
	req.Queues[0].Max = 5
	c := r.claim(req)
	r.want("claimed, More with a queue's own Max", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
}

func claimMore(r *rig) {
	r.want("More of nothing", r.claim(ask(1)).More, false)
	r.add("a", "b", "c")
	r.want("More with one left", r.claim(ask(2)).More, true)
	r.insert(delayed("later", time.Hour))
	c := r.claim(ask(2))
	r.want("claimed", ids(c.Tasks), []string{"c"})
	r.want("More with none left", c.More, false)
}

func claimMoreOfAnother(r *rig) {
	if !storage.Spans(r.store, mainQueue, sideQueue) {
		r.Log("not tested: main and side are claimed apart")
		return
	}
	high, other := job("high"), keyed("a", "other")
	high.Priority = storage.MaxPriority
	high.Ref.Queue, other.Ref.Queue = sideQueue, sideQueue
	r.insert(high, other)
	req := ask(2)
	req.Queues[0].Name = sideQueue
	r.end(r.hold(req, 2)[0], storage.Release)
	r.add("a")
	req = ask(1)
	req.Queues = append(req.Queues, storage.ClaimQueue{Name: sideQueue})
	c := r.claim(req)
	r.want("claimed, more", [2]any{ids(c.Tasks), c.More}, [2]any{[]string{"a"}, true})
	c = r.claim(req)
	r.want("claimed, more", [2]any{ids(c.Tasks), c.More}, [2]any{[]string{"high"}, false})
}

func claimStart(r *rig) {
	r.add("a", "b", "c")
	req := ask(3)
	req.Start, req.Ahead = 1, 2
	got := make([]bool, 3)
	for i, h := range r.hold(req, 3) {
		got[i] = h.Started
		r.want("started as read", r.read(h.ID).Started, h.Started)
	}
	r.want("started", got, []bool{true, false, false})
}

func claimNeverEarly(r *rig) {
	due := r.now().Add(400 * time.Millisecond)
	r.insert(delayed("a", 400*time.Millisecond))
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		r.pass(wait)
		c := r.claim(ask(1))
		if len(c.Tasks) > 0 && c.Now.Before(due) {
			r.Fatalf("claimed at %v what is due at %v or later", c.Now, due)
		}
		if len(c.Tasks) > 0 {
			return // the machine was slow: the task is due by now
		}
	}
	r.passTo(r.read("a").Due)
	r.take(ask(1), "a")
}

func claimNextDue(r *rig) {
	next := func() time.Time { return r.claim(ask(storage.MaxClaim)).NextDue }
	due := func(what string, want time.Time) {
		if got := next(); !got.Equal(want) {
			r.Fatalf("NextDue with %s: got %v, want %v", what, got, want)
		}
	}
	due("nothing", time.Time{})
	r.add("a")
	due("a waiting task", time.Time{})
	due("a pending task", time.Time{})
	r.insert(cursor("cursor.c", r.now().Add(4*time.Hour)))
	due("a cursor", r.read("cursor.c").Cursor.Next)
	r.settle(r.holding(job("failed")), storage.Settle{Outcome: storage.Fail, Delay: 3 * time.Hour})
	due("a retry", r.read("failed").Due)
	r.insert(delayed("scheduled", 2*time.Hour))
	due("a scheduled task", r.read("scheduled").Due)
	r.delete("scheduled")
	due("the scheduled task deleted", r.read("failed").Due)
	r.cancel("failed")
	due("the retry cancelled", r.read("cursor.c").Cursor.Next)
	r.insert(cursor("cursor.never", time.Time{}))
	r.delete("cursor.c")
	due("a cursor that is never due", time.Time{})
}

func claimTime(r *rig) {
	from := r.now()
	c := r.claim(ask(1))
	r.between("Claimed.Now", c.Now, from, r.now())
}

func claimBytes(r *rig) {
	for i, size := range []int{5 << 20, 3 << 20, 1 << 20, 1<<20 + 1, 10, 10} {
		j := job(fmt.Sprintf("t%d", i))
		j.Payload = make([]byte, size)
		r.insert(j)
	}
	r.hold(ask(10), 1)
	var got []string
	for len(got) < 5 {
		c := r.claim(ask(10))
		size := 0
		for _, t := range c.Tasks {
			size += len(t.Payload)
		}
		if len(c.Tasks) == 0 || size > storage.MaxClaimBytes {
			r.Fatalf("claim: got %d tasks of %d bytes, want some of at most %d",
				len(c.Tasks), size, storage.MaxClaimBytes)
		}
		got = append(got, ids(c.Tasks)...)
		r.want("More", c.More, len(got) < 5)
	}
	r.want("claimed", got, []string{"t1", "t2", "t3", "t4", "t5"})
}

func claimManyDue(r *rig) {
	const tasks = 700
	ins := make([]storage.Insert, tasks)
	for i := range ins {
		ins[i] = delayed(fmt.Sprintf("t%03d", i), 10*time.Millisecond)
	}
	r.insert(ins...)
	r.pass(20 * time.Millisecond)
	for range tasks {
		more := r.maintain().More
		if s := r.stats(); s.Waiting == tasks && s.Scheduled == 0 {
			return
		}
		r.want("More with maintenance left over", more, true)
	}
	r.Fatalf("promoted: got %d of %d", r.stats().Waiting, tasks)
}

func claimOtherQueues(r *rig) {
	r.add("a")
	j := job("b")
	j.Ref.Queue = sideQueue
	r.insert(j)
	r.want("claimed", r.drain(), []string{"a"})
	s, err := r.store.Stats(r.ctx, sideQueue)
	r.must("stats", err)
	r.want("waiting beside", s[0].Waiting, int64(1))
}

func claimVersions(r *rig) {
	last := r.insert(job("a"))[0].Version
	grown := func(what string, version int64) {
		if version <= last {
			r.Fatalf("version after %s: got %d, want more than %d", what, version, last)
		}
		r.want("version read after "+what, r.read("a").Version, version)
		last = version
	}
	grown("a change", r.changeNow("a", storage.Change{Headers: map[string]string{"x": "y"}}).Version)
	h := r.take(ask(1), "a")
	grown("a claim", h.Version)
	r.extend(storage.Extension{Fence: h.Fence, For: long, Started: true, Progress: []byte("1")})
	r.want("version after an extension", r.read("a").Version, last)
	grown("a settle", r.settle(h, storage.Settle{Outcome: storage.Fail}).Version)
	h = r.take(brief(1), "a")
	grown("another claim", h.Version)
	r.expire(h)
	grown("a recovery", r.is("a", storage.Waiting).Version)
	h = r.take(ask(1), "a")
	grown("a third claim", h.Version)
	r.want("version placed by a cancel request", r.cancel("a").Version, last)
	r.want("version after a cancel request", r.read("a").Version, last)
}
