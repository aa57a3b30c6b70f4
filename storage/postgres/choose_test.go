package postgres_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// promptly makes all waiting tasks whose id is like a pattern tasks that only start at once.
func (s *shop) promptly(like string) {
	s.Helper()
	s.damage("UPDATE %s.tasks SET line = line + 1, flags = flags | 4 WHERE line & 15 = 1 AND id LIKE $1::text::bytea", like)
}

// TestAClaimLocksWhatItChooses expects a claim to lock no other task. If another transaction has
// locked the first tasks, the claim takes the tasks behind them, and returns when to search again for the
// rest.
func TestAClaimLocksWhatItChooses(t *testing.T) {
	s := newShop(t)
	for i := range 8 {
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprint("t", i))}})
	}
	s.promptly("t%")
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id IN ('t0', 't1', 't4') FOR UPDATE")
	s.must(err)
	ids := func(c storage.Claimed) (all []string) {
		for _, task := range c.Tasks {
			all = append(all, task.ID)
		}
		return all
	}
	first := s.claim(2)
	s.want("claimed behind the locked ones", slices.Equal(ids(first), []string{"t2", "t3"}), true)
	s.want("there are more", first.More, true)
	second := s.claim(10)
	s.want("claimed beside the locked one", slices.Equal(ids(second), []string{"t5", "t6", "t7"}), true)
	s.want("the locked ones are looked at later", [2]bool{second.More, second.NextDue.After(second.Now)}, [2]bool{false, true})
	s.must(tx.Rollback(t.Context()))
	s.want("the rest", slices.Equal(ids(s.claim(10)), []string{"t0", "t1", "t4"}), true)
}

// claimAll claims until no task is left.
func claimAll(t *testing.T, store *postgres.Storage, take func(*storage.Claimed)) {
	t.Helper()
	session := storage.NewSession(store, testserver.Patience)
	req := claimOf(10)
	req.Ahead, req.Suspect = 5, true
	for empty := 0; empty < 3; {
		c, err := session.Claim(t.Context(), req)
		if err != nil {
			t.Error(err)
			return
		}
		if len(c.Tasks) == 0 && !c.More {
			empty++
		}
		take(&c)
	}
}

// TestClaimsThatChooseTakeEachTaskOnce has several claims choose among the same tasks.
func TestClaimsThatChooseTakeEachTaskOnce(t *testing.T) {
	const tasks, suspects, claimers = 400, 12, 4
	s := newShop(t)
	var txs []storage.Tx
	for i := range tasks {
		txs = append(txs, storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprintf("t%03d", i))}})
	}
	_, err := s.session.Apply(t.Context(), txs...)
	s.must(err)
	s.damage("UPDATE %s.tasks SET line = line + 2, flags = flags | 8 WHERE line & 15 = 1 AND id < $1::text::bytea",
		fmt.Sprintf("t%03d", suspects))
	s.promptly("t%5")
	var mu sync.Mutex
	claimed := make(map[string]int)
	isSuspect := func(task *storage.Task) bool { return task.ID < fmt.Sprintf("t%03d", suspects) }
	take := func(c *storage.Claimed) {
		mu.Lock()
		defer mu.Unlock()
		of := 0
		for i := range c.Tasks {
			task := &c.Tasks[i]
			claimed[task.ID]++
			if isSuspect(task) {
				of++
			}
			if !task.Started && (isSuspect(task) || task.ID[3] == '5') {
				t.Errorf("%s was claimed ahead", task.ID)
			}
		}
		if of > 1 {
			t.Errorf("one claim took %d suspects", of)
		}
	}
	var all sync.WaitGroup
	for range claimers {
		all.Go(func() { claimAll(t, s.store, take) })
	}
	all.Wait()
	s.want("claimed", len(claimed), tasks)
	for id, n := range claimed {
		s.want(id+" was claimed so often", n, 1)
	}
	stats := s.stats()
	s.want("waiting, pending", [2]int64{stats.Waiting, stats.Pending}, [2]int64{0, tasks})
}

