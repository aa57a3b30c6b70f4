package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestADamagedNumberOfVoidEntriesFreesNoTask: a task that was put off waits on, and all others are claimed.
func TestADamagedNumberOfVoidEntriesFreesNoTask(t *testing.T) {
	for _, general := range []bool{false, true} {
		for _, field := range []string{"void", "tail"} {
			for _, odd := range []string{"", "1"} {
				if field == "tail" && (general || odd == "") {
					continue // the short claim alone reads the field, and only in a queue that had a suspect
				}
				t.Run(fmt.Sprint(field, odd, general), func(t *testing.T) {
					claimsBesideVoid(t, general, field, odd)
				})
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
func claimsBesideVoid(t *testing.T, general bool, field, odd string) {
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
	server.HSet("midge:{mail}:meta", field, "x")
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
	s, server, c := claimed(t, 6, time.Minute)
	fields, err := server.HKeys("midge:{mail}:claims")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fields {
		if strings.HasPrefix(field, countSign) {
			server.HDel("midge:{mail}:claims", field)
		}
	}
	tx := storage.Tx{Settles: []storage.Settle{{Fence: c.Fences[0], Outcome: storage.Complete}}}
	if applied, err := s.Apply(t.Context(), callOf(2), tx); err != nil || applied[0].Err != nil {
		t.Fatal(applied, err)
	}
	server.SetTime(time.Now().Add(2 * time.Minute))
	if _, err := s.Claim(t.Context(), asking(callOf(3), 0, "mail")); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Pending != 0 || stats[0].Waiting != 5 {
		t.Errorf("after the leases: got %+v, %v, want 5 waiting", stats, err)
	}
}
