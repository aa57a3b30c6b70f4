package modernc_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// claimAll makes long claims until one takes nothing, and returns the ids.
func (s *side) claimAll(t *testing.T) (ids []string) {
	t.Helper()
	for {
		c, err := s.claimLong(t.Context(), 10)
		must(t, err)
		if len(c.Tasks) == 0 {
			return ids
		}
		for i := range c.Tasks {
			ids = append(ids, c.Tasks[i].ID)
		}
	}
}

// TestADamagedColumnStopsNoClaim writes a value that no version of midge writes into a column of one
// task. The other task is claimed, and the damaged one is set apart.
func TestADamagedColumnStopsNoClaim(t *testing.T) {
	for _, damage := range []string{
		"priority = 9223372036854775807", "priority = 'high'", "sort = 'abc'", "sort = 1.5", "turn = x'00'",
		"version = 'abc'", "version = 9223372036854775807", "flags = 'abc'", "flags = 1048576", "flags = -1048576",
		"queue = 77", "created = 'abc'", "ended = x'ff'",
	} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			must(t, s.insert(t.Context(), "a", "b"))
			execute(t, path, "UPDATE midge_tasks SET "+damage+" WHERE id = 'a'")
			page, err := s.store.Tasks(t.Context(), storage.TasksQuery{Queue: queue, State: storage.Waiting, Limit: 10})
			must(t, err)
			if len(page.Tasks) != 1 || page.Tasks[0].ID != "b" || page.Next != "" {
				t.Errorf("listed %+v, want b alone", page)
			}
			for _, moment := range []string{"before", "after"} {
				_, err := s.store.Task(t.Context(), ref("a"))
				if want := storage.ErrDamaged; !errors.Is(err, want) && damage != "queue = 77" {
					t.Errorf("%s the claims the task is %v, want an ErrDamaged", moment, err)
				}
				if ids := s.claimAll(t); moment == "before" && (len(ids) != 1 || ids[0] != "b") {
					t.Fatalf("claimed %q, want b alone", ids)
				}
			}
			stats, err := s.store.Stats(t.Context(), queue)
			must(t, err)
			if got := stats[0]; got.Damaged != 1 || got.Waiting != 0 || got.Pending != 1 {
				t.Errorf("got %+v, want one task damaged and one pending", got)
			}
			wantWarning(t, s, "queue q has 1 damaged task, set apart: a")
		})
	}
}

// TestATaskOfNoQueueIsNamed moves a task to the number and the line of a queue that does not exist.
func TestATaskOfNoQueueIsNamed(t *testing.T) {
	path := file(t)
	s := open(t, path)
	must(t, s.insert(t.Context(), "a", "b"))
	execute(t, path, "UPDATE midge_tasks SET queue = 77, line = 77 * 16 + 1 WHERE id = 'a'")
	if ids := s.claimAll(t); len(ids) != 1 || ids[0] != "b" {
		t.Errorf("claimed %q, want b alone", ids)
	}
	wantWarning(t, s, "queue number 77")
}

// TestADamagedHoldStopsNobody damages the hold on the unique key of a task. While the task exists its
// key is held; then it is free.
func TestADamagedHoldStopsNobody(t *testing.T) {
	for _, damage := range []string{"until = 'abc'", "until = x'00'", "until = 1.5"} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			in := job("a")
			in.Unique = storage.Unique{Mode: storage.UniqueLife, Key: "key"}
			again := in
			again.Ref = ref("b")
			_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
			must(t, err)
			execute(t, path, "UPDATE midge_keys SET "+damage)
			_, err = s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{again}})
			if held, some := errors.AsType[*storage.DependencyError](err); !some || len(held.Colliding) != 1 {
				t.Errorf("while a waits: got %v, want its key held", err)
			}
			task, err := s.store.Task(t.Context(), ref("a"))
			must(t, err)
			_, err = s.session.ApplyOne(t.Context(), storage.Tx{
				Deletes: []storage.Delete{{Ref: task.Ref, Version: task.Version}},
			})
			must(t, err)
			_, err = s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{again}})
			must(t, err)
		})
	}
}

// TestADamagedLaneIsUnknown damages the record of a call in a lane, and repeats the call.
func TestADamagedLaneIsUnknown(t *testing.T) {
	for _, damage := range []string{"seq = 'abc'", "opened = 'abc'", "seq = x'00'", "verb = x'00'", "outcome = 'abc'"} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			call := storage.Call{Lane: storage.Lane{ID: [16]byte{1}, Opened: time.Now().Truncate(time.Microsecond)}, Seq: 1}
			tx := storage.Tx{Inserts: []storage.Insert{job("a")}}
			_, err := s.store.Apply(t.Context(), call, tx)
			must(t, err)
			execute(t, path, "UPDATE midge_lanes SET "+damage)
			if _, err = s.store.Apply(t.Context(), call, tx); !errors.Is(err, storage.ErrUnknown) {
				t.Errorf("got %v, want an ErrUnknown", err)
			}
			must(t, s.insert(t.Context(), "b"))
		})
	}
}