// TestAClaimPassesOverTasksThatATransactionHas locks more tasks at the head of a queue than a claim
// reads. The claim returns when to search for them again, in the general way and in the short way.
func TestAClaimPassesOverTasksThatATransactionHas(t *testing.T) {
	const tasks, had, most = 360, 340, 10
	for name, general := range map[string]bool{"the short way": false, "the engine chooses": true} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			var txs, changes []storage.Tx
			if general {
				s.decline("mail", "a")
				changes = append(changes, cancelOf(storage.Ref{Queue: "q", ID: "a"}))
			}
			for i := range tasks {
				in := insertOf(fmt.Sprintf("t%03d", i))
				txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
				if i < had {
					changes = append(changes, cancelOf(in.Ref))
				}
			}
			_, err := s.session.Apply(t.Context(), txs...)
			s.must(err)
			tx, err := s.conn.Begin(t.Context())
			s.must(err)
			_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{}, changes...)
			s.must(err)
			for n := range (tasks - had) / most {
				got := s.naming(most, "mail")
				s.want("claimed", len(got.Tasks), most)
				s.want("the first of them", got.Tasks[0].ID, fmt.Sprintf("t%03d", had+n*most))
			}
			rest := s.naming(most, "mail")
			s.want("claimed of what is held", len(rest.Tasks), 0)
			if general {
				s.want("there are more, later", [2]bool{rest.More, rest.NextDue.After(rest.Now)}, [2]bool{false, true})
			}
			s.must(tx.Rollback(t.Context()))
			left := had
			testserver.Await(t, "all are claimed once it is over", func() bool {
				left -= len(s.naming(most, "mail").Tasks)
				return left == 0
			})
		})
	}
}

// TestAClaimPassesOverDeclinedTasksThatATransactionHas locks more tasks of a kind than a claim reads.
func TestAClaimPassesOverDeclinedTasksThatATransactionHas(t *testing.T) {
	const more, most = 3000, 10
	s := newShop(t)
	s.declineMany(more, "%", "mail")
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".tasks ORDER BY sort LIMIT $1 FOR UPDATE", more)
	s.must(err)
	got := s.naming(most, "mail")
	s.want("claimed", len(got.Tasks), 1)
	s.want("it is the last", got.Tasks[0].ID, fmt.Sprint("mail-", more))
	s.want("there are more, later", [2]bool{got.More, got.NextDue.After(got.Now)}, [2]bool{false, true})
	s.must(tx.Rollback(t.Context()))
	s.want("claimed once it is over", len(s.naming(most, "mail").Tasks), most)
}

// TestAClaimOfAllKindsTakesWhatStandsBehindEmptiedLines puts a task behind many lines that have
// become empty.
func TestAClaimOfAllKindsTakesWhatStandsBehindEmptiedLines(t *testing.T) {
	const emptied = 1200
	s := newShop(t)
	s.decline("mail", "a")
	s.damage("INSERT INTO %s.lines (queue, state, sub, line, named, look) SELECT queue, state, 'a' || n, line - 16 * n, named, look FROM "+
		s.cfg.Schema+".lines, generate_series(1, $1::int) n", emptied)
	s.want("claimed", len(s.naming(1).Tasks), 1)
}

// declineMany has a task of each kind declined, and adds so many copies of the tasks whose id is like a
// pattern.
func (s *shop) declineMany(more int, like string, kinds ...string) {
	s.Helper()
	for _, kind := range kinds {
		s.decline(kind, kind)
	}
	s.damage("INSERT INTO %s.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)"+
		" SELECT sort + n, turn, version, queue, line, flags, priority, id || ('-' || n)::bytea, lease, past, record FROM "+
		s.cfg.Schema+".tasks, generate_series(1, $1::int) n WHERE line < 0 AND id LIKE $2::text::bytea", more, like)
	s.exec("VACUUM ANALYZE {schema}.tasks")
}

// read returns how many tasks the server has read through an index.
func (s *shop) read() (n int) {
	s.Helper()
	s.exec("SELECT pg_stat_force_next_flush()")
	s.must(s.conn.QueryRow(s.Context(), "SELECT idx_tup_fetch FROM pg_stat_all_tables WHERE relid = '"+
		s.cfg.Schema+".tasks'::regclass").Scan(&n))
	return n
}

// kindsNamed names n kinds.
func kindsNamed(n int) (kinds []string) {
	for k := range n {
		kinds = append(kinds, fmt.Sprint("kind", k))
	}
	return kinds
}

