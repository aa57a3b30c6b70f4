package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

func sharingRules() []rule {
	return []rule{
		state("sharing/cancelled context", sharingContext,
			"One caller's cancelled context spoils only its own answer, and repeating its call gives a "+
				"definite one."),
		state("sharing/one settle wins", sharingSettles,
			"Of many settles of one claim at once exactly one commits; the others are ErrLeaseLost."),
		state("sharing/same insert at once", sharingInserts,
			"Of many inserts of one task at once one is stored and the others find it."),
		state("sharing/everything at once", sharingEverything,
			"Under concurrent inserts, claims, settles and cancels no task is lost or ends twice."),
		state("sharing/handles", sharingHandles,
			"What one handle does every other sees; a fence is good through any of them."),
		state("sharing/durable", sharingDurable,
			"What a durable storage acknowledged is there after Close and Open, leases and unique keys too."),
		state("sharing/closed", sharingClosed,
			"After Close every method answers ErrClosed; closing again is harmless."),
		state("sharing/damaged record", sharingDamaged,
			"A record that cannot be read is set apart and counted in Stats.Damaged, and stops nobody."),
		state("sharing/damaged holder", sharingDamagedHolder,
			"A task whose record is set apart holds no unique key for its life any more."),
		state("sharing/damaged ended", sharingDamagedEnded,
			"The totals count one end of a task whose record is damaged after it ended.",
		).under(storage.Limits{DeadFor: time.Second}),
	}
}

func claimDisjoint(r *rig) {
	const tasks, claimers = 500, 50
	r.many(tasks, nil)
	var mu sync.Mutex
	taken := map[string]int{}
	var all sync.WaitGroup
	for range claimers {
		all.Go(func() {
			for {
				c, err := r.session.Claim(r.ctx, ask(7))
				if err != nil {
					r.Errorf("claim: %v", err)
					return
				}
				if len(c.Tasks) == 0 {
					return
				}
				mu.Lock()
				for _, t := range c.Tasks {
					taken[t.ID]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for id, n := range taken {
		r.want("times that "+id+" was claimed", n, 1)
	}
	r.want("claimed", len(taken), tasks)
}

func sharingContext(r *rig) {
	const callers = 40
	calls := make([]storage.Call, callers)
	outcomes := make([]error, callers)
	for i := range calls {
		calls[i] = r.first()
	}
	tx := func(i int) storage.Tx { return inserting(job(fmt.Sprintf("t%02d", i))) }
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, cancel := context.WithCancel(r.ctx)
			defer cancel()
			if i%2 == 0 {
				all.Go(cancel)
			}
			if i%4 == 0 {
				cancel()
			}
			_, outcomes[i] = r.store.Apply(ctx, calls[i], tx(i))
		})
	}
	all.Wait()
	for i, err := range outcomes {
		if i%2 == 1 {
			r.must("a call beside cancelled ones", err)
		} else if err != nil && !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, context.Canceled) {
			r.Fatalf("a cancelled call: got error %v, want ErrUnknown or the context's", err)
		}
		r.must("the call repeated", r.called(calls[i], tx(i))[0].Err)
	}
	r.want("enqueued", r.stats().Totals.Enqueued, int64(callers))
}

func sharingSettles(r *rig) {
	h := r.holding(job("a"))
	var won, lost atomic.Int64
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			tx := settling(h)
			tx.Inserts = []storage.Insert{job(fmt.Sprintf("next%d", i))}
			_, err := r.session.ApplyOne(r.ctx, tx)
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, storage.ErrLeaseLost):
				lost.Add(1)
			default:
				r.Errorf("settle: %v", err)
			}
		})
	}
	all.Wait()
	r.want("won, lost", [2]int64{won.Load(), lost.Load()}, [2]int64{1, 9})
	r.want("follow-ups", len(r.drain()), 1)
}

