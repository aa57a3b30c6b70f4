package engine

import "github.com/midgehq/midge/storage"

// Answers allocates the answers of Apply to txs. All their places share one slice.
func Answers(txs []storage.Tx) []storage.Applied {
	n := 0
	for i := range txs {
		n += len(txs[i].Inserts) + len(txs[i].Changes) + len(txs[i].Settles)
	}
	applied, places := make([]storage.Applied, len(txs)), make([]storage.Placed, n)
	for i := range txs {
		a, tx := &applied[i], &txs[i]
		a.Inserted, places = Cut(places, len(tx.Inserts))
		a.Changed, places = Cut(places, len(tx.Changes))
		a.Settled, places = Cut(places, len(tx.Settles))
	}
	return applied
}

// Cut splits the first n elements off places. taken is nil if n is 0.
func Cut(places []storage.Placed, n int) (taken, rest []storage.Placed) {
	if n == 0 {
		return nil, places
	}
	return places[:n:n], places[n:]
}

// Apply checks a Tx and then, unless it is refused, carries it out. The answer goes into a,
// which Answers made.
func (s *Step) Apply(tx *storage.Tx, a *storage.Applied) {
	if refused := s.check(tx); refused != nil {
		*a = storage.Applied{Err: refused}
		return
	}
	p := &s.plan
	for _, r := range p.deletes {
		s.Remove(r)
	}
	for i := range tx.Settles {
		a.Settled[i] = s.settle(p.settles[i], &tx.Settles[i])
	}
	for i := range tx.Changes {
		a.Changed[i] = s.change(p.changes[i], &tx.Changes[i])
	}
	for i := range tx.Inserts {
		if p.inserts[i] == (storage.Ref{}) {
			a.Inserted[i] = s.insert(&tx.Inserts[i])
		}
	}
	for i := range tx.Inserts { // last: the step may have changed the existing tasks
		if p.inserts[i] != (storage.Ref{}) {
			a.Inserted[i] = s.existing(p.inserts[i])
		}
	}
}
