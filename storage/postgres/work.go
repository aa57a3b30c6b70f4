package postgres

import (
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// work holds the tasks and unique keys that one step names, loaded and locked. The engine carries out
// Txs on it one after the other, and save turns the changes into statements of one round trip
// (save.go).
//
// A task or key that is not loaded yet is noted as needed. The step then loads it and starts again
// with a new work, as nothing has been written yet.
type work struct {
	step engine.Step

	queues map[string]*engine.Queue // with the changes of their sizes and totals
	rows   map[storage.Ref]*row     // nil if there is no task
	keys   map[key]*hold            // nil if the key is free
	// frees are the keys that this step releases in the table, with the ids of the tasks that hold
	// them there.
	frees map[key]string
	all   []*row // every row that was loaded or inserted, in order

	needRows map[storage.Ref]bool // false: to be read without a lock
	needKeys map[key]bool

	lines map[line][]*row // the candidates of a claim (choose.go)
	parts []*engine.Line  // the ready partitions that have some (ring.go)
	// shares are the partitions of the candidates, which parts has too if they are ready.
	shares map[line]*engine.Line
	begun  map[line]*beginning     // of the partitions that tasks join and leave (ring.go)
	rings  map[string]wakeup.Event // queues to wake, with the highest kind of event
	ids    func(queue string) int32
}

// key is a unique key of a queue.
type key struct{ queue, key string }

// hold is a unique key that is held.
type hold struct {
	engine.Hold

	fresh bool // not in the table yet
}

// newWork makes the work of a step at the time now, whose first version is base; ids returns the
// number of a queue.
func newWork(limits storage.Limits, now, base int64, ids func(string) int32) *work {
	w := &work{
		ids: ids, queues: make(map[string]*engine.Queue),
		rows: make(map[storage.Ref]*row), keys: make(map[key]*hold),
		needRows: make(map[storage.Ref]bool), needKeys: make(map[key]bool), frees: make(map[key]string),
		rings: make(map[string]wakeup.Event), begun: make(map[line]*beginning),
	}
	w.step = engine.Step{Store: w, Limits: limits, Now: now, Mark: base, Turn: base}
	return w
}

var _ engine.Store = (*work)(nil)

// load adds a row that was loaded.
func (w *work) load(r *row) {
	r.Queue = w.Queue(r.Ref.Queue)
	w.rows[r.Ref] = r
	w.all = append(w.all, r)
}

// complete reports whether every task and key that was asked for is loaded.
func (w *work) complete() bool { return len(w.needRows) == 0 && len(w.needKeys) == 0 }

// Queue returns a queue, whose sizes and totals start at zero: they count changes.
func (w *work) Queue(name string) *engine.Queue {
	q := w.queues[name]
	if q == nil {
		q = &engine.Queue{Name: name}
		w.queues[name] = q
	}
	return q
}

// Find returns the task of a ref, or nil. It notes a task that is not loaded as needed.
func (w *work) Find(ref storage.Ref) *engine.Record {
	r, known := w.rows[ref]
	if !known {
		w.needRows[ref] = false // no lock: a step names the tasks that it writes
	}
	if r == nil {
		return nil
	}
	return &r.Record
}

// Holder returns the hold on a unique key. It notes a key that is not loaded as needed.
func (w *work) Holder(queue, name string) (engine.Hold, bool) {
	k := key{queue, name}
	h, known := w.keys[k]
	if !known {
		w.needKeys[k] = true
	}
	if h == nil {
		return engine.Hold{}, false
	}
	return h.Hold, true
}

// Hold notes that a unique key is to be taken.
func (w *work) Hold(q *engine.Queue, name string, h engine.Hold) {
	w.keys[key{q.Name, name}] = &hold{Hold: h, fresh: true}
}

// Free notes that a unique key is to be released. The task's record names the key, so the hold need
// not have been loaded.
func (w *work) Free(q *engine.Queue, name, id string) {
	k := key{q.Name, name}
	if h := w.keys[k]; h == nil || !h.fresh {
		w.frees[k] = id
	}
	w.keys[k] = nil
}

// Add makes the row of an insert.
func (w *work) Add(_ *engine.Queue, in *storage.Insert) *engine.Record {
	r := new(row)
	r.Spec = engine.SpecOf(in)
	w.rows[in.Ref] = r
	w.all = append(w.all, r)
	return &r.Record
}

// Move notes how partitions begin. Each row has the line in which it stands.
func (w *work) Move(r *engine.Record, to engine.State, at engine.Place) {
	w.leave(r)
	if to == engine.Keyed {
		w.join(r, at)
	}
}

// Transfer files a row under its ref in another queue.
func (w *work) Transfer(r *engine.Record, to *engine.Queue) {
	w.leave(r)
	moved := w.rows[r.Ref]
	w.rows[r.Ref] = nil
	w.rows[storage.Ref{Queue: to.Name, ID: r.ID}] = moved
}

// Remove removes a row from the work; save deletes it from the tables.
func (w *work) Remove(r *engine.Record) {
	w.leave(r)
	w.rows[r.Ref] = nil
}

// Ring notes an event of a queue.
func (w *work) Ring(r *engine.Record, alert bool) {
	event := wakeup.Of(r.IsForAnyClaim(), alert)
	w.rings[r.Ref.Queue] = max(w.rings[r.Ref.Queue], event)
}
