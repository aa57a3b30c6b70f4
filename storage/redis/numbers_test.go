package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestADamagedSweepOfLanesRefusesNoLane: the field belongs to the lanes of all queues, and the next sweep writes it anew.
func TestADamagedSweepOfLanesRefusesNoLane(t *testing.T) {
	for _, value := range []string{"", "x", "nan"} {
		j := newJumping(t)
		j.apply(insertOf("mail", "a"))
		key := j.s.keys.key("mail", lanesKey)
		j.server.HSet(key, "", value)
		j.opened = j.now.Add(-time.Second) // a lane that nobody knows
		j.apply(insertOf("bulk", "b"))
		j.opened = j.now.Add(-2 * time.Second)
		if claimed, err := j.s.Claim(t.Context(), asking(j.call(), 2, "mail", "bulk")); err != nil || len(claimed.Tasks) != 2 {
			t.Errorf("swept up to %q: claimed %d tasks, %v, want 2", value, len(claimed.Tasks), err)
		}
		for after := time.Duration(0); after <= storage.LaneLife+storage.JumpAfter; after += storage.JumpAfter / 2 {
			j.at(after)
			j.opened = j.now
			j.apply(insertOf("mail", fmt.Sprint("at-", int(after.Seconds()))))
		}
		if got := j.server.HGet(key, ""); got <= "1" || got >= "A" {
			t.Errorf("swept up to %q: a sweep has left %q, want a moment", value, got)
		}
	}
}

// damagedNumbers are texts that no step writes for a number that counts something. Lua takes most of them for numbers.
var damagedNumbers = []string{"x", "nan", "-nan", "-1", "inf", "-inf", "1.5", "1e300", ""}

// TestADamagedNumberOfVoidEntriesFreesNoTask: a task that was put off waits on, and all others are claimed.
func TestADamagedNumberOfVoidEntriesFreesNoTask(t *testing.T) {
	for _, general := range []bool{false, true} {
		for _, field := range []string{"void", "tail"} {
			for _, odd := range []string{"", "1"} {
				if field == "tail" && (general || odd == "") {
					continue // the short claim alone reads the field, and only in a queue that had a suspect
				}
				for _, value := range damagedNumbers {
					t.Run(fmt.Sprint(field, odd, general, value), func(t *testing.T) {
						claimsBesideVoid(t, general, field, odd, value)
					})
				}
			}
		}
	}
}

