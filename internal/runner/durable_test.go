package runner

import (
	"errors"
	"testing"
	"time"
)

// A goroutine that a job left running makes no extras once the job has returned: the settler reads them without
// the mutex.
func TestAnAttemptThatHasReturnedMakesNoExtras(t *testing.T) {
	for name, call := range map[string]func(a *Attempt) error{
		"step":       func(a *Attempt) error { _, err := a.Step(t.Context(), "a", nil); return err },
		"sleep":      func(a *Attempt) error { return a.Sleep(t.Context(), "a", time.Hour) },
		"checkpoint": func(a *Attempt) error { return a.Checkpoint(t.Context(), []byte("1")) },
		"load":       func(a *Attempt) error { _, err := a.LoadCheckpoint(t.Context()); return err },
	} {
		a := &Attempt{phase: settling, returned: true}
		if err := call(a); !errors.Is(err, ErrNotInJob) || a.extras != nil {
			t.Errorf("%s: %v, and extras %+v, want ErrNotInJob and none", name, err, a.extras)
		}
	}
}
