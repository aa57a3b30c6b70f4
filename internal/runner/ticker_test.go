package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestAHangingMiddlewareFillsNoQueue takes no cursor from the queue for an hour, as while a middleware does not
// return. Each time that their hiding is over, the storage hands out the same cursors.
func TestAHangingMiddlewareFillsNoQueue(t *testing.T) {
	const cursors = 10
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{Lease: storage.MinLease})
		ticks := newShard(r.workers, r.schedules, "").ticker
		most := 0
		for range time.Hour / storage.TickHide {
			ticks.due(dueCursors(storage.Claimed{Ticks: make([]storage.Task, cursors)}))
			most = max(most, ticks.queued())
			time.Sleep(storage.TickHide) // virtual
		}
		if most > 2*cursors {
			t.Errorf("%d cursors were queued, want no more than twice %d", most, cursors)
		}
		if left := len(ticks.take()); left != cursors {
			t.Errorf("%d cursors were left to take, want the last %d", left, cursors)
		}
	})
}
