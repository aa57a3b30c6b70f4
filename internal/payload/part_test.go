package payload

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestOnlyCountsAreCountedProgress(t *testing.T) {
	for text, want := range map[string]float64{
		`{"done":5,"of":60}`: 5.0 / 60, `{"done":0,"of":1}`: 0, `{"Done":2.5,"Of":2.5,"file":"a"}`: 1,
		`{"done":5}`: -1, `{"of":5}`: -1, `{"done":"5","of":60}`: -1, `{"done":7,"of":6}`: -1, `{"done":0,"of":0}`: -1,
		`{"done":-1,"of":6}`: -1, `50`: -1, `[5,60]`: -1, `null`: -1, ``: -1, `{"done":null,"of":1}`: -1,
	} {
		got := -1.0
		if c, ok := CountedOf([]byte(text)); ok {
			got = c.Share()
		}
		if got != want {
			t.Errorf("the share of %s is %v, want %v", text, got, want)
		}
	}
}

// TestTheTimeLeftIsOfOneAttempt checks that work of earlier attempts does not count as speed.
func TestTheTimeLeftIsOfOneAttempt(t *testing.T) {
	now := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		alter func(*storage.Task)
		done  float64
		want  time.Duration
	}{
		"first attempt":    {func(*storage.Task) {}, 5, 55 * time.Minute},
		"all done":         {func(*storage.Task) {}, 60, 0},
		"nothing done":     {func(*storage.Task) {}, 0, 0},
		"next to nothing":  {func(*storage.Task) {}, 1e-300, 0},
		"claimed ahead":    {func(t *storage.Task) { t.Started = false }, 5, 0},
		"in retry":         {func(t *storage.Task) { t.State = storage.Retry }, 5, 0},
		"after an attempt": {func(t *storage.Task) { t.Attempts = make([]storage.Attempt, 1) }, 5, 0},
		"after a snooze":   {func(t *storage.Task) { t.Snoozes = 1 }, 5, 0},
	} {
		task := storage.Task{State: storage.Pending, Started: true, Claimed: now.Add(-5 * time.Minute)}
		c.alter(&task)
		if got := (Counted{c.done, 60}).Left(task, now); got != c.want {
			t.Errorf("%s: %v are left, want %v", name, got, c.want)
		}
	}
}
