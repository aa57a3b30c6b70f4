package engine

import (
	"math"
	"time"

	"github.com/midgehq/midge/storage"
)

// Claim is one claim under way: it decides which tasks a runner gets, and whether another claim
// would find work.
type Claim struct {
	Req *storage.ClaimRequest
	// Queues are the queues of the request, nil where there is no such queue.
	Queues []*Queue
	// Taken are the tasks taken, in the order of their claim.
	Taken []*Record

	step    *Step
	bytes   int  // of the payloads that came up
	suspect bool // one was taken
	looked  bool // for declined tasks
	// declined are the tasks that were declined, by queue; nil where there are none for this claim.
	declined []declined
}

// declined are the first tasks in the lines of kinds, in one queue.
type declined struct {
	kinds   []string
	first   []*Record // by kind, nil where the claim may take none
	without Flags     // of tasks that it may not take
}

// Claim begins a claim.
func (s *Step) Claim(req *storage.ClaimRequest, queues []*Queue) Claim {
	return Claim{Req: req, Queues: queues, step: s}
}

// Again takes the tasks that an earlier outcome of the same call gave and that are still
// claimed under its fences.
func (c *Claim) Again(fences []storage.Fence) {
	for i := range fences {
		if r := c.step.Store.Find(fences[i].Ref); r != nil && r.Proves(&fences[i]) {
			c.add(r)
		}
	}
}

// Take moves tasks to pending, queue after queue: in each by priority, and within a priority in
// the order in which they came to wait.
func (c *Claim) Take() {
	for i := range c.Queues {
		for n := 0; ; n++ {
			starts := len(c.Taken) < c.Req.Start
			r := c.next(i, starts)
			if r == nil || !c.admit(i, n, c.step.Lines.Size(r)) {
				break
			}
			c.start(r, starts)
		}
	}
}

// next gives the first waiting task of the i-th queue that may be claimed, or nil. A task that is
// to start at once is one where starts is set, and a suspect is the only one of its claim.
func (c *Claim) next(i int, starts bool) *Record {
	q := c.Queues[i]
	if q == nil {
		return nil
	}
	first := c.step.Lines.First(q, Waiting)
	if starts {
		first = earlier(first, c.step.Lines.First(q, Prompt))
	}
	without := StartOnly | IsSuspect
	if starts {
		without = IsSuspect
	}
	if starts && c.Req.Suspect && !c.suspect {
		first = earlier(first, c.step.Lines.First(q, Suspect))
		without = 0
	}
	return earlier(first, c.nextDeclined(i, without))
}

// nextDeclined gives the first declined task of the i-th queue that has none of some flags, of the
// kinds that the claim names; nil where there is none.
func (c *Claim) nextDeclined(i int, without Flags) (next *Record) {
	c.lookForDeclined()
	if c.declined == nil {
		return nil
	}
	d := &c.declined[i]
	again := d.without != without
	d.without = without
	for n, kind := range d.kinds {
		if first := d.first[n]; again || first != nil && first.State != Declined { // that was taken
			d.first[n] = c.step.Lines.FirstDeclined(c.Queues[i], kind, Place{Sort: math.MinInt64}, without)
		}
		next = earlier(next, d.first[n])
	}
	return next
}

// lookForDeclined finds the kinds of declined tasks that the claim names. There are seldom any.
func (c *Claim) lookForDeclined() {
	if c.looked {
		return
	}
	c.looked = true
	for i, q := range c.Queues {
		if q == nil {
			continue
		}
		kinds := c.step.Lines.KindLines(q, c.Req.Kinds)
		if len(kinds) == 0 {
			continue
		}
		if c.declined == nil {
			c.declined = make([]declined, len(c.Queues))
		}
		c.declined[i] = declined{kinds: kinds, first: make([]*Record, len(kinds)), without: -1}
	}
}

// earlier gives the record of two whose place comes first; either may be nil.
func earlier(a, b *Record) *Record {
	if a == nil || b != nil && b.Before(a.Place) {
		return b
	}
	return a
}

// admit reports whether a task of the i-th queue may be taken, as the n-th of that queue from 0
// on, where its payload has so many bytes. Every limit is asked here before a task counts as
// taken, and nowhere else. A payload that is too large ends the claim: no later task overtakes it.
func (c *Claim) admit(i, n, bytes int) bool {
	most := c.Req.Queues[i].Max
	if most == 0 {
		most = c.Req.Most()
	}
	if n >= most || len(c.Taken) >= c.Req.Most() || c.Queues[i].IsPaused(c.step.Come) {
		return false
	}
	c.bytes += bytes
	return len(c.Taken) == 0 || c.bytes <= storage.MaxClaimBytes
}

