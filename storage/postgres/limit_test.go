package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/postgres"
)

// limit sets the limit of an operator on a queue.
func (s *shop) limit(queue string, l storage.Limit) {
	s.Helper()
	s.must(s.session.Configure(s.Context(), queue, storage.Settings{
		Limit: &storage.OperatorLimit{On: true, Limit: l},
	}))
}

// fill enqueues tasks into a queue.
func (s *shop) fill(queue string, tasks int) {
	s.Helper()
	var tx storage.Tx
	for i := range tasks {
		in := insertOf(fmt.Sprintf("t%03d", i))
		in.Ref.Queue = queue
		tx.Inserts = append(tx.Inserts, in)
	}
	s.apply(s.store, tx)
}

// from is a claim from several queues.
func from(n int, queues ...string) storage.ClaimRequest {
	req := claimOf(n)
	req.Queues = nil
	for _, name := range queues {
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: name})
	}
	return req
}

// pending counts the pending tasks of the queue that has most.
var pending = fmt.Sprintf("SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM {schema}.tasks t "+
	"WHERE t.line & 15 IN (%d, %d) GROUP BY t.queue) x", engine.Pending, engine.Asked)

// TestHandlesShareALimit has several handles claim from two queues at once, which they name in different
// orders. Each of the queues has one slot.
func TestHandlesShareALimit(t *testing.T) {
	for name, prepare := range map[string]func(*postgres.Storage){
		"short": func(*postgres.Storage) {}, "general": (*postgres.Storage).NoShort,
	} {
		t.Run(name, func(t *testing.T) {
			const handles, tasks = 8, 60
			s := newShop(t)
			for _, queue := range []string{"a", "b"} {
				s.limit(queue, storage.Limit{Concurrency: 1})
				s.fill(queue, tasks)
			}
			var ended atomic.Int64
			var all sync.WaitGroup
			for i := range handles {
				store, session := opened(t, s.cfg)
				prepare(store)
				queues := []string{"a", "b"}
				if i%2 == 1 {
					slices.Reverse(queues)
				}
				all.Go(func() {
					for ended.Load() < 2*tasks && !t.Failed() {
						ended.Add(s.completeAlone(session, from(3, queues...)))
					}
				})
			}
			all.Wait()
		})
	}
}

// completeAlone claims and completes tasks, and expects before each completion that no other task of a queue is
// pending. It returns how many it completed.
func (s *shop) completeAlone(session *storage.Session, req storage.ClaimRequest) int64 {
	c, err := session.Claim(s.Context(), req)
	if err != nil {
		s.Error(err)
	}
	for _, fence := range c.Fences {
		var most int64
		err := s.db.QueryRowContext(s.Context(), postgres.InSchema(pending, s.cfg.Schema)).Scan(&most)
		if err != nil || most != 1 {
			s.Errorf("%d tasks of a queue are pending (%v), want 1", most, err)
		}
		tx := storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}}}
		if _, err := session.ApplyOne(s.Context(), tx); err != nil {
			s.Error(err)
		}
	}
	return int64(len(c.Fences))
}

// TestAClaimGoesOnWithoutALimitThatIsHeld has another transaction hold the limit of a queue.
func TestAClaimGoesOnWithoutALimitThatIsHeld(t *testing.T) {
	s := newShop(t)
	s.limit("q", storage.Limit{Concurrency: 1})
	s.fill("q", 1)
	s.fill("other", 1)
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".limits FOR UPDATE")
	s.must(err)
	c := s.claimed(from(10, "q", "other"))
	s.want("tasks", len(c.Tasks), 1)
	s.want("from the queue", c.Tasks[0].Queue, "other")
	s.want("bounded", fmt.Sprint(c.Bounded), "[q]")
	s.want("it claims again soon", c.NextDue.After(c.Now) && c.NextDue.Before(c.Now.Add(time.Second)), true)
	s.must(tx.Rollback(t.Context()))
	s.want("tasks of the queue then", len(s.claim(10).Tasks), 1)
}

// TestALimitOfAnyQueueOfAClaimHolds puts the queue with the limit last, among others that the claim
// empties, pauses it, and takes nothing from it.
func TestALimitOfAnyQueueOfAClaimHolds(t *testing.T) {
	s := newShop(t)
	s.limit("q", storage.Limit{Concurrency: 2})
	s.fill("q", 4)
	s.fill("a", 3)
	c := s.claimed(from(10, "a", "none", "q"))
	s.want("tasks", len(c.Tasks), 5)
	s.want("bounded", fmt.Sprint(c.Bounded), "[q]")
	s.want("more", c.More, false)
	s.fill("b", 1)
	req := from(10, "q", "b")
	req.Queues[0].Max = storage.MaxFull
	c = s.claimed(req)
	s.want("tasks beside a full queue", len(c.Tasks), 1)
	s.want("bounded with MaxFull", len(c.Bounded), 0)
	s.must(s.session.Configure(t.Context(), "q", storage.Settings{Pause: &storage.Pause{On: true}}))
	c = s.claimed(from(10, "q", "b"))
	s.want("bounded while it is paused", fmt.Sprint(c.Bounded), "[q]")
}

