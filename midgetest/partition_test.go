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
