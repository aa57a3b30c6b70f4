package memory

import (
	"github.com/midgehq/midge/storage"
)

// plan is what checking a Tx found, for the writing that follows: one element per
// operation. It is used again by the next Tx.
type plan struct {
	inserts []storage.Ref // what is there already: the same task, or the holder of the key
	changes []*task
	deletes []*task
	settles []*task
	// takes are the unique keys that operations of this Tx take.
	takes map[taken]storage.Ref
	// refused is nil while nothing stands in the way.
	refused *storage.DependencyError
}

type taken struct{ queue, key string }

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

// check compares all of a Tx with the state before it and gives everything that
// stands in the way, or nil. It changes nothing but the plan.
func (s *Storage) check(tx *storage.Tx) *storage.DependencyError {
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
		s.atVersion(tx.Depends[i].Ref, tx.Depends[i].Version)
	}
	for i := range tx.Settles {
		p.settles = append(p.settles, s.checkSettle(&tx.Settles[i].Fence))
	}
	return p.refused
}

// find gives the record of a ref, or nil.
func (s *Storage) find(ref storage.Ref) *task {
	if q := s.queues[ref.Queue]; q != nil {
		return q.tasks[ref.ID]
	}
	return nil
}

// atVersion finds a record that must be there, at a version unless that is 0.
func (s *Storage) atVersion(ref storage.Ref, version int64) *task {
	t := s.find(ref)
	if t == nil {
		dep := s.plan.refuse()
		dep.Missing = append(dep.Missing, ref)
		return nil
	}
	if version != 0 && t.Version != version {
		dep := s.plan.refuse()
		dep.Stale = append(dep.Stale, storage.Stale{Ref: ref, Want: version, Have: t.Version})
		return nil
	}
	return t
}

func (s *Storage) bar(t *task) {
	dep := s.plan.refuse()
	dep.Barred = append(dep.Barred, storage.Barred{Ref: t.ref(), State: t.State})
}

func (s *Storage) collide(c storage.Collision) {
	dep := s.plan.refuse()
	dep.Colliding = append(dep.Colliding, c)
}

func (s *Storage) checkDelete(d *storage.Delete) *task {
	t := s.atVersion(d.Ref, d.Version)
	if t != nil && t.State == storage.Pending {
		s.bar(t)
	}
	return t
}

func (s *Storage) checkSettle(f *storage.Fence) *task {
	t := s.fenced(f)
	if t == nil {
		dep := s.plan.refuse()
		dep.Lost = append(dep.Lost, f.Ref)
	}
	return t
}

// fenced gives the task whose lease a fence proves, or nil.
func (s *Storage) fenced(f *storage.Fence) *task {
	t := s.find(f.Ref)
	if t == nil || t.State != storage.Pending || t.Version != f.Version || t.token != f.Token {
		return nil
	}
	return t
}

// checkInsert gives the zero Ref, or that of the task for which in is left out.
func (s *Storage) checkInsert(tx *storage.Tx, in *storage.Insert) storage.Ref {
	if t := s.find(in.Ref); t != nil && !replaces(tx, in) {
		if !t.isInsertOf(in) {
			s.collide(storage.Collision{Ref: in.Ref, Holder: in.Ref})
		}
		return in.Ref
	}
	if in.Unique.Mode == "" {
		return storage.Ref{}
	}
	holder, free := s.take(in.Ref, in.Unique.Key)
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

// take reserves a unique key for ref in ref's queue, or names who has it: a task,
// or another operation of this Tx.
func (s *Storage) take(ref storage.Ref, key string) (holder storage.Ref, free bool) {
	if q := s.queues[ref.Queue]; q != nil {
		if id, held := q.holder(key, s.now); held {
			return storage.Ref{Queue: ref.Queue, ID: id}, false
		}
	}
	k := taken{ref.Queue, key}
	if holder, held := s.plan.takes[k]; held {
		return holder, false
	}
	if s.plan.takes == nil {
		s.plan.takes = make(map[taken]storage.Ref)
	}
	s.plan.takes[k] = ref
	return ref, true
}

func (s *Storage) checkChange(ch *storage.Change) *task {
	t := s.atVersion(ch.Ref, ch.Version)
	if t == nil {
		return nil
	}
	if !ch.Permitted(t.State) {
		s.bar(t)
		return t
	}
	at := storage.Ref{Queue: targetQueue(ch), ID: ch.Ref.ID}
	moved := at != ch.Ref
	if moved && s.find(at) != nil {
		s.collide(storage.Collision{Ref: ch.Ref, Holder: at})
	}
	if t.Unique.Mode == storage.UniqueLife && live(ch.Target(t.State)) && (moved || t.State.Ended()) {
		if holder, free := s.take(at, t.Unique.Key); !free {
			s.collide(storage.Collision{Ref: ch.Ref, Holder: holder, Unique: true})
		}
	}
	return t
}

// targetQueue is the queue in which ch leaves its task.
func targetQueue(ch *storage.Change) string {
	if ch.Queue == "" {
		return ch.Ref.Queue
	}
	return ch.Queue
}
