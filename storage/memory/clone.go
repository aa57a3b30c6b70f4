package memory

import (
	"maps"
	"slices"
	"time"

	"github.com/midgehq/midge/storage/internal/engine"
)

// Clone returns a storage that begins with the tasks, schedules, unique keys, settings, totals and
// runners of s. After that neither shows the changes of the other. now is the clock of the clone, nil for
// the clock of s. The clone remembers no calls: a call that was made to s and is repeated to the clone is
// a new call there. The clone of a closed storage is closed.
//
// Tests that begin with the same large state build it once, and change clones of it.
func (s *Storage) Clone(now func() time.Time) *Storage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now == nil {
		now = s.clock
	}
	c := empty(now, s.step.Limits)
	c.step.Mark, c.step.Turn, c.step.Jumped = s.step.Mark, s.step.Turn, s.step.Jumped
	c.seen = s.seen
	c.names, c.inspect = slices.Clone(s.names), s.inspect
	for name, q := range s.queues {
		c.queues[name] = q.clone()
	}
	// A heartbeat replaces the value of its runner and never changes it, so both share these values.
	maps.Copy(c.runners, s.runners)
	c.runnerEnds = s.runnerEnds.clone(same)
	if s.closed {
		c.closed = true
		c.events.Close()
	}
	return c
}

func (q *queue) clone() *queue {
	c := &queue{
		Queue: q.Queue, records: make(map[string]*engine.Record, len(q.records)),
		// A hold is replaced and never changed.
		keys: maps.Clone(q.keys), windows: q.windows.clone(same),
		firstLook: q.firstLook, lastLook: q.lastLook,
	}
	c.Own = c
	if q.Limit != nil {
		limit := *q.Limit
		c.Limit = &limit
	}
	for id, r := range q.records {
		c.records[id] = cloneRecord(r, &c.Queue)
	}
	own := func(r *engine.Record) *engine.Record { return c.records[r.ID] }
	for i := range q.lines {
		c.lines[i] = q.lines[i].clone(own)
	}
	for _, l := range q.subs {
		copied := &line{Line: l.Line, sorted: l.clone(own)}
		copied.Queue, copied.Tasks = &c.Queue, copied
		c.subs = append(c.subs, copied)
	}
	if q.parts != nil {
		c.parts = make(map[string]*line, len(q.parts))
	}
	for key, l := range q.parts {
		copied := &line{Line: l.Line, sorted: l.clone(own)}
		copied.Queue, copied.Tasks = &c.Queue, copied
		c.parts[key] = copied
		c.byKey.insert(key)
	}
	c.ring = q.ring.clone(func(l *line) *line { return c.parts[l.Sub] })
	return c
}

// cloneRecord returns a copy of a record that belongs to another queue. A step replaces payloads, headers,
// cursors and the bytes of a Side, and never changes them, so both records share them.
func cloneRecord(r *engine.Record, q *engine.Queue) *engine.Record {
	c := *r
	c.Queue = q
	if r.Side != nil {
		side := *r.Side
		side.Attempts = slices.Clone(side.Attempts)
		c.Side = &side
	}
	return &c
}
