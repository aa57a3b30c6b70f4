package storage

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
)

// EachTx describes a call of [Session.ApplyEach].
type EachTx struct {
	// Tasks are the tasks to change, such as [Each] lists them. A task that comes a second time is left
	// out: a task that was requeued may have died again meanwhile, and come again at the end of the listing.
	Tasks iter.Seq2[Task, error]
	// Tx makes the Tx for one task, or reports false to leave the task as it is.
	Tx func(Task) (Tx, bool)
	// Chunk is how many tasks share a call: 1 to MaxPage, 0 means MaxPage.
	Chunk int
	// Before is called before each call of the storage, for work that must be done by then. If it returns an
	// error, ApplyEach stops and returns that error. It may be nil.
	Before func() error
	// After is called with each task and the result of its Tx, in order. It may be nil.
	After func(Task, Applied)
}

// ApplyEach applies to each of many tasks a Tx of its own. It makes a call for each chunk of tasks, and
// reads the next chunk while the call is under way. A refused Tx does not stop it. If a call or the
// listing fails, the calls before it have happened.
func (s *Session) ApplyEach(ctx context.Context, each EachTx) error {
	if each.Chunk == 0 {
		each.Chunk = MaxPage
	}
	if err := checkRange("EachTx.Chunk", each.Chunk, 1, MaxPage); err != nil {
		return err
	}
	w := eachWalk{session: s, each: each, under: make(chan eachCall, 1)}
	w.under <- eachCall{}
	seed, seen := maphash.MakeSeed(), make(map[uint64]struct{})
	for t, err := range each.Tasks {
		if err != nil {
			return errors.Join(err, w.settle())
		}
		key := maphash.Comparable(seed, t.Ref)
		if _, again := seen[key]; again {
			continue
		}
		seen[key] = struct{}{}
		if tx, ok := each.Tx(t); ok {
			w.next.tasks, w.next.txs = append(w.next.tasks, t), append(w.next.txs, tx)
		}
		if len(w.next.txs) == each.Chunk {
			if err := w.apply(ctx); err != nil {
				return err
			}
		}
	}
	if err := w.apply(ctx); err != nil {
		return err
	}
	return w.settle()
}

// eachWalk is an ApplyEach under way.
type eachWalk struct {
	session *Session
	each    EachTx
	next    eachCall
	under   chan eachCall // capacity 1: receives the last call once it has ended
}

// eachCall is one call and its answer.
type eachCall struct {
	tasks   []Task
	txs     []Tx
	applied []Applied
	err     error
}

// apply starts the next call once the one before has ended. It returns the error of the call
// before, or of Before.
func (w *eachWalk) apply(ctx context.Context) error {
	if err := w.settle(); err != nil {
		return err
	}
	call := w.next
	w.next = eachCall{}
	if len(call.txs) > 0 && w.each.Before != nil {
		call.err = w.each.Before()
	}
	if len(call.txs) == 0 || call.err != nil {
		w.under <- eachCall{}
		return call.err
	}
	go func() { // it ends with the call, for which settle waits
		call.applied, call.err = w.session.Apply(ctx, call.txs...)
		w.under <- call
	}()
	return nil
}

// settle waits for the call under way, passes its results to After and returns its error.
func (w *eachWalk) settle() error {
	call := <-w.under
	for i, a := range call.applied {
		if w.each.After != nil && call.err == nil {
			w.each.After(call.tasks[i], a)
		}
	}
	return call.err
}
