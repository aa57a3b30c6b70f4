package engine

import (
	"iter"
	"maps"
	"time"

	"github.com/midgehq/midge/storage"
)

// Claim is one claim under way: it decides which tasks a runner gets, and whether another claim
// would find work.
type Claim struct {
	Req *storage.ClaimRequest
	// Queues are the queues of the request, nil if there is no such queue.
	Queues []*Queue
	// Taken are the tasks taken, in the order of their claim.
	Taken []*Record

	step    *Step
	bytes   int  // of the payloads of all tasks that admit was asked about
	ticked  int  // the bytes of the payloads of all cursors that tick has read
	suspect bool // a suspect was taken
	looked  bool // lookForDeclined was called
	looks   bool // the claim takes nothing, and changes nothing
	// declined holds the declined tasks of each queue; nil if there are none for this claim.
	declined []declined
	// rings are the rings of the queues with partitions; nil if the claim has read none.
	rings []ring
}

// declined holds, for one queue, the first task in the line of each kind.
type declined struct {
	lines   []*Line
	first   []*Record // by line, nil if the claim may take no task of the kind
	passed  []passed  // by line
	without Flags     // the flags for which first was looked up: it has tasks without these
}

// Claim begins a claim.
func (s *Step) Claim(req *storage.ClaimRequest, queues []*Queue) Claim {
	return Claim{Req: req, Queues: queues, step: s}
}

// RecoverTo returns the moment up to which leases that ended are recovered by a claim.
func (s *Step) RecoverTo(req *storage.ClaimRequest) int64 {
	if req.RecoverBefore.IsZero() {
		return s.Come
	}
	return min(s.Come, Moment(req.RecoverBefore)-1)
}

// Again takes the tasks that the first try of the same call took and that are still claimed
// under its fences.
func (c *Claim) Again(fences []storage.Fence) {
	for i := range fences {
		if r := c.step.Store.Find(fences[i].Ref); r != nil && r.Proves(&fences[i]) {
			c.add(r)
		}
	}
}

// Take moves tasks to pending, queue after queue: in each queue by priority, and within a
// priority in the order of the line.
func (c *Claim) Take() {
	for i, q := range c.Queues {
		if q != nil && q.Limit != nil && c.Req.Queues[i].Max >= 0 {
			q.Limit.settle(c.step.Now, c.step.Come)
		}
		for n := 0; ; n++ {
			starts := len(c.Taken) < c.Req.Start
			if !c.LimitAdmits(i, starts) || !c.hasRoom(i, n) {
				break
			}
			r, keyed := c.next(i, starts)
			if r == nil || !c.affords(r) || !c.admit(i, n, c.step.Lines.Size(r)) {
				break
			}
			if c.start(r, starts) {
				c.ring(i).held = true
			}
			if keyed {
				c.serve(i)
			}
		}
		c.leaveRing(i)
	}
}

// next returns the waiting task of the i-th queue that the claim takes next, or nil. starts means that
// the task is to start at once: only then may it be start-only or, once in a claim, a suspect. keyed
// reports whether the queue has partitions: then the task has the first turn of the ring.
func (c *Claim) next(i int, starts bool) (r *Record, keyed bool) {
	q := c.Queues[i]
	if q == nil {
		return nil, false
	}
	without := StartOnly | IsSuspect
	if starts {
		without = IsSuspect
	}
	if starts && c.Req.Suspect && !c.suspect {
		without = 0
	}
	if c.step.Local != nil && q.Sizes[Keyed] == 0 {
		return c.nextOrdinary(i, without), false
	}
	for g := c.ring(i); len(g.turns) > 0 || c.readOn(i); c.pass(i) {
		l := g.turns[0].line
		switch {
		case l == nil:
			r = c.nextOrdinary(i, without)
		case l.isFull(): // whatever its tasks are
			g.held, r = true, nil
		default:
			if r = l.first(without); r != nil && !c.serves(i, l, r, without) {
				r = nil
			}
		}
		if r != nil {
			return r, true
		} // and this claim finds none there later, because without only grows, and limits admit no more
	}
	return nil, true
}

