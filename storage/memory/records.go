package memory

import (
	"bytes"
	"maps"
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
	kinds   kindLines // of the declined tasks

	keys    map[string]*hold // the holds on unique keys, by key
	windows sorted[*hold]    // the holds of unique windows, by their end
}

// hold is the hold on a unique key.
type hold struct {
	engine.Hold

	key   string
	place place // in queue.windows
}

// line returns the line of a state. A task whose cancel was asked stays in the line of Pending.
func (q *queue) line(state engine.State) *sorted[*engine.Record] {
	if state == engine.Asked {
		state = engine.Pending
	}
	return &q.lines[state]
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

// Queue returns the queue of a name, which it makes where there is none.
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

// Holder returns the hold on a unique key, false where there is none.
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
	if to == engine.Declined {
		(*Storage)(s).joinKind(q, r, at)
		return
	}
	q.line(to).insert(at, r)
	if to == engine.Dead && s.step.HasTooManyDead(&q.Queue) {
		s.overfull = append(s.overfull, q)
	}
}

// lift removes a record from the line in which it stands.
func (q *queue) lift(r *engine.Record) {
	switch r.State {
	case engine.None:
	case engine.Declined:
		q.kinds.leave(r)
	default:
		q.line(r.State).remove(r.Place)
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

// First returns the first record in a line, nil where it is empty.
func (s *records) First(q *engine.Queue, line engine.State) *engine.Record {
	_, r, _ := ours(q).lines[line].head()
	return r
}

// KindLines returns those of the kinds whose lines hold tasks; see engine.Lines.
func (s *records) KindLines(q *engine.Queue, kinds []string) []string {
	return ours(q).kinds.among(kinds)
}

// FirstDeclined returns the first task in the line of a kind, from a place on, that has none of the flags
// without.
func (s *records) FirstDeclined(
	q *engine.Queue, kind string, from place, without engine.Flags,
) *engine.Record {
	return ours(q).kinds.first(kind, from, without)
}

// Size returns the bytes of a record's payload.
func (s *records) Size(r *engine.Record) int { return len(r.Payload) }

// Ring notes an event of a record's queue. A due moment counts only where it is the first of its line.
func (s *records) Ring(r *engine.Record, alert bool) {
	switch r.State {
	case engine.Scheduled, engine.Retry, engine.Cursor:
		if s.First(r.Queue, r.State) != r {
			return
		}
	default:
	}
	(*Storage)(s).ring(ours(r.Queue), wakeup.Of(r.State == engine.Waiting, alert))
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

// trimDead removes the oldest dead tasks of queues that have too many, at the end of a step.
func (s *records) trimDead() {
	for _, q := range s.overfull {
		for s.step.HasTooManyDead(&q.Queue) {
			s.step.Evict(s.First(&q.Queue, engine.Dead))
		}
	}
	clear(s.overfull)
	s.overfull = s.overfull[:0]
}

// copyOut replaces memory that a task shares with its record, except the payload, by copies.
func copyOut(t *storage.Task) {
	t.Headers = maps.Clone(t.Headers)
	t.Cursor = engine.CopyCursor(t.Cursor)
	t.Attempts = slices.Clone(t.Attempts)
}

// listed returns a copy of a record as a listing shows it.
func listed(r *engine.Record) storage.Task {
	var t storage.Task
	r.CopyTo(&t)
	t.Payload = bytes.Clone(t.Payload)
	copyOut(&t)
	return t
}

// whole returns a copy of everything in a record except its token.
func whole(r *engine.Record) storage.Task {
	t := listed(r)
	if side := r.Side; side != nil {
		t.Stack = side.Stack
		t.Result, t.Progress = bytes.Clone(side.Result), bytes.Clone(side.Progress)
		t.Checkpoint = bytes.Clone(side.Checkpoint)
	}
	return t
}
