package postgres

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestCallersInALoopAreFlushedTogether has callers send again as soon as they are
// answered. Were they flushed in turns, all but one and then that one, there would be two
// flushes for each of their calls.
func TestCallersInALoopAreFlushedTogether(t *testing.T) {
	const callers, calls = 16, 200
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		flushes, flushed := 0, 0
		c := &combiner{ctx: t.Context(), flush: func(_ context.Context, _ int, parts []*part) {
			mu.Lock()
			flushes++
			flushed += len(parts)
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}}
		var calling sync.WaitGroup
		for range callers {
			calling.Go(func() {
				for range calls {
					p := &part{ops: 1}
					if err := c.submit(classInsert, p); err != nil {
						t.Error(err)
						return
					}
					<-p.flight.landed
				}
			})
		}
		calling.Wait()
		c.close()
		if flushed != callers*calls || flushes > calls*7/4 {
			t.Errorf("%d calls in %d flushes, want all %d in less than %d", flushed, flushes, callers*calls, calls*7/4)
		}
	})
}