// TestARunnerWithADamagedMomentIsForgotten damages the moment at which a heartbeat expires.
func TestARunnerWithADamagedMomentIsForgotten(t *testing.T) {
	path := file(t)
	s := open(t, path)
	_, err := s.session.Extend(t.Context(), storage.ExtendRequest{
		Runner: storage.RunnerInfo{ID: "runner", For: time.Minute},
	})
	must(t, err)
	execute(t, path, "UPDATE midge_runners SET until = 'abc'")
	runners, err := s.store.Runners(t.Context())
	must(t, err)
	if len(runners) != 0 {
		t.Errorf("got %+v, want none", runners)
	}
}

// TestADamagedSettingStopsNoClaim writes texts and impossible numbers into the columns of queues and
// of meta.
func TestADamagedSettingStopsNoClaim(t *testing.T) {
	for _, damage := range []string{
		"midge_queues SET paused = 'no', paused_until = 'never'", "midge_queues SET touched = 'abc'",
		"midge_queues SET rings = x'00', alerts = 'abc'", "midge_meta SET mark = 'abc', clock = x'00'",
		"midge_meta SET mark = 9223372036854775807, clock = 9223372036854775807",
		"midge_meta SET jumped = 'abc'", "midge_queues SET operator = 'abc', declared = 7, starts = 'abc'",
		"midge_queues SET operator = 7, declared = ';1 0 0', starts = 7", "midge_queues SET operator = '-1 0 0'",
		"midge_queues SET rest = 'abc'", "midge_queues SET rest = 9223372036854775807",
	} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			must(t, s.insert(t.Context(), "a"))
			execute(t, path, "UPDATE "+damage)
			must(t, s.insert(t.Context(), "b"))
			if ids := s.claimAll(t); len(ids) != 2 {
				t.Errorf("claimed %q, want a and b", ids)
			}
			if _, err := s.store.Describe(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestADamagedLineOfAKindKeepsItsTasks damages the line of a kind that has declined tasks.
func TestADamagedLineOfAKindKeepsItsTasks(t *testing.T) {
	for _, damage := range []string{"turn = 'abc'", "sort = 'abc'", "tasks = 'abc'", "tasks = -1", "tasks = 0"} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			must(t, s.insert(t.Context(), "a", "b"))
			s.decline(t, 2)
			execute(t, path, "UPDATE midge_lines SET "+damage)
			c, err := s.session.Claim(t.Context(), storage.ClaimRequest{
				Runner: "runner", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 2, Lease: time.Second,
				Kinds: []string{"kind"},
			})
			must(t, err)
			if len(c.Tasks) != 2 {
				t.Errorf("claimed %d tasks of the kind, want 2", len(c.Tasks))
			}
		})
	}
}

// TestADeclinedTaskDiesOnceBesideADamagedOne lets two declined tasks wait too long; the second of
// them is damaged.
func TestADeclinedTaskDiesOnceBesideADamagedOne(t *testing.T) {
	path, ahead := file(t), time.Duration(0)
	s := opened(t, sqlite.Config{
		Path: path, Driver: modernc.Driver, Limits: storage.Limits{DeclinedFor: time.Hour},
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	must(t, s.insert(t.Context(), "a", "b"))
	s.decline(t, 2)
	execute(t, path, "UPDATE midge_tasks SET sort = 'abc' WHERE id = 'b'")
	var ended []storage.Ended
	for range 20 {
		ahead += 5 * time.Minute
		c, err := s.session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "runner", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 1, Lease: time.Minute,
			Kinds: []string{"other"},
		})
		must(t, err)
		ended = append(ended, c.Ended...)
	}
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	if got := stats[0]; len(ended) != 1 || got.Dead != 1 || got.Damaged != 1 || got.Waiting != 0 {
		t.Errorf("ended %v, and the queue says %+v; want a dead and b damaged", ended, got)
	}
}

// decline claims tasks and declines them.
func (s *side) decline(t *testing.T, most int) {
	t.Helper()
	c, err := s.claim(t.Context(), most)
	must(t, err)
	for _, fence := range c.Fences {
		_, err = s.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{
			{Fence: fence, Outcome: storage.Decline},
		}})
		must(t, err)
	}
}

