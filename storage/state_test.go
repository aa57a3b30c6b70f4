package storage_test

import (
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestStates(t *testing.T) {
	for _, s := range storage.States() {
		if !s.Valid() {
			t.Errorf("%q: not valid, want every listed state to be", s)
		}
		want := s == storage.Completed || s == storage.Cancelled || s == storage.Dead
		if s.Ended() != want {
			t.Errorf("%q has ended: got %v, want %v", s, s.Ended(), want)
		}
	}
	for _, s := range []storage.State{"", "running", "Waiting"} {
		if s.Valid() {
			t.Errorf("%q: valid, want only listed states to be", s)
		}
	}
}

func TestSettledState(t *testing.T) {
	for _, c := range []struct {
		outcome        storage.Outcome
		asked          bool
		retries, limit int
		want           storage.State
	}{
		{storage.Complete, false, 0, 3, storage.Completed},
		{storage.Complete, true, 0, 3, storage.Completed},
		{storage.Fail, false, 0, 3, storage.Retry},
		{storage.Fail, false, 2, 3, storage.Retry},
		{storage.Fail, false, 3, 3, storage.Dead},
		{storage.Fail, false, 9, 3, storage.Dead}, // the limit was lowered meanwhile
		{storage.Fail, false, 0, 0, storage.Dead},
		{storage.Fail, true, 0, 3, storage.Cancelled},
		{storage.Fail, true, 3, 3, storage.Cancelled},
		{storage.Snooze, false, 9, 0, storage.Scheduled},
		{storage.Snooze, true, 0, 3, storage.Cancelled},
		{storage.Release, false, 9, 0, storage.Waiting},
		{storage.Release, true, 0, 3, storage.Cancelled},
		{storage.Bury, false, 0, 3, storage.Dead},
		{storage.Bury, true, 0, 3, storage.Cancelled},
		{storage.Cancel, false, 0, 3, storage.Cancelled},
		{storage.Cancel, true, 0, 3, storage.Cancelled},
	} {
		if got := storage.SettledState(c.outcome, c.asked, c.retries, c.limit); got != c.want {
			t.Errorf("%s, cancel asked %v, %d of %d retries: got %s, want %s",
				c.outcome, c.asked, c.retries, c.limit, got, c.want)
		}
	}
}

func TestRecoveredState(t *testing.T) {
	for _, c := range []struct {
		asked, started bool
		crashes, limit int
		want           storage.State
		charged        bool
	}{
		{false, true, 0, 3, storage.Waiting, true},
		{false, true, 1, 3, storage.Waiting, true},
		{false, true, 2, 3, storage.Dead, true},
		{false, true, 0, 1, storage.Dead, true},
		{false, true, 9, 3, storage.Dead, true},
		{false, false, 2, 3, storage.Waiting, false},
		{false, false, 0, 1, storage.Waiting, false},
		{true, true, 0, 3, storage.Cancelled, true},
		{true, true, 2, 3, storage.Cancelled, true},
		{true, false, 0, 3, storage.Cancelled, false},
	} {
		to, charged := storage.RecoveredState(c.asked, c.started, c.crashes, c.limit)
		if to != c.want || charged != c.charged {
			t.Errorf("%+v: got %s, charged %v", c, to, charged)
		}
	}
}

func TestSuspect(t *testing.T) {
	for _, c := range []struct {
		crashes, limit int
		want           bool
	}{{0, 1, false}, {0, 3, false}, {1, 3, false}, {2, 3, true}, {1, 2, true}, {3, 3, false}, {0, 2, false}} {
		if got := storage.Suspect(c.crashes, c.limit); got != c.want {
			t.Errorf("%d crashes of %d: got suspect %v, want %v", c.crashes, c.limit, got, c.want)
		}
	}
}

func TestPassedOver(t *testing.T) {
	for _, c := range []struct {
		crashes, limit int
		startOnly      bool
		want           string
	}{
		{0, 3, false, ""},
		{0, 3, true, storage.PassedOverStartOnly},
		{1, 3, true, storage.PassedOverStartOnly},
		{2, 3, false, storage.PassedOverSuspect},
		{2, 3, true, storage.PassedOverSuspect},
	} {
		if got := storage.PassedOver(c.crashes, c.limit, c.startOnly); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

func TestPermitted(t *testing.T) {
	five := 5
	live := []storage.State{storage.Waiting, storage.Scheduled, storage.Retry}
	ended := []storage.State{storage.Completed, storage.Cancelled, storage.Dead}
	for _, c := range []struct {
		change storage.Change
		want   []storage.State
		target storage.State // of a dead task
	}{
		{storage.Change{}, append(live, storage.Dead, storage.Cursors), storage.Dead},
		{storage.Change{Priority: &five}, append(live, storage.Dead, storage.Cursors), storage.Dead},
		{storage.Change{Queue: "other"}, append(live, storage.Dead, storage.Cursors), storage.Dead},
		{storage.Change{Delay: 1}, live, storage.Scheduled},
		{storage.Change{At: time.Unix(1, 0)}, live, storage.Scheduled},
		{storage.Change{Now: true}, live, storage.Waiting},
		{storage.Change{Cancel: true}, append(live, storage.Pending, storage.Cancelled), storage.Cancelled},
		{storage.Change{Requeue: true}, ended, storage.Waiting},
		{storage.Change{Requeue: true, Priority: &five}, ended, storage.Waiting},
		{storage.Change{Requeue: true, Delay: 1}, ended, storage.Scheduled},
	} {
		for _, from := range storage.States() {
			if got, want := c.change.Permitted(from), slices.Contains(c.want, from); got != want {
				t.Errorf("%+v of a task in %s: got permitted %v, want %v", c.change, from, got, want)
			}
		}
		if got := c.change.Target(storage.Dead); got != c.target {
			t.Errorf("%+v of a dead task: got target %s, want %s", c.change, got, c.target)
		}
	}
}

func TestStatsSizeIsThatOfTheState(t *testing.T) {
	s := storage.Stats{
		Waiting: 1, Pending: 2, Scheduled: 3, Retry: 4, Completed: 5, Cancelled: 6, Dead: 7, Cursors: 8,
	}
	for i, state := range storage.States() {
		if got := s.Size(state); got != int64(i+1) {
			t.Errorf("%s: got %d, want %d", state, got, i+1)
		}
	}
	if got := s.Size("none"); got != 0 {
		t.Errorf("a state that is none: got %d, want 0", got)
	}
}

func TestLastErrorIsThatOfTheLastAttemptThatHasOne(t *testing.T) {
	task := storage.Task{Attempts: []storage.Attempt{{Error: "old"}, {Error: "last"}, {Outcome: storage.AttemptRequeued}}}
	if got := task.LastError(); got != "last" {
		t.Errorf("got %q, want last", got)
	}
	if got := (storage.Task{}).LastError(); got != "" {
		t.Errorf("got %q of a task without attempts", got)
	}
}