// nextOrdinary returns the first waiting task of the i-th queue, of those without a partition and of the
// declined ones, that has none of the flags without.
func (c *Claim) nextOrdinary(i int, without Flags) *Record {
	q := c.Queues[i]
	if q.Rest > c.step.Come {
		return nil
	}
	first := c.step.Lines.First(q, Waiting)
	if without&StartOnly == 0 {
		first = earlier(first, c.step.Lines.First(q, Prompt))
	}
	if without == 0 {
		first = earlier(first, c.step.Lines.First(q, Suspect))
	}
	return earlier(first, c.nextDeclined(i, without))
}

// nextDeclined returns the first declined task of the i-th queue, of the kinds that the claim names,
// that has none of the flags without; nil if there is none.
func (c *Claim) nextDeclined(i int, without Flags) (next *Record) {
	c.lookForDeclined()
	if c.declined == nil {
		return nil
	}
	d := &c.declined[i]
	again := d.without != without
	d.without = without
	for n := range d.lines {
		if again {
			d.passed[n] = passed{from: beginning.Place}
		}
		first := d.first[n]
		taken := first != nil && first.State != Declined // meanwhile
		if again || taken || first != nil && !c.serves(i, c.step.partition(first), first, without) {
			d.first[n] = c.firstServed(i, n, without)
		}
		next = earlier(next, d.first[n])
	}
	return next
}

// Refused returns, of each line of a kind in the i-th queue in which the claim has found no further task to
// start, the tasks that it has passed over because their partitions admit none now.
func (c *Claim) Refused(i int) iter.Seq2[*Line, []*Record] {
	return func(yield func(*Line, []*Record) bool) {
		if c.declined == nil || c.declined[i].without&StartOnly != 0 {
			return
		}
		d := &c.declined[i]
		for n, l := range d.lines {
			passed := d.passed[n].n
			if d.first[n] == nil && passed > 0 && !yield(l, l.Tasks.Range(beginning.Place, d.without, passed)) {
				return
			}
		}
	}
}

// lookForDeclined finds, once in a claim, the kinds with declined tasks that the claim names. There are
// seldom any.
func (c *Claim) lookForDeclined() {
	if c.looked {
		return
	}
	c.looked = true
	for i, q := range c.Queues {
		if q == nil || !c.Req.Queues[i].Names() {
			continue
		}
		lines := c.step.among(q, c.Req.Kinds, storage.MaxKinds)
		if len(lines) == 0 {
			continue
		}
		if c.declined == nil {
			c.declined = make([]declined, len(c.Queues))
		}
		c.declined[i] = declined{
			lines: lines, first: make([]*Record, len(lines)), passed: make([]passed, len(lines)), without: -1,
		}
	}
}

// earlier returns the record of two whose place comes first; either may be nil.
func earlier(a, b *Record) *Record {
	if a == nil || b != nil && b.Before(a.Place) {
		return b
	}
	return a
}

// LimitAdmits reports whether there is an i-th queue and its limit admits another task, if it costs nothing.
// starts means that the task is to start at once.
func (c *Claim) LimitAdmits(i int, starts bool) bool {
	switch q := c.Queues[i]; {
	case q == nil:
		return false
	case q.Limit == nil || q.Limit.InForce().IsZero():
		return true
	default:
		return c.step.mayStart(q, 0) && (starts || q.mayWait())
	}
}

// affords reports whether the limit of its queue admits the start of a task. If it does not, the claim takes
// nothing else of the queue, so that nothing cheaper overtakes the task.
func (c *Claim) affords(r *Record) bool {
	return r.Queue.Limit == nil || r.Queue.Limit.affords(r.Cost, c.step.Now, c.step.Come)
}

// hasRoom reports whether the claim may take another task of the i-th queue, after n others of that queue.
func (c *Claim) hasRoom(i, n int) bool {
	most := c.Req.Queues[i].Max
	if most == 0 {
		most = c.Req.Most()
	}
	return n < most && len(c.Taken) < c.Req.Most() && !c.Queues[i].IsPaused(c.step.Come)
}

// admit reports whether a task of the i-th queue may be taken, after n others of that queue, with
// a payload of so many bytes. All bounds of the claim itself are checked here and in hasRoom, and nowhere
// else. A payload that is too large ends the claim: no later task overtakes it.
func (c *Claim) admit(i, n, bytes int) bool {
	if !c.hasRoom(i, n) {
		return false
	}
	c.bytes += bytes
	return len(c.Taken) == 0 || c.bytes <= storage.MaxClaimBytes
}