// TestAClaimReadsAFewOfManyDeclinedTasks has tasks of one kind and of many, with suspects and
// without.
func TestAClaimReadsAFewOfManyDeclinedTasks(t *testing.T) {
	for kinds, more := range map[int]int{1: 20_000, 50: 400} {
		for _, suspects := range []int{0, 100} {
			t.Run(fmt.Sprint(kinds, " kinds, suspects ", suspects), func(t *testing.T) {
				s := newShop(t)
				s.declineMany(more, "%", kindsNamed(kinds)...)
				before, found := s.read(), 0
				s.must(s.conn.QueryRow(t.Context(), postgres.InSchema(
					"SELECT count(*) FROM {schema}.candidates('{q}', '{}', 300, 200, $1, false, 0, '{0}', '{}', '{}')", s.cfg.Schema), suspects).Scan(&found))
				read := s.read() - before
				t.Logf("%d found, %d read", found, read)
				s.want("found enough, read few", [2]bool{found >= 300, read >= 300 && read <= 2500}, [2]bool{true, true})
			})
		}
	}
}

// TestClaimsTakeAllOfManyKinds expects a few claims to take all tasks, although each reads only a
// share of a line.
func TestClaimsTakeAllOfManyKinds(t *testing.T) {
	const kinds, more = 50, 100
	s := newShop(t)
	s.declineMany(more, "kind0", kindsNamed(kinds)...)
	taken, claims := 0, 0
	for over := false; !over; claims++ {
		got := s.naming(200, kindsNamed(kinds)...)
		taken, over = taken+len(got.Tasks), !got.More
	}
	s.want("taken", taken, kinds+more)
	s.want("by a few claims", claims > 1 && claims < 6, true)
}

// TestAClaimTellsOfTasksBehindABarredOne: the claim may not take the last task up to which it would read a
// line. It passes that task over, and reports the tasks behind its own.
func TestAClaimTellsOfTasksBehindABarredOne(t *testing.T) {
	const kinds, share, more = 50, 40, 100
	s := newShop(t)
	s.declineMany(more, "kind0", kindsNamed(kinds)...)
	s.damage("UPDATE %s.tasks SET flags = flags | 4 WHERE id = $1::text::bytea", fmt.Sprint("kind0-", share-1))
	req := claimOf(0)
	req.Start, req.Ahead, req.Kinds = 0, 200, kindsNamed(kinds)
	first := s.claimed(req)
	s.want("taken, and there are more", [2]any{len(first.Tasks), first.More}, [2]any{kinds + share - 1, true})
	second := s.claimed(req)
	s.want("taken, and there are more", [2]any{len(second.Tasks), second.More}, [2]any{more - share, false})
}

// TestDeclinedTasksThatAClaimMayNotTakeHideNoOther: the first tasks in each of many lines, or in one, are suspects, or
// belong to a partition that is paused, full, or has used up its rate. A claim passes over more of these than it reads
// of each line.
func TestDeclinedTasksThatAClaimMayNotTakeHideNoOther(t *testing.T) {
	inP := "partition = 'p'"
	for name, test := range map[string]struct {
		change, held  string
		share         storage.PartitionLimit
		paused, later bool
	}{
		"suspects": {change: "flags = flags | 8", held: "[]"},
		"paused":   {change: inP, paused: true, held: "[]"},
		"full":     {change: inP, share: storage.PartitionLimit{Concurrency: 1}, held: "[q]"},
		"rated":    {change: inP, share: storage.PartitionLimit{Rate: storage.Rate{N: 1, Per: time.Hour}}, held: "[]", later: true},
	} {
		for kinds, more := range map[int]int{50: 40, 1: 900} {
			t.Run(fmt.Sprint(name, " of ", kinds), func(t *testing.T) {
				s := newShop(t)
				s.limit("q", storage.Limit{Partition: test.share})
				s.addKeyed("p", 1)
				s.takes(1, "p0")
				if test.paused {
					s.partition("p", storage.Pause{On: true})
				}
				s.declineMany(more, "%", kindsNamed(kinds)...)
				s.damage("UPDATE %s.tasks SET "+test.change+" WHERE line < 0 AND id NOT LIKE $1::text::bytea", fmt.Sprint("%-", more))
				req := claimOf(2 * kinds)
				req.Kinds = kindsNamed(kinds)
				for _, want := range []int{kinds, 0} {
					c := s.claimed(req)
					s.want("claimed, more", [2]any{len(c.Tasks), c.More}, [2]any{want, false})
					s.want("held, when it is due", fmt.Sprint(fmt.Sprint(c.Held), c.NextDue.After(c.Now.Add(30*time.Second))),
						fmt.Sprint(test.held, test.later))
				}
			})
		}
	}
}

