package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func partitionPauseRules() []rule {
	return []rule{
		state("partition/pause", partitionPause,
			"A Claim takes no task of a paused partition, and all of others. A resume, or the end of the "+
				"pause, puts the partition at the end of the ring."),
		state("partition/paused before it exists", partitionPauseFirst,
			"A partition without tasks can be paused, which makes the queue, and the tasks that come then "+
				"wait."),
		state("partition/paused with declined tasks", partitionPauseDeclined,
			"A Claim takes no declined task of a paused partition, and those of others behind it in the line "+
				"of the kind."),
		state("partition/paused with declined suspects", partitionPauseSuspects,
			"A Claim passes over a declined suspect of a paused partition, and takes the next suspect in the line "+
				"of the kind."),
		state("partition/many declined of a paused one", partitionPauseMany,
			"Hundreds of declined tasks of paused partitions hold up neither the others behind them in the line of "+
				"the kind nor undeclined tasks."),
		state("partition/many declined suspects of a paused one", partitionPauseManySuspects,
			"A hundred declined suspects of a paused partition do not hold up a suspect behind them."),
		state("partition/paused for a time", partitionPauseFor,
			"A pause for a time ends by itself. Until then its end is the NextDue of a Claim if the partition "+
				"holds tasks."),
		state("partition/paused again", partitionPauseAgain,
			"A later pause replaces the end of the one before. A resume of a partition that is not paused "+
				"changes nothing."),
		state("partition/paused in a paused queue", partitionPauseQueue,
			"The pause of a queue and that of a partition begin and end alone."),
		state("partition/pause stops nothing else", partitionPauseElse,
			"Tasks join and leave the line of a paused partition as ever."),
		state("partition/resume of none", partitionResumeNone,
			"A resume of a partition or of a queue that is not there makes neither."),
		state("partition/resume wakes", partitionResumeWakes,
			"The resume of a partition wakes all callers, those that wait for cancels alone too."),
		state("partition/many pauses end", partitionPausesEnd,
			"Where more than MaxRest pauses are over at once, Claims end them in the order of their ends, and "+
				"set More until all tasks are taken."),
		state("partition/pause of a queue that is removed", partitionPauseRemoved,
			"The removal of a queue removes the pauses of its partitions."),
		state("partition/pause holds the queue", partitionPauseStays,
			"A queue in which a partition is paused is not removed for being empty."),
		state("partition/clock ahead", partitionClockAhead,
			"During a wait of the clock no pause of a partition ends, and NextDue is no later than the end of "+
				"the wait."),
		state("partition/clock back", partitionClockBack,
			"After the clock was set back, all partitions are served, in turn: turns are not compared with the "+
				"clock."),
	}
}

// pausingOf returns settings that pause a partition, for d if that is not 0.
func pausingOf(key string, d time.Duration) storage.Settings {
	return storage.Settings{Partition: key, Pause: &storage.Pause{On: true, For: d}}
}

// resumingOf returns settings that resume a partition.
func resumingOf(key string) storage.Settings {
	return storage.Settings{Partition: key, Pause: &storage.Pause{}}
}

