package postgres_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// share sets a limit of partitions on the queue q.
func (s *shop) share(concurrency int, r storage.Rate) {
	s.Helper()
	s.limit("q", storage.Limit{Partition: storage.PartitionLimit{Concurrency: concurrency, Rate: r}})
}

// complete completes tasks that were claimed.
func (s *shop) complete(fences ...storage.Fence) {
	s.Helper()
	var tx storage.Tx
	for _, f := range fences {
		tx.Settles = append(tx.Settles, storage.Settle{Fence: f, Outcome: storage.Complete})
	}
	s.must(s.apply(s.store, tx).Err)
}

// bothWays runs a test with the short ways and without them.
func bothWays(t *testing.T, test func(t *testing.T, s *shop, prepare func(*postgres.Storage))) {
	t.Helper()
	for name, prepare := range map[string]func(*postgres.Storage){
		"short": func(*postgres.Storage) {}, "general": (*postgres.Storage).NoShort,
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			prepare(s.store)
			test(t, s, prepare)
		})
	}
}

// TestHandlesShareALimitOfPartitions has several handles claim from partitions with a slot each: no two tasks
// of a partition are pending at once, and nothing is left of the partitions.
func TestHandlesShareALimitOfPartitions(t *testing.T) {
	bothWays(t, func(t *testing.T, s *shop, prepare func(*postgres.Storage)) {
		const handles, keys, each = 6, 4, 25
		s.share(1, storage.Rate{})
		s.fillPartitions(s.session, 0, keys, each)
		var ended atomic.Int64
		var all sync.WaitGroup
		for range handles {
			store, session := opened(t, s.cfg)
			prepare(store)
			all.Go(func() {
				for ended.Load() < keys*each && !s.Failed() {
					ended.Add(s.completeApart(session))
				}
			})
		}
		all.Wait()
		s.swept()
	})
}

// completeApart claims and completes tasks, and expects before each completion that no other task of its
// partition is pending. It returns how many it completed.
func (s *shop) completeApart(session *storage.Session) int64 {
	s.Helper()
	c, err := session.Claim(s.Context(), claimOf(3))
	if err != nil {
		s.Error(err)
	}
	for _, fence := range c.Fences {
		var most int64
		err := s.db.QueryRowContext(s.Context(), postgres.InSchema("SELECT max(n) FROM (SELECT count(*) AS n FROM "+
			"{schema}.tasks t WHERE t.line > 0 GROUP BY t.partition) x", s.cfg.Schema)).Scan(&most)
		if err != nil || most != 1 {
			s.Errorf("%d tasks of a partition are pending (%v), want 1", most, err)
		}
		tx := storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}}}
		if _, err := session.ApplyOne(s.Context(), tx); err != nil {
			s.Error(err)
		}
	}
	return int64(len(c.Fences))
}

// TestTheRowOfAPartitionGoes with its last running task, or once its starts do not count.
func TestTheRowOfAPartitionGoes(t *testing.T) {
	bothWays(t, func(_ *testing.T, s *shop, _ func(*postgres.Storage)) {
		s.store.StopRounds() // a step leaves a row to the sweep that a round has locked
		s.share(2, storage.Rate{})
		s.addKeyed("a", 2)
		c := s.claim(5)
		s.want("lines beside running tasks", s.lines() != "", true)
		s.complete(c.Fences[0])
		s.want("lines beside the last running task", s.lines() != "", true)
		s.complete(c.Fences[1])
		s.want("lines", s.lines(), "")
		s.share(0, storage.Rate{N: 5, Per: 100 * time.Millisecond})
		s.addKeyed("b", 1)
		s.complete(s.claim(5).Fences...)
		s.want("lines while a start counts", s.lines() != "", true)
		testserver.Await(s, "a claim removes the row once the start does not count", func() bool {
			s.claim(5)
			return s.lines() == ""
		})
	})
}

// TestTheSweepRemovesPartitionsThatEndedUnseen, such as a partition whose last task was settled in a
// transaction of the application's.
func TestTheSweepRemovesPartitionsThatEndedUnseen(t *testing.T) {
	s := newShop(t)
	s.share(2, storage.Rate{})
	s.addKeyed("a", 1)
	s.claim(5)
	s.store.Look(t.Context())
	s.want("lines beside a running task", s.lines() != "", true)
	s.damage("DELETE FROM %s.tasks")
	s.swept()
}

// TestTasksJoinAPartitionWhoseTasksRun, also in a transaction of the application's, and nobody waits for it.
func TestTasksJoinAPartitionWhoseTasksRun(t *testing.T) {
	both(t, func(s *shop, do func(commit bool, action func(storage.Applier))) {
		s.share(3, storage.Rate{})
		s.addKeyed("a", 1)
		s.takes(5, "a0")
		do(true, func(tx storage.Applier) {
			s.must(s.apply(tx, keyed("a", 10)).Err)
			s.store.Look(t.Context())
			s.must(s.apply(s.store, keyed("a", 1)).Err)
			s.takes(5, "a1")
			s.store.Look(t.Context())
		})
		s.takes(5, "a10")
		s.must(s.apply(s.store, keyed("a", 2)).Err)
		c := s.claimed(claimOf(5))
		s.want("claimed, held", fmt.Sprint(len(c.Tasks), c.Held), "0 [q]")
	})
}

