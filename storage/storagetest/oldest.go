package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

// apart is the time between two steps that a rule about ages has to distinguish.
const apart = 60 * time.Millisecond

// span is the time in which a step happened, by the storage's clock.
type span struct{ from, to time.Time }

// joins lets some time pass, carries out a step, and returns when the step happened.
func (r *rig) joins(step func()) span {
	r.Helper()
	r.pass(apart)
	from := r.now()
	step()
	return span{from, r.now()}
}

// oldest fails the rule unless the oldest waiting task of main joined its line in a span of time.
func (r *rig) oldest(what string, joined span) {
	r.Helper()
	r.pass(apart)
	from := r.now()
	s, err := r.store.Stats(r.ctx, mainQueue)
	r.must("stats", err)
	const slack = apart / 4
	first, last := from.Add(-s[0].Oldest), r.now().Add(-s[0].Oldest)
	if s[0].Oldest <= 0 || last.Before(joined.from.Add(-slack)) || first.After(joined.to.Add(slack)) {
		r.Fatalf("%s: got an age of %v at %v, want one since %v", what, s[0].Oldest, from, joined)
	}
}

// noneOld fails the rule unless the age of the oldest waiting task of main is zero.
func (r *rig) noneOld(what string) {
	r.Helper()
	s, err := r.store.Stats(r.ctx, mainQueue)
	r.must("stats", err)
	r.want("age "+what, s[0].Oldest, time.Duration(0))
}

func statsOldest(r *rig) {
	r.noneOld("of no queue")
	r.decline(of("mail", "declined"))
	r.pass(apart)
	r.noneOld("of a declined task")
	r.cancel("declined")
	a := r.joins(func() { r.add("a") })
	r.joins(func() { r.insert(prioritised("urgent", 5)) })
	b := r.joins(func() { r.add("b") })
	low := r.joins(func() { r.insert(prioritised("low", -storage.MaxPriority)) })
	r.oldest("of three priorities", a)
	held := r.take(ask(1), "urgent")
	r.oldest("below what was taken", a)
	r.end(r.take(ask(1), "a"), storage.Release)
	r.pass(apart)
	r.oldest("behind a task at the head", b)
	r.configure(pausing(0))
	r.oldest("of a paused queue", b)
	r.cancel("b")
	r.oldest("behind a task that was cancelled", low)
	r.configure(resuming())
	r.end(held, storage.Release)
	r.delete("low")
	r.noneOld("of tasks at the head")
}

func statsOldestJoins(r *rig) {
	r.insert(delayed("a", apart))
	r.passTo(r.read("a").Due)
	promoted := r.joins(func() { r.maintain() })
	r.oldest("of a promoted task", promoted)
	r.pass(apart)
	r.changeNow("a", storage.Change{Headers: map[string]string{"name": "value"}})
	r.oldest("of a task that was changed in its place", promoted)
	five := 5
	risen := r.joins(func() { r.changeNow("a", storage.Change{Priority: &five}) })
	r.oldest("of a task with a new priority", risen)
	r.settle(r.take(ask(1), "a"), storage.Settle{Outcome: storage.Fail, Delay: apart})
	r.noneOld("of a task in retry")
	r.passTo(r.read("a").Due)
	r.oldest("of a retried task", r.joins(func() { r.maintain() }))
	r.end(r.take(ask(1), "a"), storage.Bury)
	r.oldest("of a requeued task", r.joins(func() { r.changeNow("a", storage.Change{Requeue: true}) }))

	suspect := prioritised("suspect", 9)
	suspect.CrashLimit = 2
	r.delete("a")
	r.insert(suspect)
	r.expire(r.take(brief(1), "suspect"))
	r.pass(apart)
	r.noneOld("of a suspect at the head")
	r.settle(r.take(asking(1), "suspect"), storage.Settle{Outcome: storage.Fail})
	r.oldest("of a suspect", r.joins(func() { r.maintain() }))
}
