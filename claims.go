package midge

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// claimer is the runner's claim loop: it asks for as many tasks as there are free
// slots, and a few ahead, and otherwise sleeps until the storage has something, a
// slot is free, something falls due, or the slow scan's second is over.
type claimer struct {
	r     *Runner
	swept time.Time // when the queues that nobody serves were last maintained
}

func newClaimer(r *Runner) *claimer { return &claimer{r: r, swept: time.Now()} }

const (
	slowScan  = time.Second      // ± 20 %
	sweepScan = 30 * time.Second // ± 20 %
	sweepSize = 50               // queues of one call
)

// jitter spreads d by ± 20 %, so that the runners of a fleet do not scan in step.
func jitter(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5) }

// loop claims until draining ends. A claim under way then is still awaited: what it
// takes has to be given back. Jobs run under the context jobs.
func (c *claimer) loop(draining, hard, jobs context.Context) {
	r := c.r
	// A storage that is away when the drain begins must not hold it up.
	claim, cancel := context.WithCancel(hard)
	defer cancel()
	stopTimer := context.AfterFunc(draining, func() { time.AfterFunc(shutdownTail, cancel) })
	defer stopTimer()
	for draining.Err() == nil {
		r.settle.releaseAll(r.slots.stale())
		start, ahead, suspect := r.slots.room(r.cfg.Ahead)
		queues := r.claimQueues(start + ahead)
		sent := time.Now()
		claimed, err := r.jobs.Claim(claim, storage.ClaimRequest{
			Runner: r.id, Queues: queues, Max: start + ahead, Start: start,
			Suspect: suspect, Lease: r.cfg.Lease,
		})
		if err != nil {
			c.failed(draining, err)
			continue
		}
		r.take(jobs, claimed, sent)
		if claimed.Cancels && r.slots.any() {
			kick(r.keep.kick)
		}
		if time.Since(c.swept) > jitter(sweepScan) {
			c.sweep(claim, queues)
		}
		nothing := start+ahead > 0 && !claimed.More // what was not asked for may be there
		start, ahead, _ = r.slots.room(r.cfg.Ahead)
		if full := start+ahead == 0; full || nothing {
			c.idle(draining, round{queues, full, r.slots.untilStale()}, claimed)
		}
	}
}

// failed waits after a claim that did not go through. The session has repeated it
// already, so this is a refusal, or the drain.
func (c *claimer) failed(draining context.Context, err error) {
	if !errors.Is(err, storage.ErrUnknown) {
		c.r.log.trouble("claim", err)
	}
	t := time.NewTimer(jitter(slowScan))
	defer t.Stop()
	select {
	case <-t.C:
	case <-draining.Done():
	}
}

// take starts what was claimed.
func (r *Runner) take(jobs context.Context, claimed storage.Claimed, sent time.Time) {
	attempts := make([]*attempt, len(claimed.Tasks))
	for i, t := range claimed.Tasks {
		attempts[i] = newAttempt(r, t, claimed.Fences[i], sent)
		if t.Crashes > 0 {
			r.log.crashed(attempts[i])
		}
	}
	if time.Since(sent) > r.cfg.Lease/3 {
		// The claim was repeated through a time of lost replies, and its leases may be
		// old: claimed anew, the tasks come with fresh ones.
		r.slots.hold(attempts)
		r.settle.releaseAll(attempts)
		attempts = nil
	}
	for _, a := range r.slots.add(attempts...) {
		go r.work(jobs, a) // ends with the last attempt it is given; see slots.waitEmpty
	}
	for _, t := range claimed.Ticks {
		r.ticks.due(t, claimed.Now)
	}
}

