package postgres

import (
	"github.com/midgehq/midge/storage"
)

// plan is what checking a Tx found, for the writing that follows: one element per
// operation.
type plan struct {
	inserts []storage.Ref // what is there already: the same task, or the holder of the key
	changes []*row
	deletes []*row
	settles []*row
	// takes are the unique keys that operations of this Tx take.
	takes map[key]storage.Ref
	// refused is nil while nothing stands in the way.
	refused *storage.DependencyError
}

// refuse gives the error to which a reason is added.
func (p *plan) refuse() *storage.DependencyError {
	if p.refused == nil {
		p.refused = new(storage.DependencyError)
	}
	return p.refused
}

// check compares all of a Tx with the state before it and gives everything that stands
// in the way, or nil. It changes nothing but the plan.
func (w *work) check(tx *storage.Tx) *storage.DependencyError {
	w.plan = plan{}
	p := &w.plan
	for i := range tx.Deletes {
		p.deletes = append(p.deletes, w.checkDelete(&tx.Deletes[i]))
	}
	for i := range tx.Changes {
		p.changes = append(p.changes, w.checkChange(&tx.Changes[i]))
	}
	for i := range tx.Inserts {
		p.inserts = append(p.inserts, w.checkInsert(tx, &tx.Inserts[i]))
	}
	for i := range tx.Depends {
		w.own(w.atVersion(tx.Depends[i].Ref, tx.Depends[i].Version))
	}
	for i := range tx.Settles {
		p.settles = append(p.settles, w.checkSettle(&tx.Settles[i].Fence))
	}
	return p.refused
}

// own notes where a task that the step relies on is locked by another.
func (w *work) own(r *row) *row {
	if r != nil && !r.held {
		w.busy = true
	}
	return r
}

// atVersion finds a task that must be there, at a version unless that is 0.
func (w *work) atVersion(ref storage.Ref, version int64) *row {
	r := w.find(ref)
	if r == nil || r.state == damaged {
		dep := w.plan.refuse()
		dep.Missing = append(dep.Missing, ref)
		return nil
	}
	if version != 0 && r.version != version {
		w.own(r) // it may be this version by the time the other step is over
		dep := w.plan.refuse()
		dep.Stale = append(dep.Stale, storage.Stale{Ref: ref, Want: version, Have: r.version})
		return nil
	}
	return r
}

func (w *work) bar(r *row) {
	dep := w.plan.refuse()
	dep.Barred = append(dep.Barred, storage.Barred{Ref: r.ref, State: stateOf(r.state)})
}

func (w *work) collide(c storage.Collision) {
	dep := w.plan.refuse()
	dep.Colliding = append(dep.Colliding, c)
}

func (w *work) checkDelete(d *storage.Delete) *row {
	r := w.own(w.atVersion(d.Ref, d.Version))
	if r != nil && r.isPending() {
		w.bar(r)
	}
	return r
}

func (w *work) checkSettle(f *storage.Fence) *row {
	r := w.own(w.find(f.Ref))
	if r == nil || !r.proves(f) {
		dep := w.plan.refuse()
		dep.Lost = append(dep.Lost, f.Ref)
		return nil
	}
	return r
}

// checkInsert gives the zero Ref, or that of the task for which in is left out.
func (w *work) checkInsert(tx *storage.Tx, in *storage.Insert) storage.Ref {
	if r := w.find(in.Ref); r != nil && !replaces(tx, in) {
		if r.state == damaged || !r.spec.isInsertOf(in) {
			w.collide(storage.Collision{Ref: in.Ref, Holder: in.Ref})
		}
		return in.Ref
	}
	if in.Unique.Mode == "" {
		return storage.Ref{}
	}
	holder, free := w.take(in.Ref, in.Unique.Key)
	switch {
	case free:
		return storage.Ref{}
	case in.OnConflict == storage.Skip:
		return holder
	}
	w.collide(storage.Collision{Ref: in.Ref, Holder: holder, Unique: true})
	return storage.Ref{}
}

// replaces reports whether in is a cursor that the Tx deletes and inserts anew.
func replaces(tx *storage.Tx, in *storage.Insert) bool {
	if in.Cursor == nil {
		return false
	}
	for i := range tx.Deletes {
		if tx.Deletes[i].Ref == in.Ref {
			return true
		}
	}
	return false
}

// take reserves a unique key for ref in ref's queue, or names who has it: a task, or
// another operation of this Tx.
func (w *work) take(ref storage.Ref, name string) (holder storage.Ref, free bool) {
	k := key{ref.Queue, name}
	if id, held := w.holder(k); held {
		return storage.Ref{Queue: ref.Queue, ID: id}, false
	}
	if holder, held := w.plan.takes[k]; held {
		return holder, false
	}
	if w.plan.takes == nil {
		w.plan.takes = make(map[key]storage.Ref)
	}
	w.plan.takes[k] = ref
	return ref, true
}

func (w *work) checkChange(ch *storage.Change) *row {
	r := w.atVersion(ch.Ref, ch.Version)
	if r == nil {
		return nil
	}
	if !r.isPending() || !ch.Permitted(storage.Pending) {
		w.own(r) // the request to cancel what another settles or extends is not kept
	}
	if !ch.Permitted(stateOf(r.state)) {
		w.bar(r)
		return r
	}
	at := storage.Ref{Queue: targetQueue(ch), ID: ch.Ref.ID}
	moved := at != ch.Ref
	if moved && w.find(at) != nil {
		w.collide(storage.Collision{Ref: ch.Ref, Holder: at})
	}
	life := r.spec.Unique.Mode == storage.UniqueLife
	to := ch.Target(stateOf(r.state))
	if life && !to.Ended() && to != storage.Cursors && (moved || r.ended()) {
		if holder, free := w.take(at, r.spec.Unique.Key); !free {
			w.collide(storage.Collision{Ref: ch.Ref, Holder: holder, Unique: true})
		}
	}
	return r
}

// targetQueue is the queue in which ch leaves its task.
func targetQueue(ch *storage.Change) string {
	if ch.Queue == "" {
		return ch.Ref.Queue
	}
	return ch.Queue
}
