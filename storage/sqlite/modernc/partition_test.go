package modernc_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// aheadOf opens a file with a clock that is the returned duration ahead.
func aheadOf(t *testing.T, path string) (s *side, ahead *time.Duration) {
	t.Helper()
	ahead = new(time.Duration)
	return opened(t, sqlite.Config{
		Path: path, Driver: modernc.Driver, MinLease: time.Second, Relaxed: true,
		Now: func() time.Time { return time.Now().Add(*ahead) },
	}), ahead
}

// keyed inserts tasks in partitions, in one call. A task has its partition as its id, with a number behind it.
func (s *side) keyed(t *testing.T, n int, keys ...string) {
	t.Helper()
	var tx storage.Tx
	for _, key := range keys {
		for i := range n {
			in := job(fmt.Sprint(key, i))
			in.Partition = key
			tx.Inserts = append(tx.Inserts, in)
		}
	}
	_, err := s.session.ApplyOne(t.Context(), tx)
	must(t, err)
}

// wantLines fails the test unless the table of lines has so many rows.
func wantLines(t *testing.T, path string, want int) {
	t.Helper()
	var rows int
	must(t, database(t, path, "").QueryRowContext(t.Context(), "SELECT count(*) FROM midge_lines").Scan(&rows))
	if rows != want {
		t.Errorf("%d lines are left, want %d", rows, want)
	}
}

// wantLinesOfTasks fails the test unless each line has a row with the number of its tasks.
func wantLinesOfTasks(t *testing.T, path string) {
	t.Helper()
	var wrong int
	must(t, database(t, path, "").QueryRowContext(t.Context(), `SELECT
		(SELECT count(*) FROM midge_lines l
		 WHERE tasks <> (SELECT count(*) FROM midge_tasks WHERE line = l.line * 16 + l.state)) +
		(SELECT count(*) FROM midge_tasks t WHERE t.line & 15 IN (14, 15) AND NOT EXISTS
		 (SELECT 1 FROM midge_lines l WHERE l.line = t.line >> 4 AND l.state = t.line & 15 AND l.queue = t.queue))`,
	).Scan(&wrong))
	if wrong > 0 {
		t.Errorf("%d lines have a wrong size, or tasks no line", wrong)
	}
}

// TestNoRowIsLeftOfPartitions has many partitions come and go, each with a task, and some that are paused and resumed
// meanwhile. The tables have the rows that they had before. If a rate counts the starts of the partitions, the claims
// after one Per remove the rows.
func TestNoRowIsLeftOfPartitions(t *testing.T) {
	t.Run("unlimited", func(t *testing.T) { testNoRowIsLeft(t, storage.Rate{}) })
	t.Run("rated", func(t *testing.T) { testNoRowIsLeft(t, storage.Rate{N: 1, Per: time.Minute}) })
}

func testNoRowIsLeft(t *testing.T, rate storage.Rate) {
	t.Helper()
	path := file(t)
	s, ahead := aheadOf(t, path)
	s.single(t, "first")
	s.endAll(t, 1)
	if rate.N > 0 {
		s.limit(t, storage.Limit{Partition: storage.PartitionLimit{Rate: rate}})
	}
	before := rowsOf(t, path)
	const each, calls = 500, 20
	for round := range passingPartitions / each {
		keys := make([]string, each)
		for i := range keys {
			keys[i] = fmt.Sprint("key-", round, "-", i)
		}
		s.single(t, keys...)
		for _, on := range []bool{true, false} {
			settings := storage.Settings{Partition: fmt.Sprint("empty ", round), Pause: &storage.Pause{On: on}}
			must(t, s.session.Configure(t.Context(), queue, settings))
		}
		if round == 0 {
			wantLines(t, path, each)
		}
		if (round+1)%calls == 0 {
			s.endAll(t, calls*each)
		}
	}
	if rate.N > 0 {
		*ahead = rate.Per + rate.Per/storage.RateParts
		s.wantHeld(t, "after one Per")
	}
	if after := rowsOf(t, path); after != before {
		t.Errorf("got the rows %s, want %s", after, before)
	}
}

