package engine

import "github.com/midgehq/midge/storage"

// plan is the finding of a check, for the writing that follows: one element per operation. Its
// memory is used again by the next Tx.
type plan struct {
	inserts []storage.Ref // the task that stands in the way: the same one, or the holder of the key
	changes []*Record
	deletes []*Record
	settles []*Record
	// takes are the unique keys that operations of this Tx take.
	takes map[uniqueKey]storage.Ref
	// refused is nil while nothing stands in the way.
	refused *storage.DependencyError
}

type uniqueKey struct{ queue, key string }

// reset forgets the Tx before, so that no record outlives its end here.
func (p *plan) reset() {
	clear(p.inserts)
	clear(p.changes)
	clear(p.deletes)
	clear(p.settles)
	clear(p.takes)
	p.inserts, p.changes = p.inserts[:0], p.changes[:0]
	p.deletes, p.settles = p.deletes[:0], p.settles[:0]
	p.refused = nil
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
func (s *Step) check(tx *storage.Tx) *storage.DependencyError {
	p := &s.plan
	p.reset()
	for i := range tx.Deletes {
		p.deletes = append(p.deletes, s.checkDelete(&tx.Deletes[i]))
	}
	for i := range tx.Changes {
		p.changes = append(p.changes, s.checkChange(&tx.Changes[i]))
	}
	for i := range tx.Inserts {
		p.inserts = append(p.inserts, s.checkInsert(tx, &tx.Inserts[i]))
	}
	for i := range tx.Depends {
		s.rely(s.atVersion(tx.Depends[i].Ref, tx.Depends[i].Version))
	}
	for i := range tx.Settles {
		p.settles = append(p.settles, s.checkSettle(&tx.Settles[i].Fence))
	}
	return p.refused
}

// rely notes where a record that the step relies on is locked by another transaction.
func (s *Step) rely(r *Record) *Record {
	if r != nil && r.Locked {
		s.Busy = true
	}
	return r
}

// atVersion finds a record that must be there, at a version unless that is 0.
func (s *Step) atVersion(ref storage.Ref, version int64) *Record {
	r := s.Store.Find(ref)
	if r == nil || r.State == Damaged {
		dep := s.plan.refuse()
		dep.Missing = append(dep.Missing, ref)
		return nil
	}
	if version != 0 && r.Version != version {
		s.rely(r) // it may be this version by the time the other transaction is over
		dep := s.plan.refuse()
		dep.Stale = append(dep.Stale, storage.Stale{Ref: ref, Want: version, Have: r.Version})
		return nil
	}
	return r
}

func (s *Step) bar(r *Record) {
	dep := s.plan.refuse()
	dep.Barred = append(dep.Barred, storage.Barred{Ref: r.Ref, State: r.State.Public()})
}

func (s *Step) collide(c storage.Collision) {
	dep := s.plan.refuse()
	dep.Colliding = append(dep.Colliding, c)
}

func (s *Step) checkDelete(d *storage.Delete) *Record {
	r := s.rely(s.atVersion(d.Ref, d.Version))
	if r != nil && r.State.IsPending() {
		s.bar(r)
	}
	return r
}

func (s *Step) checkSettle(f *storage.Fence) *Record {
	r := s.rely(s.Store.Find(f.Ref))
	if r == nil || !r.Proves(f) {
		dep := s.plan.refuse()
		dep.Lost = append(dep.Lost, f.Ref)
		return nil
	}
	return r
}

// checkInsert gives the zero Ref, or that of the task for which in is left out.
func (s *Step) checkInsert(tx *storage.Tx, in *storage.Insert) storage.Ref {
	if r := s.Store.Find(in.Ref); r != nil && !replaces(tx, in) {
		if r.State == Damaged || !r.isInsertOf(in) {
			s.collide(storage.Collision{Ref: in.Ref, Holder: in.Ref})
		}
		return in.Ref
	}
	if in.Unique.Mode == "" {
		return storage.Ref{}
	}
	holder, free := s.reserve(in.Ref, in.Unique.Key)
	switch {
	case free:
		return storage.Ref{}
	case in.OnConflict == storage.Skip:
		return holder
	}
	s.collide(storage.Collision{Ref: in.Ref, Holder: holder, Unique: true})
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

// reserve takes a unique key for ref in ref's queue, or names its holder: a task, or another
// operation of this Tx. A window that is over holds nothing, swept or not.
func (s *Step) reserve(ref storage.Ref, name string) (holder storage.Ref, free bool) {
	h, held := s.Store.Holder(ref.Queue, name)
	if held && (h.Until == 0 || s.Now < h.Until) {
		return storage.Ref{Queue: ref.Queue, ID: h.ID}, false
	}
	k := uniqueKey{ref.Queue, name}
	if holder, held := s.plan.takes[k]; held {
		return holder, false
	}
	if s.plan.takes == nil {
		s.plan.takes = make(map[uniqueKey]storage.Ref)
	}
	s.plan.takes[k] = ref
	return ref, true
}

func (s *Step) checkChange(ch *storage.Change) *Record {
	r := s.atVersion(ch.Ref, ch.Version)
	if r == nil {
		return nil
	}
	if !r.State.IsPending() || !ch.Permitted(storage.Pending) {
		s.rely(r) // no cancel is asked of a task that another transaction settles or extends
	}
	state := r.State.Public()
	if !ch.Permitted(state) {
		s.bar(r)
		return r
	}
	at := storage.Ref{Queue: TargetQueue(ch), ID: ch.Ref.ID}
	moved := at != ch.Ref
	if moved && s.Store.Find(at) != nil {
		s.collide(storage.Collision{Ref: ch.Ref, Holder: at})
	}
	to := ch.Target(state)
	if r.Unique.Mode == storage.UniqueLife && !to.Ended() && to != storage.Cursors &&
		(moved || r.State.HasEnded()) {
		if holder, free := s.reserve(at, r.Unique.Key); !free {
			s.collide(storage.Collision{Ref: ch.Ref, Holder: holder, Unique: true})
		}
	}
	return r
}

// TargetQueue is the queue in which ch leaves its task.
func TargetQueue(ch *storage.Change) string {
	if ch.Queue == "" {
		return ch.Ref.Queue
	}
	return ch.Queue
}
