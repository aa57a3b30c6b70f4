package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// decline inserts a task of a kind, claims it and declines it.
func (s *shop) decline(kind, id string) {
	s.Helper()
	in := insertOf(id)
	in.Kind = kind
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	f := s.naming(1, "another").Fences[0]
	s.must(s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Decline}}}).Err)
}

// naming claims up to n tasks for a runner of these kinds.
func (s *shop) naming(n int, kinds ...string) storage.Claimed {
	s.Helper()
	req := claimOf(n)
	req.Kinds = kinds
	return s.claimed(req)
}

// daysPass changes every declined task as if it had stood in its line for two days, while no claim
// named its kind.
func (s *shop) daysPass() {
	s.Helper()
	const days = "172800000000"
	s.damage("UPDATE %s.tasks SET sort = sort - " + days + ", turn = turn - " + days + " WHERE line < 0")
	s.damage("UPDATE %s.lines SET named = named - " + days + ", look = look - " + days)
}

// maintained claims until a claim ends tasks or, if none is to end, until it takes one or finds no more. A claim
// passes over a line of a kind that another transaction has locked, such as that of a storage that adds up the
// sizes of lines in the background.
func (s *shop) maintained(session *storage.Session, req storage.ClaimRequest, ends bool) (c storage.Claimed) {
	s.Helper()
	testserver.Await(s, "a claim ends declined tasks", func() bool {
		var err error
		c, err = session.Claim(s.Context(), req)
		s.must(err)
		return ends && len(c.Ended) > 0 || !ends && (len(c.Tasks) > 0 || !c.More) // More: a line was locked
	})
	return c
}

// TestTheFirstClaimThatNamesAKindSavesItsTasks after no claim has named it for days.
func TestTheFirstClaimThatNamesAKindSavesItsTasks(t *testing.T) {
	for name, c := range map[string]struct {
		kind      string
		max       int
		dead      bool
		claimable int
	}{
		"it names the kind":      {kind: "mail", claimable: 1},
		"it names another":       {kind: "news", dead: true},
		"it maintains the queue": {kind: "mail", max: -1, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			s.decline("mail", "a")
			s.daysPass()
			req := claimOf(1)
			req.Queues[0].Max, req.Kinds = c.max, []string{c.kind}
			store, session := opened(t, s.cfg) // a new process
			claimed := s.maintained(session, req, c.dead)
			s.want("claimed", len(claimed.Tasks), c.claimable)
			s.want("ended", len(claimed.Ended) == 1 && claimed.Ended[0].Reason == storage.ReasonKind, c.dead)
			task, err := store.Task(t.Context(), storage.Ref{Queue: "q", ID: "a"})
			s.must(err)
			s.want("dead", task.State == storage.Dead, c.dead)
		})
	}
}

// TestAClaimPassesOverALockedLineOfAKind without waiting for its transaction. A later claim ends the tasks of
// the line.
func TestAClaimPassesOverALockedLineOfAKind(t *testing.T) {
	s := newShop(t)
	s.decline("mail", "a")
	s.daysPass()
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".lines FOR NO KEY UPDATE")
	s.must(err)
	_, session := opened(t, s.cfg)
	req := claimOf(1)
	req.Kinds = []string{"news"}
	c, err := session.Claim(t.Context(), req)
	s.must(err)
	s.want("ended while the line is locked", len(c.Ended), 0)
	s.must(tx.Rollback(t.Context()))
	s.want("ended", len(s.maintained(session, req, true).Ended), 1)
}

// TestEmptyLinesOfKindsAreForgotten once no claim has named them for a day; lines with tasks stay.
func TestEmptyLinesOfKindsAreForgotten(t *testing.T) {
	s := newShop(t)
	s.decline("mail", "a")
	s.decline("news", "b")
	s.want("claimed", len(s.naming(1, "news").Tasks), 1)
	s.store.StopRounds() // a round passes over the rows that another one has locked
	s.damage("UPDATE %s.lines SET named = named - 172800000000")
	s.store.Look(t.Context())
	var left string
	s.must(s.conn.QueryRow(t.Context(), "SELECT string_agg(sub, ',') FROM "+s.cfg.Schema+".lines").Scan(&left))
	s.want("left", left, "mail")
	s.decline("news", "c")
	s.want("declined", fmt.Sprint(s.stats().Declined), "[{mail 1} {news 1}]")
}

