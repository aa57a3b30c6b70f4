package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/midgehq/midge/storage"
)

// batch is how much of each kind of maintenance one Claim does: so much in all of
// its queues together, but a little in each.
const (
	batch      = 200
	batchLeast = 10
)

// Claim maintains the queues named and takes tasks from them.
func (s *Storage) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := storage.CheckClaim(&req); err != nil {
		return storage.Claimed{}, err
	}
	if err := s.begin(ctx); err != nil {
		return storage.Claimed{}, fmt.Errorf("memory: claim: %w", err)
	}
	defer s.mu.Unlock()
	ln, repeated, err := s.admit(req.Call)
	if err != nil {
		return storage.Claimed{}, fmt.Errorf("memory: claim: %w", err)
	}
	c := claim{store: s, req: &req}
	if repeated {
		fences, ok := ln.outcome.([]storage.Fence)
		if !ok {
			return storage.Claimed{}, fmt.Errorf("memory: claim: repeats another call: %w", storage.ErrUnknown)
		}
		c.again(fences)
	} else {
		c.maintain()
		c.take()
		ln.rememberFences(c.Fences)
	}
	c.survey()
	return c.Claimed, nil
}

// claim is one Claim under way.
type claim struct {
	storage.Claimed

	store   *Storage
	req     *storage.ClaimRequest
	tasks   []*task // those taken so far
	suspect bool    // one was taken
}

// again gives the tasks of the first outcome that are still claimed under its
// fences. Ticks are left out: others get them when they are no longer hidden.
func (c *claim) again(fences []storage.Fence) {
	for i := range fences {
		if t := c.store.fenced(&fences[i]); t != nil {
			c.add(t)
		}
	}
	c.give()
}

// maintain does a bounded part of what is due in the queues named, and hands out
// their due cursors.
func (c *claim) maintain() {
	s := c.store
	s.sweepLanes(batch)
	s.sweepRunners(batch)
	s.inspectQueue()
	share := max(batch/len(c.req.Queues), batchLeast)
	for i := range c.req.Queues {
		q := s.queues[c.req.Queues[i].Name]
		if q == nil {
			continue
		}
		s.promote(q, share)
		c.Buried = append(c.Buried, s.recoverExpired(q, share)...)
		s.expire(q, share)
		c.tick(q, share)
	}
}

// promote moves up to most tasks that are due to the tail of waiting, those due
// earlier first.
func (s *Storage) promote(q *queue, most int) {
	for range most {
		t := q.firstDue()
		if t == nil || t.Due > s.come {
			return
		}
		s.waitAtTail(t)
	}
}

// firstDue gives what is due first of the scheduled and the retried, or nil.
func (q *queue) firstDue() *task {
	at, t, ok := q.scheduled.head()
	if retryAt, r, some := q.retry.head(); some && (!ok || retryAt.before(at)) {
		return r
	}
	return t
}

// expire removes up to most records of each state, and unique windows, whose time is
// over.
func (s *Storage) expire(q *queue, most int) {
	for _, order := range []*sorted[*task]{&q.completed, &q.cancelled, &q.dead} {
		for _, t := range order.until(s.come, most) {
			s.remove(t)
		}
	}
	for _, h := range q.windows.until(s.come, most) {
		q.drop(h.key)
	}
}

// tick hands out the cursors that are due and hides them for a while, so that
// another takes them if this caller dies before it ticks.
func (c *claim) tick(q *queue, most int) {
	s := c.store
	for _, t := range q.cursors.until(s.come, most) {
		s.put(t, storage.Cursors, s.tickAt(t, s.now.after(storage.TickHide)))
		c.Ticks = append(c.Ticks, t.listed())
	}
}

// isBehind reports whether a part of the maintenance was left over.
func (q *queue) isBehind(now moment) bool {
	for _, order := range []*sorted[*task]{
		&q.scheduled, &q.retry, &q.pending, &q.cursors, &q.completed, &q.cancelled, &q.dead,
	} {
		if at, _, ok := order.head(); ok && at.major <= int64(now) {
			return true
		}
	}
	return false
}

