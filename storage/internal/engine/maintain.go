package engine

import "github.com/midgehq/midge/storage"

const (
	// Batch is how many records of each kind of maintenance one claim handles, in all of its queues together.
	Batch = 200
	// BatchLeast is the least batch for each queue.
	BatchLeast = 10
	// MostPromoted is how many tasks one claim promotes, in all of its queues together. It is more than the
	// other maintenance of a claim: a claim takes due tasks by priority only among the promoted tasks.
	MostPromoted = 500
)

// Maintain does a bounded part of the maintenance that is due in the queues, and hands out their due cursors.
func (c *Claim) Maintain(a *storage.Claimed) {
	s := c.step
	share, promoted := max(Batch/len(c.Queues), BatchLeast), max(MostPromoted/len(c.Queues), BatchLeast)
	for i, q := range c.Queues {
		if q == nil {
			continue
		}
		s.Promote(q, promoted)
		s.resume(q)
		a.Ended = append(a.Ended, s.Recover(s.whole(s.Local.Due(q, Pending, s.RecoverTo(c.Req), share)))...)
		if c.Req.Queues[i].Names() {
			s.nameKinds(q, c.Req.Kinds)
		}
		ended, left := s.abandonKinds(q, share)
		a.Ended, a.More = append(a.Ended, ended...), a.More || left
		s.TrimDead()
		s.trim(q, share)
		for _, state := range endedStates {
			for _, r := range s.Local.Due(q, state, s.Come, share) {
				s.Remove(r)
			}
		}
		c.tick(a, q, share)
	}
}

// tick hands out the due cursors of a queue, as long as their payloads fit in the bytes of the claim. A
// cursor that is too large ends this for all queues, and is left due to the next claim.
func (c *Claim) tick(a *storage.Claimed, q *Queue, most int) {
	if c.ticked > storage.MaxClaimBytes {
		return
	}
	for _, r := range c.step.Local.Due(q, Cursor, c.step.Come, most) {
		if c.ticked += c.step.Lines.Size(r); c.ticked > storage.MaxClaimBytes && len(a.Ticks) > 0 {
			return
		}
		c.step.hide(r)
		a.Ticks = append(a.Ticks, r.Task())
	}
}

// whole finds records again, with the history, which a Store may leave out of the records of a line.
func (s *Step) whole(all []*Record) []*Record {
	for i, r := range all {
		all[i] = s.Store.Find(r.Ref)
	}
	return all
}

// Promote moves up to most due tasks to the tail of waiting, in the order in which they were due.
func (s *Step) Promote(q *Queue, most int) {
	for range most {
		r := s.firstDue(q)
		if r == nil || r.Sort > s.Come {
			return
		}
		s.waitAtTail(r)
	}
}

// firstDue returns the scheduled or retried task that is due first, or nil.
func (s *Step) firstDue(q *Queue) *Record {
	return earlier(s.Lines.First(q, Scheduled), s.Lines.First(q, Retry))
}

// hide moves a cursor that is handed out to a later place, so that other claims find it only after
// TickHide. If the runner dies before it ticks the cursor, another runner then does.
func (s *Step) hide(r *Record) {
	s.put(r, Cursor, Place{max(r.Cursor.Next.UnixMicro(), s.after(storage.TickHide)), s.turn()})
}

// TrimDead removes a dead task for each dead task that came to a queue which has too many. It is called at
// the end of a step, because the step may still need the tasks.
func (s *Step) TrimDead() {
	for _, q := range s.overfull {
		s.trim(q, 1)
	}
	clear(s.overfull)
	s.overfull = s.overfull[:0]
}

// trim removes up to most of the oldest dead tasks of a queue, as long as it has too many.
func (s *Step) trim(q *Queue, most int) {
	for ; most > 0 && s.hasTooManyDead(q); most-- {
		oldest := s.Lines.First(q, Dead)
		if oldest == nil {
			return
		}
		if oldest.Sort > s.Come { // else its time was over anyway
			q.Totals.Evicted++
		}
		s.Remove(oldest)
	}
}

// hasTooManyDead reports whether a queue has more dead tasks than it keeps.
func (s *Step) hasTooManyDead(q *Queue) bool {
	most := s.Limits.DeadMax
	return most != storage.NoLimit && q.Sizes[Dead] > int64(most)
}

// Finish adds to the answer of a claim the work that remains after it.
func (c *Claim) Finish(a *storage.Claimed) {
	s := c.step
	a.Now = Time(s.Now)
	for _, q := range c.Queues {
		a.Cancels = a.Cancels || q != nil && q.Sizes[Asked] > 0
	}
	next, more, bounded, held := c.Survey()
	if s.Jumped != 0 {
		next = s.Jumped + storage.JumpWait.Microseconds()
	}
	a.NextDue, a.More, a.Bounded, a.Held = Time(next), a.More || more, bounded, held
}