// TestADamagedDeclinedTaskIsSetApart and counted.
func TestADamagedDeclinedTaskIsSetApart(t *testing.T) {
	s := newShop(t)
	s.decline("mail", "a")
	s.decline("mail", "b")
	s.damage("UPDATE %s.tasks SET record = 'garbage' WHERE id = 'a'")
	s.want("claimed", len(s.naming(2, "mail").Tasks), 1)
	got := s.stats()
	s.want("waiting, pending, damaged, kinds", [4]any{got.Waiting, got.Pending, got.Damaged, len(got.Declined)},
		[4]any{int64(0), int64(1), int64(1), 0})
}

// TestTheViewShowsDeclinedTasksAsWaiting in whatever line they stand.
func TestTheViewShowsDeclinedTasksAsWaiting(t *testing.T) {
	s := newShop(t)
	s.decline("mail", "a")
	var got string
	s.must(s.conn.QueryRow(t.Context(),
		"SELECT concat_ws(' ', queue, id, kind, state, run_at) FROM "+s.cfg.Schema+".jobs").Scan(&got))
	s.want("shown", got, "q a mail waiting")
}

// TestADeclineInATransactionHoldsUpNoOther decline of the same kind, which has a line already.
func TestADeclineInATransactionHoldsUpNoOther(t *testing.T) {
	s := newShop(t)
	s.decline("mail", "a")
	in := insertOf("b")
	in.Kind = "mail"
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	f := s.naming(1, "another").Fences[0]
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	s.must(s.apply(s.store.Within(tx), storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Decline}}}).Err)
	s.decline("mail", "c")
	s.want("declined", fmt.Sprint(s.stats().Declined), "[{mail 2}]")
	s.must(tx.Commit(t.Context()))
	s.want("declined after the commit", fmt.Sprint(s.stats().Declined), "[{mail 3}]")
}

// TestDeclinesAndClaimsSideBySide expects every task to be taken once, while some sessions decline
// tasks that others claim by kind.
func TestDeclinesAndClaimsSideBySide(t *testing.T) {
	const tasks, kinds = 300, 3
	s := newShop(t)
	var txs []storage.Tx
	for i := range tasks {
		in := insertOf(fmt.Sprint("t", i))
		in.Kind = fmt.Sprint("kind", i%kinds)
		txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
	}
	_, err := s.session.Apply(t.Context(), txs...)
	s.must(err)
	var mu sync.Mutex
	done := make(map[string]int)
	note := func(ended []string) (over bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ended {
			done[id]++
		}
		return len(done) == tasks
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for k := range kinds {
		all.Go(func() { runKind(ctx, t, storage.NewSession(s.store, testserver.Patience), fmt.Sprint("kind", k), note) })
	}
	all.Wait()
	for id, n := range done {
		s.want(id+" was done so often", n, 1)
	}
	got := s.stats()
	s.want("live, kinds, completed", [3]any{got.Live(), len(got.Declined), got.Totals.Completed}, [3]any{int64(0), 0, int64(tasks)})
}

// runKind claims and completes the tasks of a kind until the tasks of all kinds are done.
func runKind(ctx context.Context, t *testing.T, session *storage.Session, kind string, note func([]string) bool) {
	t.Helper()
	req := claimOf(10)
	req.Kinds = []string{kind}
	for over := false; !over; {
		c, err := session.Claim(ctx, req)
		if err != nil {
			t.Error(err)
			return
		}
		ended, err := endOrDecline(ctx, session, &c, kind)
		if err != nil {
			t.Error(err)
			return
		}
		over = note(ended)
	}
}

// endOrDecline completes the tasks of a kind, and declines the others.
func endOrDecline(
	ctx context.Context, session *storage.Session, c *storage.Claimed, kind string,
) (ended []string, err error) {
	var txs []storage.Tx
	for i, f := range c.Fences {
		outcome := storage.Decline
		if c.Tasks[i].Kind == kind {
			outcome = storage.Complete
			ended = append(ended, f.ID)
		}
		txs = append(txs, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: outcome}}})
	}
	applied, err := session.Apply(ctx, txs...)
	for _, a := range applied {
		err = errors.Join(err, a.Err)
	}
	return ended, err
}

