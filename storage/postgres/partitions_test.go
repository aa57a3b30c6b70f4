package postgres_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// keyed returns a Tx that inserts a task into a partition, whose id begins with the key.
func keyed(key string, n int) storage.Tx {
	in := insertOf(fmt.Sprint(key, n))
	in.Partition = key
	return storage.Tx{Inserts: []storage.Insert{in}}
}

// addKeyed inserts n tasks into a partition.
func (s *shop) addKeyed(key string, n int) {
	s.Helper()
	for i := range n {
		s.must(s.apply(s.store, keyed(key, i)).Err)
	}
}

// partition pauses a partition for a time, or until it is resumed, or resumes it.
func (s *shop) partition(key string, p storage.Pause) {
	s.Helper()
	s.must(s.session.Configure(s.Context(), "q", storage.Settings{Partition: key, Pause: &p}))
}

// takes expects a claim of up to n tasks to take these.
func (s *shop) takes(n int, want ...string) {
	s.Helper()
	var got []string
	for _, t := range s.claim(n).Tasks {
		got = append(got, t.ID)
	}
	s.want("claimed", fmt.Sprint(got), fmt.Sprint(want))
}

// lines returns the rows of partitions: their keys, and the folded number of tasks of each.
func (s *shop) lines() (found string) {
	s.Helper()
	s.must(s.conn.QueryRow(s.Context(), "SELECT coalesce(string_agg(sub || ':' || tasks, ' ' ORDER BY sub), '') FROM "+
		s.cfg.Schema+".lines").Scan(&found))
	return found
}

// swept expects the sweep to leave no row of a partition. It passes over rows that are younger than a second.
func (s *shop) swept() {
	s.Helper()
	testserver.Await(s, "no row of a partition is left", func() bool {
		s.store.Look(s.Context())
		return s.lines() == ""
	})
}

// TestAPartitionStaysWhileATransactionJoinsIt has transactions of the application's insert into a partition whose only
// task is claimed meanwhile. Their tasks can be claimed once they commit, and nobody waits for them.
func TestAPartitionStaysWhileATransactionJoinsIt(t *testing.T) {
	both(t, func(s *shop, do func(commit bool, action func(storage.Applier))) {
		s.addKeyed("a", 1)
		do(true, func(tx storage.Applier) {
			s.must(s.apply(tx, keyed("a", 10)).Err)
			s.must(s.apply(tx, keyed("b", 10)).Err)
			s.takes(5, "a0")
			s.store.Look(t.Context())
			s.addKeyed("b", 1)
			s.takes(5, "b0")
			s.takes(5)
			s.store.Look(t.Context())
		})
		c := s.claim(5)
		s.want("claimed after the commit", len(c.Tasks), 2)
		s.store.Look(t.Context())
		s.want("lines", s.lines(), "")
	})
}

// TestATransactionMayTakeTheLastTaskOfAPartition out of it and stay open: nobody waits for it.
func TestATransactionMayTakeTheLastTaskOfAPartition(t *testing.T) {
	s := newShop(t)
	s.addKeyed("a", 1)
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	s.must(s.apply(s.store.Within(tx), storage.Tx{
		Changes: []storage.Change{{Ref: storage.Ref{Queue: "q", ID: "a0"}, Cancel: true}},
	}).Err)
	s.must(s.apply(s.store, keyed("a", 1)).Err)
	s.takes(5, "a1")
	s.must(tx.Commit(t.Context()))
	s.takes(5)
	s.swept()
}

// TestARepeatableReadJoinsAPartition that others have served since it began, and a partition that is new once
// it is repeated.
func TestARepeatableReadJoinsAPartition(t *testing.T) {
	s := newShop(t)
	s.addKeyed("a", 3)
	s.takes(1, "a0")
	insert := func(key string) error {
		tx, err := s.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		s.must(err)
		defer func() { _ = tx.Rollback(t.Context()) }()
		_, err = tx.Exec(t.Context(), "SELECT")
		s.must(err)
		if key == "a" {
			s.takes(1, "a1") // the row of the partition has changed
		}
		applied, err := s.store.Within(tx).Apply(t.Context(), storage.Call{}, keyed(key, 10))
		if err != nil {
			return err
		}
		s.must(applied[0].Err)
		return tx.Commit(t.Context())
	}
	s.must(insert("a"))
	s.want("the first one of a partition fails", insert("b") != nil, true)
	s.must(insert("b"))
	s.takes(5, "a2", "b10", "a10")
}