// single inserts a task that is not kept into each of some partitions, in one call.
func (s *side) single(t *testing.T, keys ...string) {
	t.Helper()
	var tx storage.Tx
	for _, key := range keys {
		in := job("of-" + key)
		in.Partition, in.Keep = key, storage.Keep{}
		tx.Inserts = append(tx.Inserts, in)
	}
	_, err := s.session.ApplyOne(t.Context(), tx)
	must(t, err)
}

// rowsOf returns the number of rows of each table.
func rowsOf(t *testing.T, path string) string {
	t.Helper()
	var rows string
	must(t, database(t, path, "").QueryRowContext(t.Context(), `SELECT
		'queues ' || (SELECT count(*) FROM midge_queues) || ', tasks ' || (SELECT count(*) FROM midge_tasks) ||
		', sides ' || (SELECT count(*) FROM midge_sides) || ', lines ' || (SELECT count(*) FROM midge_lines) ||
		', keys ' || (SELECT count(*) FROM midge_keys) || ', meta ' || (SELECT count(*) FROM midge_meta)`).Scan(&rows))
	return rows
}

// endAll completes n tasks, many together, which must be all that wait.
func (s *side) endAll(t *testing.T, n int) {
	t.Helper()
	for done := 0; done < n; {
		c, err := s.claimLong(t.Context(), storage.MaxClaim)
		must(t, err)
		var tx storage.Tx
		for _, fence := range c.Fences {
			tx.Settles = append(tx.Settles, storage.Settle{Fence: fence, Outcome: storage.Complete})
		}
		_, err = s.session.ApplyOne(t.Context(), tx)
		must(t, err)
		if done += len(tx.Settles); len(tx.Settles) == 0 || !c.More && done < n {
			t.Fatalf("after %d tasks: claimed %d, more is %t", done, len(tx.Settles), c.More)
		}
	}
}

// TestADamagedPartitionKeepsItsTasks damages the row of one partition, or all. All tasks are claimed within three
// minutes, and no row is left.
func TestADamagedPartitionKeepsItsTasks(t *testing.T) {
	for _, damage := range []string{
		"UPDATE midge_lines SET tasks = 'abc'", "UPDATE midge_lines SET tasks = -1", "UPDATE midge_lines SET tasks = 0",
		"UPDATE midge_lines SET tasks = 1", "UPDATE midge_lines SET tasks = 9", "UPDATE midge_lines SET turn = 'abc'",
		"UPDATE midge_lines SET turn = 9223372036854775807", "UPDATE midge_lines SET turn = -1",
		"UPDATE midge_lines SET sort = 'abc'", "UPDATE midge_lines SET sort = -1", "UPDATE midge_lines SET sort = 0.5",
		"UPDATE midge_lines SET sort = 1", "UPDATE midge_lines SET name = 'z' || name", "DELETE FROM midge_lines",
		"UPDATE midge_lines SET kept = 'abc'", "UPDATE midge_lines SET kept = 7", "UPDATE midge_lines SET kept = x'00'",
		"UPDATE midge_lines SET sort = 9223372036854775807", "UPDATE midge_lines SET queue = 77", "UPDATE midge_lines SET state = 14", "UPDATE midge_lines SET state = 77",
	} {
		for _, which := range []string{" WHERE name = 'b'", ""} {
			t.Run(damage+which, func(t *testing.T) {
				path := file(t)
				s, ahead := aheadOf(t, path)
				s.keyed(t, 3, "a", "b", "c")
				must(t, s.insert(t.Context(), "x"))
				c, err := s.claimLong(t.Context(), 1)
				must(t, err)
				execute(t, path, damage+which)
				if _, err := s.store.Stats(t.Context(), queue); err != nil {
					t.Error(err)
				}
				ids := []string{c.Tasks[0].ID}
				must(t, s.complete(t.Context(), c.Fences[0]))
				for range 3 {
					ids = append(ids, s.completeAll(t)...)
					*ahead += 61 * time.Second
				}
				slices.Sort(ids)
				if want := "[a0 a1 a2 b0 b1 b2 c0 c1 c2 x]"; fmt.Sprint(ids) != want {
					t.Errorf("claimed %q, want %s", ids, want)
				}
				if damage != "UPDATE midge_lines SET queue = 77" {
					execute(t, path, "DELETE FROM midge_lines WHERE state = 77")
					wantLines(t, path, 0)
				}
			})
		}
	}
}