// declineKeyed has n tasks of the kind mail declined that belong to partitions in turn.
func (s *shop) declineKeyed(n int, keys ...string) {
	s.Helper()
	var inserts, declines storage.Tx
	for i := range n {
		in := keyed(keys[i%len(keys)], i).Inserts[0]
		in.Kind = "mail"
		inserts.Inserts = append(inserts.Inserts, in)
	}
	s.must(s.apply(s.store, inserts).Err)
	for left := n; left > 0; {
		fences := s.naming(100, "another").Fences
		for _, f := range fences {
			declines.Settles = append(declines.Settles, storage.Settle{Fence: f, Outcome: storage.Decline})
		}
		s.must(s.apply(s.store, declines).Err)
		declines.Settles, left = nil, left-len(fences)
	}
}

// TestTheFirstOfManyDeclinedTasksOfAPartitionAreTaken checks that a claim takes as many of them as their partition
// admits, although the others fill all that it reads of their kind, and that each claim takes the next ones.
func TestTheFirstOfManyDeclinedTasksOfAPartitionAreTaken(t *testing.T) {
	for name, c := range map[string]struct {
		share storage.PartitionLimit
		keys  []string
		want  int
	}{
		"one at a time":      {storage.PartitionLimit{Concurrency: 1}, []string{"p"}, 1},
		"three at a time":    {storage.PartitionLimit{Concurrency: 3}, []string{"p"}, 3},
		"a rate":             {storage.PartitionLimit{Rate: storage.Rate{N: 2, Per: time.Hour}}, []string{"p"}, 2},
		"of five partitions": {storage.PartitionLimit{Concurrency: 1}, []string{"p", "q", "r", "s", "t"}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			const tasks = 160
			s := newShop(t)
			s.declineKeyed(tasks, c.keys...)
			s.limit("q", storage.Limit{Partition: c.share})
			for round := range 3 {
				got := s.naming(10, "mail")
				var ids, want []string
				for i, task := range got.Tasks {
					ids, want = append(ids, task.ID), append(want, fmt.Sprint(c.keys[i%len(c.keys)], round*c.want+i))
				}
				s.want("claimed", fmt.Sprint(ids), fmt.Sprint(want))
				s.want("tasks, more", [2]any{len(got.Tasks), got.More}, [2]any{c.want, false})
				if c.share.Concurrency == 0 {
					break
				}
				s.want("held", fmt.Sprint(got.Held), "[q]")
				s.complete(got.Fences...)
			}
		})
	}
}

// TestTheNextOfManyDeclinedTasksOfAPartitionIsTaken checks that a claim takes the second of them if another transaction
// has locked the first one.
func TestTheNextOfManyDeclinedTasksOfAPartitionIsTaken(t *testing.T) {
	s := newShop(t)
	s.declineKeyed(160, "p")
	s.limit("q", storage.Limit{Partition: storage.PartitionLimit{Concurrency: 1}})
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id = 'p0' FOR UPDATE")
	s.must(err)
	got := s.naming(10, "mail")
	s.must(tx.Rollback(t.Context()))
	s.want("claimed", len(got.Tasks), 1)
	s.want("the task", got.Tasks[0].ID, "p1")
}

// TestAClaimTellsOfAFullPartitionBehindALockedTask: a claim passes over the many declined tasks of a partition that is
// full, and then chooses a task that another transaction has locked, so that it reads again. It reports the queue held.
func TestAClaimTellsOfAFullPartitionBehindALockedTask(t *testing.T) {
	s := newShop(t)
	s.declineKeyed(160, "p")
	s.declineKeyed(1, "r")
	s.limit("q", storage.Limit{Partition: storage.PartitionLimit{Concurrency: 1}})
	s.want("claimed", s.naming(1, "mail").Tasks[0].ID, "p0")
	tx, err := s.conn.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.cfg.Schema+".tasks WHERE id = 'r0' FOR UPDATE")
	s.must(err)
	got := s.naming(10, "mail")
	s.must(tx.Rollback(t.Context()))
	s.want("claimed behind a full partition, held", fmt.Sprint(len(got.Tasks), got.Held), "0 [q]")
}
