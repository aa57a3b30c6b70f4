package runner

import (
	"context"
	"errors"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// claimer is the actor that claims the tasks of a shard: it asks for as many tasks as there are
// free slots, and a few ahead, and otherwise waits until the storage has something, a
// slot is free, a task falls due, or the slow scan's second is over.
type claimer struct {
	*shared

	shard    *shard
	workers  *workers
	brought  int       // tasks of the last claim
	answered time.Time // when it was
	doubtful bool      // its outcome is unknown
	pulse    *pulse
}

// gatherTime is how soon after a claim of several tasks the next one comes, where it is new
// work that asks for it.
const gatherTime = time.Millisecond / 2

// loop claims until draining ends. A claim under way then is still awaited: its tasks have to be
// given back.
func (c *claimer) loop(draining, hard context.Context) {
	defer c.pulse.ends()
	// A storage that is away when the drain begins must not hold it up.
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

// turn claims once and sleeps where there is nothing more to do.
func (c *claimer) turn(draining, claim context.Context) {
	d := c.shard
	c.pulse.works()
	if len(d.queues(0, 0)) == 0 { // none is served any more
		c.pause(draining, storage.MaxDelay)
		return
	}
	c.releaseAll(c.slots.removeStale(d))
	start, ahead, suspect := c.slots.ask(d)
	queues := d.queues(start, ahead)
	sent := c.now()
	c.pulse.rests()
	claimed, err := c.tasks.Claim(claim, storage.ClaimRequest{
		Runner: c.id, Queues: queues, Start: start, Ahead: ahead,
		Suspect: suspect, Kinds: c.jobs.Kinds(), Lease: c.lease,
	})
	c.pulse.works()
	if err != nil {
		c.slots.refused(d)
		c.failed(draining, err)
		return
	}
	c.start(claimed, sent) //nolint:contextcheck // the calls of jobs that it starts outlive the claim
	c.brought, c.answered, c.doubtful = len(claimed.Tasks), time.Now(), false
	if c.ends == nil {
		claimed.Free()
	}
	more := c.slots.answered(d, claimed.More)
	if claimed.Cancels && c.slots.inFlight.count() > 0 {
		kick(d.keeper.kick)
	}
	full := more && c.slots.full(d)
	if full || !more {
		c.idle(draining, round{queues, full, c.slots.untilStale(d)}, claimed)
	}
}

// failed waits after a claim that did not go through. The session has repeated it
// already, so this is a refusal, or the drain.
func (c *claimer) failed(draining context.Context, err error) {
	c.doubtful = errors.Is(err, storage.ErrUnknown)
	c.log.trouble("claim", err)
	c.pause(draining, jitter(slowScan))
}

// pause waits for so long, or until the queues change.
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
	// A claim that was repeated through a time of lost replies may bring old leases:
	// claimed anew, the tasks come with fresh ones.
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
	for _, t := range claimed.Ticks {
		d.ticker.due(t, claimed.Now)
	}
}

// round is what one turn of the loop knows when it goes to sleep.
type round struct {
	queues     []storage.ClaimQueue
	full       bool          // no slot is free for the tasks that are there: more are no reason to wake up
	untilStale time.Duration // when the attempts ahead are to be given back, 0 never
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
		continue // a slot was free, and is another shard's by now
	}
	if !asked.full {
		c.gather(draining)
	}
}

// gather lets tasks that come in quick succession come together: a claim for each would
// cost more than the tasks do. One that comes alone is claimed at once.
func (c *claimer) gather(draining context.Context) {
	if wait := gatherTime - time.Since(c.answered); wait > 0 && c.brought > 1 {
		sleep.For(draining, wait)
	}
}

// await waits until the storage has something, the queues change, a slot is free or scan
// ends, and reports whether it was a slot that is none for this shard. It waits in its own
// goroutine: any other reason interrupts it.
func (c *claimer) await(scan context.Context, asked round, since storage.Since) (again bool) {
	d := c.shard
	ctx, interrupt := context.WithCancel(scan)
	defer interrupt()
	names := make([]string, len(asked.queues))
	for i, q := range asked.queues {
		names[i] = q.Name
	}
	req := storage.WaitRequest{Queues: names, Since: since, CancelsOnly: asked.full}
	d.wakeUp.arm(interrupt, asked.full || c.slots.withheld(d))
	c.pulse.rests()
	err := c.store.Wait(ctx, req)
	if err != nil {
		<-ctx.Done() // no wake-ups to be had, or it was interrupted: the slow scan remains
	}
	c.pulse.works()
	changed := d.wakeUp.disarm()
	return asked.full && err != nil && scan.Err() == nil && !changed && c.slots.full(d)
}