// start moves a waiting task to pending.
func (c *Claim) start(r *Record, starts bool) {
	s := c.step
	s.put(r, Pending, Place{s.after(c.Req.Lease), s.turn()})
	s.grow(r)
	r.Token, r.Runner = c.Req.Token, c.Req.Runner
	if starts {
		r.Flags |= Started
	}
	c.add(r)
}

// add appends a claimed task.
func (c *Claim) add(r *Record) {
	c.suspect = c.suspect || r.Flags&IsSuspect != 0
	c.Taken = append(c.Taken, r)
}

// Survey gives the earliest moment at which something in the queues is due, 0 if nothing is, and
// reports whether another claim would find work at once: maintenance that was left over, or a
// task for the same request. A second suspect does not count: a runner that was given one asks
// for no other.
func (c *Claim) Survey() (next int64, more bool) {
	again := Claim{Req: c.Req, Queues: c.Queues, step: c.step, suspect: c.suspect}
	for i, q := range c.Queues {
		if q == nil {
			continue
		}
		next = sooner(next, c.step.nextDue(q))
		if q.IsPaused(c.step.Now) && again.waits(i) {
			next = sooner(next, q.PausedUntil)
		}
		more = more || c.step.isBehind(q) || again.next(i, c.Req.Start > 0) != nil && again.admit(i, 0, 0)
	}
	return next, more
}

// waits reports whether tasks wait in the i-th queue for which the claim could be made.
func (c *Claim) waits(i int) bool {
	for _, line := range [...]State{Waiting, Prompt, Suspect} {
		if c.step.Lines.First(c.Queues[i], line) != nil {
			return true
		}
	}
	return c.nextDeclined(i, 0) != nil
}

// Oldest gives the age of the oldest waiting task of a queue that was not declined. first gives the
// first place behind another in a line, false where there is none.
func Oldest(q *Queue, now int64, first func(line State, behind Place) (Place, bool)) time.Duration {
	var oldest int64
	for _, line := range [...]State{Waiting, Prompt, Suspect} {
		if q.Sizes[line] == 0 {
			continue
		}
		for p := int16(storage.MaxPriority); p >= -storage.MaxPriority; p-- {
			// Behind the middle of the band turns are those of the tail, which are moments.
			if at, ok := first(line, Place{Sort: Band(p)}); ok && at.Sort < Band(p-1)-beforeHead {
				oldest = max(oldest, now-(at.Sort-Band(p)))
			}
		}
	}
	return time.Duration(oldest) * time.Microsecond
}

// nextDue is the earliest moment at which something in a queue is due: a task or a cursor.
func (s *Step) nextDue(q *Queue) (next int64) {
	if r := s.firstDue(q); r != nil {
		next = r.Sort
	}
	if r := s.Lines.First(q, Cursor); r != nil && r.Sort != Never {
		next = sooner(next, r.Sort)
	}
	return next
}

// sooner gives the earlier of two moments, either of which may be none.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// isBehind reports whether a part of the maintenance of a queue was left over.
func (s *Step) isBehind(q *Queue) bool {
	for _, line := range [...]State{Scheduled, Retry, Pending, Cursor, Completed, Cancelled, Dead} {
		if r := s.Lines.First(q, line); r != nil && r.Sort <= s.Come {
			return true
		}
	}
	return false
}

// firstDue gives the record that is due first of the scheduled and the retried, or nil.
func (s *Step) firstDue(q *Queue) *Record {
	return earlier(s.Lines.First(q, Scheduled), s.Lines.First(q, Retry))
}

// Promote moves up to most tasks that are due to the tail of waiting, in the order in which they
// were due.
func (s *Step) Promote(q *Queue, most int) {
	for range most {
		r := s.firstDue(q)
		if r == nil || r.Sort > s.Come {
			return
		}
		s.waitAtTail(r)
	}
}

// Hide puts a cursor that is handed out where other claims find it only after a while, so that
// another runner ticks it if this one dies before.
func (s *Step) Hide(r *Record) {
	s.put(r, Cursor, Place{max(r.Cursor.Next.UnixMicro(), s.after(storage.TickHide)), s.turn()})
}
