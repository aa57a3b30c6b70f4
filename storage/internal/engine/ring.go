package engine

import (
	"slices"

	"github.com/midgehq/midge/storage"
)

// ring is the part of the ring of a queue at which a claim looks: the ready partitions in the order of their
// turns, and the tasks without a partition, which are served in turn with them.
type ring struct {
	turns []turn
	read  bool
	// cut is set if further ready partitions are left, and served once the claim has taken a task.
	cut, served bool
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
	g, q := &c.rings[i], c.Queues[i]
	if g.read {
		return g
	}
	g.read = true
	for _, l := range c.step.Lines.Turns(q, Place{}, storage.MaxTurns+1) {
		switch {
		case l.IsPaused():
		case len(g.turns) == storage.MaxTurns:
			g.cut = true
		default:
			g.turns = append(g.turns, turn{l, l.Ring.Turn})
		}
	}
	own := slices.IndexFunc(g.turns, func(t turn) bool { return t.at > q.Turn })
	if own < 0 {
		own = len(g.turns)
	}
	g.turns = slices.Insert(g.turns, own, turn{nil, q.Turn})
	return g
}

// serve moves the partition that a claim has served to the end of the ring.
func (c *Claim) serve(i, served int) {
	g, q := &c.rings[i], c.Queues[i]
	g.served = true
	t := g.turns[served]
	if served == 0 {
		g.turns = g.turns[1:]
	} else {
		g.turns = slices.Delete(g.turns, served, served+1)
	}
	t.at = c.step.turn()
	if t.line == nil {
		q.Turn, q.TurnChanged = t.at, true
	} else if c.step.Local == nil || t.line.Size > 0 {
		c.step.move(t.line, Place{Turn: t.at})
	} else {
		return // its last task was taken
	}
	if !g.cut { // else the partitions that were not read come before it
		g.turns = append(g.turns, t)
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

// rekey replaces the partition of a task. A waiting task leaves the line of the old one, and joins that of the new
// one once the change has been carried out.
func (s *Step) rekey(r *Record, key string) {
	if r.State == Keyed {
		s.put(r, Waiting, Place{Band(r.Priority) + s.turn(), 0})
	}
	r.Partition = key
	r.touch(PartSpec)
}

// Partitions lists a page of the partitions of a queue.
func (s *Step) Partitions(q *Queue, query *storage.PartitionsQuery) (page storage.PartitionsPage) {
	var lines []*Line
	if query.Key != "" {
		if l := s.Local.Line(q, Keyed, query.Key); l != nil {
			lines = append(lines, l)
		}
	} else {
		lines = s.Lines.LinesFrom(q, Keyed, query.After, query.Limit+2)
	}
	for _, l := range lines {
		if query.Key == "" && l.Sub == query.After {
			continue
		}
		if len(page.Partitions) == query.Limit {
			page.Next = page.Partitions[query.Limit-1].Key
			break
		}
		st := storage.PartitionStats{Key: l.Sub, Waiting: l.Size}
		if at := l.Ring.Sort; at > s.Now {
			st.Paused = true
			if at != Never {
				st.PausedUntil = Time(at)
			}
		}
		if st.Waiting > 0 || st.Paused {
			page.Partitions = append(page.Partitions, st)
		}
	}
	return page
}
