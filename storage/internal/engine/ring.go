package engine

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/midgehq/midge/storage"
)

// ring is the part of the ring of a queue that a claim reads: the first ready partitions in the order of
// their turns, and the tasks without a partition, which are served in turn with them.
type ring struct {
	turns []turn
	own   bool  // the turn of the tasks without a partition is among turns
	read  int   // the partitions that were read
	next  Place // from where the claim reads on
	whole bool  // no ready partition is left
	// served is set once the claim has taken a task.
	served bool
	// passed are the partitions of which the claim takes nothing, though they are ready. held is set if one of
	// them, or the partition of a declined or taken task, has as many pending tasks as its limit admits.
	passed []*Line
	held   bool
	rated  int64 // the first moment from which the rate of a partition admits its next task, 0 for none
	// refused are the tasks because of whose cost the claim has put their partitions to rest.
	refused []*Record
}

// turn is a place in a ring: that of a partition, or of the tasks without one.
type turn struct {
	line *Line // nil for the tasks without a partition
	left int64 // how many more tasks the claim may take in the turn, 0 before its first
}

// ring returns the ring of the i-th queue.
func (c *Claim) ring(i int) *ring {
	if c.rings == nil {
		c.rings = make([]ring, len(c.Queues))
	}
	return &c.rings[i]
}

// readOn reads further turns of the ring of the i-th queue, in bounded steps, up to MaxTurns partitions. It
// reports whether there are any.
func (c *Claim) readOn(i int) bool {
	g, q := c.ring(i), c.Queues[i]
	before := len(g.turns)
	n := min(max(c.Req.Most(), g.read)+1, storage.MaxTurns-g.read)
	if !g.whole && n > 0 {
		lines := c.step.Lines.Turns(q, g.next, n)
		g.whole = len(lines) < n
		g.read += len(lines)
		for _, l := range lines {
			if !l.IsReady() { // and so are all behind it
				g.whole = true
				break
			}
			if !g.own && q.Turn < l.Ring.Turn {
				g.own, g.turns = true, append(g.turns, turn{})
			}
			g.turns = append(g.turns, turn{line: l})
			g.next = Place{Turn: l.Ring.Turn + 1}
		}
	}
	if !g.own && (g.whole || g.read >= storage.MaxTurns) {
		g.own, g.turns = true, append(g.turns, turn{})
	}
	return len(g.turns) > before
}

// serve notes that a claim has taken a task of the first partition. The claim goes on to the next once it has
// taken all tasks of the turn, or the last one of the partition.
func (c *Claim) serve(i int) {
	g := &c.rings[i]
	g.served = true
	t := &g.turns[0]
	if t.left == 0 {
		t.left = t.line.perTurn()
	}
	gone := c.step.Local != nil && t.line != nil && t.line.Size <= 0
	if t.left--; gone || t.left == 0 {
		c.endTurn(i, gone)
	}
}

// perTurn returns how many tasks the turn of a partition still has: as many as earlier claims left, but no
// more than its weight allows. l is nil for the tasks without a partition.
func (l *Line) perTurn() int64 {
	if l == nil {
		return 1
	}
	n := int64(l.Limit().PerTurn())
	if l.Left > 0 {
		n = min(n, l.Left)
	}
	return n
}

// endTurn ends the first turn of the ring of the i-th queue: its partition moves to the end of the ring. gone
// is set if nothing of the partition is left.
func (c *Claim) endTurn(i int, gone bool) {
	g, q := &c.rings[i], c.Queues[i]
	t := g.turns[0]
	g.turns, t.left = g.turns[1:], 0
	switch {
	case gone:
		return
	case t.line != nil:
		c.step.move(t.line, Place{Turn: c.step.turn()})
	default:
		q.Turn, q.TurnChanged = c.step.turn(), true
		g.own = g.whole // the partitions that were not read come before it, and it is read on after these
	}
	if g.whole {
		g.turns = append(g.turns, t)
	}
}

// pass goes on to the next turn of the ring of the i-th queue, because the claim can take no other task of
// the first partition, which keeps its turn.
func (c *Claim) pass(i int) {
	g := &c.rings[i]
	t := g.turns[0]
	g.turns = g.turns[1:]
	if t.line != nil {
		t.leave()
		g.passed = append(g.passed, t.line)
	}
}

// leave leaves the rest of a turn that has begun to the next claim, unless the partition has to rest.
func (t turn) leave() {
	if t.left > 0 && t.line.IsReady() {
		t.line.Left, t.line.Changed = t.left, true
	}
}