// round is what one turn of the loop knows when it goes to sleep.
type round struct {
	queues     []storage.ClaimQueue
	full       bool          // there is no room: new work is no reason to wake up
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
	ctx, cancel := context.WithTimeout(draining, most)
	defer cancel()
	woken := make(chan struct{})
	go func() { // ends with ctx at the latest
		defer close(woken)
		names := make([]string, len(asked.queues))
		for i, q := range asked.queues {
			names[i] = q.Name
		}
		wait := storage.WaitRequest{Queues: names, Since: claimed.Since, CancelsOnly: asked.full}
		if err := c.r.store.Wait(ctx, wait); err != nil {
			<-ctx.Done() // no wake-ups to be had: the slow scan remains
		}
	}()
	freed := c.r.freed
	if !asked.full {
		freed = nil // there was room already, and nothing to put in it
	}
	select {
	case <-woken:
		return
	case <-freed:
	case <-c.r.changed:
	}
	cancel()
	<-woken
}

// claimQueues lists the queues of the next claim of up to most tasks: those served,
// in their order or shared by weight, then those whose schedules tick here.
func (r *Runner) claimQueues(most int) []storage.ClaimQueue {
	r.mu.Lock()
	names, weights := r.queues, r.weights
	r.mu.Unlock()
	list := make([]storage.ClaimQueue, 0, len(names)+1)
	if weights == nil {
		for _, n := range names {
			list = append(list, storage.ClaimQueue{Name: n})
		}
	} else {
		list = shares(names, weights, most, rand.IntN)
	}
	for _, d := range r.ticks.declared() {
		if q := d.Ref.Queue; !slices.ContainsFunc(list, func(c storage.ClaimQueue) bool { return c.Name == q }) {
			list = append(list, storage.ClaimQueue{Name: q, Max: -1})
		}
	}
	return list
}

// shares deals most tasks out to the queues by weight, one draw each, and lists the
// queues in the order drawn. A queue that drew none comes last and may still take
// what the others leave, so that no slot stays free while there is work.
func shares(names []string, weights map[string]int, most int, draw func(int) int) []storage.ClaimQueue {
	left := make(map[string]int, len(names))
	total := 0
	for _, n := range names {
		left[n] = max(weights[n], 1)
		total += left[n]
	}
	list := make([]storage.ClaimQueue, 0, len(names))
	for len(left) > 0 {
		pick, at := "", draw(total)
		for _, n := range names {
			if w := left[n]; w > 0 {
				if pick = n; at < w {
					break
				}
				at -= w
			}
		}
		w := left[pick]
		share := (most*w + total - 1) / total
		list = append(list, storage.ClaimQueue{Name: pick, Max: max(share, 1)})
		most -= min(share, most)
		total -= w
		delete(left, pick)
	}
	if n := len(list); n > 0 {
		list[n-1].Max = 0 // whatever is left
	}
	return list
}

// sweep maintains the queues that this runner does not serve: tasks that fall due or
// lose their lease where no runner claims.
func (c *claimer) sweep(ctx context.Context, served []storage.ClaimQueue) {
	c.swept = time.Now()
	skip := make(map[string]bool, len(served))
	for _, q := range served {
		skip[q.Name] = true
	}
	chunk := make(map[string]bool, sweepSize)
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		req := storage.ClaimRequest{Runner: c.r.id}
		for _, n := range slices.Sorted(maps.Keys(chunk)) {
			req.Queues = append(req.Queues, storage.ClaimQueue{Name: n, Max: -1})
		}
		clear(chunk)
		claimed, err := c.r.jobs.Claim(ctx, req)
		for _, t := range claimed.Ticks {
			c.r.ticks.due(t, claimed.Now)
		}
		return err
	}
	for name, err := range storage.EachQueue(ctx, c.r.store, "") {
		if err != nil {
			c.r.log.trouble("list the queues", err)
			return
		}
		if skip[name] {
			continue
		}
		if chunk[name] = true; len(chunk) == sweepSize {
			if err := flush(); err != nil {
				c.r.log.trouble("maintain queues", err)
				return
			}
		}
	}
	if err := flush(); err != nil {
		c.r.log.trouble("maintain queues", err)
	}
}