// TestADamagedPlaceIsFoundInEachLine sets the place of one task of each line to a text that is no number.
func TestADamagedPlaceIsFoundInEachLine(t *testing.T) {
	path, ahead := file(t), time.Duration(0)
	s := opened(t, sqlite.Config{
		Path: path, Driver: modernc.Driver, MinLease: time.Second,
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	for id, settle := range map[string]storage.Settle{
		"scheduled": {Outcome: storage.Snooze, Delay: time.Minute}, "completed": {Outcome: storage.Complete},
		"retry": {Outcome: storage.Fail, Delay: time.Minute}, "dead": {Outcome: storage.Bury}, "pending": {},
	} {
		in := job(id)
		in.MaxRetries = 3
		_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
		must(t, err)
		c, err := s.claim(t.Context(), 1)
		must(t, err)
		if settle.Fence = c.Fences[0]; settle.Outcome != "" {
			_, err = s.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}})
			must(t, err)
		}
	}
	execute(t, path, "UPDATE midge_tasks SET sort = 'abc'")
	for range 3 {
		ahead += 50 * time.Second
		if ids := s.claimAll(t); len(ids) > 0 {
			t.Errorf("claimed %q, want none", ids)
		}
	}
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	if got := stats[0]; got.Damaged != 5 || got.Pending+got.Scheduled+got.Retry+got.Dead+got.Completed != 0 {
		t.Errorf("got %+v, want five tasks damaged", got)
	}
}

// TestDamagedCountsHideNoTask damages the sizes of a queue. Impossible sizes are counted anew.
func TestDamagedCountsHideNoTask(t *testing.T) {
	for _, counts := range []string{"garbage", "", "3", `{"Sizes":[0,-2]}`, `{"Sizes":"abc"}`} {
		t.Run(counts, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			must(t, s.insert(t.Context(), "a", "b"))
			execute(t, path, "UPDATE midge_queues SET counts = ?", counts)
			stats, err := s.store.Stats(t.Context(), queue)
			must(t, err)
			if stats[0].Waiting != 2 {
				t.Errorf("%d tasks wait, want 2", stats[0].Waiting)
			}
			if ids := s.claimAll(t); len(ids) != 2 {
				t.Errorf("claimed %q, want a and b", ids)
			}
		})
	}
}

// TestCountsThatAreTooLowHideNoTask sets the sizes of a queue to 0, although it has some tasks of
// each kind.
func TestCountsThatAreTooLowHideNoTask(t *testing.T) {
	path, ahead := file(t), time.Duration(0)
	s := opened(t, sqlite.Config{
		Path: path, Driver: modernc.Driver, MinLease: time.Second,
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	later := job("later")
	later.Delay = time.Second
	must(t, s.insert(t.Context(), "a", "b"))
	_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{later}})
	must(t, err)
	execute(t, path, "UPDATE midge_queues SET counts = '{}'")
	ahead = time.Minute + time.Second
	if ids := s.claimAll(t); len(ids) != 3 {
		t.Errorf("claimed %q, want all three", ids)
	}
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	if stats[0].Pending != 3 || stats[0].Waiting != 0 {
		t.Errorf("got %+v, want three tasks pending", stats[0])
	}
}

// TestAQueueWithTasksStays empties the counts of a queue, and lets two days pass. The queue stays,
// and then shows how many tasks it has.
func TestAQueueWithTasksStays(t *testing.T) {
	path := file(t)
	s := open(t, path)
	must(t, s.insert(t.Context(), "a"))
	remove := func() error { return s.session.Configure(t.Context(), queue, storage.Settings{Remove: true}) }
	execute(t, path, "UPDATE midge_queues SET counts = '{}'")
	if err := remove(); !errors.Is(err, storage.ErrNotEmpty) {
		t.Errorf("the queue was removed: %v, want an ErrNotEmpty", err)
	}
	execute(t, path, "UPDATE midge_queues SET counts = '{}', touched = touched - 172800000000")
	page, err := s.store.Queues(t.Context(), storage.QueuesQuery{Limit: 10})
	must(t, err)
	if len(page.Names) != 1 {
		t.Errorf("listed %q, want the queue", page.Names)
	}
	must(t, s.store.Close())
	s = open(t, path) // whose first claim inspects all queues
	var ids []string
	for range 3 {
		ids = append(ids, s.claimAll(t)...)
	}
	if len(ids) != 1 {
		t.Errorf("claimed %q, want a", ids)
	}
}

