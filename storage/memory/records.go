package memory

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// queue is a named set of records. Each record stands in exactly one of its lines.
type queue struct {
	engine.Queue

	records map[string]*engine.Record // by id
	lines   [engine.States]sorted[*engine.Record]
	subs    []*line // of the declined tasks, by kind

	firstLook, lastLook int64 // bounds of the moments Look of subs

	parts map[string]*line // the lines of partitions, by key
	byKey names            // the keys of parts
	ring  sorted[*line]    // parts, by their places in the ring

	keys    map[string]*hold // the holds on unique keys, by key
	windows sorted[*hold]    // the holds of unique windows, by their end
}

// hold is the hold on a unique key.
type hold struct {
	engine.Hold

	key   string
	place place // in queue.windows
}

// line is the line of the declined tasks of a kind, or of a partition.
type line struct {
	engine.Line
	sorted[*engine.Record]
}

// Range returns up to n tasks from a place on that have none of the flags without.
func (l *line) Range(from place, without engine.Flags, n int) (found []*engine.Record) {
	for _, c := range l.chunks[l.chunk(from):] {
		for _, e := range c[search(c, from):] {
			if len(found) == n {
				return found
			}
			if e.value.Flags&without == 0 {
				found = append(found, e.value)
			}
		}
	}
	return found
}

// sub returns the index at which the line of a kind stands, or would stand.
func (q *queue) sub(kind string) (int, bool) {
	return slices.BinarySearchFunc(q.subs, kind, func(l *line, kind string) int {
		return cmp.Compare(l.Sub, kind)
	})
}

// line returns the line of a state in which a record stands or would stand. A task whose cancel was asked
// stays in the line of Pending. A line that has ended with its last task is empty.
func (q *queue) line(state engine.State, r *engine.Record) *sorted[*engine.Record] {
	if state.HasSubs() {
		if l := q.named(state, r.Sub(state)); l != nil {
			return &l.sorted
		}
	}
	return &q.lines[state.Line()]
}

// named returns the line of a state and name, nil if there is none.
func (q *queue) named(state engine.State, name string) *line {
	if state == engine.Keyed {
		return q.parts[name]
	}
	if i, found := q.sub(name); found {
		return q.subs[i]
	}
	return nil
}

// drop forgets the hold on a key, if there is one.
func (q *queue) drop(key string) {
	if h := q.keys[key]; h != nil {
		q.windows.remove(h.place)
		delete(q.keys, key)
	}
}

// ours returns this package's queue for a queue of the engine.
func ours(q *engine.Queue) *queue {
	own, _ := q.Own.(*queue)
	return own
}

// records is a Storage as the engine sees it. The storage owns the memory of its records: it copies
// the memory of callers on the way in, and its own on the way out.
type records Storage

var (
	_ engine.Store = (*records)(nil)
	_ engine.Local = (*records)(nil)
)

// Queue returns the queue of a name, which it makes if there is none.
func (s *records) Queue(name string) *engine.Queue {
	if q := s.Lookup(name); q != nil {
		return q
	}
	q := &queue{
		Queue:   engine.Queue{Name: name, Touched: s.step.Now},
		records: make(map[string]*engine.Record), keys: make(map[string]*hold),
	}
	q.Own = q
	s.queues[name] = q
	i, _ := slices.BinarySearch(s.names, name)
	s.names = slices.Insert(s.names, i, name)
	return &q.Queue
}

// Find returns the record of a ref, or nil.
func (s *records) Find(ref storage.Ref) *engine.Record {
	if q := s.queues[ref.Queue]; q != nil {
		return q.records[ref.ID]
	}
	return nil
}

// Holder returns the hold on a unique key, false if there is none.
func (s *records) Holder(name, key string) (engine.Hold, bool) {
	if q := s.queues[name]; q != nil && q.keys[key] != nil {
		return q.keys[key].Hold, true
	}
	return engine.Hold{}, false
}

// Hold replaces the hold on a unique key.
func (s *records) Hold(to *engine.Queue, key string, h engine.Hold) {
	q := ours(to)
	q.drop(key)
	held := &hold{Hold: h, key: key}
	q.keys[key] = held
	if h.Until != 0 {
		held.place = (*Storage)(s).at(h.Until)
		q.windows.insert(held.place, held)
	}
}

