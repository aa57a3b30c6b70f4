package midgetest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
)

// TestAPausedPartitionWaitsInAKit: Drain leaves the tasks of a paused partition, and Until reaches the end of the
// pause.
func TestAPausedPartitionWaitsInAKit(t *testing.T) {
	var ran []string
	k := newKit(t, func(ctx context.Context, s step) error {
		info, _ := midge.Current(ctx)
		ran = append(ran, info.Partition+" "+s.Name)
		return nil
	})
	ann := k.Client().Queue(midge.DefaultQueue).Partition("ann")
	enqueue(t, k.Client(), step{"1"}, midge.Partition("ann"))
	enqueue(t, k.Client(), step{"2"}, midge.Partition("bob"))
	enqueue(t, k.Client(), step{"3"})
	must(t, ann.PauseFor(t.Context(), time.Hour))
	want := func(what, jobs string) {
		t.Helper()
		if got := strings.Join(ran, ", "); got != jobs {
			t.Errorf("%s: the jobs %q have run, want %q", what, got, jobs)
		}
		ran = nil
	}
	k.Drain()
	want("during the pause", " 3, bob 2")
	midgetest.RequireEnqueued[step](t, k.Client(), midgetest.With(midge.Partition("ann")))
	k.Until(59 * time.Minute)
	want("near the end of the pause", "")
	if ended := k.Until(2 * time.Minute); len(ended) != 1 || ended[0].Task.Partition != "ann" {
		t.Errorf("got %+v", ended)
	}
	want("after the pause", "ann 1")
	must(t, ann.Pause(t.Context()))
	enqueue(t, k.Client(), step{"4"}, midge.Partition("ann"))
	k.Until(time.Hour)
	want("during a pause without end", "")
	must(t, ann.Resume(t.Context()))
	k.Drain()
	want("after the resume", "ann 4")
}

// TestALimitOfPartitionsHoldsInAKit: Drain leaves the tasks that the rate of their partition does not admit,
// and the tasks that rest after a throttle. Until reaches both.
func TestALimitOfPartitionsHoldsInAKit(t *testing.T) {
	var ran []string
	throttles := true
	k := midgetest.New(t, midgetest.Config{
		Register: func(r *midge.Runner) error {
			return midge.Handle(r, func(ctx context.Context, s step) error {
				info, _ := midge.Current(ctx)
				ran = append(ran, info.Partition+" "+s.Name)
				if throttles && s.Name == "refused" {
					throttles = false
					return midge.Throttle(time.Minute)
				}
				return nil
			})
		},
		Runner: midge.RunnerConfig{QueueLimits: map[string]midge.Limit{midge.DefaultQueue: {
			Partition: midge.PartitionLimit{Concurrency: 1, Rate: midge.Rate{N: 2, Per: time.Hour}},
		}}},
	})
	for _, name := range []string{"1", "2", "3"} {
		enqueue(t, k.Client(), step{name}, midge.Partition("ann"))
	}
	enqueue(t, k.Client(), step{"refused"}, midge.Partition("bob"))
	enqueue(t, k.Client(), step{"free"})
	want := func(what, jobs string) {
		t.Helper()
		if got := strings.Join(ran, ", "); got != jobs {
			t.Errorf("%s: the jobs %q have run, want %q", what, got, jobs)
		}
		ran = nil
	}
	ended := k.Drain()
	want("at first", " free, ann 1, bob refused, ann 2")
	if got := ended[2]; got.Outcome != midge.OutcomeThrottled || got.RetryIn != time.Minute {
		t.Errorf("got %s, in %v", got.Outcome, got.RetryIn)
	}
	k.Until(59 * time.Second)
	want("during the rest", "")
	k.Until(2 * time.Second)
	want("after the rest", "bob refused")
	k.Until(58 * time.Minute)
	want("before the rate admits a start", "")
	k.Until(3 * time.Minute)
	want("once the rate admits it", "ann 3")
}
