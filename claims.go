package midge

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/storage"
)

// claimer is the claim loop of a domain: it asks for as many tasks as there are free
// slots, and a few ahead, and otherwise sleeps until the storage has something, a
// slot is free, something falls due, or the slow scan's second is over.
type claimer struct {
	d        *domain
	brought  int             // tasks of the last claim
	answered time.Time       // when it was
	unsure   bool            // its outcome is unknown
	room     storage.Claimed // memory for the next, of which nothing is used any more
}

const slowScan = time.Second // ± 20 %

// gatherTime is how soon after a claim of several tasks the next one comes, where it is new
// work that asks for it.
const gatherTime = time.Millisecond / 2

// jitter spreads d by ± 20 %, so that the runners of a fleet do not scan in step.
func jitter(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5) }

// loop claims until draining ends. A claim under way then is still awaited: what it
// takes has to be given back.
func (c *claimer) loop(draining, hard, jobs context.Context) {
	// A storage that is away when the drain begins must not hold it up.
	claim, cancel := context.WithCancel(hard)
	defer cancel()
	stopTimer := context.AfterFunc(draining, func() { time.AfterFunc(shutdownTail, cancel) })
	defer stopTimer()
	for draining.Err() == nil {
		c.turn(draining, claim, jobs)
	}
	if c.unsure {
		c.d.r.unsure.Store(true)
	}
}

// turn claims once and sleeps where there is nothing more to do.
func (c *claimer) turn(draining, claim, jobs context.Context) {
	d, r := c.d, c.d.r
	if len(d.queues(0, 0)) == 0 { // none is served any more
		c.room = storage.Claimed{}
		c.pause(draining, storage.MaxDelay)
		return
	}
	r.releaseAll(r.slots.stale(d))
	start, ahead, suspect := r.slots.ask(d, r.cfg.Ahead)
	queues := d.queues(start, ahead)
	sent := r.now()
	claimed, err := r.jobs.Claim(claim, storage.ClaimRequest{
		Runner: r.id, Queues: queues, Max: start + ahead, Start: start,
		Suspect: suspect, Lease: r.cfg.Lease, Room: c.room,
	})
	c.room = storage.Claimed{}
	if err != nil {
		r.slots.refused(d)
		c.failed(draining, err)
		return
	}
	c.take(jobs, claimed, sent)
	c.brought, c.answered, c.unsure = len(claimed.Tasks), time.Now(), false
	more := r.slots.answered(d, claimed.More)
	if claimed.Cancels && r.slots.any() {
		kick(d.keep.kick)
	}
	full := more && r.slots.full(d, r.cfg.Ahead)
	c.keep(&claimed, full || !more)
	if full || !more {
		c.idle(draining, round{queues, full, r.slots.untilStale(d)}, claimed)
	}
}

// roomKept is how many tasks the memory that is kept through a pause is for.
const roomKept = 256

// keep keeps the memory of an answer for the next one: at once, or through a pause if it is
// not much. Then nothing of the tasks is kept with it.
func (c *claimer) keep(claimed *storage.Claimed, pauses bool) {
	if pauses {
		if cap(claimed.Tasks) > roomKept {
			return
		}
		clear(claimed.Tasks[:cap(claimed.Tasks)])
		clear(claimed.Fences[:cap(claimed.Fences)])
	}
	c.room = storage.Claimed{Tasks: claimed.Tasks, Fences: claimed.Fences}
}

// failed waits after a claim that did not go through. The session has repeated it
// already, so this is a refusal, or the drain.
func (c *claimer) failed(draining context.Context, err error) {
	c.unsure = errors.Is(err, storage.ErrUnknown)
	c.d.r.log.trouble("claim", err)
	c.pause(draining, jitter(slowScan))
}

// pause waits for so long, or until the queues change.
func (c *claimer) pause(draining context.Context, most time.Duration) {
	ctx, interrupt := context.WithTimeout(draining, most)
	defer interrupt()
	c.d.sleep.begin(interrupt, false)
	<-ctx.Done()
	c.d.sleep.end()
}

// take starts what was claimed.
func (c *claimer) take(jobs context.Context, claimed storage.Claimed, sent moment) {
	d, r := c.d, c.d.r
	// A claim that was repeated through a time of lost replies may bring old leases:
	// claimed anew, the tasks come with fresh ones.
	late := r.now().since(sent) > r.cfg.Lease/3
	attempts := newAttempts(jobs, d, &claimed, sent)
	if late {
		r.slots.hold(attempts...)
		r.releaseAll(attempts)
		attempts = nil
	}
	for _, a := range attempts {
		if a.crashes > 0 {
			r.log.crashed(a)
		}
	}
	r.launch(jobs, attempts...)
	r.log.buried(claimed.Buried)
	for _, t := range claimed.Ticks {
		d.ticks.due(t, claimed.Now)
	}
}

// launch lets attempts run that may, and what waits ahead where there is more room.
func (r *Runner) launch(jobs context.Context, attempts ...*attempt) {
	roused, back := r.slots.add(attempts...)
	r.releaseAll(back)
	r.rouse(jobs, roused)
}

// round is what one turn of the loop knows when it goes to sleep.
type round struct {
	queues     []storage.ClaimQueue
	full       bool          // there is no room for what is there: more work is no reason to wake up
	untilStale time.Duration // when what is held ahead is to be given back, 0 never
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
	for c.rest(scan, asked, claimed.Since) {
		continue // a slot was free, and is another domain's by now
	}
	if !asked.full {
		c.gather(draining)
	}
}

// gather lets tasks that come in quick succession come together: a claim for each would
// cost more than the tasks do. One that comes alone is claimed at once.
func (c *claimer) gather(draining context.Context) {
	if wait := gatherTime - time.Since(c.answered); wait > 0 && c.brought > 1 {
		rest(draining, wait)
	}
}

// rest sleeps until the storage has something, the queues change, a slot is free or scan
// ends, and reports whether it was a slot that is none for this domain. It waits in its own
// goroutine: what would end it otherwise interrupts it.
func (c *claimer) rest(scan context.Context, asked round, since storage.Since) (again bool) {
	d := c.d
	ctx, interrupt := context.WithCancel(scan)
	defer interrupt()
	names := make([]string, len(asked.queues))
	for i, q := range asked.queues {
		names[i] = q.Name
	}
	req := storage.WaitRequest{Queues: names, Since: since, CancelsOnly: asked.full}
	d.sleep.begin(interrupt, asked.full || d.r.slots.withheld(d))
	err := d.r.store.Wait(ctx, req)
	if err != nil {
		<-ctx.Done() // no wake-ups to be had, or it was interrupted: the slow scan remains
	}
	changed := d.sleep.end()
	return asked.full && err != nil && scan.Err() == nil && !changed && d.r.slots.full(d, d.r.cfg.Ahead)
}
