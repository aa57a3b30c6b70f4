package redis

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestWhatFallsDueAtOnceComesInItsOrder: tasks that fall due at the same time are claimed in their order,
// over as many claims as it takes, and a damaged record among them does not delay them.
func TestWhatFallsDueAtOnceComesInItsOrder(t *testing.T) {
	const n = 700
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	at := now.Add(200 * time.Millisecond)
	txs := make([]storage.Tx, n)
	for i := range txs {
		txs[i] = insertOf("mail", fmt.Sprintf("t%04d", n-i)) // not the order of the ids
		txs[i].Inserts[0].At = at
	}
	if _, err := s.Apply(t.Context(), callOf(1), txs...); err != nil {
		t.Fatal(err)
	}
	server.HSet("midge:{mail}:tasks", "t0250", "damaged")
	server.SetTime(at)
	var got []string
	for seq := uint64(2); len(got) < n-1; seq++ {
		c, err := s.Claim(t.Context(), asking(callOf(seq), 1000, "mail"))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Tasks) > 0 && len(got)+len(c.Tasks) < n-1 && !c.More {
			t.Errorf("after %d tasks no more are told of", len(got)+len(c.Tasks))
		}
		for i := range c.Tasks {
			got = append(got, c.Tasks[i].ID)
		}
	}
	next := 0
	for _, id := range got {
		if next == 450 {
			next++
		}
		if want := fmt.Sprintf("t%04d", n-next); id != want {
			t.Fatalf("claimed %s, want %s", id, want)
		}
		next++
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Damaged != 1 || stats[0].Pending != n-1 {
		t.Errorf("got %d damaged and %d pending, %v, want 1 and %d", stats[0].Damaged, stats[0].Pending, err, n-1)
	}
}

// TestTheSameMomentKeepsTheOrderOfSteps: tasks of the same moment keep the order in which steps put them
// there, in listings, promotions and the trimming of dead tasks, whatever changed the tasks meanwhile.
func TestTheSameMomentKeepsTheOrderOfSteps(t *testing.T) {
	j := newJumping(t)
	at := j.begun.Add(time.Minute)
	due := func(id string) storage.Insert {
		in := insertOf("mail", id).Inserts[0]
		in.At = at
		return in
	}
	j.apply(insertOf("mail", "retry"))
	held := j.claim().Fences[0]
	j.apply(storage.Tx{Inserts: []storage.Insert{due("z"), due("y"), due("m")}}, storage.Tx{Inserts: []storage.Insert{due("x")}})
	fail := settleOf(held, storage.Fail)
	fail.Settles[0].Delay = time.Minute
	j.apply(fail)
	j.apply(storage.Tx{Inserts: []storage.Insert{due("a"), due("moved"), due("c"), due("b"), due("gone")}})
	change := func(id string, ch storage.Change) {
		t.Helper()
		task, err := j.s.Task(t.Context(), storage.Ref{Queue: "mail", ID: id})
		if err != nil {
			t.Fatal(err)
		}
		ch.Ref, ch.Version = task.Ref, task.Version
		j.apply(storage.Tx{Changes: []storage.Change{ch}})
	}
	change("y", storage.Change{Headers: map[string]string{"a": "b"}}) // stays in its place
	change("z", storage.Change{At: at})                               // likewise
	change("c", storage.Change{Delay: time.Hour})
	change("c", storage.Change{At: at}) // comes back, behind the others
	change("moved", storage.Change{Queue: "bulk"})
	change("gone", storage.Change{Cancel: true})
	want := []string{"z", "y", "m", "x", "a", "b", "c"}
	for _, size := range []int{1, 2, 50} {
		got := j.pages(storage.Scheduled, size)
		if !slices.Equal(got, want) {
			t.Errorf("listed in pages of %d: %v, want %v", size, got, want)
		}
	}
	j.at(time.Minute)
	c := j.want("due", j.claim("bulk"), "z", "y", "m", "x", "retry", "a", "b", "c", "moved")
	j.bounded(5, j.s.limits.DeadFor)
	var bury storage.Tx
	for _, f := range c.Fences[:8] {
		bury.Settles = append(bury.Settles, storage.Settle{Fence: f, Outcome: storage.Bury})
	}
	j.apply(bury)
	j.claim() // trims
	for _, size := range []int{1, 2, 50} {
		got := j.pages(storage.Dead, size)
		if want := []string{"x", "retry", "a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("dead tasks in pages of %d: %v, want %v", size, got, want)
		}
	}
	for _, key := range []string{"scheduled", "retry", "cancelled"} {
		if left, err := j.server.ZMembers("midge:{mail}:" + key); err == nil {
			t.Errorf("%s is left with %q", key, left)
		}
	}
}