// serves reports whether a task is claimable as far as its partition decides: l is nil if the storage has
// nothing of it, and without are the flags that the task must not have. A task of a partition with a limit
// is taken only to start at once. A claim that takes tasks puts a partition whose rate does not admit the
// task yet to rest until then.
func (c *Claim) serves(i int, l *Line, r *Record, without Flags) bool {
	if l == nil {
		return true
	}
	p, s := l.Limit(), c.step
	switch {
	case l.Paused != 0 || l.Rest != 0, without&StartOnly != 0 && !p.IsZero():
		return false
	case l.isFull():
		c.ring(i).held = true
		return false
	case l.Starts.afford(p.Rate, r.Cost, s.Now, s.Come):
		return true
	}
	at := l.Starts.next(p.Rate, r.Cost, s.Now, s.Come)
	c.ring(i).rated = Sooner(c.ring(i).rated, at)
	if !c.looks && r.State == Keyed {
		if per := p.Rate.Per.Microseconds(); l.Starts.areAhead(per, s.Now) {
			l.Starts = l.Starts.at(per, s.Now, s.Come)
		}
		s.move(l, Place{at, s.turn()})
		c.ring(i).refused = append(c.ring(i).refused, r)
	}
	return false
}

// cuts reports whether a claim has read MaxTurns partitions of the i-th queue, and others are left.
func (c *Claim) cuts(i int) bool {
	return c.rings != nil && !c.rings[i].whole && c.rings[i].read >= storage.MaxTurns
}

// leaveRing leaves the turn that the claim has not ended in the i-th queue to the next claim. It puts the
// partitions that the claim has passed over at the end of the ring, if it has read MaxTurns and others are
// left, so that the next claim reads these.
func (c *Claim) leaveRing(i int) {
	if c.rings != nil && len(c.rings[i].turns) > 0 {
		c.rings[i].turns[0].leave()
	}
	if !c.cuts(i) {
		return
	}
	for _, l := range c.rings[i].passed {
		if l.IsReady() {
			c.step.move(l, Place{Turn: c.step.turn()})
		}
	}
}

// isFull reports whether as many tasks of a partition are pending as its limit admits.
func (l *Line) isFull() bool {
	most := int64(l.Limit().Concurrency)
	return most > 0 && l.Running >= most
}

// charge counts a task that starts for the limit of its partition, and reports whether the partition is full
// then. It comes before the task leaves its line.
func (s *Step) charge(r *Record) (full bool) {
	l, p := s.partition(r), r.Queue.Limit.InForce().Partition
	if l != nil {
		p = l.Limit()
	}
	if r.Partition == "" || p.Concurrency == 0 && p.Rate.N == 0 {
		return false
	}
	if l == nil && s.Local != nil {
		l = s.begin(r.Queue, Keyed, r.Partition)
	}
	if p.Concurrency > 0 {
		r.Flags |= Counted
		l.Running++
	}
	if p.Rate.N > 0 {
		l.Starts = l.Starts.with(p.Rate, r.Cost, s.Now, s.Come)
	}
	l.Changed = true
	if l.Size <= 0 && s.Local != nil {
		s.Arrange(l)
	}
	return l.isFull()
}

// free counts that a task of a partition runs no more.
func (s *Step) free(q *Queue, key string) {
	if s.Local == nil {
		return
	}
	l := s.Local.Line(q, Keyed, key)
	if l == nil {
		return
	}
	l.Running--
	l.Changed = true
	if l.Size <= 0 && l.Running <= 0 {
		s.Arrange(l) // its starts may have ceased to count meanwhile
	}
}

// throttle lets a partition rest until a moment, or the tasks without a partition.
func (s *Step) throttle(q *Queue, key string, until int64) {
	switch {
	case s.Local == nil:
		s.Rests = append(s.Rests, Rest{q, key, until})
	case key == "":
		q.Rest, q.RestChanged = max(q.Rest, until), true
	default:
		l := s.partitionOf(q, key)
		l.Rest = max(l.Rest, until)
		s.Arrange(l)
	}
}

// Rest is a rest that a throttled task began, until a moment. Key is "" for the tasks without a partition.
type Rest struct {
	Queue *Queue
	Key   string
	Until int64
}

// partitionOf returns a partition, which it begins if there is none.
func (s *Step) partitionOf(q *Queue, key string) *Line {
	if l := s.Local.Line(q, Keyed, key); l != nil {
		return l
	}
	return s.begin(q, Keyed, key)
}

// move moves a partition to another place of the ring. Nothing is left of its turn then.
func (s *Step) move(l *Line, to Place) {
	s.Lines.SetTurn(l, to)
	l.Ring, l.Left, l.Changed = to, 0, true
}

