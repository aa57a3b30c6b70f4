package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// awaitAllDue waits until every scheduled task is due.
func (s *shop) awaitAllDue() {
	s.Helper()
	testserver.Await(s, "all is due", func() (due bool) {
		s.must(s.db.QueryRowContext(s.Context(), "SELECT "+clockNow+" > max(sort) FROM "+
			s.cfg.Schema+".tasks WHERE line & 15 IN (6, 7)").Scan(&due))
		return due
	})
}

// TestWhatATransactionHoldsIsLookedAtLater has the application cancel a task in a transaction that
// stays open. A claim that finds no other task does not report that there is more.
func TestWhatATransactionHoldsIsLookedAtLater(t *testing.T) {
	in := insertOf("a")
	for name, await := range map[string]func(s *shop){
		"due": func(s *shop) {
			in := in
			in.Delay = time.Millisecond
			s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
			s.awaitAllDue()
		},
		"only to be started": func(s *shop) { // its lease expired while it was claimed ahead
			s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
			req := claimOf(1)
			req.Start, req.Ahead, req.Lease = 0, 1, storage.MinLease
			s.want("claimed ahead", len(s.claimed(req).Tasks), 1)
			req.Ahead = 0
			testserver.Await(s, "it waits again", func() bool {
				s.claimed(req)
				return s.state("a") == storage.Waiting
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			await(s)
			tx, err := s.conn.Begin(t.Context())
			s.must(err)
			cancel := storage.Tx{Changes: []storage.Change{{Ref: in.Ref, Cancel: true}}}
			s.must(s.apply(s.store.Within(tx), cancel).Err)
			claimed := s.claim(1)
			s.want("claimed", len(claimed.Tasks), 0)
			s.want("more", claimed.More, false)
			s.want("to be looked at later", claimed.NextDue.After(claimed.Now), true)
			s.must(tx.Rollback(t.Context()))
			s.want("claimed after the rollback", len(s.claim(1).Tasks), 1)
		})
	}
}

// TestASuspectBehindManyDueIsLeftAlone expects a claim that takes no suspects to leave it.
func TestASuspectBehindManyDueIsLeftAlone(t *testing.T) {
	const many = 600 // more than a batch of maintenance
	s := newShop(t)
	bad := insertOf("bad")
	bad.CrashLimit = 2
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{bad}})
	req := claimOf(1)
	req.Lease, req.Suspect = storage.MinLease, true
	s.want("claimed", len(s.claimed(req).Tasks), 1)
	req.Lease = time.Minute
	var again storage.Claimed
	testserver.Await(t, "it crashed, and is claimed as a suspect", func() bool {
		again = s.claimed(req)
		return len(again.Tasks) == 1
	})
	var txs []storage.Tx
	for i := range many {
		in := insertOf(fmt.Sprint("t", i))
		in.Delay = time.Millisecond
		txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
	}
	_, err := s.session.Apply(t.Context(), txs...)
	s.must(err)
	snooze := storage.Settle{Fence: again.Fences[0], Outcome: storage.Snooze, Delay: 100 * time.Millisecond}
	s.must(s.apply(s.store, storage.Tx{Settles: []storage.Settle{snooze}}).Err)
	s.awaitAllDue()
	claimed := s.claim(storage.MaxClaim)
	for _, task := range claimed.Tasks {
		if task.ID == "bad" {
			t.Error("a suspect was claimed by a call that wanted none")
		}
	}
	s.want("some were claimed", len(claimed.Tasks) > 0, true)
}

// TestOnlyAClaimThatTakesTasksWaitsForTheDisk makes claims that hide a cursor, promote a task, take it and find
// nothing.
func TestOnlyAClaimThatTakesTasksWaitsForTheDisk(t *testing.T) {
	s := newShop(t)
	cursor, task := insertOf(storage.CursorPrefix+"due"), insertOf("due")
	cursor.Cursor = &storage.Cursor{Next: time.UnixMicro(1), Declaration: `{"spec":"every 1h"}`}
	task.Delay = time.Millisecond
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{cursor, task}})
	s.awaitAllDue()
	for _, c := range []struct {
		start, ticks, tasks int
	}{{0, 1, 0}, {1, 0, 1}, {1, 0, 0}} {
		claimed, waits, err := s.store.ClaimWaits(t.Context(), claimOf(c.start))
		s.must(err)
		s.want("ticks", len(claimed.Ticks), c.ticks)
		s.want("tasks", len(claimed.Tasks), c.tasks)
		s.want("waits for the disk", waits, c.tasks > 0)
	}
}
