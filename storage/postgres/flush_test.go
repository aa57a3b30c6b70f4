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
					alone, err := c.submit(classInsert, p)
					if err != nil {
						t.Error(err)
						return
					}
					if alone {
						c.flushAlone(t.Context(), classInsert, p)
						continue
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

// TestALoneCallEndsWithItsContext has the context of a caller end whose call is flushed
// alone: it returns then, and those who came meanwhile are flushed.
func TestALoneCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &combiner{ctx: t.Context(), flush: func(ctx context.Context, _ int, parts []*part) {
			if parts[0].ops == 1 {
				<-ctx.Done()
			}
			parts[0].done, parts[0].err = true, ctx.Err()
		}}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := &part{ops: 1}, &part{ops: 2}
		if alone, err := c.submit(classInsert, first); !alone || err != nil {
			t.Fatalf("the first call: got %v, %v, want it alone", alone, err)
		}
		if alone, err := c.submit(classInsert, second); alone || err != nil {
			t.Fatalf("the second call: got %v, %v, want it to wait", alone, err)
		}
		time.AfterFunc(time.Millisecond, cancel)
		c.flushAlone(ctx, classInsert, first)
		<-second.flight.landed
		if first.err == nil || second.err != nil {
			t.Errorf("got %v and %v, want an error for the first call alone", first.err, second.err)
		}
		c.close()
		if _, err := c.submit(classInsert, first); err == nil {
			t.Error("a closed combiner takes a call")
		}
	})
}

// TestLargeCallsGoAtOnce has large calls of inserts come together: two are flushed at once, and
// no third.
func TestLargeCallsGoAtOnce(t *testing.T) {
	c := &combiner{ctx: t.Context(), most: 2, flush: func(context.Context, int, []*part) {}}
	for i := range 3 {
		alone, err := c.submit(classInsert, &part{ops: largeOps})
		if err != nil || alone != (i < 2) {
			t.Errorf("call %d: alone %v, %v, want the first two alone", i, alone, err)
		}
	}
	if alone, err := c.submit(classSettle, &part{ops: largeOps}); !alone || err != nil {
		t.Errorf("completions wait for inserts, or %v", err)
	}
	if alone, err := c.submit(classSettle, &part{ops: largeOps}); alone || err != nil {
		t.Errorf("two flushes of completions at once, or %v", err)
	}
	c.yield(classInsert)
	c.yield(classInsert)
	c.yield(classSettle)
	c.close()
	if c.flights != [classes]int{} {
		t.Errorf("flushes under way: %v, want none", c.flights)
	}
}