// TestClaimersServePartitionsOnce has many storages claim from partitions, to which others add tasks. Each task is
// claimed once, and nothing is left of the partitions.
func TestClaimersServePartitionsOnce(t *testing.T) {
	for name, prepare := range map[string]func(*postgres.Storage){
		"short": func(*postgres.Storage) {}, "general": (*postgres.Storage).NoShort,
	} {
		t.Run(name, func(t *testing.T) {
			const claimers, keys, each = 8, 40, 25
			s := newShop(t)
			done := ledger{starts: make(map[string]int)}
			var all sync.WaitGroup
			for range claimers {
				store, session := opened(t, s.cfg)
				prepare(store)
				all.Go(func() {
					for done.len() < keys*each && !t.Failed() {
						s.serve(session, &done)
					}
				})
			}
			for k := 0; k < keys; k += 4 {
				session := storage.NewSession(s.store, testserver.Patience)
				all.Go(func() { s.fillPartitions(session, k, 4, each) })
			}
			all.Wait()
			for id, n := range done.starts {
				s.want(id+" was claimed so often", n, 1)
			}
			got := s.stats()
			s.want("live, partitioned, completed", [3]int64{got.Live(), got.Partitioned, got.Totals.Completed},
				[3]int64{0, 0, keys * each})
			s.swept()
		})
	}
}

// fillPartitions adds tasks to some partitions, each in turn.
func (s *shop) fillPartitions(session *storage.Session, first, keys, each int) {
	s.Helper()
	for i := range keys * each {
		in := keyed(fmt.Sprintf("k%02d-", first+i%keys), i/keys)
		if _, err := session.ApplyOne(s.Context(), in); err != nil {
			s.Error(err)
		}
	}
}

// ledger counts the starts of tasks.
type ledger struct {
	mu     sync.Mutex // guards starts
	starts map[string]int
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.starts)
}

// serve claims tasks, counts their starts, and completes them.
func (s *shop) serve(session *storage.Session, done *ledger) {
	s.Helper()
	c, err := session.Claim(s.Context(), claimOf(3))
	if err != nil {
		s.Error(err)
	}
	var txs []storage.Tx
	done.mu.Lock()
	for _, f := range c.Fences {
		done.starts[f.ID]++
		txs = append(txs, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
	}
	done.mu.Unlock()
	if len(txs) == 0 {
		return
	}
	if _, err := session.Apply(s.Context(), txs...); err != nil {
		s.Error(err)
	}
}

// TestLockedTasksHideNoOther of their partition: another transaction has locked more tasks at its head than a claim
// passes over because of their flags.
func TestLockedTasksHideNoOther(t *testing.T) {
	s := newShop(t)
	s.addKeyed("a", 1200)
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	locked, err := tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".tasks ORDER BY sort LIMIT 1100 FOR UPDATE")
	s.must(err)
	s.want("locked", locked.RowsAffected(), int64(1100))
	s.takes(2, "a1100", "a1101")
	s.must(tx.Rollback(t.Context()))
	s.takes(2, "a0", "a1")
}

// TestLockedPartitionsHideNoOther: another transaction has locked the only tasks of more partitions than a claim
// reads. The claim takes the task of the partition behind them.
func TestLockedPartitionsHideNoOther(t *testing.T) {
	s := newShop(t)
	for i := range 20 {
		s.addKeyed(fmt.Sprintf("a%02d-", i), 1)
	}
	s.addKeyed("b", 1)
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	locked, err := tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id LIKE 'a%' FOR UPDATE")
	s.must(err)
	s.want("locked", locked.RowsAffected(), int64(20))
	s.takes(1, "b0")
	c := s.claim(1)
	s.want("claimed, more", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	s.want("whether the next claim comes soon", c.NextDue.Sub(c.Now) <= 100*time.Millisecond, true)
	s.must(tx.Rollback(t.Context()))
	s.takes(2, "a00-0", "a01-0")
}

// TestDueTasksJoinTheirPartitions in the order in which they were due, new partitions at the end of the ring.
func TestDueTasksJoinTheirPartitions(t *testing.T) {
	s := newShop(t)
	s.addKeyed("b", 2)
	for i, key := range []string{"c", "a", "b", "c", ""} {
		in := insertOf(fmt.Sprint("due", i))
		in.Partition, in.Delay = key, time.Duration(i+1)*time.Millisecond
		s.must(s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}}).Err)
	}
	s.awaitAllDue()
	s.takes(9, "due4", "b0", "due0", "due1", "b1", "due3", "due2")
	s.want("lines", s.lines(), "")
}