func sharingInserts(r *rig) {
	var stored atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			a, err := r.session.ApplyOne(r.ctx, inserting(job("a")))
			if err != nil {
				r.Errorf("insert: %v", err)
			} else if !a.Inserted[0].Existing {
				stored.Add(1)
			}
		})
	}
	all.Wait()
	r.want("stored", stored.Load(), int64(1))
	r.want("enqueued", r.stats().Totals.Enqueued, int64(1))
}

func sharingEverything(r *rig) {
	const tasks, workers = 200, 8
	var ended atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for i := range tasks {
			r.add(fmt.Sprintf("t%03d", i))
		}
	})
	for w := range workers {
		all.Go(func() { r.work(w, &ended, tasks) })
	}
	all.Wait()
	s := r.stats()
	r.want("live", s.Live(), int64(0))
	r.want("ended", [2]int64{s.Totals.Completed + s.Totals.Cancelled, s.Totals.Enqueued}, [2]int64{tasks, tasks})
}

// work claims and settles until all tasks have ended. It cancels every third task while
// that task runs, which must end all the same.
func (r *rig) work(worker int, ended *atomic.Int64, tasks int64) {
	for ended.Load() < tasks && r.ctx.Err() == nil && !r.Failed() {
		c, err := r.session.Claim(r.ctx, ask(5))
		if err != nil {
			r.Errorf("claim: %v", err)
			return
		}
		for i, f := range c.Fences {
			outcome := []storage.Outcome{storage.Complete, storage.Release, storage.Cancel}[(i+worker)%3]
			if outcome == storage.Cancel {
				_, _ = r.session.ApplyOne(r.ctx, cancelOf(f.Ref))
			}
			a, err := r.session.ApplyOne(r.ctx, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: outcome}}})
			if err != nil {
				r.Errorf("settle: %v", err)
				return
			}
			if a.Settled[0].State.Ended() {
				ended.Add(1)
			}
		}
	}
}

func sharingHandles(r *rig) {
	other, ok := r.again()
	if !ok {
		return
	}
	r.add("a", "b")
	h := other.take(ask(1), "a")
	r.want("read", r.read("a"), other.read("a"))
	r.end(h, storage.Complete)
	other.gone("a")
	other.configure(pausing(0))
	r.hold(ask(1), 0)
	r.configure(resuming())
	other.take(ask(1), "b")
	r.want("stats", r.stats(), other.stats())
}

func sharingDurable(r *rig) {
	if !r.Durable || r.Again == nil {
		r.Log("not tested: this storage does not outlive its handles")
		return
	}
	h := r.holding(life("a", "k"))
	r.insert(delayed("b", time.Hour), cursor("cursor.c", r.now().Add(time.Hour)))
	r.bury(job("dead"))
	call := r.first()
	once := r.called(call, inserting(delayed("remembered", time.Hour)))
	a, b, s := r.read("a"), r.read("b"), r.stats()
	r.must("close", r.store.Close())
	later, _ := r.again()
	later.want("tasks", [2]storage.Task{later.read("a"), later.read("b")}, [2]storage.Task{a, b})
	later.want("stats", later.stats(), s)
	later.keyTaken("after opening again", "k", "a")
	later.want("a call repeated", later.called(call, inserting(delayed("remembered", time.Hour))), once)
	later.end(h, storage.Complete)
	later.gone("a")
}

