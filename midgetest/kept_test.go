package midgetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
)

// digest is the job of a kept schedule.
type digest struct{ Customer string }

func (digest) Run(context.Context) error { return nil }

// TestKeptSchedulesTick checks that a kit makes the ticks of schedules that no program declares, until they are
// paused.
func TestKeptSchedulesTick(t *testing.T) {
	k := midgetest.New(t, midgetest.Config{Register: midge.Register[digest]})
	queue := k.Client().Queue(midge.DefaultQueue)
	err := queue.SetSchedule(t.Context(), "ann", midge.Every(24*time.Hour), digest{"ann"}, midge.Jitter(6*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got := k.Until(72 * time.Hour); len(got) != 3 {
		t.Errorf("%d attempts in three days, want 3", len(got))
	}
	if err := queue.PauseSchedule(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	if got := k.Until(72 * time.Hour); len(got) != 0 {
		t.Errorf("%d attempts of a paused schedule", len(got))
	}
}