// TestAQueueWithAPausedPartitionIsNotSwept, and a removal of the queue removes the pause.
func TestAQueueWithAPausedPartitionIsNotSwept(t *testing.T) {
	s := newShop(t)
	s.partition("a", storage.Pause{On: true})
	s.damage("UPDATE %s.queues SET touched = touched - 172800000000")
	s.damage("UPDATE %s.lines SET named = named - 172800000000")
	s.store.Look(t.Context())
	queues, err := s.store.Queues(t.Context(), storage.QueuesQuery{})
	s.must(err)
	s.want("queues", fmt.Sprint(queues.Names), "[q]")
	s.must(s.session.Configure(t.Context(), "q", storage.Settings{Remove: true}))
	s.want("lines", s.lines(), "")
	s.addKeyed("a", 1)
	s.takes(1, "a0")
}

// TestPausesThatAreOverEnd a hundred at a time, and leave nothing of partitions without tasks.
func TestPausesThatAreOverEnd(t *testing.T) {
	s := newShop(t)
	for i := range storage.MaxRest + 5 {
		s.partition(fmt.Sprintf("p%03d", i), storage.Pause{On: true, For: time.Hour})
	}
	s.addKeyed("p000", 1)
	c := s.claim(1)
	s.want("claimed, more", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	s.want("NextDue", c.NextDue.Sub(c.Now) > 50*time.Minute && c.NextDue.Sub(c.Now) < time.Hour, true)
	s.damage("UPDATE %s.lines SET sort = sort - 3600000000, paused = paused - 3600000000")
	tasks := 0
	for more := true; more; {
		c := s.claim(1)
		tasks, more = tasks+len(c.Tasks), c.More
	}
	s.want("claimed", tasks, 1)
	s.want("lines", s.lines(), "")
}

// TestNoPauseOfAPartitionEndsDuringAWait of the clock.
func TestNoPauseOfAPartitionEndsDuringAWait(t *testing.T) {
	s := newShop(t)
	s.partition("a", storage.Pause{On: true, For: time.Hour})
	s.addKeyed("a", 1)
	s.damage("UPDATE %s.lines SET sort = sort - 3600000000, paused = paused - 3600000000")
	s.damage("SELECT setval('%[1]s.mark', " + clockNow + " - 3600000000)")
	c := s.claim(1)
	s.want("claimed, more", [2]any{len(c.Tasks), c.More}, [2]any{0, false})
	if wait := c.NextDue.Sub(c.Now); wait <= 0 || wait > storage.JumpWait {
		t.Errorf("NextDue is %v later, want the end of the wait", wait)
	}
	s.damage("SELECT setval('%[1]s.jumped', "+clockNow+" - $1)", storage.JumpWait.Microseconds())
	s.takes(1, "a0")
}

// TestADamagedTaskOfAPartitionIsSetApart and counted, and the tasks behind it can be claimed.
func TestADamagedTaskOfAPartitionIsSetApart(t *testing.T) {
	s := newShop(t)
	s.addKeyed("a", 3)
	s.damage("UPDATE %s.tasks SET record = 'garbage' WHERE id = 'a0'")
	s.addKeyed("b", 1)
	s.damage("UPDATE %[1]s.tasks SET record = (SELECT x.record FROM %[1]s.tasks x WHERE x.id = 'b0') WHERE id = 'a1'")
	var got []string
	for range 3 {
		for _, task := range s.claim(5).Tasks {
			got = append(got, task.ID)
		}
	}
	slices.Sort(got)
	s.want("claimed", fmt.Sprint(got), "[a2 b0]")
	stats := s.stats()
	s.want("damaged, waiting", [2]int64{stats.Damaged, stats.Waiting}, [2]int64{2, 0})
	s.swept()
}

// TestADeclinedTaskOfAPausedPartition is passed over, and the tasks behind it are not.
func TestADeclinedTaskOfAPausedPartition(t *testing.T) {
	s := newShop(t)
	s.addKeyed("a", 2)
	s.addKeyed("b", 1)
	c := s.claim(2)
	for _, f := range c.Fences {
		s.must(s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Decline}}}).Err)
	}
	s.partition("a", storage.Pause{On: true})
	s.takes(5, "b0")
	s.partition("a", storage.Pause{})
	s.takes(5, "a0", "a1")
}