func sharingClosed(r *rig) {
	h := r.holding(job("a"))
	r.must("close", r.store.Close())
	r.must("close again", r.store.Close())
	claim, call := ask(1), storage.Call{}
	claim.Token = storage.NewToken()
	errs := map[string]error{}
	_, errs["Apply"] = r.store.Apply(r.ctx, call, inserting(job("b")))
	_, errs["Apply of a settle"] = r.store.Apply(r.ctx, call, settling(h))
	_, errs["Claim"] = r.store.Claim(r.ctx, claim)
	extend := storage.ExtendRequest{Leases: []storage.Extension{{Fence: h.Fence}}}
	_, errs["Extend"] = r.store.Extend(r.ctx, extend)
	errs["Wait"] = r.store.Wait(r.ctx, storage.WaitRequest{Queues: []string{mainQueue}})
	_, errs["Task"] = r.store.Task(r.ctx, in("a"))
	_, errs["Tasks"] = r.store.Tasks(r.ctx, storage.TasksQuery{Queue: mainQueue, State: storage.Waiting})
	_, errs["Queues"] = r.store.Queues(r.ctx, storage.QueuesQuery{})
	_, errs["Stats"] = r.store.Stats(r.ctx, mainQueue)
	_, errs["Partitions"] = r.store.Partitions(r.ctx, storage.PartitionsQuery{Queue: mainQueue})
	_, errs["Runners"] = r.store.Runners(r.ctx)
	errs["Configure"] = r.store.Configure(r.ctx, call, mainQueue, pausing(0))
	_, errs["Describe"] = r.store.Describe(r.ctx)
	for verb, err := range errs {
		r.wantError(verb+" after Close", err, storage.ErrClosed)
	}
}

func sharingDamaged(r *rig) {
	if r.Damage == nil {
		r.Log("not tested: no record of this storage can be damaged")
		return
	}
	r.add("a", "bad", "b")
	r.insert(delayed("bad-later", 10*time.Millisecond), delayed("c", 10*time.Millisecond))
	r.take(ask(1), "a")
	r.Damage(r.TB, in("bad"))
	r.Damage(r.TB, in("bad-later"))
	r.pass(20 * time.Millisecond)
	got := map[string]bool{}
	for range 5 {
		for _, t := range r.claim(ask(5)).Tasks {
			got[t.ID] = true
		}
	}
	r.want("claimed", got, map[string]bool{"b": true, "c": true})
	s := r.stats()
	r.want("damaged", s.Damaged, int64(2))
	r.want("waiting, scheduled", [2]int64{s.Waiting, s.Scheduled}, [2]int64{0, 0})
	r.balanced(s)
	r.add("d")
	r.take(ask(1), "d")
}

// setsApart damages the record of a task, and claims until the task is set apart.
func (r *rig) setsApart(id string) {
	r.Helper()
	before := r.stats().Damaged
	r.Damage(r.TB, in(id))
	for range 5 {
		r.claim(ask(1))
	}
	r.want("damaged", r.stats().Damaged-before, int64(1))
}

func sharingDamagedHolder(r *rig) {
	if r.Damage == nil {
		r.Log("not tested: no record of this storage can be damaged")
		return
	}
	r.insert(life("bad", "k"))
	r.setsApart("bad")
	r.keyFree("of a task that is set apart")
	r.balanced(r.stats())
	r.insert(life("a", "k"))
	r.keyTaken("of the next task", "k", "a")
}

func sharingDamagedEnded(r *rig) {
	if r.Damage == nil {
		r.Log("not tested: no record of this storage can be damaged")
		return
	}
	for id, end := range map[string]func(storage.Insert){
		"completed": func(j storage.Insert) { r.end(r.holding(j), storage.Complete) },
		"cancelled": func(j storage.Insert) { r.insert(j); r.cancel(j.Ref.ID) },
		"dead":      r.bury,
	} {
		j := job(id)
		j.Keep.For = time.Second
		end(j)
		r.Damage(r.TB, in(id))
	}
	r.pass(2 * time.Second)
	for range 3 {
		r.maintain()
	}
	s := r.stats()
	r.want("left", [3]int64{s.Completed, s.Cancelled, s.Dead}, [3]int64{})
	r.want("totals", s.Totals, storage.Totals{Enqueued: 3, Completed: 1, Cancelled: 1, Dead: 1})
}

// balanced fails the rule unless the totals add up.
func (r *rig) balanced(s storage.Stats) {
	r.Helper()
	t := s.Totals
	r.want("Enqueued + Requeued", t.Enqueued+t.Requeued, t.Completed+t.Dead+t.Cancelled+t.Deleted+s.Live())
}