// delayBy changes the delay of a task several times. With 0 the task waits again.
func delayBy(t *testing.T, s *Storage, id string, delays ...time.Duration) {
	t.Helper()
	ref := storage.Ref{Queue: "mail", ID: id}
	for _, d := range delays {
		task, err := s.Task(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		tx := storage.Tx{Changes: []storage.Change{{Ref: ref, Version: task.Version, Delay: d, Now: d == 0}}}
		if applied, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil || applied[0].Err != nil {
			t.Fatal(applied, err)
		}
	}
}

// claimsBesideVoid claims the tasks of a queue one by one. One of them was put off, and then a field was damaged.
func claimsBesideVoid(t *testing.T, general bool, field, odd, value string) {
	t.Helper()
	s, server := openMiniBy(t, general)
	for i := range 6 {
		if _, err := s.Apply(t.Context(), callOf(uint64(i+1)), insertOf("mail", fmt.Sprint("t", i))); err != nil {
			t.Fatal(err)
		}
	}
	if field == "void" {
		delayBy(t, s, "t3", time.Hour, 0, time.Hour) // has two void entries in the line
	}
	if claimed, err := s.Claim(t.Context(), asking(callOf(8), 1, "mail")); err != nil || len(claimed.Tasks) != 1 {
		t.Fatalf("claimed %v, %v, want one", claimed.Tasks, err)
	}
	server.HSet("midge:{mail}:meta", field, value)
	if odd != "" {
		server.HSet("midge:{mail}:meta", "odd", odd)
	}
	want := []string{"t1", "t2", "t4", "t5"}
	if field == "tail" {
		want = []string{"t1", "t2", "t3", "t4", "t5"}
	}
	var got []string
	for i := range 6 {
		claimed, err := s.Claim(t.Context(), asking(callOf(uint64(9+i)), 1, "mail"))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range claimed.Tasks {
			got = append(got, task.ID)
		}
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Waiting != 0 || field == "void" && stats[0].Damaged != 0 {
		t.Errorf("in the end: got %+v, %v, want none that waits, and no damage of %s", stats[0], err, field)
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %q, want %q", got, want)
	}
}

// TestALostCountOfAGroupHoldsNoTask: after a completion the tasks that are left in the group are still recovered.
func TestALostCountOfAGroupHoldsNoTask(t *testing.T) {
	for _, general := range []bool{false, true} {
		for _, value := range append(slices.Clone(damagedNumbers), "0", "lost") {
			t.Run(fmt.Sprint(value, general), func(t *testing.T) { losesItsCount(t, general, value) })
		}
	}
}

func losesItsCount(t *testing.T, general bool, value string) {
	t.Helper()
	s, server := openMiniBy(t, general)
	fill(t, s, "mail", 6)
	c, err := s.Claim(t.Context(), asking(callOf(1), 6, "mail"))
	if err != nil || len(c.Fences) != 6 {
		t.Fatalf("claimed %d, %v, want 6", len(c.Fences), err)
	}
	for _, field := range countsOfGroups(t, server) {
		server.HDel("midge:{mail}:claims", field)
		if value != "lost" {
			server.HSet("midge:{mail}:claims", field, value)
		}
	}
	tx := storage.Tx{Settles: []storage.Settle{
		{Fence: c.Fences[0], Outcome: storage.Complete}, {Fence: c.Fences[1], Outcome: storage.Complete},
	}}
	if applied, err := s.Apply(t.Context(), callOf(2), tx); err != nil || applied[0].Err != nil {
		t.Fatal(applied, err)
	}
	server.SetTime(time.Now().Add(2 * time.Minute))
	if _, err := s.Claim(t.Context(), asking(callOf(3), 0, "mail")); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Pending != 0 || stats[0].Waiting != 4 {
		t.Errorf("after the leases: got %+v, %v, want 4 waiting", stats, err)
	}
}

// TestADamagedNumberHoldsNoTaskBack: whichever number of a queue is damaged, tasks are inserted, claimed and
// completed, and fall due.
func TestADamagedNumberHoldsNoTaskBack(t *testing.T) {
	for _, field := range []string{
		"mark", "clock", "jumped", "tail", "turn", "void", "soon", "due", "odd", "paused", "rest", "cancels",
		"touched", "lines", "own", "looks", "reindex", "reindexed", "enqueued", "completed",
	} {
		for _, value := range damagedNumbers {
			if field == "paused" && value == "-1" || field == "lines" && value == "-1" {
				continue // which steps write
			}
			t.Run(field+value, func(t *testing.T) { worksBeside(t, field, value) })
		}
	}
}

func worksBeside(t *testing.T, field, value string) {
	t.Helper()
	j := newJumping(t)
	j.insert("later", time.Minute)
	j.apply(insertOf("mail", "a"))
	complete := func(c storage.Claimed) {
		t.Helper()
		var ends []storage.Tx
		for _, f := range c.Fences {
			ends = append(ends, settleOf(f, storage.Complete))
		}
		j.apply(ends...)
	}
	complete(j.want("before", j.claim(), "a")) // after it nothing is due before later
	damage := func() { j.server.HSet("midge:{mail}:meta", field, value) }
	damage()
	first := insertOf("mail", "first")
	first.Inserts[0].Priority = 1
	j.apply(first)
	damage()
	j.apply(insertOf("mail", "b"))
	damage()
	c := j.want("beside the damage", j.claim(), "first", "b")
	damage()
	complete(c)
	damage()
	j.at(2 * time.Minute)
	c = j.want("when it is due", j.claim(), "later")
	damage()
	complete(c)
	if stats, err := j.s.Stats(t.Context(), "mail"); err != nil || stats[0].Waiting+stats[0].Pending != 0 {
		t.Errorf("in the end: got %+v, %v, want no task", stats, err)
	}
}

// TestADamagedNumberOfDeclinedTasksHidesNone: a claim of their kind takes them all the same.
func TestADamagedNumberOfDeclinedTasksHidesNone(t *testing.T) {
	for _, value := range append(slices.Clone(damagedNumbers), "0+x", "1+"+strings.Repeat("9", 400)) {
		s, server := openMini(t)
		session := storage.NewSession(s, testserver.Patience)
		declining(t, session, "kind", 2)
		before := server.HGet("midge:{mail}:side", "l:kkind")
		server.HSet("midge:{mail}:side", "l:kkind", before[:placeSize]+value)
		claimed, err := session.Claim(t.Context(), claimOfKind("kind", 1))
		if err != nil || len(claimed.Tasks) != 1 || !claimed.More {
			t.Errorf("%q: claimed %d, more %v, %v, want one and more", value, len(claimed.Tasks), claimed.More, err)
		}
	}
}

// TestADamagedNumberOfALaneRefusesNoCall: the lane counts as a lane that had no call.
func TestADamagedNumberOfALaneRefusesNoCall(t *testing.T) {
	for _, value := range damagedNumbers {
		s, server := openMini(t)
		fill(t, s, "mail", 2)
		for seq := range uint64(2) {
			claimed, err := s.Claim(t.Context(), asking(callOf(seq+1), 1, "mail"))
			if err != nil || len(claimed.Tasks) != 1 {
				t.Fatalf("%q, call %d: claimed %d, %v, want one", value, seq, len(claimed.Tasks), err)
			}
			lanes := s.keys.key("mail", lanesKey)
			fields, err := server.HKeys(lanes)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range fields {
				server.HSet(lanes, field, value+":C")
			}
		}
	}
}

// TestADamagedPlaceOfTheWalkStopsNoClaim: the walk through the records begins anew.
func TestADamagedPlaceOfTheWalkStopsNoClaim(t *testing.T) {
	for _, value := range damagedNumbers {
		_, server, session := tended(t)
		insertAll(t, session, keyedOf("a", "a0"))
		server.Del("midge:{mail}:lines")
		server.Del("midge:{mail}:ring")
		server.HSet("midge:{mail}:side", "t:", value)
		got := completedOf(t, session, 9)
		got = append(got, completedOf(t, session, 9)...)
		if !slices.Equal(got, []string{"a0"}) {
			t.Errorf("%q: claimed %v, want a0", value, got)
		}
	}
}

// TestADamagedNumberOnRedis: the Lua of Redis takes "nan" and "inf" for numbers, that of a miniredis does not.
func TestADamagedNumberOnRedis(t *testing.T) {
	testserver.Require(t)
	s, err := Open(t.Context(), Config{URL: testserver.Redis(t).URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, field := range []string{"mark", "tail", "turn", "void", "soon", "due", "touched", "lines", "enqueued", "completed"} {
		for _, value := range []string{"nan", "-1", "inf"} {
			if field != "lines" || value != "-1" { // which steps write
				t.Run(field+value, func(t *testing.T) { worksOnRedis(t, s, field+value, field, value) })
			}
		}
	}
	for _, value := range []string{"nan", "-1", "inf"} {
		t.Run("declined"+value, func(t *testing.T) { declinesOnRedis(t, s, "declined"+value, value) })
	}
}

// worksOnRedis takes the steps of a queue while one of its numbers is damaged.
func worksOnRedis(t *testing.T, s *Storage, queue, field, value string) {
	t.Helper()
	session := storage.NewSession(s, testserver.Patience)
	damage := func() {
		if err := s.client.HSet(t.Context(), s.keys.key(queue, metaKey), field, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	take := func(n int) {
		damage()
		c, err := session.Claim(t.Context(), asking(storage.Call{}, n, queue))
		if err != nil {
			t.Fatal(err)
		}
		damage()
		for _, f := range c.Fences {
			got = append(got, f.ID)
			insertAll(t, session, settleOf(f, storage.Complete))
		}
	}
	insertAll(t, session, insertOf(queue, "a"), insertOf(queue, "off"))
	take(1)
	task, err := s.Task(t.Context(), storage.Ref{Queue: queue, ID: "off"})
	if err != nil {
		t.Fatal(err)
	}
	later, first := insertOf(queue, "later"), insertOf(queue, "first")
	later.Inserts[0].Delay, first.Inserts[0].Priority = 200*time.Millisecond, 1
	putOff := storage.Change{Ref: task.Ref, Version: task.Version, Delay: time.Hour}
	insertAll(t, session, storage.Tx{Changes: []storage.Change{putOff}}, later)
	due, err := s.Task(t.Context(), later.Inserts[0].Ref)
	if err != nil {
		t.Fatal(err)
	}
	take(1)
	for _, tx := range []storage.Tx{first, insertOf(queue, "b")} {
		damage()
		insertAll(t, session, tx)
	}
	for range 3 {
		take(1)
	}
	testserver.Await(t, "later is due when a claim begins", func() bool {
		now, err := s.time(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		take(2)
		return !now.Before(due.Due)
	})
	slices.Sort(got)
	if want := []string{"a", "b", "first", "later"}; !slices.Equal(got, want) {
		t.Errorf("claimed %q, want %q", got, want)
	}
}

// declinesOnRedis claims two declined tasks, the number of which is damaged.
func declinesOnRedis(t *testing.T, s *Storage, queue, value string) {
	t.Helper()
	session := storage.NewSession(s, testserver.Patience)
	insertAll(t, session, insertOf(queue, "a"), insertOf(queue, "b"))
	req := asking(storage.Call{}, 2, queue)
	req.Kinds = []string{"other"}
	c, err := session.Claim(t.Context(), req)
	if err != nil || len(c.Fences) != 2 {
		t.Fatalf("claimed %d, %v, want 2", len(c.Fences), err)
	}
	insertAll(t, session, settleOf(c.Fences[0], storage.Decline), settleOf(c.Fences[1], storage.Decline))
	side := s.keys.key(queue, sideKey)
	before, err := s.client.HGet(t.Context(), side, "l:kjob").Result()
	if err == nil {
		err = s.client.HSet(t.Context(), side, "l:kjob", before[:placeSize]+value).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []bool{true, false} {
		req := asking(storage.Call{}, 1, queue)
		req.Kinds = []string{"job"}
		if c, err := session.Claim(t.Context(), req); err != nil || len(c.Fences) != 1 || c.More != more {
			t.Errorf("claimed %d, more %v, %v, want one, more %v", len(c.Fences), c.More, err, more)
		}
	}
}