// TestNoRowIsLeftOfPartitions has many partitions come and go, each with a task, and some that are paused and resumed
// meanwhile. The tables have the rows that they had before. If a rate counts the starts of the partitions, the claims
// after one Per remove the rows.
func TestNoRowIsLeftOfPartitions(t *testing.T) {
	t.Run("unlimited", func(t *testing.T) { testNoRowIsLeft(t, storage.Rate{}) })
	t.Run("rated", func(t *testing.T) { testNoRowIsLeft(t, storage.Rate{N: 1, Per: passingPer}) })
}

func testNoRowIsLeft(t *testing.T, rate storage.Rate) {
	t.Helper()
	s := newShop(t)
	s.passing(0, 1)
	if rate.N > 0 {
		s.share(0, rate)
	}
	s.store.Look(t.Context())
	before := s.rows()
	const together = 10_000
	for from := 0; from < passingPartitions; from += together {
		s.passing(from, together)
	}
	if rate.N > 0 {
		t.Logf("rows before the last Per is over: %s", s.rows())
		s.want("lines while starts count", s.lines() != "", true)
		testserver.Await(t, "claims remove the rows once no start counts", func() bool {
			for more := true; more; {
				more = s.claim(1).More
			}
			return s.lines() == ""
		})
	}
	testserver.Await(t, "the tables have the rows that they had before", func() bool {
		s.store.Look(t.Context())
		return s.rows() == before
	})
}

// passing lets n partitions with a task come and go, and a partition that is paused and resumed meanwhile.
func (s *shop) passing(from, n int) {
	s.Helper()
	for i := 0; i < n; i += 100 {
		var txs []storage.Tx
		for j := i; j < min(i+100, n); j++ {
			txs = append(txs, keyed(fmt.Sprint("k", from+j, "-"), 0))
		}
		_, err := s.session.Apply(s.Context(), txs...)
		s.must(err)
	}
	s.partition("empty", storage.Pause{On: true})
	s.partition("empty", storage.Pause{})
	for done := 0; done < n; {
		c := s.claim(storage.MaxClaim)
		var tx storage.Tx
		for _, f := range c.Fences {
			tx.Settles = append(tx.Settles, storage.Settle{Fence: f, Outcome: storage.Complete})
		}
		s.must(s.apply(s.store, tx).Err)
		if done += len(c.Fences); done < n && !c.More {
			s.Fatalf("after %d of %d tasks: got no more, want more", done, n)
		}
	}
}

// rows returns the number of rows of each table that has rows of queues and tasks.
func (s *shop) rows() (found string) {
	s.Helper()
	for _, table := range []string{"queues", "limits", "deltas", "lines", "tasks", "ended", "sides", "keys", "idle"} {
		var n int
		s.must(s.conn.QueryRow(s.Context(), "SELECT count(*) FROM "+s.cfg.Schema+"."+table).Scan(&n))
		found += fmt.Sprintf("%s %d ", table, n)
	}
	return found
}

// TestAClaimReadsAFewOfManyPartitions expects a claim from many partitions to read a few of them.
func TestAClaimReadsAFewOfManyPartitions(t *testing.T) {
	s := newShop(t)
	var txs []storage.Tx
	for i := range 3000 {
		txs = append(txs, keyed(fmt.Sprintf("p%04d", i), 0))
	}
	_, err := s.session.Apply(t.Context(), txs...)
	s.must(err)
	s.takes(1, "p00000")
	before := s.read()
	for i := range 10 {
		s.takes(1, fmt.Sprintf("p%04d0", i+1))
	}
	read := s.read() - before
	t.Logf("%d read", read)
	s.want("few", read < 10*150, true)
	s.want("claimed", len(s.claim(storage.MaxClaim).Tasks), storage.MaxClaim)
}

// TestAPartitionBeginsAgain at the end of the ring, if all of its tasks leave it before another joins, and only
// then.
func TestAPartitionBeginsAgain(t *testing.T) {
	priority := 3
	for name, c := range map[string]struct {
		inA  int
		want []string
	}{
		"all leave":  {1, []string{"b0", "a0"}},
		"some leave": {2, []string{"a0", "b0", "a1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			s.addKeyed("a", c.inA)
			s.addKeyed("b", 1)
			ref := storage.Ref{Queue: "q", ID: "a0"}
			task, err := s.store.Task(t.Context(), ref)
			s.must(err)
			s.must(s.apply(s.store, storage.Tx{
				Changes: []storage.Change{{Ref: ref, Version: task.Version, Priority: &priority}},
			}).Err)
			s.takes(5, c.want...)
		})
	}
}
