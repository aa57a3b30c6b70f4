package runner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// claimer is the actor that claims the tasks of a shard. It asks for as many tasks as there are
// free slots, and a few ahead. Otherwise it waits until the storage has a task, a slot is free, a
// task falls due, or the second of the slow scan is over.
type claimer struct {
	*shared

	shard    *shard
	workers  *workers
	brought  int       // number of tasks in the last claim
	answered time.Time // time of the last answer
	doubtful bool      // the outcome of the last claim is unknown
	pulse    *pulse
}

// gatherTime is the shortest time from a claim of several tasks to the next one, if new tasks
// cause the next one.
const gatherTime = time.Millisecond / 2

// loop claims until draining ends. It still waits for a claim that is under way then, because the
// claim's tasks must be given back.
func (c *claimer) loop(draining, hard context.Context) {
	defer c.pulse.ends()
	// A storage that is away when the drain begins must not delay it.
	claim, cancel := context.WithCancel(hard)
	defer cancel()
	stopTimer := context.AfterFunc(draining, func() { time.AfterFunc(shutdownTail, cancel) })
	defer stopTimer()
	for draining.Err() == nil {
		c.turn(draining, claim)
	}
	if c.doubtful {
		c.unsure.Store(true)
	}
}

// turn claims once, and sleeps if there is nothing to do.
func (c *claimer) turn(draining, claim context.Context) {
	d := c.shard
	c.pulse.works()
	if len(d.queues(0, 0)) == 0 { // no queue is served any more
		c.pause(draining, storage.MaxDelay)
		return
	}
	c.releaseAll(c.slots.removeStale(d))
	start, ahead, suspect := c.slots.ask(d)
	queues := d.queues(start, ahead)
	c.slots.limitedFirst(d, start, queues)
	c.slots.restrict(queues)
	sent := c.now()
	c.pulse.rests()
	claimed, err := c.tasks.Claim(claim, storage.ClaimRequest{
		Runner: c.id, Queues: queues, Start: start, Ahead: ahead,
		Suspect: suspect, Kinds: c.jobs.Kinds(), Lease: c.lease,
		RecoverBefore: d.contact.recoverBefore(sent.mono),
	})
	c.pulse.works()
	if err != nil {
		c.slots.refused(d)
		if errors.Is(err, storage.ErrFull) {
			d.contact.refused()
		}
		c.failed(draining, err)
		return
	}
	if !c.store.full.Load() {
		d.contact.answered(claimed.Now, c.elapsed())
	}
	c.start(claimed, sent) //nolint:contextcheck // the calls of jobs that it starts outlive the claim
	c.brought, c.answered, c.doubtful = len(claimed.Tasks), time.Now(), false
	if c.ends == nil {
		claimed.Free()
	}
	more := c.slots.answered(d, claimed)
	if claimed.Cancels && c.slots.inFlight.count() > 0 {
		kick(d.keeper.kick)
	}
	if len(claimed.Ticks) > 0 {
		d.ticker.awaitRoom(draining)
	}
	full := more && c.slots.full(d)
	if full || !more {
		c.idle(draining, round{queues, claimed.Bounded, full, c.slots.untilStale(d)}, claimed)
	}
}

// failed waits after a failed claim. The session has repeated the claim already, so the failure is
// a refusal or the end of the drain.
func (c *claimer) failed(draining context.Context, err error) {
	c.doubtful = errors.Is(err, storage.ErrUnknown)
	c.log.trouble("claim", err)
	c.pause(draining, jitter(slowScan))
}

// pause waits for most, or until the queues change.
func (c *claimer) pause(draining context.Context, most time.Duration) {
	ctx, interrupt := context.WithTimeout(draining, most)
	defer interrupt()
	c.shard.wakeUp.arm(interrupt, false)
	c.pulse.rests()
	<-ctx.Done()
	c.shard.wakeUp.disarm()
}

// start hands the claimed tasks to the workers, and the due cursors to the ticker.
func (c *claimer) start(claimed storage.Claimed, sent moment) {
	d := c.shard
	// Leases of a claim that was repeated for long may be old: the tasks go back, and a new claim
	// brings them with fresh leases.
	late := c.now().since(sent) > c.lease/3
	attempts := c.workers.judge.decline(d, c.workers.newAttempts(d, &claimed, sent))
	if late {
		c.slots.inFlight.add(attempts)
		c.releaseAll(attempts)
		attempts = nil
	}
	for _, a := range attempts {
		if a.Crashes > 0 {
			c.log.crashed(a)
		}
	}
	c.workers.launch(attempts...)
	c.tellEnded(claimed.Ended)
	d.ticker.due(dueCursors(claimed))
}

// round holds what a turn of the loop knows when it goes to sleep.
type round struct {
	queues     []storage.ClaimQueue
	bounded    []string      // the queues whose limit admits no task: further tasks are no reason to wake up
	full       bool          // no slot is free for the existing tasks: further tasks are no reason to wake up
	untilStale time.Duration // time until attempts ahead must be given back; 0 for never
}

// idle sleeps until there may be something to do.
func (c *claimer) idle(draining context.Context, asked round, claimed storage.Claimed) {
	most := jitter(slowScan)
	if asked.full {
		most = slowScan * 4 / 5 // a cancel whose wake-up was lost is still seen within a second
	}
	if !claimed.NextDue.IsZero() {
		most = min(most, max(claimed.NextDue.Sub(claimed.Now), 0))
	}
	if asked.untilStale > 0 {
		most = min(most, asked.untilStale)
	}
	scan, cancel := context.WithTimeout(draining, most)
	defer cancel()
	for c.await(scan, asked, claimed.Since) {
		continue // to wait for tasks, now that a slot is free, or because another shard got it
	}
	if !asked.full {
		c.gather(draining)
	}
}

// gather delays the next claim when tasks come in quick succession: a claim for each would cost
// more than the tasks. A lone task is claimed at once.
func (c *claimer) gather(draining context.Context) {
	if wait := gatherTime - time.Since(c.answered); wait > 0 && c.brought > 1 {
		sleep.For(draining, wait)
	}
}

// await waits until the storage has a task, the queues change, a slot is free or scan ends. It
// returns true if a slot became free and is no reason to claim: another shard took it, or the last claim
// left no task. Without a free slot it does not wait for tasks, because the storage wakes only one runner
// for a new task, and a runner without a free slot could not start it. It waits in its own goroutine;
// everything but the storage interrupts that wait.
func (c *claimer) await(scan context.Context, asked round, since storage.Since) (again bool) {
	d := c.shard
	ctx, interrupt := context.WithCancel(scan)
	defer interrupt()
	withheld := c.slots.withheld(d)
	resting := !asked.full && c.slots.rests(d)
	req := storage.WaitRequest{Since: since, CancelsOnly: asked.full || resting}
	c.slots.restrict(asked.queues) // the claim may have filled a queue, whose new tasks other runners have to start
	for _, q := range asked.queues {
		if q.Max < 0 || slices.Contains(asked.bounded, q.Name) {
			req.Maintained = append(req.Maintained, q.Name)
		} else {
			req.Queues = append(req.Queues, q.Name)
		}
	}
	d.wakeUp.arm(interrupt, req.CancelsOnly || withheld)
	c.pulse.rests()
	err := c.store.Wait(ctx, req)
	if err != nil {
		<-ctx.Done() // the storage has no wake-ups, or the wait was interrupted: the slow scan remains
	}
	c.pulse.works()
	changed := d.wakeUp.disarm()
	if err == nil || scan.Err() != nil || changed {
		return false
	}
	return resting && !withheld || asked.full && c.slots.full(d)
}
