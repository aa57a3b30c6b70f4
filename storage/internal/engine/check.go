package engine

import "github.com/midgehq/midge/storage"

// plan is the result of a check, for the writing that follows, with one element per operation. The
// next Tx uses its memory again.
type plan struct {
	inserts []storage.Ref // the task that keeps the insert out: the same task, or the holder of the key
	changes []*Record
	deletes []*Record
	settles []*Record
	// takes holds the unique keys that operations of this Tx take, with the refs of these operations.
	takes map[uniqueKey]storage.Ref
	// refused is nil while no operation is refused.
	refused *storage.DependencyError
}

type uniqueKey struct{ queue, key string }

// reset clears the plan of the Tx before, so that the plan does not keep removed records in memory.
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

// refuse returns the error to which the caller adds a reason.
func (p *plan) refuse() *storage.DependencyError {
	if p.refused == nil {
		p.refused = new(storage.DependencyError)
	}
	return p.refused
}

// check compares the whole Tx with the state before it and returns all reasons to refuse it, or
// nil. It changes only the plan.
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

// rely sets Busy if another transaction has locked r, on which the step relies. It returns r.
func (s *Step) rely(r *Record) *Record {
	if r != nil && r.Locked {
		s.Busy = true
	}
	return r
}

// atVersion returns the record of a ref. If there is none, or it has another version and
// version is not 0, the Tx is refused and atVersion returns nil.
func (s *Step) atVersion(ref storage.Ref, version int64) *Record {
	r := s.Store.Find(ref)
	if r == nil || r.State == Damaged {
		dep := s.plan.refuse()
		dep.Missing = append(dep.Missing, ref)
		return nil
	}
	if version != 0 && r.Version != version {
		s.rely(r) // the record may have the wanted version once the other transaction is over
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

// checkInsert returns the zero Ref, or the ref of the task for which in is left out.
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

// reserve takes a unique key for ref in ref's queue, or returns the key's holder: a task, or another
// operation of this Tx. A window that is over holds no key, whether it was swept or not.
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
	asks := r.State.IsPending() && ch.Permitted(storage.Pending)
	switch {
	case !asks || r.State != Asked && !s.PassOver:
		s.rely(r)
	case r.State != Asked && r.Locked:
		s.bar(r)
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

// TargetQueue returns the queue in which ch leaves its task.
func TargetQueue(ch *storage.Change) string {
	if ch.Queue == "" {
		return ch.Ref.Queue
	}
	return ch.Queue
}