// start moves a waiting task to pending. It reports whether no other task of its partition may start then.
func (c *Claim) start(r *Record, starts bool) (full bool) {
	s := c.step
	full = s.charge(r)
	s.put(r, Pending, Place{s.after(c.Req.Lease), s.turn()})
	s.grow(r)
	r.At = ClaimedAt(r.Version, s.Now)
	r.Token, r.Runner = c.Req.Token, c.Req.Runner
	if starts {
		r.Flags |= Started
	}
	if r.Queue.Limit != nil {
		r.Queue.Limit.count(r.Cost, s.Now, s.Come)
	}
	c.add(r)
	return full
}

// add appends a claimed task.
func (c *Claim) add(r *Record) {
	c.suspect = c.suspect || r.Flags&IsSuspect != 0
	c.Taken = append(c.Taken, r)
}

// Give copies the tasks taken into the answer. Their payloads share one slice.
func (c *Claim) Give(a *storage.Claimed) {
	n, size := len(c.Taken), 0
	for _, r := range c.Taken {
		size += len(r.Payload)
	}
	room := make([]byte, size)
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

// Survey returns the earliest moment at which a task, a cursor or the end of a pause is due in the
// queues, 0 if there is none, and reports whether another claim would find work at once: maintenance
// that remains, or a task for the same request. A second suspect does not count: a runner that has claimed
// a suspect asks for no other. bounded names the queues whose limit admits no task of this claim, or not
// the task that comes next, and held the queues with a partition that is at its Concurrency.
func (c *Claim) Survey() (next int64, more bool, bounded, held []string) {
	again := c.again()
	for i, q := range c.Queues {
		if q == nil {
			continue
		}
		o := c.outlook(i, &again)
		next, more = Sooner(next, o.next), more || o.more
		switch {
		case o.bounded:
			bounded = append(bounded, q.Name)
		case o.held:
			held = append(held, q.Name)
		}
	}
	return next, more, bounded, held
}

// outlook is the part of Survey for one queue: the work that a claim leaves in it.
type outlook struct {
	next                int64
	more, bounded, held bool
}

// outlook returns the work that the claim leaves in the i-th queue, by a claim again that takes nothing.
func (c *Claim) outlook(i int, again *Claim) (o outlook) {
	q, s := c.Queues[i], c.step
	o.next = Sooner(s.nextDue(q), s.rests(q))
	if q.Rest > s.Now {
		o.next = Sooner(o.next, q.Rest)
	}
	if q.IsPaused(s.Now) && again.waits(i) {
		o.next = Sooner(o.next, q.PausedUntil)
	}
	o.more = s.isBehind(q, s.RecoverTo(c.Req))
	serves := c.Req.Queues[i].Max >= 0
	if serves && !again.LimitAdmits(i, c.Req.Start > 0) {
		if o.bounded = true; q.hasSlot() {
			o.next = Sooner(o.next, q.Limit.next(0, s.Now, s.Come))
		}
		return o
	}
	r, _ := again.next(i, c.Req.Start > 0)
	if serves = serves && !q.IsPaused(s.Come); serves && again.rings != nil {
		o.next = Sooner(o.next, again.rings[i].rated)
	}
	o.held = serves && (c.holds(i) || again.holds(i))
	if r != nil && serves && !c.affords(r) {
		o.bounded, o.next = true, Sooner(o.next, q.Limit.next(r.Cost, s.Now, s.Come))
		return o
	}
	served := c.rings != nil && c.rings[i].served
	o.more = o.more || r != nil && again.admit(i, 0, 0) || r == nil && served && again.cuts(i)
	return o
}

// holds reports whether the claim has found, or made, a partition of the i-th queue that is at its
// Concurrency.
func (c *Claim) holds(i int) bool { return c.rings != nil && c.rings[i].held }

// again returns a claim like this one that comes after it, and takes nothing.
func (c *Claim) again() Claim {
	return Claim{Req: c.Req, Queues: c.Queues, step: c.step, suspect: c.suspect, looks: true}
}

// Heads returns the tasks whose cost decides whether the rates of their queues admit another task: in each
// queue that is not paused and has a rate that is not spent, the task that comes next. With them come the
// tasks whose cost decides how long their partitions rest. A Store that reads tasks in part has to read
// these.
func (c *Claim) Heads() (heads []*Record) {
	for i := range c.rings {
		heads = append(heads, c.rings[i].refused...)
	}
	again := c.again()
	for i, q := range c.Queues {
		rated := q != nil && q.Limit.InForce().Rate.N > 0 && c.Req.Queues[i].Max >= 0 && !q.IsPaused(c.step.Come)
		if rated && again.LimitAdmits(i, c.Req.Start > 0) {
			if r, _ := again.next(i, true); r != nil {
				heads = append(heads, r)
			}
		}
	}
	return heads
}

// waits reports whether tasks wait in the i-th queue that a claim of these kinds could take.
func (c *Claim) waits(i int) bool {
	for _, state := range waitingStates {
		if c.step.Lines.First(c.Queues[i], state) != nil {
			return true
		}
	}
	first := c.step.Lines.Turns(c.Queues[i], Place{}, 1)
	return c.nextDeclined(i, 0) != nil || len(first) > 0 && first[0].IsReady()
}

// Stats returns the sizes, totals and settings of a queue.
func (s *Step) Stats(q *Queue) storage.Stats {
	st := q.Stats()
	for _, l := range s.among(q, nil, storage.MaxStatsKinds) {
		st.Declined = append(st.Declined, storage.KindSize{Kind: l.Sub, Tasks: l.Size})
	}
	st.Oldest = s.oldest(q)
	if q.IsPaused(s.Now) {
		st.Paused, st.PausedUntil = true, Time(q.PausedUntil)
	}
	if q.Rest > s.Now {
		st.Rests = Time(q.Rest)
	}
	st.Limit = q.Limit.Stats(s.Now, s.come())
	return st
}

// oldest returns the age of the oldest waiting task of a queue that was not declined.
func (s *Step) oldest(q *Queue) time.Duration {
	var oldest int64
	for _, state := range waitingStates {
		if q.Sizes[state] == 0 {
			continue
		}
		for band := Band(storage.MaxPriority); band <= Band(-storage.MaxPriority); band += 1 << 56 {
			at := s.Local.SortAfter(q, state, band)
			if at == 0 {
				break
			}
			// Places after the middle of a band belong to tasks that joined the tail: their turns are moments.
			if band = at >> 56 << 56; at-band < beforeHead {
				oldest = max(oldest, s.Now-(at-band))
			}
		}
	}
	for _, l := range s.Lines.Turns(q, Place{}, MostAged) {
		oldest = max(oldest, s.age(l))
	}
	return time.Duration(oldest) * time.Microsecond
}

// MostAged is how many partitions of a ring count for the age of a queue.
const MostAged = 20

// age returns how long the first task of a partition waits that joined at the tail, of those with the
// priority of its first task.
func (s *Step) age(l *Line) int64 {
	for _, first := range l.Tasks.Range(beginning.Place, 0, 1) {
		for _, r := range l.Tasks.Range(Place{Sort: Band(first.Priority)}, 0, 1) {
			if r.Priority == first.Priority { // else all of this priority were put back at the head
				return s.Now - (r.Sort - Band(r.Priority))
			}
		}
	}
	return 0
}

// nextDue returns the earliest moment at which a task or a cursor of a queue is due, 0 if there is none.
func (s *Step) nextDue(q *Queue) (next int64) {
	for _, state := range timedStates {
		if r := s.Lines.First(q, state); r != nil && r.Sort != Never {
			next = Sooner(next, r.Sort)
		}
	}
	return next
}

// Sooner returns the earlier of two moments, of which 0 is none.
func Sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// isBehind reports whether maintenance of a queue remains to be done. Leases are recovered up to the
// moment recoverTo.
func (s *Step) isBehind(q *Queue, recoverTo int64) bool {
	for _, state := range dueStates {
		if r := s.Lines.First(q, state); r != nil && r.Sort <= s.Come {
			return true
		}
	}
	for _, l := range s.Lines.Turns(q, Place{Sort: 1}, 1) {
		if l.Ring.Sort <= s.Come {
			return true
		}
	}
	if s.hasTooManyDead(q) && s.Lines.First(q, Dead) != nil {
		return true
	}
	r := s.Lines.First(q, Pending)
	return r != nil && r.Sort <= recoverTo
}
