package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// keeper is the actor that keeps the leases of a shard alive. One call every third of the lease
// extends them all, independent of claims and settles. The runner's guard ends the context of every
// job whose lease was not extended in time, whether or not a call is under way.
type keeper struct {
	*shared

	shard  *shard
	kick   chan struct{} // capacity 1; signals that a task may be cancelled
	failed chan struct{} // capacity 1; signals that an extension has failed
	pulse  *pulse
}

// safe returns how long a job may run on after the last successful extension was sent. The margin
// lets it end before another runner may start the task.
func safe(lease time.Duration) time.Duration { return lease - lease/6 }

// kickGap is the shortest time between two calls. A cancel stays in its queue until its job has
// ended, so that every claim of every runner kicks.
const kickGap = 250 * time.Millisecond

// extensionsAtOnce is how many extensions of the same leases may be under way, each for half a
// lease at most. A slow answer still counts, and the next call makes up for a lost one.
const extensionsAtOnce = 2

// loop extends the leases every third of the lease, sooner after a failure or for a cancel, until
// ctx ends.
func (k *keeper) loop(ctx context.Context) {
	defer k.pulse.ends()
	lease := k.lease
	var calls sync.WaitGroup
	defer calls.Wait()
	places := make(chan struct{}, extensionsAtOnce)
	for {
		select {
		case places <- struct{}{}:
			calls.Go(func() {
				if !k.beat(ctx) {
					kick(k.failed)
				}
				<-places
			})
		default:
		}
		gap := min(kickGap, lease/6)
		if !sleep.For(ctx, gap) || !k.untilNext(ctx, lease/3-gap) {
			return
		}
	}
}

// untilNext waits for the next beat, for d at most. It returns false if ctx ended. After a
// failure it waits less than a third of the lease, because a lease is given up after two and a half
// thirds.
func (k *keeper) untilNext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.kick:
	case <-k.failed:
		return sleep.For(ctx, jitter(min(k.lease/12, slowScan)))
	case <-ctx.Done():
		return false
	}
	return true
}

// beat extends every lease of the shard in one call, and reports whether that succeeded.
func (k *keeper) beat(ctx context.Context) bool {
	// A task can be in flight twice, when it was claimed again before the reply of its release
	// came. The older lease is over, and a call names each task once.
	byRef := make(map[storage.Ref]*Attempt)
	for _, a := range k.slots.inFlight.snapshot(k.shard) {
		if a.hasJoined() { // the lock of its transaction is its lease
			continue
		}
		if other := byRef[a.Fence.Ref]; other == nil || other.Fence.Version < a.Fence.Version {
			byRef[a.Fence.Ref] = a
		}
	}
	return k.extend(ctx, byRef)
}

// extend extends the leases of some attempts and reports whether that succeeded.
func (k *keeper) extend(ctx context.Context, byRef map[storage.Ref]*Attempt) bool {
	if len(byRef) == 0 {
		return true
	}
	req := storage.ExtendRequest{Leases: make([]storage.Extension, 0, len(byRef))}
	for _, a := range byRef {
		_, _, runs := a.runningSince()
		req.Leases = append(req.Leases, storage.Extension{Fence: a.Fence, For: k.lease, Started: runs})
	}
	sent := k.now()
	extended, err := k.beats.Extend(ctx, req)
	var invalid *storage.InvalidError
	switch {
	case errors.As(err, &invalid) && len(byRef) > 1:
		return k.extendApart(ctx, byRef)
	case err != nil: // watched logs outages; the guard watches the leases
		if ctx.Err() == nil {
			k.log.trouble("extend leases", err)
		}
		return invalid != nil // for an invalid request another try would change nothing
	}
	for _, ref := range extended.Lost {
		if a := byRef[ref]; a != nil {
			delete(byRef, ref)
			k.leaseLost(a)
		}
	}
	for _, ref := range extended.CancelAsked {
		if a := byRef[ref]; a != nil {
			a.end(ErrCancelled)
		}
	}
	for _, ref := range extended.Locked { // the guard counts from their last extension
		delete(byRef, ref)
	}
	for _, a := range byRef {
		a.extendedAt(sent)
	}
	return len(extended.Locked) == 0
}

// extendApart extends leases in two calls, after one of them was found invalid before any I/O: that
// lease must not cost the others theirs.
func (k *keeper) extendApart(ctx context.Context, byRef map[storage.Ref]*Attempt) bool {
	other := make(map[storage.Ref]*Attempt, len(byRef)/2)
	for ref, a := range byRef {
		if len(other) < len(byRef) {
			other[ref] = a
			delete(byRef, ref)
		}
	}
	ok := k.extend(ctx, other)
	return k.extend(ctx, byRef) && ok
}

// leaseLost ends an attempt whose lease is gone, according to the storage. An attempt that is
// claimed ahead or settling is dropped when its turn comes.
func (s *shared) leaseLost(a *Attempt) {
	if _, _, runs := a.runningSince(); a.lose() && runs {
		s.log.leaseLost(a)
	}
}

// guard is the actor that ends the contexts of jobs whose lease was not extended in time. It uses
// only local clocks, see moment, and sleeps while no attempt is in flight.
type guard struct {
	*shared

	pulse *pulse
	told  bool // the line about overdue leases was logged, and some lease has been overdue since
}

// loop checks the leases until ctx ends.
func (g *guard) loop(ctx context.Context) {
	defer g.pulse.ends()
	every := max(g.lease/20, 50*time.Millisecond)
	for g.slots.inFlight.wait(ctx) && sleep.For(ctx, every) {
		g.pulse.works()
		g.look(g.now())
		g.pulse.rests()
	}
}

// look ends the contexts of the jobs whose leases are overdue. It logs one line for all jobs of one
// outage.
func (g *guard) look(now moment) {
	overdue, ended := false, 0
	for _, a := range g.slots.inFlight.snapshot(nil) {
		if !a.hasJoined() && a.isOverdue(now) {
			overdue = true
			if a.end(storage.ErrLeaseLost) {
				ended++
			}
		}
		if since, stuck := a.ignoresEnd(now.mono, stuckAfter); stuck {
			g.log.stuck(a, since)
		}
	}
	if ended > 0 && !g.told {
		g.log.overdueEnded(ended, g.lease)
	}
	g.told = overdue && (g.told || ended > 0)
}

// stuckAfter is how long a job may run on after its context ended before a line is logged. Its
// lease is kept and its slot stays taken, so that no second run starts concurrently.
const stuckAfter = 10 * time.Second

func (a *Attempt) extendedAt(sent moment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if sent.since(a.extended) > 0 { // otherwise the answer to a later call came first
		a.extended = sent
	}
}

// unextended returns how long ago the last acknowledged extension was sent.
func (a *Attempt) unextended() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now().since(a.extended)
}

// ignoresEnd reports, once, that the job has run on for longer than after since its context ended.
func (a *Attempt) ignoresEnd(now, after time.Duration) (since time.Duration, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left, some := a.left()
	over := a.cause() != nil || a.timeout > 0 && now-a.startedAt > a.timeout || some && left < 0
	if a.phase != runs && a.phase != lost || !over || !a.ran {
		return 0, false
	}
	m := a.extra()
	if m.pastDue {
		return 0, false
	}
	if !m.isOver {
		m.isOver, m.overSince = true, now
	}
	since = now - m.overSince
	m.pastDue = since > after
	return since, m.pastDue
}