// Free ends the hold that a task has on a unique key for its life.
func (s *records) Free(q *engine.Queue, key, _ string) { delete(ours(q).keys, key) }

// Add makes the record of an insert.
func (s *records) Add(q *engine.Queue, in *storage.Insert) *engine.Record {
	r := &engine.Record{Spec: engine.SpecOf(in)}
	r.Payload, r.Headers = bytes.Clone(in.Payload), maps.Clone(in.Headers)
	r.Cursor = engine.CopyCursor(in.Cursor)
	ours(q).records[in.Ref.ID] = r
	return r
}

// Move moves a record from its line to another.
func (s *records) Move(r *engine.Record, to engine.State, at place) {
	q := ours(r.Queue)
	q.lift(r)
	q.line(to, r).insert(at, r)
}

// lift removes a record from the line in which it stands.
func (q *queue) lift(r *engine.Record) {
	if r.State != engine.None {
		q.line(r.State, r).remove(r.Place)
	}
}

// Transfer moves a record to another queue, where it stands in no line yet.
func (s *records) Transfer(r *engine.Record, to *engine.Queue) {
	s.Remove(r)
	ours(to).records[r.ID] = r
}

// Remove removes a record from the storage.
func (s *records) Remove(r *engine.Record) {
	q := ours(r.Queue)
	q.lift(r)
	delete(q.records, r.ID)
	q.Touched = s.step.Now
}

// First returns the first record in a line, nil if it is empty.
func (s *records) First(q *engine.Queue, line engine.State) *engine.Record {
	_, r, _ := ours(q).lines[line].head()
	return r
}

// Due returns the first records of a line whose moments have come.
func (s *records) Due(q *engine.Queue, state engine.State, at int64, n int) []*engine.Record {
	return ours(q).lines[state].until(at, n)
}

// SortAfter returns the first Sort in a line that is greater than another, 0 if there is none.
func (s *records) SortAfter(q *engine.Queue, state engine.State, sort int64) int64 {
	for _, e := range ours(q).lines[state].after(place{Sort: sort, Turn: math.MaxInt64}, 1, nil) {
		return e.Sort
	}
	return 0
}

// Page returns the next tasks of a line after a mark.
func (s *records) Page(l *engine.Line, after engine.Mark, newest bool, n int) (found []*engine.Record) {
	in := &ours(l.Queue).lines[l.State]
	if own, ok := l.Tasks.(*line); ok {
		in = &own.sorted
	}
	list := in.after
	if newest {
		list = in.before
	}
	for _, e := range list(after.Place, n, nil) {
		found = append(found, e.value)
	}
	return found
}

// MarkOf returns the mark of a task in a listing.
func (s *records) MarkOf(r *engine.Record) engine.Mark {
	m := engine.Mark{Place: r.Place}
	if r.State.HasSubs() {
		m.In, m.Sub = r.State, r.Sub(r.State)
	}
	return m
}

// Line returns the line of a state and name, nil if there is none.
func (s *records) Line(q *engine.Queue, state engine.State, name string) *engine.Line {
	if l := ours(q).named(state, name); l != nil {
		return &l.Line
	}
	return nil
}

// InsertLine keeps a new line.
func (s *records) InsertLine(of engine.Line) *engine.Line {
	q, l := ours(of.Queue), &line{Line: of}
	l.Tasks = l
	if l.State == engine.Keyed {
		if q.parts == nil {
			q.parts = make(map[string]*line)
		}
		q.parts[l.Sub] = l
		q.byKey.insert(l.Sub)
		q.ring.insert(l.Ring, l)
		return &l.Line
	}
	if len(q.subs) == 0 {
		q.firstLook, q.lastLook = l.Look, l.Look
	}
	q.firstLook, q.lastLook = min(q.firstLook, l.Look), max(q.lastLook, l.Look)
	i, _ := q.sub(l.Sub)
	q.subs = slices.Insert(q.subs, i, l)
	return &l.Line
}

// DeleteLine removes a line.
func (s *records) DeleteLine(l *engine.Line) {
	q := ours(l.Queue)
	if l.State == engine.Keyed {
		delete(q.parts, l.Sub)
		q.byKey.remove(l.Sub)
		q.ring.remove(l.Ring)
		return
	}
	i, _ := q.sub(l.Sub)
	q.subs = slices.Delete(q.subs, i, i+1)
}

