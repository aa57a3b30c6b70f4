package postgres

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhoAppendsNothingFoldsSeldom has visitors that append deltas and visitors that do not. Deltas
// are folded soon, also those appended during a round; otherwise only the sweep asks the server.
func TestWhoAppendsNothingFoldsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds, sweeps := 0, 0
		w := &sweep{
			ctx: t.Context(), worn: func() bool { return false },
			round: func(_ context.Context, all bool) {
				rounds++
				if all {
					sweeps++
				}
			},
		}
		visits := func(n int, appends bool) {
			for range n {
				w.visit(appends)
				time.Sleep(time.Second) // virtual
				synctest.Wait()
			}
		}
		visits(1, false)
		if rounds != 1 || sweeps != 1 {
			t.Fatalf("%d rounds and %d sweeps at first, want one", rounds, sweeps)
		}
		visits(10, false) // the last of them is ten seconds after the first
		if rounds != 1 {
			t.Errorf("%d rounds by who appends nothing, want one", rounds)
		}
		visits(1, true) // sweeps, and appends
		visits(5, false)
		if rounds != 3 || sweeps != 2 {
			t.Errorf("%d rounds and %d sweeps after something was appended, want 3 and 2", rounds, sweeps)
		}
		visits(5, true)
		if rounds != 7 {
			t.Errorf("%d rounds where all visitors append, want 7", rounds)
		}
		w.close()
	})
}
