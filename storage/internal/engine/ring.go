package engine

import "github.com/midgehq/midge/storage"

// ring is the part of the ring of a queue at which a claim looks: the first ready partitions in the order of
// their turns, and the tasks without a partition, which are served in turn with them.
type ring struct {
	turns []turn
	own   bool  // the turn of the tasks without a partition is among turns
	read  int   // the partitions that were read
	next  Place // from where the claim reads on
	whole bool  // no ready partition is left
	// served is set once the claim has taken a task.
	served bool
}

// turn is a place in a ring: that of a partition, or of the tasks without one.
type turn struct {
	line *Line // nil for the tasks without a partition
	at   int64
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
			if l.IsPaused() { // and so are all behind it
				g.whole = true
				break
			}
			if !g.own && q.Turn < l.Ring.Turn {
				g.own, g.turns = true, append(g.turns, turn{nil, q.Turn})
			}
			g.turns = append(g.turns, turn{l, l.Ring.Turn})
			g.next = Place{Turn: l.Ring.Turn + 1}
		}
	}
	if !g.own && (g.whole || g.read >= storage.MaxTurns) {
		g.own, g.turns = true, append(g.turns, turn{nil, q.Turn})
	}
	return len(g.turns) > before
}

// serve moves the first partition, which a claim has served, to the end of the ring.
func (c *Claim) serve(i int) {
	g, q := &c.rings[i], c.Queues[i]
	g.served = true
	t := g.turns[0]
	g.turns = g.turns[1:]
	t.at = c.step.turn()
	switch {
	case t.line == nil:
		q.Turn, q.TurnChanged = t.at, true
	case c.step.Local != nil && t.line.Size <= 0: // its last task was taken
		return
	default:
		c.step.move(t.line, Place{Turn: t.at})
	}
	switch {
	case g.whole:
		g.turns = append(g.turns, t)
	case t.line == nil: // the partitions that were not read come before it, and it is read on after these
		g.own = false
	}
}

// move moves a partition to another place of the ring.
func (s *Step) move(l *Line, to Place) {
	s.Lines.SetTurn(l, to)
	l.Ring, l.Changed = to, true
}

// resume puts the partitions whose pause is over at the end of the ring.
func (s *Step) resume(q *Queue) {
	for _, l := range s.Lines.Turns(q, Place{Sort: 1}, storage.MaxRest) {
		if l.Ring.Sort > s.Come {
			return
		}
		s.ready(l)
	}
}

// ready puts a partition at the end of the ring. It removes a partition without tasks.
func (s *Step) ready(l *Line) {
	if s.Local != nil && l.Size <= 0 {
		s.Local.DeleteLine(l)
		return
	}
	s.move(l, Place{Turn: s.turn()})
}

// rests returns the moment at which the first pause of a partition ends, 0 if none ends.
func (s *Step) rests(q *Queue) int64 {
	for _, l := range s.Lines.Turns(q, Place{Sort: 1}, 1) {
		if l.Ring.Sort != Never {
			return l.Ring.Sort
		}
	}
	return 0
}

// pausePartition pauses a partition or resumes it.
func (s *Step) pausePartition(q *Queue, key string, p *storage.Pause) {
	l := s.Local.Line(q, Keyed, key)
	switch {
	case p.On && l == nil:
		l = s.begin(q, Keyed, key)
		fallthrough
	case p.On:
		until := int64(Never)
		if p.For > 0 {
			until = s.after(p.For)
		}
		s.move(l, Place{until, s.turn()})
	case l != nil && l.IsPaused():
		s.ready(l)
	}
	q.Touched = s.Now
}

// rekey replaces the partition of a task. A waiting task leaves the line of the old one, and joins that of
// the new one once the change has been carried out.
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
		st := storage.PartitionStats{Key: l.Sub, Waiting: l.Size}
		if at := l.Ring.Sort; at > s.Now {
			st.Paused = true
			if at != Never {
				st.PausedUntil = Time(at)
			}
		}
		if st.Waiting == 0 && !st.Paused {
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