// Arrange puts a partition where it belongs in the ring: at the end of the ready ones, or where it waits for
// the end of its pause and its rest. If it has neither, and no waiting tasks, it waits out of the way for its
// running tasks, or for the moment from which its starts do not count, or for tasks if it has a limit of its
// own. Arrange removes a partition of which nothing is left.
func (s *Step) Arrange(l *Line) {
	rate := l.Limit().Rate
	if rate.N == 0 || len(l.Starts.at(rate.Per.Microseconds(), s.Now, s.Come)) == 0 {
		l.Starts = nil // none of them counts any more
	}
	at := max(l.Paused, l.Rest)
	if last := len(l.Starts) - 1; at == 0 && l.Size <= 0 {
		switch {
		case l.Running > 0:
			at = Never
		case last >= 0:
			at = l.Starts[last].End + rate.Per.Microseconds()
		case l.Own != nil:
			at = Never
		case s.Local != nil:
			s.Local.DeleteLine(l)
			return
		}
	}
	l.Changed = true
	if at == 0 || l.Ring.Sort != at {
		s.move(l, Place{at, s.turn()})
	}
}

// IsMisplaced reports whether a partition is not where Arrange puts it, so that it could stay there for ever.
// A partition with tasks may be ready, or rest because of its rate.
func (l *Line) IsMisplaced() bool {
	switch at := max(l.Paused, l.Rest); {
	case at != 0:
		return l.Ring.Sort != at
	case l.Size > 0:
		return l.Ring.Sort < 0 || l.Ring.Sort == Never
	case l.Running > 0 || l.Own != nil && len(l.Starts) == 0:
		return l.Ring.Sort != Never
	}
	return l.Ring.Sort <= 0 || l.Ring.Sort == Never
}

// resume puts the partitions whose moment has come where they belong then. After the clock was set back, it
// does so too with partitions that wait because of their rate for longer than a start now would let them.
func (s *Step) resume(q *Queue) {
	if q.Rest != 0 && q.Rest <= s.Come {
		q.Rest, q.RestChanged = 0, true
	}
	for _, l := range s.resting(q, 1, storage.MaxRest) {
		if l.Ring.Sort <= s.Come {
			s.ended(l)
		}
	}
	if s.Mark <= s.Now+SetBack {
		return
	}
	s.hasten(q, q.Limit.InForce().Partition.Rate.Per.Microseconds()) // most of them have this one
	s.hasten(q, 0)                                                   // others may have a shorter one
}

// resting returns the first partitions, up to n, that wait for a moment or a later one. Those with the same
// moment come in the order of their keys.
func (s *Step) resting(q *Queue, from int64, n int) []*Line {
	lines := s.Lines.Turns(q, Place{Sort: from}, n)
	slices.SortFunc(lines, func(a, b *Line) int {
		return cmp.Or(cmp.Compare(a.Ring.Sort, b.Ring.Sort), cmp.Compare(a.Sub, b.Sub))
	})
	return lines
}

// hasten ends the rests of partitions that wait because of their rate for longer than a start now would let
// them, of the first that wait for longer than a Per would let them.
func (s *Step) hasten(q *Queue, per int64) {
	for _, l := range s.resting(q, lastOf(per, s.Now)+1, storage.MaxRest) {
		late := l.Ring.Sort > lastOf(l.Limit().Rate.Per.Microseconds(), s.Now)
		if late && l.Ring.Sort != Never && l.Paused == 0 && l.Rest == 0 {
			s.ended(l)
		}
	}
}

// lastOf returns the last moment for which a start at another moment counts for the Per of a rate.
func lastOf(per, now int64) int64 { return part(max(per, 1), now) + per }

// ended clears whatever of a partition is over, and puts it where it belongs then.
func (s *Step) ended(l *Line) {
	if l.Paused <= s.Come {
		l.Paused = 0
	}
	if l.Rest <= s.Come {
		l.Rest = 0
	}
	if rate := l.Limit().Rate; rate.N > 0 {
		l.Starts = l.Starts.at(rate.Per.Microseconds(), s.Now, s.Come)
	}
	s.Arrange(l)
}

// loosen puts the first partitions that rest because of their rate at the end of the ring, after a change of
// the limit of all of them. The others rest on.
func (s *Step) loosen(q *Queue) {
	for _, l := range s.resting(q, 1, storage.MaxTurns) {
		if l.Paused == 0 && l.Rest == 0 && l.Own == nil {
			s.Arrange(l)
		}
	}
}

// rests returns the first moment from which a partition that waits for one may be ready, 0 if there is none.
func (s *Step) rests(q *Queue) int64 {
	for _, l := range s.Lines.Turns(q, Place{Sort: 1}, 1) {
		if l.Ring.Sort != Never {
			return l.Ring.Sort
		}
	}
	return 0
}

