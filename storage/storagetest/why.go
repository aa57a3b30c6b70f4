package storagetest

import (
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

func whyRules() []rule {
	return []rule{
		state("why/ended", whyEnded,
			"Why says of a task that ended in which state and since when, and of a dead one the reason and the "+
				"error."),
		state("why/with a runner", whyPending,
			"Why says of a pending task who has it until when, whether it runs, and whether a cancel was asked or "+
				"the lease is over."),
		state("why/put off", whyPutOff,
			"Why says of a task that cannot run yet what keeps it: a pause for longer than it is put off, or its "+
				"moment, and what put it off."),
		state("why/nobody runs it", whyUnserved,
			"Why says of a task that waits whether no live runner serves its queue, or none of them knows its kind."),
		state("why/in line", whyLine,
			"Why says of a task that waits for a slot at which place it stands, and what a Claim heeds of it."),
		state("why/declined", whyDeclined,
			"Why places declined tasks, and the tasks beside them, as a Claim takes them that names their kinds."),
		state("why/partitions", whyPartitions,
			"Why places a task in the line of its partition, says with how many others that line takes turns, and "+
				"says that a pause of the partition keeps the task."),
		state("why/limits of partitions", whyShares,
			"Why says that the limit of partitions keeps a task, by its Concurrency or its Rate, after the limit "+
				"of the queue, and that the partition rests after a throttle, or the tasks without one."),
		state("why/slots", whySlots,
			"Why says which queues' tasks take the slots of the runners, however many slots they have."),
		state("why/schedule", whySchedule,
			"Why says of a schedule when it ticks next, or that no live runner declares it."),
	}
}

// why returns the verdict on a record of main, which must have a cause and hold some words.
func (r *rig) why(id string, cause storage.Cause, words ...string) storage.Verdict {
	r.Helper()
	v, err := storage.Why(r.ctx, r.store, in(id))
	r.must("why "+id, err)
	r.want("cause of "+id, v.Cause, cause)
	r.want("subject", v.Ref, in(id))
	for _, w := range words {
		if !strings.Contains(v.String(), w) {
			r.Fatalf("the verdict on %s is %q, want it to say %q", id, v, w)
		}
	}
	return v
}

// serves sends the heartbeat of a runner that serves main for an hour, with a number of slots and how
// many of them are taken.
func (r *rig) serves(id string, slots, taken int, kinds ...string) {
	r.Helper()
	info := storage.RunnerInfo{
		ID: id, Host: "web-1", PID: 41, Queues: []string{mainQueue}, Kinds: kinds, Concurrency: slots,
		For: time.Hour,
	}
	for range taken {
		info.Running = append(info.Running, storage.Running{Ref: in("other"), Kind: "job", Since: r.now()})
	}
	r.heartbeat(info)
}

func whyEnded(r *rig) {
	from := r.now()
	bury := storage.Settle{Outcome: storage.Bury, Reason: "refused", Error: "no such user"}
	r.settle(r.holding(job("dead")), bury)
	r.end(r.holding(kept("done")), storage.Complete)
	r.insert(kept("off"))
	r.cancel("off")
	v := r.why("dead", storage.CauseEnded, "it died", ": refused; last error: no such user")
	r.between("since", v.Since, from, r.now())
	r.want("state, reason, error", [3]any{v.State, v.Reason, v.Error},
		[3]any{storage.Dead, "refused", "no such user"})
	r.want("no cause to fix first", strings.Contains(v.String(), "requeue"), false)
	r.settle(r.holding(job("discarded")), storage.Settle{
		Outcome: storage.Bury, Reason: storage.AttemptDiscarded, Error: "no such user",
	})
	r.why("discarded", storage.CauseEnded, "discarded; last error: no such user",
		"a requeue fails again unless the cause is fixed first")
	r.want("state", r.why("done", storage.CauseEnded, "completed").State, storage.Completed)
	r.want("state", r.why("off", storage.CauseEnded, "cancelled").State, storage.Cancelled)
	_, err := storage.Why(r.ctx, r.store, in("none"))
	r.wantError("why of none", err, storage.ErrNotFound)
}

func whyPending(r *rig) {
	id := storage.NewRunnerID("web-9", 4711)
	r.add("a", "b")
	req := ask(1)
	req.Runner, req.Ahead = id, 1
	holds := r.hold(req, 2)
	v := r.why("a", storage.CauseRunning, "web-9, process 4711", "not heard of")
	r.want("runner, host, process, gone", [4]any{v.Runner, v.Host, v.PID, v.RunnerGone},
		[4]any{id, "web-9", 4711, true})
	r.want("until", v.Until.Equal(r.read("a").LeaseUntil), true)
	r.want("since", v.Since.Equal(r.read("a").StartedAt()), true)
	r.heartbeat(storage.RunnerInfo{
		ID: id, Host: "web-9.example.org", PID: 4711, Queues: []string{mainQueue}, For: time.Hour,
	})
	v = r.why("b", storage.CauseAhead, "claimed, not started: web-9.example.org, process 4711 starts it")
	r.want("gone", v.RunnerGone, false)
	r.cancel("a")
	r.why("a", storage.CauseCancelAsked, "it still runs on", "asked to stop")
	from := r.now()
	r.heartbeat(storage.RunnerInfo{
		ID: id, Host: "web-9.example.org", PID: 4711, Queues: []string{mainQueue}, For: time.Hour,
		Running: []storage.Running{{Ref: in("a"), Kind: "job", Since: from, Unstopped: from}},
	})
	v = r.why("a", storage.CauseCancelAsked, "which the job ignores: only the end of its process stops it")
	r.want("unstopped", v.Unstopped.Equal(from.Truncate(time.Microsecond)), true)
	r.end(holds[0], storage.Cancel)
	r.end(holds[1], storage.Complete)
	r.add("c")
	h := r.take(brief(1), "c")
	r.passTo(h.LeaseUntil)
	v = r.why("c", storage.CauseLeaseExpired, "runner "+runner, "ended")
	r.want("runner, gone", [2]any{v.Runner, v.RunnerGone}, [2]any{runner, true})
}

func whyPutOff(r *rig) {
	r.serves("r1", 5, 0, "job")
	fail := storage.Settle{Outcome: storage.Fail, Delay: time.Hour, Error: "timed out\nagain"}
	snooze := storage.Settle{Outcome: storage.Snooze, Delay: time.Hour, Reason: "rate limited"}
	r.settle(r.holding(job("failed")), fail)
	r.settle(r.holding(job("snoozed")), snooze)
	snooze.Reason = storage.ReasonUndecodable + ": got a number"
	r.settle(r.holding(job("wrong")), snooze)
	r.insert(delayed("later", time.Hour))
	r.add("now")
	v := r.why("failed", storage.CauseDue, "after failure 1: timed out")
	r.want("until", v.Until.Equal(r.read("failed").Due), true)
	r.want("retries", v.Retries, 1)
	v = r.why("snoozed", storage.CauseDue, "snoozed: rate limited")
	r.want("reason, snoozes", [2]any{v.Reason, v.Snoozes}, [2]any{"rate limited", 1})
	v = r.why("wrong", storage.CauseUndecodable,
		"a runner could not decode its parameters: got a number; it is tried again in")
	r.want("until", v.Until.Equal(r.read("wrong").Due), true)
	r.why("later", storage.CauseDue, "it is due in ")
	r.configure(pausing(time.Minute))
	v = r.why("now", storage.CausePaused, "paused for another")
	r.want("until", v.Until.Equal(r.stats().PausedUntil), true)
	r.why("failed", storage.CauseDue)
	r.configure(pausing(0))
	r.why("failed", storage.CausePaused)
	r.want("until", r.why("now", storage.CausePaused, "until it is resumed").Until.IsZero(), true)
}

func whyUnserved(r *rig) {
	r.decline(of("mail", "a"))
	r.heartbeat(storage.RunnerInfo{
		ID: "r1", Queues: []string{sideQueue}, Kinds: []string{"mail"}, Concurrency: 1, For: time.Hour,
	})
	r.why("a", storage.CauseNoRunner, "no live runner serves queue main")
	r.serves("r2", 2, 0) // a runner without jobs
	r.why("a", storage.CauseUnknownKind, "no runner on main handles mail")
	r.serves("r2", 2, 0, "job", "other")
	v := r.why("a", storage.CauseUnknownKind,
		"no runner on main handles mail", "it is dead in")
	r.want("until", v.Until.Equal(r.read("a").Declined.Add(r.described().Limits.DeclinedFor)), true)
	r.want("runners, able", [2]int{v.Runners, v.Able}, [2]int{1, 0})
	r.serves("r3", 2, 0, "mail")
	v = r.why("a", storage.CauseInLine, "number 1 of 1")
	r.want("runners, able, slots, free", [4]int{v.Runners, v.Able, v.Slots, v.Free}, [4]int{2, 1, 2, 2})
}

// described returns the storage's Description.
func (r *rig) described() storage.Description {
	r.Helper()
	d, err := r.store.Describe(r.ctx)
	r.must("describe", err)
	return d
}

func whyLine(r *rig) {
	j := job("suspect")
	j.CrashLimit = 2
	r.insert(j)
	r.crash("suspect")
	r.add("ahead")
	req := brief(0)
	req.Start, req.Ahead = 0, 1
	r.expire(r.take(req, "ahead"))
	before := storage.Sample{At: r.now(), Stats: r.stats()}
	r.add("a", "b", "c")
	r.serves("r1", 2, 2, "job")
	v := r.why("b", storage.CauseBusy,
		"all 2 slots of the runners that can run it are busy with tasks: 2 of main", "number 4 of 5 in line")
	r.want("place", [2]int64{v.Position, v.Of}, [2]int64{4, 5})
	r.serves("r1", 2, 1, "job")
	r.why("suspect", storage.CauseSuspect, "its next crash makes it dead", "number 2 of 5")
	r.why("ahead", storage.CauseStartOnly, "its runner was lost before it started")
	r.why("c", storage.CauseInLine, "number 5 of 5 in line")
	r.end(r.take(ask(1), "ahead"), storage.Complete)
	r.pass(200 * time.Millisecond)
	v, err := storage.Why(r.ctx, r.store, in("c"), before)
	r.must("why", err)
	r.want("place, ETA", [2]any{v.Position, v.ETA > 0 && v.ETA < time.Hour}, [2]any{int64(4), true})
	if !strings.Contains(v.String(), "starts in about") {
		r.Fatalf("the verdict is %q, want it to say when the task starts", v)
	}
}

func whyDeclined(r *rig) {
	r.decline(of("mail", "m1"), of("fax", "f1"), of("mail", "m2"), of("unknown", "u1"))
	high := job("high")
	high.Priority = 5
	r.insert(high)
	r.add("a", "b")
	r.serves("r1", 10, 0, "job", "mail", "fax")
	order := []string{"high", "m1", "f1", "m2", "a", "b"}
	for i, id := range order {
		v := r.why(id, storage.CauseInLine)
		r.want("place of "+id, v.Position, int64(i+1))
	}
	r.why("u1", storage.CauseUnknownKind)
	claimed := make([]string, 0, len(order))
	for _, h := range r.hold(knows(6, "job", "mail", "fax"), 6) {
		claimed = append(claimed, h.ID)
	}
	r.want("claimed", claimed, order)
}

func whyPartitions(r *rig) {
	r.serves("r1", 5, 0, "job")
	r.addKeyed("acme", 3)
	r.why("acme0", storage.CauseInLine, "it is the first task of its partition acme")
	r.addKeyed("big", 20)
	r.addKeyed("paused", 1)
	r.configure(pausingOf("paused", time.Minute))
	r.add("x", "y")
	v := r.why("acme2", storage.CauseInLine,
		"2 tasks of its partition acme wait before it; this line takes turns with 2 others")
	r.want("partition, place, turns", [4]any{v.Partition, v.Position, v.Of, v.Turns},
		[4]any{"acme", int64(3), int64(3), 3})
	v = r.why("y", storage.CauseInLine, "it is number 2 of 2 in line; this line takes turns with 2 others")
	r.want("partition, place", [3]any{v.Partition, v.Position, v.Of}, [3]any{"", int64(2), int64(2)})
	v = r.why("paused0", storage.CausePartitionPaused, "partition paused of main is paused for another")
	r.between("until", v.Until, r.now(), r.now().Add(time.Minute))
	r.configure(pausingOf("acme", 0))
	r.why("acme0", storage.CausePartitionPaused, "partition acme of main is paused until it is resumed")
	later := delayed("later", time.Hour)
	later.Partition = "paused"
	r.insert(later)
	r.why("later", storage.CauseDue)
}

func whyShares(r *rig) {
	r.serves("r1", 9, 0, "job")
	rate := storage.Rate{N: 3, Per: time.Minute}
	r.configure(inEach(1, rate))
	r.addKeyed("acme", 3)
	h := r.take(ask(9), "acme0")
	v := r.why("acme2", storage.CausePartitionLimit,
		"partition acme of main: 1 of 1 run; 1 task of its partition acme waits before it")
	r.want("running, ETA", [2]any{v.PartitionRunning, v.ETA}, [2]any{int64(1), time.Duration(0)})
	r.configure(limiting(storage.Limit{Concurrency: 1, Partition: storage.PartitionLimit{Concurrency: 1}}))
	r.why("acme1", storage.CauseLimit, "limit of main: 1 of 1 run")
	r.end(h, storage.Complete)
	r.configure(inEach(0, rate))
	dear := keyed("big", "dear")
	dear.Cost = 2
	next := dear
	next.Ref.ID = "next"
	r.insert(dear, next, keyed("big", "last"))
	r.claim(ask(9))
	v = r.why("last", storage.CausePartitionRate,
		"rate of partition big of main, 3 in 1m: next start of cost 2 in ",
		"1 task of its partition big waits before it")
	r.between("until", v.Until, r.now().Add(50*time.Second), r.now().Add(62*time.Second))
	r.want("ETA", v.ETA >= v.Until.Sub(v.Now), true)
	r.configure(clearing())
	r.add("x")
	r.settle(r.take(ask(1), "x"), storage.Settle{Outcome: storage.Release, Delay: time.Minute})
	v = r.why("x", storage.CauseThrottled,
		"the tasks of main without a partition rest for another ", " after a throttle")
	r.between("until", v.Until, r.now().Add(50*time.Second), r.now().Add(time.Minute))
	h = r.take(ask(1), "next")
	r.settle(h, storage.Settle{Outcome: storage.Release, Delay: time.Hour})
	r.why("last", storage.CauseThrottled, "partition big of main rests for another ")
	later := delayed("later", 2*time.Hour)
	later.Partition = "big"
	r.insert(later)
	r.why("later", storage.CauseDue)
	r.configure(pausingOf("big", 0))
	r.why("last", storage.CausePartitionPaused)
}

func whySlots(r *rig) {
	r.add("a")
	info := storage.RunnerInfo{
		ID: "r1", Queues: []string{mainQueue, sideQueue}, Kinds: []string{"job"}, Concurrency: 1500, Busy: 1500,
		For: time.Hour,
	}
	for range storage.MaxRunning {
		info.Running = append(info.Running, storage.Running{
			Ref: storage.Ref{Queue: sideQueue, ID: "x"}, Kind: "job", Since: r.now(),
		})
	}
	r.heartbeat(info)
	v := r.why("a", storage.CauseBusy, "all 1500 slots", "are busy with tasks: 1000 of "+sideQueue)
	r.want("busy", v.Busy, []storage.QueueSize{{Queue: sideQueue, Tasks: storage.MaxRunning}})
	r.want("slots, free", [2]int{v.Slots, v.Free}, [2]int{1500, 0})
	info.Busy = 1499
	r.heartbeat(info)
	v = r.why("a", storage.CauseInLine)
	r.want("free, busy", [2]int{v.Free, len(v.Busy)}, [2]int{1, 0})
}

func whySchedule(r *rig) {
	next := r.now().Add(time.Hour).Truncate(time.Microsecond)
	c := cursor("cursor.daily", next)
	d := storage.Declaration{Spec: "every 1h", Hash: "h1"}
	c.Cursor.Declaration = d.Encode()
	r.insert(c)
	r.why("cursor.daily", storage.CauseOrphaned, "no live runner declares")
	declared := []storage.Declared{{Ref: in("cursor.daily"), Hash: "h1"}}
	r.heartbeat(storage.RunnerInfo{
		ID: "r1", Queues: []string{mainQueue}, Concurrency: 1, For: time.Hour, Schedules: declared,
	})
	v := r.why("cursor.daily", storage.CauseTicks, "ticks next in")
	r.want("until", v.Until.Equal(next), true)
}
