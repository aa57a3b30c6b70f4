//go:build unix

package faulttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// losses returns how often each operation loses its reply. PostgreSQL gets fewer losses,
// because it needs a new process for each connection that is cut.
func losses(k kind) int {
	if k == onePostgres {
		return count(8, 200)
	}
	return count(15, 200)
}

// lossCases are the operations that lose their reply. Before the operation is repeated,
// something happens that a second execution would spoil. Each case checks the result of
// its loss and returns its addition to the totals of the queue.
var lossCases = map[string]func(r *lossRig, i int) storage.Totals{
	// A task is enqueued, and has run and vanished before the repeat.
	"enqueue": func(r *lossRig, i int) storage.Totals {
		r.lose(func(s *storage.Session) error {
			_, err := s.ApplyOne(r.t.Context(), storage.Tx{Inserts: []storage.Insert{r.insert(id(i))}})
			return err
		}, func() { r.finish(id(i)) })
		r.none()
		return storage.Totals{Enqueued: 1, Completed: 1}
	},
	"enqueue-many": func(r *lossRig, i int) storage.Totals {
		var txs []storage.Tx
		for j := range 5 {
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{r.insert(fmt.Sprint(id(i), "-", j))}})
		}
		r.loseInserts(txs, func() {
			for j := range 5 {
				r.finish(fmt.Sprint(id(i), "-", j))
			}
		})
		r.none()
		return storage.Totals{Enqueued: 5, Completed: 5}
	},
	// Many are enqueued by one call, and some have run and vanished before the repeat.
	"enqueue-bulk": func(r *lossRig, i int) storage.Totals {
		const many, gone = 150, 3
		txs := make([]storage.Tx, many)
		for j := range txs {
			txs[j].Inserts = []storage.Insert{r.insert(fmt.Sprint(id(i), "-", j))}
		}
		r.loseInserts(txs, func() {
			for j := range gone {
				r.finish(fmt.Sprint(id(i), "-", j))
			}
		})
		claimed, err := r.direct.Claim(r.t.Context(), r.claimRequest(many))
		must(r.t, err)
		if len(claimed.Tasks) != many-gone || claimed.Tasks[0].ID != fmt.Sprint(id(i), "-", gone) {
			r.t.Errorf("%d tasks are left, want %d in their order", len(claimed.Tasks), many-gone)
		}
		ends := make([]storage.Tx, len(claimed.Fences))
		for j, fence := range claimed.Fences {
			ends[j].Settles = []storage.Settle{{Fence: fence, Outcome: storage.Complete}}
		}
		_, err = r.direct.Apply(r.t.Context(), ends...)
		must(r.t, err)
		r.none()
		return storage.Totals{Enqueued: many, Completed: many}
	},
	// The unique key is free again before the repeat, which must not take it.
	"enqueue-unique": func(r *lossRig, i int) storage.Totals {
		in := r.insert(id(i))
		in.Unique = storage.Unique{Key: "key", Mode: storage.UniqueLife}
		r.lose(func(s *storage.Session) error {
			_, err := s.ApplyOne(r.t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
			return err
		}, func() { r.finish(id(i)) })
		r.none()
		return storage.Totals{Enqueued: 1, Completed: 1}
	},
	"enqueue-later": func(r *lossRig, i int) storage.Totals {
		in := r.insert(id(i))
		in.Delay = time.Millisecond
		r.lose(func(s *storage.Session) error {
			_, err := s.ApplyOne(r.t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
			return err
		}, func() { r.finish(id(i)) })
		r.none()
		return storage.Totals{Enqueued: 1, Completed: 1}
	},
	// Two of three tasks are claimed. The repeat returns these two, although a third was
	// waiting, which another runner has taken.
	"claim": func(r *lossRig, i int) storage.Totals {
		for j := range 3 {
			r.add(fmt.Sprint(id(i), "-", j))
		}
		var claimed storage.Claimed
		r.lose(func(s *storage.Session) (err error) {
			claimed, err = s.Claim(r.t.Context(), r.claimRequest(2))
			return err
		}, func() { r.finish(fmt.Sprint(id(i), "-", 2)) })
		if len(claimed.Tasks) != 2 {
			r.t.Fatalf("%d tasks were claimed, want 2", len(claimed.Tasks))
		}
		for j, fence := range claimed.Fences {
			if want := fmt.Sprint(id(i), "-", j); fence.ID != want || claimed.Tasks[j].ID != want {
				r.t.Errorf("claimed %s, want %s", fence.ID, want)
			}
			r.settle(fence, storage.Complete)
		}
		r.none()
		return storage.Totals{Enqueued: 3, Completed: 3}
	},
	"extend": func(r *lossRig, i int) storage.Totals {
		r.add(id(i))
		_, fence := r.take()
		r.lose(func(s *storage.Session) error {
			extended, err := s.Extend(r.t.Context(), storage.ExtendRequest{Leases: []storage.Extension{{
				Fence: fence, For: time.Hour, Progress: []byte(`"half"`), Checkpoint: []byte(`"half"`),
			}}})
			if len(extended.Lost) > 0 {
				r.t.Errorf("the lease of %s is lost, want it extended", fence.Ref)
			}
			return err
		}, func() {})
		task, err := r.store.Task(r.t.Context(), fence.Ref)
		must(r.t, err)
		if string(task.Progress) != `"half"` || time.Until(task.LeaseUntil) < 50*time.Minute {
			r.t.Errorf("%s: progress %q, lease until %v; want the extension", task.Ref, task.Progress, task.LeaseUntil)
		}
		r.settle(fence, storage.Complete)
		return storage.Totals{Enqueued: 1, Completed: 1}
	},
	// A completed task is gone, and another task with its id runs before the repeat.
	"complete": func(r *lossRig, i int) storage.Totals {
		return r.loseEnd(i, storage.Settle{Outcome: storage.Complete}, storage.Totals{Enqueued: 2, Completed: 2})
	},
	"cancelled": func(r *lossRig, i int) storage.Totals {
		return r.loseEnd(i, storage.Settle{Outcome: storage.Cancel}, storage.Totals{Enqueued: 2, Completed: 1, Cancelled: 1})
	},
	// A completion with a follow-up, which has run and vanished before the repeat.
	"complete-with-follow-up": func(r *lossRig, i int) storage.Totals {
		r.add(id(i))
		_, fence := r.take()
		r.lose(func(s *storage.Session) error {
			_, err := s.ApplyOne(r.t.Context(), storage.Tx{
				Inserts: []storage.Insert{r.insert("follow-" + id(i))},
				Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}},
			})
			return err
		}, func() { r.finish("follow-" + id(i)) })
		r.none()
		return storage.Totals{Enqueued: 2, Completed: 2}
	},
	// The task runs again, and to its end, before the repeat.
	"fail": func(r *lossRig, i int) storage.Totals {
		return r.loseAttempt(i, storage.Settle{Outcome: storage.Fail, Delay: time.Millisecond, Error: "failed"},
			storage.Totals{Enqueued: 1, Completed: 1, Failed: 1})
	},
	"snooze": func(r *lossRig, i int) storage.Totals {
		return r.loseAttempt(i, storage.Settle{Outcome: storage.Snooze, Delay: time.Millisecond},
			storage.Totals{Enqueued: 1, Completed: 1})
	},
	"release": func(r *lossRig, i int) storage.Totals {
		return r.loseAttempt(i, storage.Settle{Outcome: storage.Release}, storage.Totals{Enqueued: 1, Completed: 1})
	},
	// A buried task is requeued and runs before the repeat, which must not bury it
	// again.
	"bury": func(r *lossRig, i int) storage.Totals {
		r.add(id(i))
		_, fence := r.take()
		r.lose(func(s *storage.Session) error {
			_, err := s.ApplyOne(r.t.Context(), storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: storage.Bury}}})
			return err
		}, func() {
			must(r.t, r.direct.Requeue(r.t.Context(), fence.Ref))
			r.finish(id(i))
		})
		r.none()
		return storage.Totals{Enqueued: 1, Dead: 1, Requeued: 1, Completed: 1}
	},
	// A task is cancelled, and another task with its id exists before the repeat, which must
	// not cancel that one too.
	"cancel-waiting": func(r *lossRig, i int) storage.Totals {
		r.add(id(i))
		r.lose(func(s *storage.Session) error {
			a, err := s.ApplyOne(r.t.Context(), cancelOf(storage.Ref{Queue: r.queue, ID: id(i)}))
			if err == nil && a.Changed[0].State != storage.Cancelled {
				r.t.Errorf("%s is %s, want it cancelled", id(i), a.Changed[0].State)
			}
			return err
		}, func() { r.add(id(i)) })
		r.finish(id(i))
		r.none()
		return storage.Totals{Enqueued: 2, Cancelled: 1, Completed: 1}
	},
	// The running task ends as cancelled, and another task with its id waits, before the
	// request is repeated.
	"cancel-running": func(r *lossRig, i int) storage.Totals {
		r.add(id(i))
		_, fence := r.take()
		r.lose(func(s *storage.Session) error {
			_, err := s.ApplyOne(r.t.Context(), cancelOf(fence.Ref))
			return err
		}, func() {
			r.settle(fence, storage.Release)
			r.add(id(i))
		})
		r.finish(id(i))
		r.none()
		return storage.Totals{Enqueued: 2, Cancelled: 1, Completed: 1}
	},
	// A task is brought forward, and has run, before the repeat.
	"change": func(r *lossRig, i int) storage.Totals {
		in := r.insert(id(i))
		in.Delay = time.Hour
		version := r.do(storage.Tx{Inserts: []storage.Insert{in}}).Inserted[0].Version
		r.lose(func(s *storage.Session) error {
			_, err := s.ApplyOne(r.t.Context(), storage.Tx{Changes: []storage.Change{
				{Ref: in.Ref, Version: version, Now: true},
			}})
			return err
		}, func() { r.finish(id(i)) })
		r.none()
		return storage.Totals{Enqueued: 1, Completed: 1}
	},
	// A task is deleted, and another task with its id exists before the repeat.
	"delete": func(r *lossRig, i int) storage.Totals {
		in := r.insert(id(i))
		version := r.do(storage.Tx{Inserts: []storage.Insert{in}}).Inserted[0].Version
		r.lose(func(s *storage.Session) error {
			_, err := s.ApplyOne(r.t.Context(), storage.Tx{Deletes: []storage.Delete{{Ref: in.Ref, Version: version}}})
			return err
		}, func() { r.add(id(i)) })
		r.finish(id(i))
		r.none()
		return storage.Totals{Enqueued: 2, Deleted: 1, Completed: 1}
	},
	// A queue is paused, and resumed by somebody else before the repeat.
	"configure": func(r *lossRig, i int) storage.Totals {
		r.lose(func(s *storage.Session) error {
			return s.Configure(r.t.Context(), r.queue, storage.Settings{Pause: &storage.Pause{On: true}})
		}, func() {
			must(r.t, r.direct.Configure(r.t.Context(), r.queue, storage.Settings{Pause: &storage.Pause{}}))
		})
		r.add(id(i))
		r.finish(id(i))
		return storage.Totals{Enqueued: 1, Completed: 1}
	},
	// A cursor ticks, its task has run, and it has ticked again, before the repeat.
	"tick": func(r *lossRig, i int) storage.Totals {
		cursor := r.cursor()
		tick := func(s *storage.Session, c storage.Task, id string) error {
			moved := *c.Cursor
			moved.Last, moved.Next = moved.Next, moved.Next.Add(time.Second)
			_, err := s.ApplyOne(r.t.Context(), storage.Tx{
				Inserts: []storage.Insert{c.TickInsert(id, &storage.Declaration{})},
				Changes: []storage.Change{{Ref: c.Ref, Version: c.Version, Cursor: &moved}},
			})
			return err
		}
		r.lose(func(s *storage.Session) error { return tick(s, cursor, id(i)) }, func() {
			r.finish(id(i))
			must(r.t, tick(r.direct, r.cursor(), "next-"+id(i)))
			r.finish("next-" + id(i))
		})
		r.none()
		if after := r.cursor(); !after.Cursor.Next.Equal(cursor.Cursor.Next.Add(2 * time.Second)) {
			r.t.Errorf("the cursor is at %v, want two ticks after %v", after.Cursor.Next, cursor.Cursor.Next)
		}
		return storage.Totals{Enqueued: 2, Completed: 2}
	},
}

