package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func queueRules() []rule {
	return []rule{
		state("pause/stops claims", pauseStops,
			"Nothing is claimed from a paused queue until it is resumed."),
		state("pause/stops nothing else", pauseElse,
			"Enqueueing, settling, extending and maintenance go on in a paused queue."),
		state("pause/for a time", pauseFor,
			"A pause for a time ends by itself. Until then its end is the NextDue of a Claim that finds "+
				"tasks there, and of its repeat."),
		state("pause/other queues", pauseOthers,
			"A pause concerns its own queue."),
		state("pause/told", pauseTold,
			"Stats tell that a queue is paused, and until when."),
		state("create/a queue without settings", createQueue,
			"A queue can be created: it exists, and of one that exists nothing changes."),
		state("remove/empty queue", removeEmpty,
			"An empty queue can be removed, with its totals, its settings and its unique windows."),
		state("remove/not empty", removeNotEmpty,
			"A queue that holds a record in any state is not removed: ErrNotEmpty, and nothing changes."),
		state("remove/damaged", removeDamaged,
			"A queue whose only records are set apart is removed with them."),
	}
}

func pauseStops(r *rig) {
	r.add("a")
	r.configure(pausing(0))
	c := r.claim(ask(1))
	r.want("claimed", len(c.Tasks), 0)
	r.want("More of a paused queue", c.More, false)
	r.configure(pausing(0))
	r.hold(ask(1), 0)
	r.configure(resuming())
	r.take(ask(1), "a")
}

func pauseElse(r *rig) {
	r.add("a", "b")
	a, b := r.take(ask(1), "a"), r.take(brief(1), "b")
	r.configure(pausing(0))
	r.add("c")
	r.insert(delayed("d", 10*time.Millisecond))
	r.extend(storage.Extension{Fence: a.Fence, For: long})
	r.end(a, storage.Complete)
	r.expire(b)
	r.want("crashes", r.is("b", storage.Waiting).Crashes, 1)
	r.is("d", storage.Waiting)
	r.hold(ask(5), 0)
}

func pauseFor(r *rig) {
	r.add("a", "b")
	from := r.now()
	r.configure(pausing(400 * time.Millisecond))
	until := r.stats().PausedUntil
	if now := r.now(); !until.IsZero() || now.Before(from.Add(400*time.Millisecond)) { // else it may be over
		r.between("PausedUntil", until, from.Add(400*time.Millisecond), now.Add(400*time.Millisecond))
	}
	req := ask(1)
	req.Call, req.Token = r.first(), storage.NewToken()
	c, err := r.store.Claim(r.ctx, req)
	r.must("claim", err)
	if c.Now.Before(until) {
		r.want("claimed while paused", len(c.Tasks), 0)
		r.want("NextDue while paused", c.NextDue.Equal(until), true)
		c, err = r.store.Claim(r.ctx, req)
		r.must("repeat", err)
		r.want("NextDue of a repeat", c.NextDue.Equal(until) || !c.Now.Before(until), true)
		r.passTo(until)
		c = r.claim(ask(1))
		r.want("claimed after it", ids(c.Tasks), []string{"a"})
		r.want("NextDue after it", c.NextDue.IsZero(), true)
	}
	s := r.stats()
	r.want("paused after it", s.Paused, false)
}

func pauseOthers(r *rig) {
	r.add("a")
	r.must("configure", r.session.Configure(r.ctx, sideQueue, pausing(0)))
	j := job("b")
	j.Ref.Queue = sideQueue
	r.insert(j)
	req := ask(5)
	req.Queues = []storage.ClaimQueue{{Name: sideQueue}, {Name: mainQueue}}
	r.want("claimed", r.hold(req, 1)[0].Ref, in("a"))
}

func pauseTold(r *rig) {
	r.add("a")
	told := func(want bool) {
		s := r.stats()
		r.want("paused, until", [2]bool{s.Paused, s.PausedUntil.IsZero()}, [2]bool{want, true})
	}
	told(false)
	r.configure(pausing(0))
	told(true)
	r.configure(pausing(time.Hour))
	r.want("PausedUntil of a pause for a time", r.stats().PausedUntil.IsZero(), false)
	r.configure(resuming())
	told(false)
}

func createQueue(r *rig) {
	create := storage.Settings{Create: true}
	names := func() []string {
		p, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
		r.must("queues", err)
		return p.Names
	}
	r.configure(resuming())
	r.want("queues where one was resumed that was not there", len(names()), 0)
	r.configure(create)
	r.want("queues", names(), []string{mainQueue})
	r.want("stats", r.stats(), storage.Stats{Queue: mainQueue})
	r.add("a")
	r.configure(pausing(time.Hour))
	before := r.stats()
	r.configure(create)
	r.want("stats of a queue that existed", r.stats(), before)
	r.hold(ask(1), 0)
}

func removeEmpty(r *rig) {
	r.end(r.holding(job("a")), storage.Complete)
	r.configure(pausing(0))
	r.configure(storage.Settings{Remove: true})
	r.want("stats", r.stats(), storage.Stats{Queue: mainQueue})
	p, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", len(p.Names), 0)
	r.configure(storage.Settings{Remove: true}) // the queue does not exist: nothing happens
	window := job("held")
	window.Unique = storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: time.Hour}
	r.insert(window)
	r.delete("held")
	r.keyTaken("of a window", "k", "held")
	r.configure(storage.Settings{Remove: true})
	r.keyFree("of a window whose queue was removed")
	r.configure(storage.Settings{Remove: true})
	r.add("b")
	r.take(ask(1), "b")
	r.want("enqueued", r.stats().Totals.Enqueued, int64(1))
}

func removeDamaged(r *rig) {
	if r.Damage == nil {
		r.Log("not tested: no record of this storage can be damaged")
		return
	}
	r.add("bad")
	r.setsApart("bad")
	r.add("b")
	err := r.session.Configure(r.ctx, mainQueue, storage.Settings{Remove: true})
	r.wantError("remove with a task beside the damaged one", err, storage.ErrNotEmpty)
	r.delete("b")
	r.configure(storage.Settings{Remove: true})
	p, err := r.store.Queues(r.ctx, storage.QueuesQuery{})
	r.must("queues", err)
	r.want("queues", len(p.Names), 0)
	r.add("bad")
	r.take(ask(1), "bad")
}

func removeNotEmpty(r *rig) {
	refused := func(state storage.State) {
		before := r.stats()
		r.unchanged(func() {
			err := r.session.Configure(r.ctx, mainQueue, storage.Settings{Remove: true})
			r.wantError("remove with a task in "+string(state), err, storage.ErrNotEmpty)
		}, "a")
		r.want("stats", r.stats(), before)
	}
	h := r.holding(job("a"))
	refused(storage.Pending)
	r.end(h, storage.Complete)
	for _, s := range storage.States()[:7] {
		if s != storage.Pending {
			r.stand("a", s)
			refused(s)
			r.delete("a")
		}
	}
	r.configure(storage.Settings{Remove: true})
}
