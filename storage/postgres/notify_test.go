package postgres

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage/internal/wakeup"
)

// TestAWakeUpOutlivesThePause: a step that began while its queue's wake-ups waited commits after the
// pause. Its wake-up went with no commit, and has to be sent.
func TestAWakeUpOutlivesThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		n := &notes{
			local: func([]int32, wakeup.Event) {}, ctx: t.Context(), quiet: make(map[int32]*pause),
			send: func(_ context.Context, kind string, queues []int32) error {
				if len(queues) > 0 {
					sent = append(sent, kind)
				}
				return nil
			},
		}
		const queue = 7
		step := func(takes time.Duration, event wakeup.Event) {
			told := n.loud([]int32{queue})
			time.Sleep(takes)
			n.rung(t.Context(), []int32{queue}, told, event)
			synctest.Wait()
		}
		for _, event := range []wakeup.Event{wakeup.Work, wakeup.News, wakeup.Alert} {
			step(0, wakeup.Work)     // its wake-up goes with its commit
			step(2*quietFor, event)  // begins in the pause and ends after it
			time.Sleep(2 * quietFor) // all pauses are over
			synctest.Wait()
			time.Sleep(2 * quietFor)
		}
		n.close()
		if want := []string{"w", "n", "c"}; !slices.Equal(sent, want) {
			t.Errorf("sent beside the commits: %q, want %q", sent, want)
		}
	})
}

// TestWakeUpsDoNotPileUp has each notification take a second, as on a dead connection, while tasks
// are enqueued in a few queues. Wake-ups are gathered: one notification is under way at a time, and the last
// event is sent.
func TestWakeUpsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sending, most, sends atomic.Int64
		n := &notes{
			local: func([]int32, wakeup.Event) {}, ctx: t.Context(), quiet: make(map[int32]*pause),
			send: func(_ context.Context, _ string, queues []int32) error {
				if len(queues) == 0 {
					return nil
				}
				most.Store(max(most.Load(), sending.Add(1)))
				time.Sleep(time.Second)
				sending.Add(-1)
				sends.Add(1)
				return nil
			},
		}
		const queues, events = 3, 5000
		for i := range events {
			queue := []int32{int32(i % queues)}
			n.rung(t.Context(), queue, n.loud(queue), wakeup.Work)
			time.Sleep(time.Millisecond)
		}
		before := sends.Load()
		n.later.Wait()
		if most.Load() > 1 || before > 5 || sends.Load() == before {
			t.Errorf("%d notifications in 5 s, %d at a time, and %d more; want one at a time, and one at the end",
				before, most.Load(), sends.Load()-before)
		}
		n.close()
	})
}