// completeAll claims and completes tasks until a claim takes none. It returns their ids.
func (s *side) completeAll(t *testing.T) (ids []string) {
	t.Helper()
	for {
		c, err := s.claimLong(t.Context(), 2)
		must(t, err)
		if len(c.Tasks) == 0 {
			return ids
		}
		for i, fence := range c.Fences {
			ids = append(ids, c.Tasks[i].ID)
			must(t, s.complete(t.Context(), fence))
		}
	}
}

// TestADamagedTaskOfAPartitionIsSetApart damages a task in front of another one in its partition, and a task
// that is alone. Lists, and the age of the queue, pass over both.
func TestADamagedTaskOfAPartitionIsSetApart(t *testing.T) {
	for _, damage := range []string{
		"record = 'garbage'", "record = zeroblob(9999)", "priority = 'high'", "sort = 'abc'", "turn = 'abc'",
	} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			s.keyed(t, 1, "a")
			s.keyed(t, 3, "b")
			execute(t, path, "UPDATE midge_tasks SET "+damage+" WHERE id IN ('a0', 'b0')")
			var listed []string
			for after := ""; len(listed) < 9; {
				page, err := s.store.Tasks(t.Context(), storage.TasksQuery{
					Queue: queue, State: storage.Waiting, Limit: 1, After: after,
				})
				must(t, err)
				for i := range page.Tasks {
					listed = append(listed, page.Tasks[i].ID)
				}
				if after = page.Next; after == "" {
					break
				}
			}
			if fmt.Sprint(listed) != "[b1 b2]" {
				t.Errorf("listed %q, want b1 and b2", listed)
			}
			if _, err := s.store.Stats(t.Context(), queue); err != nil {
				t.Error(err)
			}
			if ids := s.completeAll(t); fmt.Sprint(ids) != "[b1 b2]" {
				t.Errorf("claimed %q, want b1 and b2", ids)
			}
			stats, err := s.store.Stats(t.Context(), queue)
			must(t, err)
			if got := stats[0]; got.Damaged != 2 || got.Partitioned != 0 {
				t.Errorf("got %+v, want two tasks damaged", got)
			}
			wantLines(t, path, 0)
		})
	}
}

// TestDamagedCountsHideNoPartition empties the counts of a queue with tasks in a partition, and with a pause that
// has ended.
func TestDamagedCountsHideNoPartition(t *testing.T) {
	for _, counts := range []string{"{}", "garbage", `{"Turn":9223372036854775807}`, `{"Resting":-7}`} {
		t.Run(counts, func(t *testing.T) {
			path := file(t)
			s, ahead := aheadOf(t, path)
			s.keyed(t, 1, "a", "b")
			must(t, s.insert(t.Context(), "x"))
			s.pause(t, "b", time.Second)
			execute(t, path, "UPDATE midge_queues SET counts = ?", counts)
			*ahead = time.Minute + 2*time.Second
			if ids := s.completeAll(t); len(ids) != 3 {
				t.Errorf("claimed %q, want all three", ids)
			}
			wantLines(t, path, 0)
		})
	}
}

// pause pauses a partition, for a time unless that is 0.
func (s *side) pause(t *testing.T, key string, long time.Duration) {
	t.Helper()
	must(t, s.session.Configure(t.Context(), queue, storage.Settings{
		Partition: key, Pause: &storage.Pause{On: true, For: long},
	}))
}

// TestAPausedPartitionOutlivesItsTasks has a queue with a paused partition and no task stay for two days, and go
// after the pause or if it is removed.
func TestAPausedPartitionOutlivesItsTasks(t *testing.T) {
	path := file(t)
	s, ahead := aheadOf(t, path)
	s.pause(t, "a", 72*time.Hour)
	wantQueues := func(want int) {
		t.Helper()
		s.completeAll(t)
		must(t, s.store.Close())
		*ahead += 48 * time.Hour
		s, _ = aheadOf(t, path)
		now := *ahead
		s = opened(t, sqlite.Config{
			Path: path, Driver: modernc.Driver, Now: func() time.Time { return time.Now().Add(now) },
		})
		page, err := s.store.Queues(t.Context(), storage.QueuesQuery{Limit: 10})
		must(t, err)
		if len(page.Names) != want {
			t.Errorf("after %s: listed %q, want %d", now, page.Names, want)
		}
	}
	wantQueues(1)
	wantLines(t, path, 1)
	wantQueues(0)
	must(t, s.session.Configure(t.Context(), queue, storage.Settings{Remove: true}))
	wantLines(t, path, 0)
}

