package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

func waitRules() []rule {
	return []rule{
		state("wait/new work", waitNewWork,
			"Wait returns when a task arrives in waiting: inserted, released, requeued."),
		state("wait/earlier due", waitEarlierDue,
			"Wait returns when something becomes due earlier: scheduled, failed, snoozed, a cursor."),
		state("wait/cancel", waitCancel,
			"Wait returns when a cancel of a pending task was asked."),
		state("wait/settings", waitSettings,
			"Wait returns when the settings of one of the queues changed."),
		state("wait/nothing lost since the claim", waitSince,
			"What happens between a Claim and the Wait that follows is not lost: Wait returns at once."),
		state("wait/beside what waits", waitBeside,
			"Wait returns when a task arrives in waiting where others wait already, which a Claim has left there "+
				"or recovered."),
		state("wait/any of the queues", waitAny,
			"Wait returns for any of the queues that it names."),
		state("wait/a queue made anew", waitMadeAnew,
			"Wait returns for a queue that was removed and made anew, in which happens what happened before."),
		state("wait/another handle", waitOtherHandle,
			"Wait returns for what another process does."),
		state("wait/cancels only", waitCancelsOnly,
			"A Wait for cancels alone returns on a cancel, and what it ignored is still new for a later Wait."),
		state("wait/one waiter", waitOne,
			"New work wakes one of several waiters, and no other where it takes the work."),
		state("wait/many waiters", waitMany,
			"New work wakes as many waiters as it needs, where each that is woken takes a part of it."),
		state("wait/passed on", waitPassedOn,
			"Where a waiter that was woken makes no Claim, or the Claim does not take the work, another is woken."),
		state("wait/all waiters", waitAll,
			"A cancel, changed settings, an earlier due moment and a decline wake every waiter."),
		state("wait/maintained", waitMaintained,
			"New work does not wake a Wait that only maintains its queue; an earlier due moment does."),
		state("wait/nothing lost under load", waitLoad,
			"Claimers that rest between claims miss nothing of what others insert meanwhile."),
		state("wait/ends with its context", waitContext,
			"Wait returns the context's error when the context ends."),
		state("wait/rests", waitRests,
			"Where nothing happens Wait does not return again and again: idle costs nothing."),
		state("wait/ends with the storage", waitClose,
			"Close ends a Wait that is under way."),
	}
}

// waiting starts a Wait on another goroutine. The channel receives its result.
func (r *rig) waiting(req storage.WaitRequest) <-chan error {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- r.store.Wait(ctx, req)
	}()
	if r.virtual {
		synctest.Wait()
	}
	return done
}

// woken fails the rule if a Wait was not woken.
func (r *rig) woken(by string, done <-chan error) {
	r.Helper()
	if err := <-done; err != nil {
		r.Fatalf("Wait, woken by %s: got error %v, want nil", by, err)
	}
}

// wakes tests that action wakes a Wait which follows a Claim, both when action happens after
// the Wait has begun and when it happens before.
func (r *rig) wakes(by string, action func(r *rig)) {
	r.Helper()
	since := r.maintain().Since
	done := r.waiting(storage.WaitRequest{Queues: []string{mainQueue}, Since: since})
	action(r)
	r.woken(by, done)
	r.woken(by+" before it began", r.waiting(storage.WaitRequest{Queues: []string{mainQueue}, Since: since}))
}

func waitNewWork(r *rig) {
	r.wakes("an insert", func(r *rig) { r.add("a") })
	h := r.take(ask(1), "a")
	r.wakes("a release", func(r *rig) { r.end(h, storage.Release) })
	h = r.take(ask(1), "a")
	r.end(h, storage.Bury)
	r.wakes("a requeue", func(r *rig) { r.changeNow("a", storage.Change{Requeue: true}) })
	h = r.take(ask(1), "a")
	tx := settling(h)
	tx.Inserts = []storage.Insert{job("next")}
	r.wakes("a follow-up", func(r *rig) { r.apply(tx) })
}

func waitEarlierDue(r *rig) {
	r.insert(delayed("first", 10*time.Hour))
	r.wakes("an earlier task", func(r *rig) { r.insert(delayed("a", 9*time.Hour)) })
	h := r.holding(job("b"))
	r.wakes("a failure", func(r *rig) {
		r.settle(h, storage.Settle{Outcome: storage.Fail, Delay: 8 * time.Hour})
	})
	h = r.holding(job("c"))
	r.wakes("a snooze", func(r *rig) {
		r.settle(h, storage.Settle{Outcome: storage.Snooze, Delay: 7 * time.Hour})
	})
	r.wakes("a change", func(r *rig) { r.changeNow("first", storage.Change{Delay: 6 * time.Hour}) })
	r.wakes("a cursor", func(r *rig) { r.insert(cursor("cursor.c", r.now().Add(5*time.Hour))) })
	c := cursor("cursor.c", r.now().Add(time.Hour)).Cursor
	r.wakes("a cursor changed", func(r *rig) { r.changeNow("cursor.c", storage.Change{Cursor: c}) })
}