// LinesNamed returns the lines of kinds.
func (s *records) LinesNamed(q *engine.Queue, kinds []string) (found []*engine.Line) {
	for _, kind := range kinds {
		if l := s.Line(q, engine.Declined, kind); l != nil {
			found = append(found, l)
		}
	}
	return found
}

// LinesFrom returns up to n lines of a state from a name on.
func (s *records) LinesFrom(of *engine.Queue, state engine.State, name string, n int) (found []*engine.Line) {
	q := ours(of)
	if state == engine.Keyed {
		for _, key := range q.byKey.from(name, n) {
			found = append(found, &q.parts[key].Line)
		}
		return found
	}
	i, _ := q.sub(name)
	some := q.subs[i:]
	for _, l := range some[:min(len(some), n)] {
		found = append(found, &l.Line)
	}
	return found
}

// Partition returns a partition, nil if it neither has waiting tasks nor is paused.
func (s *records) Partition(q *engine.Queue, key string) *engine.Line {
	return s.Line(q, engine.Keyed, key)
}

// Turns returns up to n partitions from a place of the ring on.
func (s *records) Turns(q *engine.Queue, from place, n int) (found []*engine.Line) {
	for _, e := range ours(q).ring.from(from, n) {
		found = append(found, &e.value.Line)
	}
	return found
}

// SetTurn moves a partition to another place of the ring.
func (s *records) SetTurn(l *engine.Line, to place) {
	q := ours(l.Queue)
	q.ring.remove(l.Ring)
	q.ring.insert(to, q.parts[l.Sub])
}

// LinesByLook returns the first lines by their moments Look, of the moments until or after another. It goes
// through all lines only if such a moment is within the bounds firstLook and lastLook: a Step sets the
// moments of the lines that LinesByLook returns to DeclinedFor from now at the latest, or to at if they
// were after it.
func (s *records) LinesByLook(q *engine.Queue, after bool, at int64, n int) (found []*engine.Line) {
	own := ours(q)
	if len(own.subs) == 0 || after && own.lastLook <= at || !after && own.firstLook > at {
		return nil
	}
	own.firstLook, own.lastLook = at, s.step.Now+s.step.Limits.DeclinedFor.Microseconds()
	if !after {
		own.firstLook = own.subs[0].Look
	}
	for _, l := range own.subs {
		own.firstLook, own.lastLook = min(own.firstLook, l.Look), max(own.lastLook, l.Look)
		if after == (l.Look > at) {
			found = append(found, &l.Line)
		}
	}
	slices.SortStableFunc(found, func(a, b *engine.Line) int { return cmp.Compare(a.Look, b.Look) })
	return found[:min(len(found), n)]
}

// Size returns the bytes of a record's payload.
func (s *records) Size(r *engine.Record) int { return len(r.Payload) }

// Ring notes an event of a record's queue. A due moment counts only if it is the first of its line.
func (s *records) Ring(r *engine.Record, alert bool) {
	if r.State.IsTimed() && s.First(r.Queue, r.State) != r {
		return
	}
	(*Storage)(s).ring(ours(r.Queue), wakeup.Of(r.IsForAnyClaim(), alert))
}

// copyIn replaces the caller's memory, which the changes and results of a Tx left in records, by
// copies.
func (s *records) copyIn(tx *storage.Tx, a *storage.Applied) {
	if a.Err != nil {
		return
	}
	for i := range tx.Changes {
		ch := &tx.Changes[i]
		r := s.Find(a.Changed[i].Ref)
		if r == nil || ch.Encoding == "" && ch.Headers == nil && ch.Cursor == nil {
			continue
		}
		r.Payload, r.Headers, r.Cursor = bytes.Clone(r.Payload), maps.Clone(r.Headers), engine.CopyCursor(r.Cursor)
	}
	for i := range tx.Settles {
		if se := &tx.Settles[i]; se.Result != nil {
			if r := s.Find(se.Fence.Ref); r != nil && r.Side != nil {
				r.Side.Result = bytes.Clone(r.Side.Result)
			}
		}
	}
}

// whole returns a copy of everything in a record except its token.
func whole(r *engine.Record) storage.Task {
	t := r.Task()
	if side := r.Side; side != nil {
		t.Stack = side.Stack
		t.Result, t.Progress = bytes.Clone(side.Result), bytes.Clone(side.Progress)
		t.Checkpoint = bytes.Clone(side.Checkpoint)
	}
	return t
}