// TestATaskWithoutItsLineBeginsItAgain deletes the row of a partition, and changes one of its two tasks. Describe names
// both, and a claim takes them.
func TestATaskWithoutItsLineBeginsItAgain(t *testing.T) {
	path := file(t)
	s := open(t, path)
	s.keyed(t, 2, "a")
	s.keyed(t, 1, "b")
	execute(t, path, "DELETE FROM midge_lines WHERE name = 'a'")
	wantWarning(t, s, "2 damaged tasks are left alone: a0, a1")
	task, err := s.store.Task(t.Context(), ref("a1"))
	must(t, err)
	_, err = s.session.ApplyOne(t.Context(), storage.Tx{Changes: []storage.Change{
		{Ref: task.Ref, Version: task.Version, Headers: map[string]string{"by": "hand"}},
	}})
	must(t, err)
	ids := s.completeAll(t)
	if slices.Sort(ids); fmt.Sprint(ids) != "[a0 a1 b0]" {
		t.Errorf("claimed %q, want all three", ids)
	}
	wantLines(t, path, 0)
}

// TestAPartitionWithinATransaction enqueues a task into a partition in transactions of the application's.
func TestAPartitionWithinATransaction(t *testing.T) {
	path := file(t)
	s := open(t, path)
	db := database(t, path, "&_txlock=immediate")
	in := job("a0")
	in.Partition = "a"
	for _, commits := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		joined := s.store.Within(tx)
		applied, err := joined.Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{in}})
		must(t, err)
		must(t, applied[0].Err)
		page, err := joined.Tasks(t.Context(), storage.TasksQuery{
			Queue: queue, State: storage.Waiting, Partition: "a", Limit: 10,
		})
		must(t, err)
		if len(page.Tasks) != 1 {
			t.Errorf("the transaction sees %d tasks in the partition, want 1", len(page.Tasks))
		}
		if commits {
			must(t, tx.Commit())
		} else {
			must(t, tx.Rollback())
			wantLines(t, path, 0)
		}
	}
	if ids := s.completeAll(t); fmt.Sprint(ids) != "[a0]" {
		t.Errorf("claimed %q, want a0", ids)
	}
	wantLines(t, path, 0)
}

// TestAClaimThatFindsOnlyFullPartitionsCountsNothing has claims that read so many partitions as there are,
// each of which is full, and then find that no other is behind them. Only a count of all tasks of the queue
// writes the sizes of lines whose tasks stay.
func TestAClaimThatFindsOnlyFullPartitionsCountsNothing(t *testing.T) {
	for parts := range 12 {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			s.limit(t, storage.Limit{Partition: storage.PartitionLimit{Concurrency: 1}})
			for i := range parts {
				s.keyed(t, 2, fmt.Sprint("key-", i, "-"))
			}
			if c, err := s.claimLong(t.Context(), parts+1); err != nil || len(c.Tasks) != parts {
				t.Fatalf("got %d tasks and error %v, want one of each partition", len(c.Tasks), err)
			}
			execute(t, path, "CREATE TABLE counted (line)")
			execute(t, path, "CREATE TRIGGER counting AFTER UPDATE OF tasks ON midge_lines "+
				"BEGIN INSERT INTO counted VALUES (NEW.line); END")
			for most := 1; most <= 3; most++ {
				if c, err := s.claimLong(t.Context(), most); err != nil || len(c.Tasks) != 0 {
					t.Fatalf("got %d tasks and error %v, want none of full partitions", len(c.Tasks), err)
				}
				var counted int
				must(t, database(t, path, "").QueryRowContext(t.Context(), "SELECT count(*) FROM counted").Scan(&counted))
				if counted > 0 {
					t.Fatalf("a claim of up to %d tasks counted the tasks of %d lines, want none", most, counted)
				}
			}
		})
	}
}