// configurePartition pauses a partition or resumes it, or changes its own limit.
func (s *Step) configurePartition(q *Queue, key string, named *storage.Settings) {
	l := s.Local.Line(q, Keyed, key)
	q.Touched = s.Now
	if own := named.Limit; own != nil {
		if own.On {
			l = s.partitionOf(q, key)
		}
		if own.On || l != nil && l.Own != nil {
			s.bound(l, own)
		}
		return
	}
	switch p := named.Pause; {
	case p.On:
		l = s.partitionOf(q, key)
		l.Paused = Never
		if p.For > 0 {
			l.Paused = s.after(p.For)
		}
		s.Arrange(l)
	case l != nil && l.Paused != 0:
		l.Paused = 0
		s.Arrange(l)
	}
}

// bound changes the limit of a partition alone. A partition that rests because of its rate goes to the end of
// the ring.
func (s *Step) bound(l *Line, own *storage.OperatorLimit) {
	l.Own, l.Changed = nil, true
	if own.On {
		limit := own.Limit.Partition
		l.Own = &limit
	}
	if l.Limit().Rate.N == 0 {
		l.Starts = nil
	}
	if !l.IsReady() || l.Size <= 0 {
		s.Arrange(l)
	}
}

// rekey replaces the partition of a task. A waiting task leaves the line of the old partition, and joins
// that of the new partition once the change has been carried out.
func (s *Step) rekey(r *Record, key string) {
	if key == r.Partition {
		return
	}
	if r.State == Keyed {
		s.put(r, Waiting, Place{Band(r.Priority) + s.turn(), 0})
	}
	r.Partition = key
	r.touch(PartSpec)
}

// Partitions lists a page of the partitions of a queue.
func (s *Step) Partitions(q *Queue, query *storage.PartitionsQuery) (page storage.PartitionsPage) {
	lines := s.linesFrom(q, Keyed, query.After, query.Limit+2)
	if query.Key != "" {
		lines = func(yield func(*Line) bool) {
			if l := s.Local.Line(q, Keyed, query.Key); l != nil {
				yield(l)
			}
		}
	}
	for l := range lines {
		if query.Key == "" && l.Sub == query.After {
			continue
		}
		st := l.Stats(s.Now, s.come())
		if st.IsZero() {
			continue
		}
		if len(page.Partitions) == query.Limit {
			page.Next = page.Partitions[query.Limit-1].Key
			break
		}
		page.Partitions = append(page.Partitions, st)
	}
	return page
}

// Stats returns the stats of a partition at a moment. come is that moment, or 0 during a wait of the clock.
func (l *Line) Stats(now, come int64) storage.PartitionStats {
	st := storage.PartitionStats{Key: l.Sub, Waiting: l.Size, Running: l.Running, Paused: l.Paused > now}
	if l.Paused != Never && st.Paused {
		st.PausedUntil = Time(l.Paused)
	}
	if l.Rest > now {
		st.Rests = Time(l.Rest)
	}
	if l.Own != nil {
		limit := *l.Own
		st.Limit = &limit
	}
	rate := l.Limit().Rate
	st.Counts = l.Starts.Counts(rate, now, come)
	st.Next = rate.NextOf(0, st.Counts)
	return st
}

// keptBytes is the length of the packed Paused, Rest, Running and Left of a partition, 8 bytes each,
// big-endian. The length of its packed Own follows, in one byte, then that and its packed Starts.
const keptBytes = 32

// Pack packs the data that a partition keeps beside its tasks and its place, nil for nothing.
func (l *Line) Pack() []byte {
	if l.Paused == 0 && l.Rest == 0 && l.Running <= 0 && l.Left == 0 && len(l.Starts) == 0 && l.Own == nil {
		return nil
	}
	own := OwnText(l.Own)
	b := make([]byte, 0, keptBytes+1+len(own)+len(l.Starts)*startBytes)
	for _, n := range []int64{l.Paused, l.Rest, max(l.Running, 0), l.Left} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return append(append(append(b, byte(len(own))), own...), l.Starts.Pack()...)
}

// Unpack sets the data that Pack packed. It reports false for bytes that Pack cannot have made, and then sets
// nothing.
func (l *Line) Unpack(b []byte) bool {
	l.Paused, l.Rest, l.Running, l.Left, l.Starts, l.Own = 0, 0, 0, 0, nil, nil
	if len(b) == 0 {
		return true
	}
	if len(b) <= keptBytes {
		return false
	}
	size := keptBytes + 1 + int(b[keptBytes])
	if len(b) < size {
		return false
	}
	own, sound := OwnOf(string(b[keptBytes+1 : size]))
	starts := UnpackStarts(b[size:])
	number := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	paused, rest, running, left := number(0), number(8), number(16), number(24)
	isMoment := func(n int64) bool { return n >= 0 && n < 1<<53 }
	sound = sound && len(b) == size+len(starts)*startBytes && (paused == Never || isMoment(paused))
	if !sound || !isMoment(rest) || !isMoment(running) || !isMoment(left) {
		return false
	}
	l.Paused, l.Rest, l.Running, l.Left, l.Starts, l.Own = paused, rest, running, left, starts, own
	return true
}
