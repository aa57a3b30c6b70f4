package postgres

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAWakeUpOutlivesThePause: a step that began while its queue's wake-ups waited commits
// after that time is over. Its wake-up went with no commit and has to be sent.
func TestAWakeUpOutlivesThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		n := &notes{
			local: func([]int32, bool) {}, ctx: t.Context(), quiet: make(map[int32]*pause),
			send: func(_ context.Context, kind string, _ []int32) error {
				sent = append(sent, kind)
				return nil
			},
		}
		const queue = 7
		step := func(takes time.Duration, alert bool) {
			told := n.loud([]int32{queue})
			time.Sleep(takes)
			n.rung(t.Context(), []int32{queue}, told, alert)
			synctest.Wait()
		}
		for _, alert := range []bool{false, true} {
			step(0, false)           // goes with its commit
			step(2*quietFor, alert)  // begins in the pause and ends after it
			time.Sleep(2 * quietFor) // all pauses are over
			synctest.Wait()
			time.Sleep(2 * quietFor)
		}
		n.close()
		if want := []string{"w", "c"}; !slices.Equal(sent, want) {
			t.Errorf("sent beside the commits: %q, want %q", sent, want)
		}
	})
}