// TestTheFirstDeclineOfAKindMayStandInATransaction that stays open: no other decline waits for it.
func TestTheFirstDeclineOfAKindMayStandInATransaction(t *testing.T) {
	s := newShop(t)
	var fences []storage.Fence
	for _, id := range []string{"a", "b"} {
		in := insertOf(id)
		in.Kind = "mail"
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
		fences = append(fences, s.naming(1, "another").Fences[0])
	}
	decline := func(f storage.Fence) storage.Tx {
		return storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Decline}}}
	}
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	s.must(s.apply(s.store.Within(tx), decline(fences[0])).Err)
	_, err = storage.NewSession(s.store, -1).ApplyOne(t.Context(), decline(fences[1]))
	s.must(err)
	s.want("declined", fmt.Sprint(s.stats().Declined), "[{mail 1}]")
	s.must(tx.Commit(t.Context()))
	s.want("declined after the commit", fmt.Sprint(s.stats().Declined), "[{mail 2}]")
}

// TestTheFirstDeclineOfAKindInATransactionNeedsNoOtherConnection: the decline succeeds although every
// connection is taken, and the storage does not know the queue's number any more.
func TestTheFirstDeclineOfAKindInATransactionNeedsNoOtherConnection(t *testing.T) {
	s := newShop(t)
	in := insertOf("a")
	in.Kind = "mail"
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	f := s.naming(1, "another").Fences[0]
	s.store.AMinuteLater()
	giveBack, err := s.store.Exhaust(t.Context())
	s.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = s.store.Within(tx).Apply(ctx, storage.Call{},
		storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Decline}}})
	giveBack()
	s.must(err)
	s.must(tx.Commit(t.Context()))
	s.want("declined", fmt.Sprint(s.stats().Declined), "[{mail 1}]")
}

// TestARemovalLeavesTheLineThatATaskJoinsMeanwhile: a task that is declined during the removal of its
// queue, which was empty, can be claimed.
func TestARemovalLeavesTheLineThatATaskJoinsMeanwhile(t *testing.T) {
	s := newShop(t)
	s.decline("mail", "a")
	f := s.naming(1, "mail").Fences[0]
	s.must(s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}}).Err)
	s.damage("INSERT INTO %s.deltas (queue, counter, n) SELECT queue, 1, 0 FROM " + s.cfg.Schema + ".queues WHERE name = 'q'")
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".deltas WHERE queue > 0 FOR UPDATE")
	s.must(err)
	removed := make(chan error)
	go func() { removed <- s.session.Configure(t.Context(), "q", storage.Settings{Remove: true}) }()
	testserver.Await(t, "the removal waits for a row", func() (waits bool) {
		s.must(tx.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
			"AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))").Scan(&waits))
		return waits
	})
	s.decline("mail", "b")
	s.must(tx.Rollback(t.Context()))
	s.must(<-removed)
	s.want("claimed", len(s.naming(1, "mail").Tasks), 1)
}

// TestOneClaimEndsABatchOfDeclinedTasks at most, of however many kinds; the next claims end the
// others.
func TestOneClaimEndsABatchOfDeclinedTasks(t *testing.T) {
	const kinds, each, batch = 6, 100, 500
	s := newShop(t)
	for k := range kinds {
		s.decline(fmt.Sprint("kind", k), fmt.Sprint("t", k))
	}
	s.damage("INSERT INTO %s.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)" +
		" SELECT sort + n, turn, version, queue, line, flags, priority, id || ('-' || n)::bytea, lease, past, record FROM " +
		s.cfg.Schema + ".tasks, generate_series(1, " + fmt.Sprint(each-1) + ") n WHERE line < 0")
	s.daysPass()
	_, session := opened(t, s.cfg)
	req := claimOf(1)
	req.Kinds = []string{"other"}
	for _, want := range []int{batch, kinds*each - batch, 0} {
		c := s.maintained(session, req, want > 0)
		s.want("ended", len(c.Ended), want)
		s.want("more is left", c.More, want == batch)
	}
}

// TestADeclinedTaskDiesWhileTheMarkIsAhead: the mark comes from a clock that was ahead and is right
// again.
func TestADeclinedTaskDiesWhileTheMarkIsAhead(t *testing.T) {
	const month = "2592000000000"
	s := newShop(t)
	s.exec("SELECT setval('{schema}.mark', " + clockNow + " + " + month + ")")
	s.decline("mail", "a")
	s.daysPass()
	_, session := opened(t, s.cfg)
	req := claimOf(1)
	req.Kinds = []string{"news"}
	s.want("ended", len(s.maintained(session, req, true).Ended), 1)
	s.want("state", s.state("a"), storage.Dead)
}