// nothing fails the rule if a claim finds anything.
func (r *rig) nothing(when string) storage.Claimed {
	r.Helper()
	c := r.claim(asking(5))
	r.want("claimed, more "+when, [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	return c
}

// nothingOf fails the rule if a claim takes a task or sets More.
func (r *rig) nothingOf(when string, req storage.ClaimRequest) {
	r.Helper()
	c := r.claim(req)
	r.want("claimed, more "+when, [2]any{len(c.Tasks), c.More}, [2]any{0, false})
}

// isPaused fails the rule unless a partition is paused, until it is resumed, and holds n tasks.
func (r *rig) isPaused(when, key string, n int64) {
	r.Helper()
	r.want(key+" "+when, r.partition(key), storage.PartitionStats{Key: key, Waiting: n, Paused: true})
}

func partitionPause(r *rig) {
	r.configure(pausingOf("b", 0))
	r.addKeyed("a", 3)
	r.addKeyed("b", 2)
	r.want("claimed beside a pause", r.claims(2), []string{"a0", "a1"})
	r.configure(resumingOf("b"))
	r.want("claimed after a resume", r.claims(2), []string{"a2", "b0"})
	r.configure(pausingOf("b", time.Second))
	c := r.claim(ask(1))
	r.want("claimed, more", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	r.between("NextDue", c.NextDue, c.Now, c.Now.Add(time.Second))
	r.addKeyed("c", 2)
	r.passTo(c.NextDue)
	r.want("claimed after the pause", r.claims(2), []string{"c0", "b1"})
	r.insert(keyed("d", "d0"), keyed("e", "e0"), keyed("f", "f0"))
	r.configure(pausingOf("d", 0))
	r.configure(resumingOf("d"))
	r.want("claimed after a pause and a resume", r.drain(), []string{"c1", "e0", "f0", "d0"})
}

func partitionPauseFirst(r *rig) {
	r.configure(pausingOf("b", 0))
	page, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", page.Names, []string{mainQueue})
	r.isPaused("without tasks", "b", 0)
	r.want("NextDue", r.nothing("of an empty queue").NextDue.IsZero(), true)
	r.addKeyed("b", 2)
	r.isPaused("with tasks", "b", 2)
	r.inLine("while it is paused", "b", "b0", "b1")
	r.want("queue paused", r.stats().Paused, false)
	r.want("NextDue", r.nothing("while it is paused").NextDue.IsZero(), true)
	r.configure(resumingOf("b"))
	r.want("resumed", r.partition("b"), storage.PartitionStats{Key: "b", Waiting: 2})
	r.want("claimed", r.drain(), []string{"b0", "b1"})
	r.configure(pausingOf("b", 0))
	r.configure(resumingOf("b"))
	r.want("partitions", len(r.keys()), 0)
}

func partitionPauseDeclined(r *rig) {
	for i, key := range []string{"b", "", "c", "b"} {
		j := keyed(key, fmt.Sprint("d", i))
		j.Kind = "mail"
		r.decline(j)
	}
	r.configure(pausingOf("b", 0))
	r.isPaused("with declined tasks", "b", 0)
	c := r.claim(knows(9, "mail"))
	r.want("claimed beside a pause", ids(c.Tasks), []string{"d1", "d2"})
	c = r.claim(knows(9, "mail"))
	r.want("claimed, more while it is paused", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	r.want("waiting", r.stats().Waiting, int64(2))
	r.configure(resumingOf("b"))
	r.want("claimed after a resume", ids(r.claim(knows(9, "mail")).Tasks), []string{"d0", "d3"})
	r.want("partitions", len(r.keys()), 0)
}

func partitionPauseSuspects(r *rig) {
	for _, key := range []string{"a", "b", "c", "d"} {
		r.suspectIn(key, "s"+key)
		r.declineNext("s" + key)
	}
	r.configure(pausingOf("a", 0))
	r.configure(pausingOf("b", 0))
	know := knows(9, r.read("sa").Kind)
	for _, want := range []string{"sc", "sd"} {
		r.want("claimed beside a pause", ids(r.claim(know).Tasks), []string{want})
	}
	c := r.claim(know)
	r.want("claimed, more while they are paused", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	r.configure(resumingOf("b"))
	r.want("claimed after a resume", ids(r.claim(know).Tasks), []string{"sb"})
}

// declineMany inserts so many tasks of a kind into a partition, and declines them.
func (r *rig) declineMany(key, kind string, n int) {
	r.Helper()
	const each = 120 // which a Claim takes at once
	ins := make([]storage.Insert, n)
	for i := range ins {
		ins[i] = keyed(key, fmt.Sprintf("%s%04d", key, i))
		ins[i].Kind = kind
	}
	for some := range slices.Chunk(ins, each) {
		r.insert(some...)
		var declines storage.Tx
		for _, h := range r.hold(knows(each, "another"), len(some)) {
			declines.Settles = append(declines.Settles, storage.Settle{Fence: h.Fence, Outcome: storage.Decline})
		}
		r.apply(declines)
	}
}

// finds returns the tasks of claims until one does not set More. None takes more than a few.
func (r *rig) finds(req storage.ClaimRequest) (found []string) {
	r.Helper()
	const most = 20
	for range most {
		c := r.claim(req)
		if found = append(found, ids(c.Tasks)...); !c.More {
			return found
		}
	}
	r.Fatalf("claims: More is set after %d of them, which took %v", most, found)
	return nil
}

func partitionPauseMany(r *rig) {
	const many = 300
	r.declineMany("p", "mail", 120)
	r.configure(pausingOf("p", 0))
	r.insert(job("x"))
	r.want("undeclined", ids(r.claim(knows(9, "mail")).Tasks), []string{"x"})
	d := keyed("b", "d0")
	d.Kind = "mail"
	r.decline(d)
	r.want("declined", r.finds(knows(9, "mail")), []string{"d0"})
	r.nothingOf("while it is paused", knows(9, "mail"))
	r.configure(resumingOf("p"))
	r.declineMany("q", "mail", many)
	r.configure(pausingOf("p", 0))
	r.configure(pausingOf("q", 0))
	for i := range 3 {
		d.Ref.ID = fmt.Sprint("e", i)
		r.decline(d)
	}
	r.insert(job("y"))
	want := []string{"e0", "e1", "e2", "y"}
	got := r.finds(knows(2, "mail"))
	slices.Sort(got)
	r.want("behind many more", got, want)
	r.configure(resumingOf("p"))
	r.want("after a resume", ids(r.claim(knows(2, "mail")).Tasks), []string{"p0000", "p0001"})
}

func partitionPauseManySuspects(r *rig) {
	const many = 104
	ins := make([]storage.Insert, many)
	for i := range ins {
		ins[i] = keyed("p", fmt.Sprintf("p%03d", i))
		ins[i].CrashLimit = 2
	}
	r.insert(ins...)
	r.expire(r.hold(brief(many), many)[many-1])
	holds := make([]held, many)
	var declines storage.Tx
	for i := range holds { // each Claim takes one suspect
		holds[i] = r.hold(knows(9, "another"), 1)[0]
		declines.Settles = append(declines.Settles, storage.Settle{Fence: holds[i].Fence, Outcome: storage.Decline})
	}
	r.apply(declines)
	r.suspectIn("b", "b0")
	r.declineNext("b0")
	r.configure(pausingOf("p", 0))
	r.insert(job("x"))
	know := knows(9, ins[0].Kind)
	got := r.finds(know)
	slices.Sort(got)
	r.want("behind many", got, []string{"b0", "x"})
	r.nothingOf("while it is paused", know)
	r.configure(resumingOf("p"))
	r.want("after a resume", ids(r.claim(know).Tasks), []string{holds[0].Ref.ID})
}

func partitionPauseFor(r *rig) {
	const d = 400 * time.Millisecond
	r.addKeyed("b", 2)
	from := r.now()
	r.configure(pausingOf("b", d))
	p, until := r.partition("b"), r.now().Add(d)
	if r.now().Before(from.Add(d)) { // else it may be over
		r.between("PausedUntil", p.PausedUntil, from.Add(d), until)
	}
	c := r.claim(ask(1))
	if !c.Now.Before(p.PausedUntil) {
		return
	}
	r.want("claimed, more", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	r.want("NextDue", c.NextDue.Equal(p.PausedUntil), true)
	r.passTo(p.PausedUntil)
	r.addKeyed("a", 1)
	c = r.claim(ask(2))
	r.want("claimed after it", ids(c.Tasks), []string{"a0", "b0"})
	r.want("NextDue after it", c.NextDue.IsZero(), true)
	r.want("stats after it", r.partition("b"), storage.PartitionStats{Key: "b", Waiting: 1})
	r.configure(pausingOf("none", storage.MinSpan))
	r.pass(2 * storage.MinSpan)
	r.maintain()
	r.want("partitions", r.keys(), []string{"b"})
}

func partitionPauseAgain(r *rig) {
	r.addKeyed("a", 2)
	r.addKeyed("b", 2)
	r.configure(pausingOf("a", 0))
	r.isPaused("without an end", "a", 2)
	from := r.now()
	r.configure(pausingOf("a", time.Hour))
	p := r.partition("a")
	r.between("PausedUntil", p.PausedUntil, from.Add(time.Hour), r.now().Add(time.Hour))
	r.configure(pausingOf("c", storage.MinSpan))
	r.configure(pausingOf("c", 0))
	r.pass(2 * storage.MinSpan)
	r.want("NextDue", r.maintain().NextDue.Equal(p.PausedUntil), true)
	r.isPaused("after the end of the pause before", "c", 0)
	r.configure(pausingOf("a", 0))
	r.want("NextDue", r.maintain().NextDue.IsZero(), true)
	r.configure(resumingOf("a"))
	r.configure(resumingOf("b")) // which keeps its turn
	r.configure(resumingOf("a"))
	r.want("claimed", r.drain(), []string{"b0", "a0", "b1", "a1"})
	r.configure(resumingOf("c"))
	r.configure(resumingOf("c"))
	r.want("partitions", len(r.keys()), 0)
}

func partitionPauseQueue(r *rig) {
	r.configure(pausing(0))
	r.addKeyed("a", 1)
	r.addKeyed("b", 1)
	r.configure(pausingOf("b", 0))
	r.nothing("in a paused queue")
	r.configure(resuming())
	r.isPaused("after the resume of the queue", "b", 1)
	r.want("claimed", r.drain(), []string{"a0"})
	r.configure(pausing(0))
	r.configure(resumingOf("b"))
	r.want("queue paused", r.stats().Paused, true)
	r.want("partition", r.partition("b"), storage.PartitionStats{Key: "b", Waiting: 1})
	r.nothing("after the resume of the partition alone")
	r.configure(resuming())
	r.want("claimed at the end", r.drain(), []string{"b0"})
}

func partitionPauseElse(r *rig) {
	const delay = 20 * time.Millisecond
	r.addKeyed("b", 3)
	r.insert(job("x"))
	holds := r.hold(ask(2), 2) // x and b0
	held := holds[1]
	r.configure(pausingOf("b", 0))
	x := r.extend(storage.Extension{Fence: held.Fence, For: long})
	r.want("lost", len(x.Lost), 0)
	r.end(held, storage.Release)
	later := keyed("b", "later")
	later.Delay = delay
	r.insert(later)
	r.passTo(r.read("later").Due)
	r.maintain()
	r.inLine("after a release and a promotion", "b", "b0", "b1", "b2", "later")
	r.changeNow("b1", rekeyed("c"))
	r.cancel("b2")
	r.end(holds[0], storage.Complete)
	r.inLine("after changes", "b", "b0", "later")
	r.want("claimed beside it", r.drain(), []string{"b1"})
	r.changeNow("later", rekeyed("c"))
	r.want("claimed from another", r.drain(), []string{"later"})
	r.configure(resumingOf("b"))
	r.want("claimed after a resume", r.drain(), []string{"b0"})
}

func partitionResumeNone(r *rig) {
	queues := func() int {
		page, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
		r.must("queues", err)
		return len(page.Names)
	}
	r.configure(resumingOf("a"))
	r.want("queues", queues(), 0)
	r.want("partitions", len(r.keys()), 0)
	r.add("x")
	r.configure(resumingOf("a"))
	r.want("queues", queues(), 1)
	r.want("partitions", len(r.keys()), 0)
	r.want("claimed", r.drain(), []string{"x"})
}

func partitionResumeWakes(r *rig) {
	const waiters = 3
	r.configure(pausingOf("a", 0))
	r.addKeyed("a", 1)
	r.wakes("the resume of a partition", func(r *rig) { r.configure(resumingOf("a")) })
	r.configure(pausingOf("a", 0))
	woken := r.idle(waiters)
	r.configure(resumingOf("a"))
	for range waiters {
		r.woken("the resume of a partition", woken)
	}
	r.configure(pausingOf("a", 0))
	req := storage.WaitRequest{Queues: []string{mainQueue}, Since: r.maintain().Since, CancelsOnly: true}
	done := r.waiting(req)
	r.configure(resumingOf("a"))
	r.woken("the resume of a partition", done)
	r.want("claimed", r.drain(), []string{"a0"})
}

func partitionPausesEnd(r *rig) {
	const parts, d = storage.MaxRest + 20, 12 * time.Second // a busy machine takes seconds to set the pauses
	ins := make([]storage.Insert, parts)
	for i := range ins {
		ins[i] = keyed(fmt.Sprint("key", i*7%parts), fmt.Sprintf("t%03d", i))
	}
	r.insert(ins...)
	for i, in := range ins {
		// The pauses with an even number end one after the other, and so do the others.
		r.configure(pausingOf(in.Partition, d+time.Duration(i%2)*time.Second+time.Duration(i)*storage.MinSpan))
	}
	r.nothing("while all are paused")
	paused := r.partitions(storage.PartitionsQuery{}).Partitions
	slices.SortFunc(paused, func(a, b storage.PartitionStats) int {
		return a.PausedUntil.Compare(b.PausedUntil)
	})
	r.passTo(paused[parts-1].PausedUntil)
	r.insert(keyed("first", "first"))
	want, got := make([]string, 1, parts+1), make([]string, 0, parts+1)
	want[0] = "first"
	for _, p := range paused {
		want = append(want, p.Key)
	}
	for c := (storage.Claimed{More: true}); c.More; {
		c = r.claim(ask(storage.MaxClaim))
		for _, t := range c.Tasks {
			got = append(got, t.Partition)
		}
	}
	r.want("claimed", got, want)
	r.want("partitions", len(r.keys()), 0)
}

func partitionPauseRemoved(r *rig) {
	r.configure(pausingOf("a", 0))
	r.configure(pausingOf("b", time.Hour))
	r.addKeyed("a", 1)
	before := r.partitions(storage.PartitionsQuery{})
	err := r.session.Configure(r.ctx, mainQueue, storage.Settings{Remove: true})
	r.wantError("remove with a task of a paused partition", err, storage.ErrNotEmpty)
	r.want("partitions after a refusal", r.partitions(storage.PartitionsQuery{}), before)
	r.delete("a0")
	r.want("partitions", r.keys(), []string{"a", "b"})
	r.configure(storage.Settings{Remove: true})
	r.want("partitions after the removal", len(r.keys()), 0)
	page, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", len(page.Names), 0)
	r.insert(keyed("a", "a1"), keyed("b", "b1"))
	r.want("claimed", r.drain(), []string{"a1", "b1"})
}

func partitionPauseStays(r *rig) {
	if r.Advance == nil {
		r.Log("not tested: a day would have to pass")
		return
	}
	r.configure(pausingOf("a", 0))
	for range 5 {
		r.pass(12 * time.Hour)
		r.maintain()
	}
	page, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", page.Names, []string{mainQueue})
	r.isPaused("after days", "a", 0)
	r.addKeyed("a", 1)
	r.nothing("after days")
}
