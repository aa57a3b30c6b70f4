package storagetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

func cancelRules() []rule {
	return []rule{
		state("cancel/at once", cancelAtOnce,
			"A task that waits, is scheduled or in retry is cancelled at once, and gone unless it is to be kept."),
		state("cancel/kept", cancelKept,
			"A cancelled task is kept for Keep.For."),
		state("cancel/marks a pending task", cancelPending,
			"A cancel marks a pending task, whose state and fence stay as they are."),
		state("cancel/told to claimers", cancelTold,
			"Claimed.Cancels says that a cancel of a pending task waits in one of the queues, until it has ended."),
		state("cancel/any version", cancelAnyVersion,
			"A cancel needs no version, and is refused at a wrong one."),
		state("cancel/ended already", cancelEnded,
			"A task that completed or is dead cannot be cancelled; cancelling a cancelled one does nothing."),
		state("cancel/missing", cancelMissing,
			"A cancel of a task that is not there is Missing."),
		state("cancel/races a settle", cancelRaces,
			"Whichever comes first, cancel or completion, a task ends once: completed under a valid "+
				"fence, or cancelled."),
	}
}

func cancelAtOnce(r *rig) {
	r.settle(r.holding(job("retry")), storage.Settle{Outcome: storage.Fail, Delay: time.Hour})
	r.insert(delayed("scheduled", time.Hour))
	r.add("waiting")
	for _, id := range []string{"waiting", "scheduled", "retry"} {
		before := r.read(id).Version
		p := r.cancel(id)
		r.want("placed", [2]any{p.Ref, p.State}, [2]any{in(id), storage.Cancelled})
		if p.Version <= before {
			r.Fatalf("version: got %d, want more than %d", p.Version, before)
		}
		r.gone(id)
	}
	s := r.stats()
	r.want("stats", [4]int64{s.Totals.Cancelled, s.Cancelled, s.Live(), s.Totals.Deleted}, [4]int64{3, 0, 0, 0})
	r.want("claimed", r.drain(), []string{})
}

func cancelKept(r *rig) {
	r.insert(kept("a"))
	r.cancel("a")
	t := r.is("a", storage.Cancelled)
	r.want("kept", t.Expires.Sub(t.Ended), time.Hour)
	unread := job("b")
	unread.Keep.UntilRead = true
	r.insert(unread)
	r.cancel("b")
	r.gone("b")
}

func cancelPending(r *rig) {
	h := r.holding(job("a"))
	before := r.read("a")
	for range 2 {
		p := r.cancel("a")
		r.want("placed", p, storage.Placed{Ref: in("a"), Version: h.Version, State: storage.Pending})
	}
	after := r.read("a")
	r.want("CancelAsked", [2]bool{before.CancelAsked, after.CancelAsked}, [2]bool{false, true})
	after.CancelAsked = false
	r.want("the rest", after, before)
	r.end(h, storage.Cancel)
	r.gone("a")
}

func cancelTold(r *rig) {
	h := r.holding(job("a"))
	r.want("Cancels before", r.claim(ask(1)).Cancels, false)
	r.cancel("a")
	r.want("Cancels", r.claim(ask(1)).Cancels, true)
	r.want("Cancels of Max 0", r.maintain().Cancels, true)
	req := ask(1)
	req.Queues[0].Name = sideQueue
	r.want("Cancels elsewhere", r.claim(req).Cancels, false)
	r.end(h, storage.Complete)
	r.want("Cancels after", r.claim(ask(1)).Cancels, false)
	r.add("b")
	r.cancel("b")
	r.want("Cancels of what waited", r.claim(ask(1)).Cancels, false)
}

func cancelAnyVersion(r *rig) {
	r.insert(kept("a"))
	version := r.read("a").Version
	r.unchanged(func() {
		dep := r.refuse(storage.Tx{Changes: []storage.Change{
			{Ref: in("a"), Version: version + 1, Cancel: true},
		}})
		r.want("stale", dep.Stale, []storage.Stale{{Ref: in("a"), Want: version + 1, Have: version}})
	}, "a")
	r.change(storage.Change{Ref: in("a"), Version: version, Cancel: true})
	r.is("a", storage.Cancelled)
}

func cancelEnded(r *rig) {
	r.end(r.holding(kept("completed")), storage.Complete)
	r.bury(job("dead"))
	r.insert(kept("cancelled"))
	r.cancel("cancelled")
	for _, s := range []storage.State{storage.Completed, storage.Dead} {
		r.unchanged(func() {
			dep := r.refuse(cancelOf(in(string(s))))
			r.want("refused", *dep, storage.DependencyError{Barred: []storage.Barred{{Ref: in(string(s)), State: s}}})
		}, string(s))
	}
	r.want("placed", r.cancel("cancelled").State, storage.Cancelled)
	r.want("cancelled", r.stats().Totals.Cancelled, int64(1))
}

func cancelMissing(r *rig) {
	dep := r.refuse(cancelOf(in("a")))
	r.want("refused", *dep, storage.DependencyError{Missing: []storage.Ref{in("a")}})
	r.wantError("a cancel of a missing task", dep, storage.ErrNotFound)
}

func cancelRaces(r *rig) {
	const rounds = 22
	var all sync.WaitGroup
	for i := range rounds {
		h := r.holding(kept(fmt.Sprintf("t%d", i)))
		complete := func() {
			if _, err := r.session.ApplyOne(r.ctx, settling(h)); err != nil {
				r.Errorf("complete %s: %v", h.ID, err)
			}
		}
		cancel := func() { _, _ = r.session.ApplyOne(r.ctx, cancelOf(in(h.ID))) }
		switch i {
		case 0: // the races below may all end in one order, so each order also comes without a race
			cancel()
			complete()
		case 1:
			complete()
			cancel()
		default:
			all.Go(complete)
			all.Go(cancel)
		}
	}
	all.Wait()
	s := r.stats()
	r.want("completed, live", [3]int64{s.Totals.Completed, s.Completed, s.Live()}, [3]int64{rounds, rounds, 0})
	r.want("Cancels", r.maintain().Cancels, false)
}