// TestWhatFallsDueDuringAClaimIsNotForgotten: a claim reads the clock for its maintenance, and again
// when it computes the next due moment. A task that falls due between the two is due at once.
func TestWhatFallsDueDuringAClaimIsNotForgotten(t *testing.T) {
	testserver.Require(t)
	store, err := Open(t.Context(), Config{URL: "redis://" + testserver.Redis(t).Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, testserver.Patience)
	const tasks = 8
	for round := range 200 {
		queue := fmt.Sprintf("q%d", round)
		var tx storage.Tx
		for i := range tasks {
			in := insertOf(queue, fmt.Sprintf("t%d", i)).Inserts[0]
			in.Delay = time.Millisecond + time.Duration(i)*50*time.Microsecond
			tx.Inserts = append(tx.Inserts, in)
		}
		if _, err := session.ApplyOne(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		req := storage.ClaimRequest{
			Runner: "runner", Queues: []storage.ClaimQueue{{Name: queue}}, Start: tasks, Lease: time.Minute,
		}
		got := 0
		testserver.Await(t, "all tasks are due and claimed", func() bool {
			claimed, err := session.Claim(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			got += len(claimed.Tasks)
			return got == tasks
		})
	}
}

// TestATaskInTwoSetsFallsDueOnce: damage has left a scheduled task in the set of retried tasks too. It joins
// the line once.
func TestATaskInTwoSetsFallsDueOnce(t *testing.T) {
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	at := now.Add(200 * time.Millisecond)
	tx := insertOf("mail", "t1")
	tx.Inserts[0].At = at
	if _, err := s.Apply(t.Context(), callOf(1), tx); err != nil {
		t.Fatal(err)
	}
	members, err := server.ZMembers("midge:{mail}:scheduled")
	if err != nil || len(members) != 1 {
		t.Fatalf("%q is scheduled, %v; want one task", members, err)
	}
	if _, err := server.ZAdd("midge:{mail}:retry", float64(at.UnixMicro()), members[0]); err != nil {
		t.Fatal(err)
	}
	server.SetTime(at)
	c, err := s.Claim(t.Context(), asking(callOf(2), 10, "mail"))
	line, _ := server.List("midge:{mail}:line")
	if err != nil || len(c.Tasks) != 1 || len(line) != 0 {
		t.Errorf("%d tasks are claimed, %q are left in the line, %v; want 1 and none", len(c.Tasks), line, err)
	}
}

// bounded has a queue keep at most so many dead tasks, for so long.
func (j *jumping) bounded(deadMax int, deadFor time.Duration) {
	j.Helper()
	limits := j.s.limits
	limits.DeadMax, limits.DeadFor = deadMax, deadFor
	scripts, err := loadScripts(nil, limits, ways{})
	if err != nil {
		j.Fatal(err)
	}
	j.s.scripts = scripts
}

// TestADeadTaskWhoseTimeIsOverIsNotEvicted: a task that dies while a queue has too many takes the place of the oldest,
// whose time was over already. Evicted counts only dead tasks that went before their time.
func TestADeadTaskWhoseTimeIsOverIsNotEvicted(t *testing.T) {
	j := newJumping(t)
	j.bounded(1, 2*time.Second)
	for _, id := range []string{"a", "b", "c"} {
		j.insert(id, 0)
	}
	c := j.claim()
	for i, want := range []int64{0, 0, 1} {
		j.apply(storage.Tx{Settles: []storage.Settle{{Fence: c.Fences[i], Outcome: storage.Bury}}})
		stats, err := j.s.Stats(t.Context(), "mail")
		if err != nil || stats[0].Dead != 1 || stats[0].Totals.Evicted != want {
			t.Errorf("%s died: %d are dead, %d evicted, %v; want one and %d",
				c.Fences[i].ID, stats[0].Dead, stats[0].Totals.Evicted, err, want)
		}
		if i == 0 {
			j.at(3 * time.Second)
		}
	}
}

// TestAMemberOfAnotherPlaceMovesNoTask: a torn append-only file can leave a member of a set behind whose task has gone
// on since. The member is set apart when its moment comes, and the task stays as it is.
func TestAMemberOfAnotherPlaceMovesNoTask(t *testing.T) {
	for _, c := range []struct {
		state string
		score float64
		most  int // dead tasks
	}{
		{"scheduled", 1, 9}, {"retry", 1, 9}, {"completed", 1, 9}, {"cancelled", 1, 9}, {"dead", 1, 9}, {"dead", never, 1},
	} {
		t.Run(fmt.Sprint(c.state, c.most), func(t *testing.T) {
			j := newJumping(t)
			j.bounded(c.most, j.s.limits.DeadFor)
			j.insert("later", 10*time.Second)
			j.insert("runs", 0)
			keyed := keyedOf("p", "keyed")
			keyed.Inserts[0].Keep.For = time.Hour
			j.apply(keyed)
			held := j.claim()
			j.insert("waits", 0)
			before := j.tasks()
			ids := []string{"runs", "keyed", "waits", "later"}
			for _, id := range ids {
				if _, err := j.server.ZAdd("midge:{mail}:"+c.state, c.score, "\x00\x00\x00\x00\x00\x03\xe7"+id); err != nil {
					t.Fatal(err)
				}
			}
			j.server.HSet("midge:{mail}:meta", "soon", "0")
			waits := j.want("the others still run", j.claim(), "waits")
			if after := j.tasks(); !maps.Equal(after, before) {
				t.Errorf("the records are\n%q\nwant\n%q", after, before)
			}
			j.at(11 * time.Second)
			later := j.want("when it is due", j.claim(), "later")
			for _, f := range slices.Concat(held.Fences, waits.Fences, later.Fences) {
				j.apply(storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
			}
			stats, err := j.s.Stats(t.Context(), "mail")
			totals := stats[0].Totals
			if err != nil || totals.Completed != 4 || totals.Deleted+totals.Evicted != 0 || stats[0].Damaged < 3 {
				t.Errorf("got %+v, %v, want four tasks completed, none deleted, and the members damaged", stats[0], err)
			}
		})
	}
}

// tasks returns the records of mail.
func (j *jumping) tasks() map[string]string {
	j.Helper()
	all, err := j.s.client.HGetAll(j.Context(), j.s.keys.key("mail", tasksKey)).Result()
	if err != nil {
		j.Fatal(err)
	}
	return all
}
