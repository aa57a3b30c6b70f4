package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestACancelIsNotLost locks a running task for a moment, as an extension of its lease does. A cancel that is
// acknowledged has marked the task, in a call with one cancel and in a call with several.
func TestACancelIsNotLost(t *testing.T) {
	s := newShop(t)
	for _, ids := range [][]string{{"a"}, {"b", "c", "d"}} {
		var cancels []storage.Tx
		var refs []storage.Ref
		for _, id := range ids {
			a := s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(id)}})
			cancels, refs = append(cancels, cancelOf(a.Inserted[0].Ref)), append(refs, a.Inserted[0].Ref)
		}
		fences := s.claim(len(ids)).Fences
		s.want("claimed tasks", len(fences), len(ids))
		asked := func() (asked []storage.Ref) {
			req := storage.ExtendRequest{}
			for _, fence := range fences {
				req.Leases = append(req.Leases, storage.Extension{Fence: fence, For: time.Minute})
			}
			extended, err := s.session.Extend(s.Context(), req)
			s.must(err)
			return extended.CancelAsked
		}
		tx, err := s.conn.Begin(s.Context())
		s.must(err)
		_, err = tx.Exec(s.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id = $1 FOR UPDATE", ids[0])
		s.must(err)
		for try := range 3 {
			again, err := s.store.TryApply(s.Context(), false, cancels...)
			s.want(fmt.Sprint("whether try ", try, " is repeated: ", err), again, true)
		}
		s.must(tx.Rollback(s.Context()))
		s.want("cancels asked meanwhile", len(asked()), 0)
		again, err := s.store.TryApply(s.Context(), false, cancels...)
		s.must(err)
		s.want("whether it is repeated once no task is locked", again, false)
		if got := asked(); !slices.Equal(got, refs) {
			t.Errorf("cancels asked: got %v, want %v", got, refs)
		}
	}
}

// TestTheLastTryOfACancelWaitsForALock checks that a cancel takes effect on a task that is free for no longer than
// a moment, as beside extensions that follow each other. A try may find the machine busy and not wait for long
// enough, but not each of many.
func TestTheLastTryOfACancelWaitsForALock(t *testing.T) {
	s := newShop(t)
	for i := range 20 {
		a := s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprint("t", i))}})
		ref := a.Inserted[0].Ref
		s.want("claimed tasks", len(s.claim(1).Fences), 1)
		if s.cancelsBehind(ref, cancelOf(ref)) {
			return
		}
	}
	t.Error("the last try of a cancel passed over each task that was locked for a moment")
}

// TestLongLocksHideNoOtherCancel of the same call: if some tasks stay locked, the last try waits all the same
// for another task that is locked for a moment.
func TestLongLocksHideNoOtherCancel(t *testing.T) {
	s := newShop(t)
	locked := storage.Tx{}
	for i := range 8 {
		id := fmt.Sprint("a", i)
		locked.Changes = append(locked.Changes, cancelOf(storage.Ref{Queue: "q", ID: id}).Changes...)
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(id)}})
	}
	s.want("claimed tasks", len(s.claim(8).Fences), 8)
	long, err := s.db.BeginTx(s.Context(), nil)
	s.must(err)
	defer func() { s.must(long.Rollback()) }()
	_, err = long.ExecContext(s.Context(), "SELECT FROM "+s.cfg.Schema+".tasks FOR UPDATE")
	s.must(err)
	for i := range 20 {
		a := s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprint("b", i))}})
		ref := a.Inserted[0].Ref
		s.want("claimed tasks", len(s.claim(1).Fences), 1)
		if s.cancelsBehind(ref, locked, cancelOf(ref)) {
			return
		}
	}
	t.Error("the last try of a cancel passed over each task beside tasks that stayed locked")
}

// TestACancelIsNotLostBehindAStepThatHangs checks that a cancel takes effect on a task that a step of a stopped
// process has locked. The server ends such a step two seconds after it has heard of it.
func TestACancelIsNotLostBehindAStepThatHangs(t *testing.T) {
	s := newShop(t)
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
	ref := s.claim(1).Fences[0].Ref
	tx, err := s.conn.Begin(s.Context())
	s.must(err)
	_, err = tx.Exec(s.Context(), "SET LOCAL idle_in_transaction_session_timeout = '2s'")
	s.must(err)
	_, err = tx.Exec(s.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id = 'a' FOR UPDATE")
	s.must(err)
	applied, err := s.session.Apply(s.Context(), cancelOf(ref))
	s.must(err)
	s.want("the state", applied[0].Changed[0].State, storage.Pending)
	task, err := s.store.Task(s.Context(), ref)
	s.must(err)
	s.want("whether the cancel is asked", task.CancelAsked, true)
}

// TestACancelOfLockedTasksHoldsUpNoOthers checks that other calls of its class go on while a cancel is tried on tasks
// that an application keeps locked. If the flushes of the class try the cancel, ten or so do, and a thousand otherwise.
func TestACancelOfLockedTasksHoldsUpNoOthers(t *testing.T) {
	s := newShop(t)
	cancel := storage.Tx{}
	for i := range 8 {
		ref := storage.Ref{Queue: "q", ID: fmt.Sprint("a", i)}
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(ref.ID)}})
		cancel.Changes = append(cancel.Changes, cancelOf(ref).Changes...)
	}
	s.want("claimed tasks", len(s.claim(8).Fences), 8)
	long, err := s.db.BeginTx(s.Context(), nil)
	s.must(err)
	defer func() { s.must(long.Rollback()) }()
	_, err = long.ExecContext(s.Context(), "SELECT FROM "+s.cfg.Schema+".tasks FOR UPDATE")
	s.must(err)
	cancelled := make(chan error, 1)
	go func() {
		_, err := s.store.Apply(s.Context(), storage.Call{}, cancel)
		cancelled <- err
	}()
	others := 0
	for len(cancelled) == 0 {
		others++
		unique := insertOf(fmt.Sprint("b", others))
		unique.Unique = storage.Unique{Key: unique.Ref.ID, Mode: storage.UniqueLife}
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{unique}})
	}
	s.must(<-cancelled)
	t.Logf("%d other calls were carried out meanwhile", others)
	if others < 60 {
		t.Errorf("%d other calls were carried out meanwhile, want 60 at least", others)
	}
}

