package postgres

import (
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// work is the part of the storage that one step is about: the tasks and unique keys that
// it names, loaded and locked. Txs are carried out on it one after the other, as the
// memory storage carries them out on all there is, and what has changed is written in
// one go (save.go).
//
// What is not loaded yet is noted as needed. The step then loads it, forgets what it has
// done and begins again: until it had all, nothing was written.
type work struct {
	limits storage.Limits
	now    int64 // by the clock
	mark   int64 // the last version or place in the order that was given

	rows map[storage.Ref]*row // nil where there is none
	keys map[key]*hold        // nil where it is free
	// frees are the keys that the table says are held, and by whom, and that this step
	// releases.
	frees map[key]string
	all   []*row // every row that was loaded or made, in order

	needRows map[storage.Ref]bool // false: they are only told of
	needKeys map[key]bool
	// busy are the tasks that another step has locked and that this one wants to write.
	busy bool

	plan  plan            // of the Tx under way
	rings map[string]bool // queues to wake; true for an alert
	sizes map[string]*delta
	ids   func(queue string) int32
}

// key is a unique key of a queue.
type key struct{ queue, key string }

// hold is a unique key that is held, until a moment or, where that is 0, for life.
type hold struct {
	id    string
	until int64
	fresh bool // the table does not say so yet
}

// newWork makes the work of a step at a time, from a version on; ids numbers queues.
func newWork(limits storage.Limits, now, base int64, ids func(string) int32) *work {
	return &work{
		limits: limits, now: now, mark: base, ids: ids,
		rows: make(map[storage.Ref]*row), keys: make(map[key]*hold),
		needRows: make(map[storage.Ref]bool), needKeys: make(map[key]bool), frees: make(map[key]string),
		rings: make(map[string]bool), sizes: make(map[string]*delta),
	}
}

// find gives the task of a ref, or nil; one that is not loaded is needed.
func (w *work) find(ref storage.Ref) *row {
	r, known := w.rows[ref]
	if !known {
		w.needRows[ref] = false // what is written was named
	}
	return r
}

// holder gives the id of the task that holds a unique key. A window that is over holds
// nothing, swept or not.
func (w *work) holder(k key) (string, bool) {
	h, known := w.keys[k]
	if !known {
		w.needKeys[k] = true
		return "", false
	}
	if h == nil || h.until != 0 && w.now >= h.until {
		return "", false
	}
	return h.id, true
}

// complete reports whether all that was asked for is there.
func (w *work) complete() bool { return len(w.needRows) == 0 && len(w.needKeys) == 0 }

// turn gives the next place in the order of what waits.
func (w *work) turn() int64 {
	w.mark++
	return w.mark
}

// grown gives a task's next version.
func (w *work) grown(version int64) int64 {
	w.mark = max(w.mark, version) + 1
	return w.mark
}

// after gives the moment that long from now.
func (w *work) after(d time.Duration) int64 { return w.now + d.Microseconds() }

// ring notes an event of a queue.
func (w *work) ring(queue string, alert bool) { w.rings[queue] = w.rings[queue] || alert }

// waitAtTail puts r behind all that wait with its priority.
func (w *work) waitAtTail(r *row) { w.wait(r, w.turn()) }

// waitAtHead puts r before all that wait with its priority.
func (w *work) waitAtHead(r *row) { w.wait(r, -w.turn()) }

func (w *work) wait(r *row, turn int64) {
	r.sort = band(r.priority) + turn
	switch {
	case storage.Suspect(r.past.Crashes, r.spec.CrashLimit):
		r.flags |= isSuspect
		w.put(r, suspect)
	case r.flags&startOnly != 0:
		r.flags &^= isSuspect
		w.put(r, prompt)
	default:
		r.flags &^= isSuspect
		w.put(r, waiting)
	}
	w.ring(r.ref.Queue, false)
}

// schedule puts r into scheduled or retry.
func (w *work) schedule(r *row, state int16, due int64) {
	r.sort, r.turn = due, w.turn()
	if storage.Suspect(r.past.Crashes, r.spec.CrashLimit) {
		r.flags |= isSuspect
	} else {
		r.flags &^= isSuspect
	}
	w.put(r, state)
	w.ring(r.ref.Queue, false)
}

// arm puts a cursor where it is handed out at its next moment.
func (w *work) arm(r *row) {
	r.sort, r.turn = never, w.turn()
	if !r.spec.Cursor.Next.IsZero() {
		r.sort = r.spec.Cursor.Next.UnixMicro()
		w.ring(r.ref.Queue, false)
	}
}

// end puts r into an ended state, or out of the storage where it is not kept.
func (w *work) end(r *row, state int16) {
	r.at = w.now
	keep := r.spec.Keep.Of(stateOf(state), r.side.mask&sideResult != 0 && r.side.result != nil)
	if state == dead {
		keep = w.limits.DeadFor
	}
	if keep == 0 {
		w.count(r, state, false)
		r.state = state
		w.gone(r)
		return
	}
	r.sort = w.after(keep)
	w.put(r, state)
}

// remove takes r out of the storage.
func (w *work) remove(r *row) {
	w.count(r, 0, false)
	w.gone(r)
}

// gone forgets a row; what was loaded of it is deleted when the work is saved.
func (w *work) gone(r *row) {
	w.rows[r.ref] = nil
	r.dirty = true
}

// transfer moves r to another queue, in the state in which it is.
func (w *work) transfer(r *row, queue string) {
	state := r.state
	w.remove(r)
	r.state = 0
	r.ref.Queue, r.queue = queue, w.ids(queue)
	w.rows[r.ref] = r
	switch {
	case state <= suspect:
		w.waitAtTail(r)
	case state <= retry:
		w.schedule(r, state, r.sort)
	default: // ended: pending tasks and cursors do not move
		w.put(r, state)
	}
}

// put takes r to a state. Every arrow between states passes here, or through end and
// remove where the record goes.
func (w *work) put(r *row, to int16) {
	w.count(r, to, true)
	r.state = to
	r.dirty = true
	if to != pending && to != asked {
		r.lease = nil
		r.flags &^= started
	}
	if to < completed {
		r.at = 0
	}
}

// count keeps sizes and totals, and the unique key that a task holds for its life. to 0
// takes it out of the storage, as does an end that is not kept.
func (w *work) count(r *row, to int16, kept bool) {
	d := w.delta(r.ref.Queue)
	from := r.state
	d.move(from, to, kept)
	life := r.spec.Unique.Mode == storage.UniqueLife
	switch {
	case isLive(to) && !isLive(from):
		if from == 0 {
			d.add(tEnqueued)
		} else {
			d.add(tRequeued)
		}
		if life {
			w.keys[key{r.ref.Queue, r.spec.Unique.Key}] = &hold{id: r.ref.ID, fresh: true}
		}
	case isLive(from) && !isLive(to):
		switch to {
		case completed:
			d.add(tCompleted)
		case dead:
			d.add(tDead)
		case cancelled:
			d.add(tCancelled)
		default:
			d.add(tDeleted)
		}
		if life {
			w.release(r)
		}
	}
}

// release ends the hold that r has for its life. Which key that is its record says: the
// hold need not have been loaded.
func (w *work) release(r *row) {
	k := key{r.ref.Queue, r.spec.Unique.Key}
	if h := w.keys[k]; h == nil || !h.fresh {
		w.frees[k] = r.ref.ID
	}
	w.keys[k] = nil
}

func isLive(state int16) bool { return state >= waiting && state <= retry }

// add notes a row that was loaded or made.
func (w *work) add(r *row) {
	w.rows[r.ref] = r
	w.all = append(w.all, r)
}

// delta gives the changes of a queue's sizes and totals.
func (w *work) delta(queue string) *delta {
	d := w.sizes[queue]
	if d == nil {
		d = new(delta)
		w.sizes[queue] = d
	}
	return d
}

// The columns of deltas, behind queue.
const (
	nWaiting = iota
	nPending
	nScheduled
	nRetry
	nCompleted
	nCancelled
	nDead
	nCursors
	nDamaged
	tEnqueued
	tRequeued
	tCompleted
	tDead
	tCancelled
	tDeleted
	tFailed
	tCrashed
	columns
)

// delta is what a step changes of a queue's sizes and totals.
type delta [columns]int32

func (d *delta) add(column int) { d[column]++ }

// move counts a task from one state to another, 0 for none.
func (d *delta) move(from, to int16, kept bool) {
	if c := columnOf(from); c >= 0 {
		d[c]--
	}
	if c := columnOf(to); c >= 0 && kept {
		d[c]++
	}
}

func columnOf(state int16) int {
	switch state {
	case waiting, prompt, suspect:
		return nWaiting
	case pending, asked:
		return nPending
	case scheduled:
		return nScheduled
	case retry:
		return nRetry
	case cursor:
		return nCursors
	case damaged:
		return nDamaged
	case completed:
		return nCompleted
	case cancelled:
		return nCancelled
	case dead:
		return nDead
	}
	return -1
}

func (d *delta) empty() bool { return *d == delta{} }

// queuesOf lists the queues of a map, sorted.
func queuesOf[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
