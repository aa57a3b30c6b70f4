package memory

import (
	"context"
	"fmt"
	"maps"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// batch is how many records of each kind of maintenance one Claim handles, in all of its
// queues together. batchLeast is the least for each queue.
const (
	batch      = 200
	batchLeast = 10
)

// Claim maintains the queues named and takes tasks from them.
func (s *Storage) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := storage.CheckClaim(&req); err != nil {
		return storage.Claimed{}, err
	}
	ln, repeated, err := s.begin(ctx, req.Call, engine.VerbClaim)
	if err != nil {
		return storage.Claimed{}, fmt.Errorf("memory: claim: %w", err)
	}
	defer s.mu.Unlock()
	s.events.Looking(&req)
	queues := make([]*engine.Queue, len(req.Queues))
	for i := range queues {
		if q := s.queues[req.Queues[i].Name]; q != nil {
			queues[i] = &q.Queue
		}
	}
	c := claim{Claim: s.step.Claim(&req, queues), store: s}
	c.Taken = s.taken[:0]
	if repeated {
		c.Again(ln.fences) // without ticks: other claims get these when they are no longer hidden
		c.give()
	} else {
		c.maintain()
		c.Take()
		c.give()
		ln.rememberFences(c.answer.Fences)
	}
	c.survey()
	s.taken = c.Taken
	clear(s.taken)
	if c.answer.More {
		s.events.Left(&req)
	}
	return c.answer, nil
}

// claim is one Claim under way.
type claim struct {
	engine.Claim

	store  *Storage
	answer storage.Claimed
}

// maintain does a bounded part of the due maintenance of the queues named, and hands
// out their due cursors.
func (c *claim) maintain() {
	s := c.store
	s.sweepLanes(batch)
	s.sweepRunners(batch)
	s.inspectQueue()
	share := max(batch/len(c.Queues), batchLeast)
	promoted := max(engine.MostPromoted/len(c.Queues), batchLeast)
	for i, q := range c.Queues {
		if q == nil {
			continue
		}
		s.step.Promote(q, promoted)
		expired := ours(q).line(engine.Pending).until(s.step.RecoverTo(c.Req), share)
		c.answer.Ended = append(c.answer.Ended, s.step.Recover(expired)...)
		if c.Req.Queues[i].Max >= 0 {
			s.nameKinds(ours(q), c.Req.Kinds)
		}
		ended, left := s.abandon(ours(q), share)
		c.answer.Ended, c.answer.More = append(c.answer.Ended, ended...), c.answer.More || left
		(*records)(s).trimDead()
		s.expire(ours(q), share)
		for _, r := range ours(q).line(engine.Cursor).until(s.step.Come, share) {
			s.step.Hide(r)
			c.answer.Ticks = append(c.answer.Ticks, listed(r))
		}
	}
}

// expire removes up to most expired records of each ended state, and up to most unique windows
// that are over.
func (s *Storage) expire(q *queue, most int) {
	for _, state := range [...]engine.State{engine.Completed, engine.Cancelled, engine.Dead} {
		for _, r := range q.line(state).until(s.step.Come, most) {
			s.step.Remove(r)
		}
	}
	for _, h := range q.windows.until(s.step.Come, most) {
		q.drop(h.key)
	}
}

// give copies the tasks taken into the answer. Their payloads share one slice.
func (c *claim) give() {
	n, size := len(c.Taken), 0
	for _, r := range c.Taken {
		size += len(r.Payload)
	}
	room, a := make([]byte, size), &c.answer
	a.Grow(n)
	a.Tasks, a.Fences = a.Tasks[:n], make([]storage.Fence, n)
	for i, r := range c.Taken {
		t := &a.Tasks[i]
		r.CopyTo(t)
		n := copy(room, r.Payload)
		t.Payload, room = room[:n:n], room[n:]
		t.Headers, t.Attempts = maps.Clone(t.Headers), nil
		a.Fences[i] = storage.Fence{Ref: r.Ref, Version: r.Version, Token: r.Token}
	}
}

// survey fills in the parts of the answer that say what remains to be done after the claim.
func (c *claim) survey() {
	s, a := c.store, &c.answer
	a.Now, a.Since = engine.Time(s.step.Now), s.events.Since()
	for _, q := range c.Queues {
		a.Cancels = a.Cancels || q != nil && q.Sizes[engine.Asked] > 0
	}
	next, more := c.Survey()
	if s.step.Jumped != 0 {
		next = s.step.Jumped + storage.JumpWait.Microseconds()
	}
	a.NextDue, a.More = engine.Time(next), a.More || more
}