func waitCancel(r *rig) {
	r.holding(job("a"))
	r.wakes("a cancel", func(r *rig) { r.cancel("a") })
}

func waitSettings(r *rig) {
	r.add("a")
	r.wakes("a pause", func(r *rig) { r.configure(pausing(0)) })
	r.wakes("a resumption", func(r *rig) { r.configure(resuming()) })
}

func waitSince(r *rig) {
	for _, id := range []string{"a", "b", "c"} {
		c := r.claim(ask(1))
		r.add(id)
		r.woken("what came between", r.waiting(storage.WaitRequest{Queues: []string{mainQueue}, Since: c.Since}))
		r.take(ask(1), id)
	}
}

func waitBeside(r *rig) {
	r.add("a", "b", "c")
	r.take(ask(1), "a")
	for _, id := range []string{"d", "e"} {
		r.wakes("an insert beside others", func(r *rig) { r.add(id) })
	}
	h := r.take(brief(1), "b")
	r.add("f")
	r.passTo(h.LeaseUntil)
	r.wakes("an insert after a recovery", func(r *rig) { r.add("g") })
}

func waitAny(r *rig) {
	req := ask(1)
	req.Queues = []storage.ClaimQueue{{Name: sideQueue}, {Name: mainQueue}, {Name: "third"}}
	c := r.claim(req)
	names := []string{sideQueue, mainQueue, "third"}
	done := r.waiting(storage.WaitRequest{Queues: names, Since: c.Since})
	r.add("a")
	r.woken("the second queue", done)
	c = r.claim(req)
	done = r.waiting(storage.WaitRequest{Queues: names, Since: c.Since})
	j := job("b")
	j.Ref.Queue = "third"
	r.insert(j)
	r.woken("the third queue", done)
}

func waitMadeAnew(r *rig) {
	by := []*rig{r}
	if other, ok := r.again(); ok {
		by = append(by, other)
	}
	for _, inserter := range by {
		for range 3 {
			r.wakes("an insert", func(*rig) { inserter.add("a") })
			r.end(r.take(ask(1), "a"), storage.Complete)
			r.configure(storage.Settings{Remove: true})
		}
	}
}

func waitOtherHandle(r *rig) {
	other, ok := r.again()
	if !ok {
		return
	}
	r.wakes("another's insert", func(*rig) { other.add("a") })
	h := r.take(ask(1), "a")
	r.wakes("another's cancel", func(*rig) { other.cancel("a") })
	r.end(h, storage.Cancel)
	r.wakes("another's delayed insert", func(*rig) { other.insert(delayed("b", time.Hour)) })
	r.wakes("another's pause", func(*rig) { other.configure(pausing(0)) })
}

func waitCancelsOnly(r *rig) {
	r.holding(job("a"))
	since := r.maintain().Since
	req := storage.WaitRequest{Queues: []string{mainQueue}, Since: since, CancelsOnly: true}
	r.add("b")
	ctx, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
	defer cancel()
	_ = r.store.Wait(ctx, req)
	anything := req
	anything.CancelsOnly = false
	r.woken("what an earlier Wait ignored", r.waiting(anything))
	done := r.waiting(req)
	r.cancel("a")
	r.woken("a cancel", done)
}

// idle starts several Waits on the main queue, as idle runners do. The channel receives their results.
func (r *rig) idle(n int) <-chan error {
	r.Helper()
	since := r.claim(ask(1)).Since
	woken := make(chan error, n)
	for range n {
		done := r.waiting(storage.WaitRequest{Queues: []string{mainQueue}, Since: since})
		go func() { woken <- <-done }()
	}
	return woken
}

// release ends the Waits of idle of which n are left.
func (r *rig) release(woken <-chan error, n int) {
	r.Helper()
	r.configure(resuming())
	for range n {
		r.woken("changed settings", woken)
	}
}

func waitOne(r *rig) {
	// Elsewhere a busy machine may keep a waiter from its Claim for so long that another is woken.
	const waiters, rounds = 5, 50
	for i := range rounds {
		woken := r.idle(waiters)
		id := fmt.Sprintf("t%d", i)
		r.add(id)
		r.woken("an insert", woken)
		r.take(ask(1), id)
		if r.virtual {
			r.pass(time.Second)
			synctest.Wait()
		}
		others := len(woken)
		r.release(woken, waiters-1)
		if r.virtual {
			r.want("other waiters woken", others, 0)
			return
		}
		if others == 0 {
			return
		}
	}
	r.Fatalf("an insert woke several waiters, %d times", rounds)
}