// TestARateHoldsOverHandles counts the starts of two handles, and of the general way.
func TestARateHoldsOverHandles(t *testing.T) {
	s := newShop(t)
	other, session := opened(t, s.cfg)
	other.NoShort()
	s.limit("q", storage.Limit{Rate: storage.Rate{N: 5, Per: time.Hour}})
	s.fill("q", 10)
	s.want("first", len(s.claim(3).Tasks), 3)
	c, err := session.Claim(t.Context(), claimOf(3))
	s.must(err)
	s.want("second", len(c.Tasks), 2)
	s.want("bounded", fmt.Sprint(c.Bounded), "[q]")
	hours := c.NextDue.Sub(c.Now).Hours()
	s.want("the next start is due in an hour", hours > 0.9 && hours < 1.1, true)
	limit := s.stats().Limit
	s.want("started", limit.Started, int64(5))
	s.want("next", limit.Next.Equal(c.NextDue), true)
}

// TestADamagedLimitIsCounted writes into the row of a limit. The damage stays until a limit is set.
func TestADamagedLimitIsCounted(t *testing.T) {
	for damage, starts := range map[string]int{ // how many of two tasks start
		"operator = 'x'": 2, "operator = '20000 0 0'": 2, "operator = '1'": 2, "declared = '1 0 0;x'": 1,
		"starts = 'x'": 1, "starts = decode(repeat('ff', 24), 'hex')": 1,
	} {
		t.Run(damage, func(t *testing.T) {
			s := newShop(t)
			s.limit("q", storage.Limit{Concurrency: 1})
			s.fill("q", 2)
			s.damage("UPDATE %s.limits SET " + damage)
			s.want("tasks", len(s.claim(10).Tasks), starts)
			s.want("damaged", s.stats().Damaged, int64(1))
			s.must(s.session.Configure(t.Context(), "q", storage.Settings{Pause: &storage.Pause{On: true}}))
			s.want("damaged after a pause", s.stats().Damaged, int64(1))
			s.limit("q", storage.Limit{Concurrency: 1})
			s.want("damaged after a limit was set", s.stats().Damaged, int64(0))
		})
	}
	t.Run("without the row", func(t *testing.T) {
		s := newShop(t)
		s.limit("q", storage.Limit{Concurrency: 1})
		s.fill("q", 2)
		s.damage("DELETE FROM %s.limits")
		s.want("tasks", len(s.claim(10).Tasks), 2)
	})
}

// TestALimitKeepsItsRowAndItsQueue reads the tables: only a queue with a limit has a row, and is not
// abandoned.
func TestALimitKeepsItsRowAndItsQueue(t *testing.T) {
	s := newShop(t)
	rows := func() string {
		var found []string
		for _, from := range []string{"limits", "queues WHERE limited", "queues WHERE NOT hidden"} {
			var n string
			s.must(s.conn.QueryRow(t.Context(), "SELECT count(*)::text FROM "+s.cfg.Schema+"."+from).Scan(&n))
			found = append(found, n)
		}
		return strings.Join(found, " ")
	}
	configure := func(settings storage.Settings) { s.must(s.session.Configure(t.Context(), "q", settings)) }
	abandon := func() {
		s.exec("UPDATE {schema}.queues SET touched = 0")
		s.store.AMinuteLater()
		s.exec("SELECT {schema}.abandon(86400000000, 172800000000)")
	}
	s.store.StopRounds() // a round passes over the rows that another one has locked
	configure(storage.Settings{Limit: &storage.OperatorLimit{}})
	s.want("nothing to clear", rows(), "0 0 0")
	configure(storage.Settings{Limit: &storage.OperatorLimit{On: true}})
	s.want("lifted", rows(), "1 1 1")
	configure(storage.Settings{Declared: &storage.DeclaredLimit{Limit: storage.Limit{Concurrency: 1}}})
	configure(storage.Settings{Limit: &storage.OperatorLimit{}})
	abandon()
	s.want("declared", rows(), "1 1 1")
	configure(storage.Settings{Remove: true})
	s.want("removed", rows(), "0 0 0")
	s.limit("q", storage.Limit{Concurrency: 1})
	configure(storage.Settings{Limit: &storage.OperatorLimit{}})
	s.want("cleared", rows(), "0 0 1")
	abandon()
	s.want("abandoned", rows(), "0 0 0")
}

// TestARateIsNotAskedForAgainDuringAWait: while the clock is not trusted, NextDue of a claim that a rate bounds
// is the end of the wait, and not a moment in the past.
func TestARateIsNotAskedForAgainDuringAWait(t *testing.T) {
	s := newShop(t)
	s.limit("q", storage.Limit{Rate: storage.Rate{N: 1, Per: time.Millisecond}})
	s.fill("q", 3)
	s.want("claimed", len(s.claim(1).Tasks), 1)
	s.damage("SELECT setval('%[1]s.mark', " + clockNow + " - 3600000000)")
	claimed := s.claim(1)
	s.want("claimed, more", [2]any{len(claimed.Tasks), claimed.More}, [2]any{0, false})
	if wait := claimed.NextDue.Sub(claimed.Now); wait <= 0 || wait > storage.JumpWait {
		t.Errorf("NextDue is %v later, want the end of the wait", wait)
	}
}