// take moves tasks to pending, queue after queue.
func (c *claim) take() {
	waiting := 0
	for i := range c.req.Queues {
		if q, most := c.open(i); most > 0 {
			waiting += q.waiting()
		}
	}
	n := min(waiting, c.req.Max)
	c.tasks, c.Fences = make([]*task, 0, n), slices.Grow(c.req.Room.Fences[:0], n)
	room := storage.MaxClaimBytes
	for i := range c.req.Queues {
		q, most := c.open(i)
		for ; most > 0 && len(c.tasks) < c.req.Max && room > 0; most-- {
			starts := len(c.tasks) < c.req.Start
			t := q.next(starts, starts && c.req.Suspect && !c.suspect)
			if t == nil {
				break
			}
			if room -= len(t.Payload); room >= 0 || len(c.tasks) == 0 {
				c.start(t, starts)
			}
		}
	}
	c.give()
}

// open gives the i-th queue named and how many may be taken from it, 0 where it is
// not there or paused.
func (c *claim) open(i int) (q *queue, most int) {
	name, most := c.req.Queues[i].Name, c.req.Queues[i].Max
	if most == 0 {
		most = c.req.Max
	}
	q = c.store.queues[name]
	if q == nil || q.isPaused(c.store.now) {
		return nil, 0
	}
	return q, most
}

// next gives the first waiting task that may be claimed, or nil: one that is only to
// start at once where starts is set, a suspect where suspects is.
func (q *queue) next(starts, suspects bool) *task {
	at, first, ok := q.ready[plain].head()
	for kind, allowed := range [kinds]bool{prompt: starts, suspect: suspects} {
		if !allowed {
			continue
		}
		if place, t, some := q.ready[kind].head(); some && (!ok || place.before(at)) {
			at, first, ok = place, t, true
		}
	}
	return first
}

// start moves a waiting task to pending.
func (c *claim) start(t *task, starts bool) {
	s := c.store
	until := s.now.after(c.req.Lease)
	s.put(t, storage.Pending, s.at(until))
	t.Version = s.version()
	t.lease = lease{token: c.req.Token, Runner: c.req.Runner, Started: starts, LeaseUntil: until}
	c.add(t)
}

// add puts a claimed task among those of the answer.
func (c *claim) add(t *task) {
	c.suspect = c.suspect || t.kind() == suspect
	c.tasks = append(c.tasks, t)
	c.Fences = append(c.Fences, storage.Fence{Ref: t.ref(), Version: t.Version, Token: t.token})
}

// give copies the tasks taken into the answer. Their payloads share one piece of
// memory.
func (c *claim) give() {
	bytes := 0
	for _, t := range c.tasks {
		bytes += len(t.Payload)
	}
	room := make([]byte, bytes)
	c.Tasks = slices.Grow(c.req.Room.Tasks[:0], len(c.tasks))[:len(c.tasks)]
	for i, t := range c.tasks {
		n := copy(room, t.Payload)
		t.copyTo(&c.Tasks[i], room[:n:n])
		room = room[n:]
	}
}

// survey says what there is to do next, as things stand after the claim.
func (c *claim) survey() {
	s := c.store
	c.Now, c.Since = s.now.time(), s.events
	var next moment
	for i := range c.req.Queues {
		q := s.queues[c.req.Queues[i].Name]
		if q == nil {
			continue
		}
		c.Cancels = c.Cancels || q.asked > 0
		next = sooner(next, q.nextDue(s.now))
		c.More = c.More || q.isBehind(s.come) || c.wouldFind(i)
	}
	if s.jumped != 0 {
		next = s.jumped.after(storage.JumpWait)
	}
	c.NextDue = next.time()
}

// wouldFind reports whether the same request again would find a task in its i-th
// queue. A second suspect does not count: whoever was given one asks for no other.
func (c *claim) wouldFind(i int) bool {
	q, most := c.open(i)
	starts := c.req.Start > 0
	return min(most, c.req.Max) > 0 && q.next(starts, starts && c.req.Suspect && !c.suspect) != nil
}

// nextDue is the earliest moment at which something in the queue is due, 0 if nothing
// is: a task, a tick, or the end of a pause that keeps tasks waiting.
func (q *queue) nextDue(now moment) moment {
	var due moment
	if t := q.firstDue(); t != nil {
		due = t.Due
	}
	if at, _, ok := q.cursors.head(); ok && at.major != never {
		due = sooner(due, moment(at.major))
	}
	if q.isPaused(now) && q.waiting() > 0 {
		due = sooner(due, q.pausedUntil)
	}
	return due
}

// sooner gives the earlier of two moments, either of which may be none.
func sooner(a, b moment) moment {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