// loseInserts loses the reply of a call of several inserts, and checks that each was
// inserted.
func (r *lossRig) loseInserts(txs []storage.Tx, meanwhile func()) {
	r.t.Helper()
	r.lose(func(s *storage.Session) error {
		applied, err := s.Apply(r.t.Context(), txs...)
		for _, a := range applied {
			if a.Err != nil || a.Inserted[0].Existing {
				r.t.Errorf("%v, %+v; want each inserted", a.Err, a.Inserted)
			}
		}
		return err
	}, meanwhile)
}

// loseEnd loses the reply of a settle that ends a task for good, and returns totals.
func (r *lossRig) loseEnd(i int, settle storage.Settle, totals storage.Totals) storage.Totals {
	r.t.Helper()
	r.add(id(i))
	_, settle.Fence = r.take()
	var next storage.Fence
	r.lose(func(s *storage.Session) error {
		_, err := s.ApplyOne(r.t.Context(), storage.Tx{Settles: []storage.Settle{settle}})
		return err
	}, func() {
		r.gone(id(i))
		r.add(id(i))
		_, next = r.take()
	})
	r.settle(next, storage.Complete)
	r.none()
	return totals
}

// loseAttempt loses the reply of a settle after which the task runs again, and returns
// totals.
func (r *lossRig) loseAttempt(i int, settle storage.Settle, totals storage.Totals) storage.Totals {
	r.t.Helper()
	r.add(id(i))
	_, settle.Fence = r.take()
	r.lose(func(s *storage.Session) error {
		_, err := s.ApplyOne(r.t.Context(), storage.Tx{Settles: []storage.Settle{settle}})
		return err
	}, func() { r.finish(id(i)) })
	r.none()
	r.gone(id(i))
	return totals
}