// TestADamagedEndedTaskEndsOnce damages a completed task. The totals do not count a second end.
func TestADamagedEndedTaskEndsOnce(t *testing.T) {
	path, ahead := file(t), time.Duration(0)
	s := opened(t, sqlite.Config{
		Path: path, Driver: modernc.Driver, MinLease: time.Second,
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	must(t, s.insert(t.Context(), "a"))
	c, err := s.claimLong(t.Context(), 1)
	must(t, err)
	must(t, s.complete(t.Context(), c.Fences[0]))
	execute(t, path, "UPDATE midge_tasks SET sort = 'abc'")
	for range 3 {
		ahead += 40 * time.Second
		s.claimAll(t)
	}
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	if got, want := stats[0].Totals, (storage.Totals{Enqueued: 1, Completed: 1}); got != want || stats[0].Damaged != 1 {
		t.Errorf("got %+v and %d damaged, want %+v and 1", got, stats[0].Damaged, want)
	}
}

// TestANewTaskHasNothingOfADeletedOne has a row in sides whose task a tool deleted, and new tasks that have its number.
func TestANewTaskHasNothingOfADeletedOne(t *testing.T) {
	path := file(t)
	s := open(t, path)
	for number := 1; number <= 3; number++ {
		execute(t, path, "INSERT INTO midge_sides VALUES (?, ?, 'stack', 'result', 'progress', 'checkpoint')", number,
			`[{"Error":"secret"}]`)
	}
	_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{job("a"), job("b")}})
	must(t, err)
	must(t, s.insert(t.Context(), "c"))
	c, err := s.claimLong(t.Context(), 1)
	must(t, err)
	_, err = s.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{
		{Fence: c.Fences[0], Outcome: storage.Fail, Delay: time.Hour, Error: "own"},
	}})
	must(t, err)
	for _, id := range []string{"a", "b", "c"} {
		task, err := s.store.Task(t.Context(), ref(id))
		must(t, err)
		if len(task.Stack)+len(task.Result)+len(task.Progress)+len(task.Checkpoint) > 0 {
			t.Errorf("%s has the data of a deleted task: %+v", id, task)
		}
		if want := map[string]int{"a": 1}[id]; len(task.Attempts) != want {
			t.Errorf("%s has %d attempts, want %d", id, len(task.Attempts), want)
		}
	}
}

// TestAKeyOfADeletedRowIsFree deletes the row of a task with a unique key, as an operator deletes a damaged one.
func TestAKeyOfADeletedRowIsFree(t *testing.T) {
	path := file(t)
	s := open(t, path)
	in := job("a")
	in.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
	_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
	must(t, err)
	execute(t, path, "DELETE FROM midge_tasks")
	in.Ref = ref("b")
	_, err = s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
	must(t, err)
	in.Ref = ref("c")
	if _, err = s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err == nil {
		t.Error("two tasks have one key")
	}
}

// TestTheRemedyOfADamagedTask carries out the statements of the document about trouble.
func TestTheRemedyOfADamagedTask(t *testing.T) {
	text, err := os.ReadFile("../../../docs/troubleshooting.md")
	must(t, err)
	_, behind, found := strings.Cut(string(text), "```sql\n  BEGIN IMMEDIATE;\n  DELETE FROM midge_sides")
	statements, _, ended := strings.Cut(behind, "```")
	if !found || !ended {
		t.Fatal("the document has no statements")
	}
	statements = "BEGIN IMMEDIATE; DELETE FROM midge_sides" + strings.ReplaceAll(statements, "'mail'", "'"+queue+"'")
	path, ahead := file(t), time.Duration(0)
	s := opened(t, sqlite.Config{
		Path: path, Driver: modernc.Driver, MinLease: time.Second,
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	in := job("a1")
	in.MaxRetries, in.Unique = 1, storage.Unique{Key: "customer", Mode: storage.UniqueLife}
	_, err = s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in, job("b")}})
	must(t, err)
	c, err := s.claimLong(t.Context(), 1)
	must(t, err)
	_, err = s.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{
		{Fence: c.Fences[0], Outcome: storage.Fail, Error: "about a customer"},
	}})
	must(t, err)
	execute(t, path, "UPDATE midge_tasks SET lease = x'00', version = 'abc' WHERE id = 'a1'")
	s.claimAll(t)
	execute(t, path, statements)
	ahead = time.Minute + time.Second
	s.claimAll(t)
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	var tasks, sides, keys int
	db := database(t, path, "")
	must(t, db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM midge_tasks), "+
		"(SELECT count(*) FROM midge_sides), (SELECT count(*) FROM midge_keys)").Scan(&tasks, &sides, &keys))
	if stats[0].Damaged != 0 || stats[0].Pending != 1 || tasks != 1 || sides != 0 || keys != 0 {
		t.Errorf("%d are damaged and %d pending, with %d rows, %d sides and %d keys; want 0, 1, 1, 0 and 0",
			stats[0].Damaged, stats[0].Pending, tasks, sides, keys)
	}
	d, err := s.store.Describe(t.Context())
	must(t, err)
	if strings.Contains(strings.Join(d.Warnings, ""), "set apart") {
		t.Errorf("the warnings are %q, want none of a damaged task", d.Warnings)
	}
}