func waitMany(r *rig) {
	const waiters = 10
	woken := r.idle(waiters)
	ids := make([]string, waiters)
	for i := range ids {
		ids[i] = fmt.Sprintf("t%d", i)
	}
	r.add(ids...)
	for i := range waiters {
		r.woken(fmt.Sprintf("many inserts, behind %d others", i), woken)
		if c := r.claim(ask(1)); len(c.Tasks) != 1 {
			r.Fatalf("claim %d of %d: got %d tasks, want one", i, waiters, len(c.Tasks))
		}
	}
}

func waitPassedOn(r *rig) {
	woken := r.idle(3)
	r.add("a")
	r.woken("an insert", woken)
	r.maintain()
	r.woken("an insert that nobody has looked at", woken)
	req := ask(1)
	req.Queues[0].Max = -1
	r.claim(req)
	r.woken("an insert that nobody has taken", woken)
	r.take(ask(1), "a")
}

func waitAll(r *rig) {
	const waiters = 5
	h := r.holding(job("a"))
	for by, action := range map[string]func(){
		"a cancel":          func() { r.cancel("a") },
		"settings":          func() { r.configure(pausing(0)); r.configure(resuming()) },
		"an earlier moment": func() { r.insert(delayed("later", time.Hour)) },
	} {
		woken := r.idle(waiters)
		action()
		for range waiters {
			r.woken(by, woken)
		}
	}
	r.end(h, storage.Cancel)
	h = r.holding(of("mail", "b"))
	woken := r.idle(waiters)
	r.end(h, storage.Decline)
	for range waiters {
		r.woken("a decline", woken)
	}
}

func waitMaintained(r *rig) {
	since := r.maintain().Since
	done := r.waiting(storage.WaitRequest{
		Queues: []string{sideQueue}, Maintained: []string{mainQueue}, Since: since,
	})
	r.add("a")
	if r.virtual {
		r.pass(time.Second)
		synctest.Wait()
		r.want("Waits that new work has woken", len(done), 0)
	}
	r.insert(delayed("later", time.Hour))
	r.woken("an earlier moment", done)
}

func waitLoad(r *rig) {
	const tasks = 100
	taken := make(chan struct{}, tasks)
	ctx, stop := context.WithCancel(r.ctx)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { r.claimer(ctx, taken) })
	}
	for i := range tasks {
		r.add(fmt.Sprintf("t%d", i))
		select {
		case <-taken: // the claimers are now about to wait
		case <-ctx.Done():
		}
		if r.Failed() {
			break
		}
	}
	stop()
	all.Wait()
	r.want("pending", r.stats().Pending, int64(tasks))
}

// claimer claims a task at a time until ctx ends. If there is no task, it waits until
// there may be one.
func (r *rig) claimer(ctx context.Context, taken chan<- struct{}) {
	for ctx.Err() == nil {
		c, err := r.session.Claim(ctx, ask(1))
		if err == nil && len(c.Tasks) == 0 {
			resting, cancel := context.WithTimeout(ctx, patience)
			err = r.store.Wait(resting, storage.WaitRequest{Queues: []string{mainQueue}, Since: c.Since})
			cancel()
		} else if err == nil {
			taken <- struct{}{}
		}
		if err != nil && ctx.Err() == nil {
			r.Errorf("claim or wait: %v", err)
			taken <- struct{}{} // so that the inserter sees that the rule has failed
			return
		}
	}
}

func waitContext(r *rig) {
	since := r.maintain().Since
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	for range 100 {
		err := r.store.Wait(ctx, storage.WaitRequest{Queues: []string{mainQueue}, Since: since})
		if errors.Is(err, context.Canceled) {
			break
		}
		r.must("wait", err) // nil: Wait may return early
	}
	ctx, cancel = context.WithTimeout(r.ctx, 30*time.Millisecond)
	defer cancel()
	for {
		err := r.store.Wait(ctx, storage.WaitRequest{Queues: []string{mainQueue}, Since: r.maintain().Since})
		if err != nil {
			r.wantError("wait", err, context.DeadlineExceeded)
			return
		}
	}
}

func waitRests(r *rig) {
	r.insert(delayed("later", time.Hour))
	h := r.holding(job("a"))
	r.cancel(h.ID)
	ctx, cancel := context.WithTimeout(r.ctx, 300*time.Millisecond)
	defer cancel()
	for range 5 {
		since := r.maintain().Since
		if err := r.store.Wait(ctx, storage.WaitRequest{Queues: []string{mainQueue}, Since: since}); err != nil {
			return
		}
	}
	r.Fatalf("Wait with nothing new: returned 5 times in 300ms, want it to rest")
}

func waitClose(r *rig) {
	since := r.maintain().Since
	done := r.waiting(storage.WaitRequest{Queues: []string{mainQueue}, Since: since})
	r.must("close", r.store.Close())
	if err := <-done; errors.Is(err, context.DeadlineExceeded) {
		r.Fatalf("Wait under way at Close: got %v, want it to end at once", err)
	}
}