// cursor returns the cursor of the tick case, and creates it the first time.
func (r *lossRig) cursor() storage.Task {
	r.t.Helper()
	ref := storage.Ref{Queue: r.queue, ID: storage.CursorPrefix + "schedule"}
	task, err := r.store.Task(r.t.Context(), ref)
	if err == nil {
		return task
	}
	in := r.insert(ref.ID)
	in.Cursor = &storage.Cursor{Next: time.Now().Add(time.Hour).Truncate(time.Second), Declaration: `{"spec":"every 1s"}`}
	r.do(storage.Tx{Inserts: []storage.Insert{in}})
	task, err = r.store.Task(r.t.Context(), ref)
	must(r.t, err)
	return task
}

// TestALostReplyIsNoEvent checks, for each operation, that a repeat after a lost reply
// has no effect of its own.
func TestALostReplyIsNoEvent(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		for name, lossCase := range lossCases {
			t.Run(name, func(t *testing.T) {
				r := newLossRig(t, s)
				var want storage.Totals
				for i := range losses(s.kind) {
					got := lossCase(r, i)
					want = sum(want, got)
					if t.Failed() {
						t.Fatalf("loss %d", i)
					}
				}
				r.totals(want)
			})
		}
	})
}

func sum(a, b storage.Totals) storage.Totals {
	return storage.Totals{
		Enqueued: a.Enqueued + b.Enqueued, Requeued: a.Requeued + b.Requeued, Completed: a.Completed + b.Completed,
		Dead: a.Dead + b.Dead, Cancelled: a.Cancelled + b.Cancelled, Deleted: a.Deleted + b.Deleted,
		Failed: a.Failed + b.Failed, Crashed: a.Crashed + b.Crashed,
	}
}

// cancelOf returns a Tx that cancels a task.
func cancelOf(ref storage.Ref) storage.Tx {
	return storage.Tx{Changes: []storage.Change{{Ref: ref, Cancel: true}}}
}