// TestHeldPartitionsHideNoOther: more partitions than a claim reads are at their Concurrency, before a
// partition that is not.
func TestHeldPartitionsHideNoOther(t *testing.T) {
	s := newShop(t)
	s.share(1, storage.Rate{})
	var txs []storage.Tx
	for i := range 2 * (storage.MaxTurns + 5) {
		txs = append(txs, keyed(fmt.Sprintf("p%04d-", i/2), i%2))
	}
	_, err := s.session.Apply(t.Context(), txs...)
	s.must(err)
	for left := storage.MaxTurns + 5; left > 0; {
		n := len(s.claim(storage.MaxClaim).Tasks)
		if left -= n; n == 0 {
			t.Fatalf("%d tasks are left", left)
		}
	}
	s.addKeyed("z", 1)
	first := s.claimed(claimOf(5))
	s.want("held at first", fmt.Sprint(len(first.Tasks), first.Held, first.More), "0 [q] false")
	s.takes(5, "z0")
}

// TestAPartitionOutOfTheWayIsFound puts a partition with waiting tasks out of the way of claims, as no step does. The
// sweep puts it back into its ring.
func TestAPartitionOutOfTheWayIsFound(t *testing.T) {
	s := newShop(t)
	s.addKeyed("a", 2)
	s.partition("b", storage.Pause{On: true})
	s.addKeyed("b", 1)
	s.store.StopRounds() // a round before the claim would put the partition back
	_, err := s.conn.Exec(t.Context(), "UPDATE "+s.cfg.Schema+".lines SET sort = 9223372036854775807 WHERE sub = 'a'")
	s.must(err)
	s.takes(5)
	testserver.Await(s, "the sweep has found the partition", func() bool {
		s.store.Look(t.Context())
		var astray int
		s.must(s.conn.QueryRow(t.Context(), "SELECT count(*) FROM "+s.cfg.Schema+".lines WHERE sort > 0").Scan(&astray))
		return astray == 1
	})
	s.takes(5, "a0", "a1")
}

// TestRestsLockPartitionsInOneOrder in which claims lock them too, so that neither waits for the other in a circle:
// while a flush waits for the partition that comes first in that order, it has not locked the next one.
func TestRestsLockPartitionsInOneOrder(t *testing.T) {
	s := newShop(t)
	s.addKeyed("a", 3)
	s.addKeyed("b", 3)
	var order string
	s.must(s.conn.QueryRow(t.Context(), "SELECT string_agg(sub, '' ORDER BY line) FROM "+s.cfg.Schema+".lines").Scan(&order))
	s.want("the order of the partitions, which is not that of their names", order, "ba")
	claimed := s.claim(4)
	s.want("claimed", len(claimed.Fences), 4)
	var tx storage.Tx
	for _, fence := range claimed.Fences {
		tx.Settles = append(tx.Settles, storage.Settle{Fence: fence, Outcome: storage.Release, Delay: time.Minute})
	}
	lock, err := s.conn.Begin(t.Context())
	s.must(err)
	free := func(sub string) (n int) {
		s.must(lock.QueryRow(t.Context(), "SELECT count(*) FROM (SELECT FROM "+s.cfg.Schema+
			".lines WHERE sub = $1 FOR NO KEY UPDATE SKIP LOCKED) x", sub).Scan(&n))
		return n
	}
	s.want("partitions locked by the test", free("b"), 1)
	ended := make(chan error, 1)
	go func() {
		_, err := s.session.ApplyOne(t.Context(), tx)
		ended <- err
	}()
	testserver.Await(t, "the flush waits for the first partition", func() bool {
		var waiting int
		s.must(s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
			"AND query LIKE '%\""+s.cfg.Schema+"\".rest%'").Scan(&waiting))
		return waiting > 0
	})
	s.want("next partitions that are not locked", free("a"), 1)
	s.must(lock.Rollback(t.Context()))
	s.must(<-ended)
	s.want("partitions that rest", fmt.Sprint(s.rests("a"), s.rests("b")), "true true")
}

// rests reports whether a partition rests.
func (s *shop) rests(key string) bool {
	s.Helper()
	page, err := s.store.Partitions(s.Context(), storage.PartitionsQuery{Queue: "q", Key: key, Limit: 1})
	s.must(err)
	s.want("partitions of this key", len(page.Partitions), 1)
	return !page.Partitions[0].Rests.IsZero()
}