// TestManyCancelsOfLockedTasksTakeFewConnections cancels each of many locked tasks in a call of its own. Claims of another
// queue go on meanwhile, and all cancels have an outcome.
func TestManyCancelsOfLockedTasksTakeFewConnections(t *testing.T) {
	const tasks = 150
	s := newShop(t)
	var refs []storage.Ref
	for i := range tasks {
		ref := storage.Ref{Queue: "q", ID: fmt.Sprintf("a%03d", i)}
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(ref.ID)}})
		refs = append(refs, ref)
	}
	s.want("claimed tasks", len(s.claim(tasks).Fences), tasks)
	long, err := s.db.BeginTx(s.Context(), nil)
	s.must(err)
	defer func() { s.must(long.Rollback()) }()
	_, err = long.ExecContext(s.Context(), "SELECT FROM "+s.cfg.Schema+".tasks FOR UPDATE")
	s.must(err)
	cancelled := make(chan error, tasks)
	for _, ref := range refs {
		go func() {
			_, err := s.store.Apply(s.Context(), storage.Call{}, cancelOf(ref))
			cancelled <- err
		}()
	}
	claims := 0
	for ; len(cancelled) < tasks; claims++ {
		req := claimOf(1)
		req.Queues[0].Name = "other"
		s.claimed(req)
	}
	for range tasks {
		s.must(<-cancelled)
	}
	t.Logf("%d claims were carried out meanwhile", claims)
	if claims < 60 {
		t.Errorf("%d claims were carried out meanwhile, want 60 at least", claims)
	}
}

// cancelsBehind locks a task until the last try of a cancel waits for it, or has ended. It reports whether the cancel
// takes effect on the task.
func (s *shop) cancelsBehind(ref storage.Ref, cancels ...storage.Tx) bool {
	s.Helper()
	tx, err := s.conn.Begin(s.Context())
	s.must(err)
	locked, err := tx.Exec(s.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id = $1 FOR UPDATE", []byte(ref.ID))
	s.must(err)
	s.want("locked tasks", locked.RowsAffected(), int64(1))
	tried := make(chan error, 1)
	go func() {
		_, err := s.store.TryApply(s.Context(), true, cancels...)
		tried <- err
	}()
	for waits, ended := false, false; !waits && !ended; {
		s.must(tx.QueryRow(s.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity "+
			"WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)))").Scan(&waits))
		ended = len(tried) > 0
	}
	s.must(tx.Rollback(s.Context()))
	s.must(<-tried)
	task, err := s.store.Task(s.Context(), ref)
	s.must(err)
	return task.CancelAsked
}

// TestACancelBehindALongLockIsRefused checks that the caller learns of a cancel that passed over a task which an
// application's transaction has locked, and that the other cancels of the call take effect.
func TestACancelBehindALongLockIsRefused(t *testing.T) {
	s := newShop(t)
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a"), insertOf("b")}})
	fences := s.claim(2).Fences
	tx, err := s.conn.Begin(s.Context())
	s.must(err)
	_, err = tx.Exec(s.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id = 'a' FOR UPDATE")
	s.must(err)
	applied, err := s.session.Apply(s.Context(), cancelOf(fences[0].Ref), cancelOf(fences[1].Ref))
	s.must(err)
	s.must(tx.Rollback(s.Context()))
	for i, a := range applied {
		dep, refused := errors.AsType[*storage.DependencyError](a.Err)
		s.want(fmt.Sprint("whether the cancel of ", fences[i].Ref, " is refused: ", a.Err), refused, fences[i].Ref.ID == "a")
		if refused {
			barred := []storage.Barred{{Ref: fences[i].Ref, State: storage.Pending}}
			s.want("whether it names the task", slices.Equal(dep.Barred, barred), true)
		} else {
			s.want(fmt.Sprint("the state of ", fences[i].Ref), a.Changed[0].State, storage.Pending)
		}
		task, err := s.store.Task(s.Context(), fences[i].Ref)
		s.must(err)
		s.want(fmt.Sprint("the cancel of ", fences[i].Ref), task.CancelAsked, fences[i].Ref.ID == "b")
	}
}
