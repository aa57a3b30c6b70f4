package memory

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestNothingIsLeftOfPartitions: after many partitions came and went, each with a task, and some that were paused and
// resumed meanwhile, no entry of any is left. If a rate counts their starts, the claims after one Per remove them.
func TestNothingIsLeftOfPartitions(t *testing.T) {
	t.Run("unlimited", func(t *testing.T) { testNothingIsLeft(t, storage.Rate{}) })
	t.Run("rated", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { testNothingIsLeft(t, storage.Rate{N: 1, Per: time.Minute}) })
	})
}

func testNothingIsLeft(t *testing.T, rate storage.Rate) {
	t.Helper()
	h := newHarness(t)
	session := storage.NewSession(h.store, 0)
	l := storage.Limit{Partition: storage.PartitionLimit{Rate: rate}}
	limit := storage.Settings{Limit: &storage.OperatorLimit{On: true, Limit: l}}
	if rate.N > 0 {
		if err := session.Configure(t.Context(), "q", limit); err != nil {
			t.Fatal(err)
		}
	}
	const each, calls = 1000, 10
	for call := range passingPartitions / each {
		ins := make([]storage.Insert, each)
		for i := range ins {
			ins[i] = job(strconv.Itoa(call*each + i))
			ins[i].Partition = "of " + ins[i].Ref.ID
		}
		h.add(ins...)
		for _, on := range []bool{true, false} {
			settings := storage.Settings{Partition: fmt.Sprint("empty ", call), Pause: &storage.Pause{On: on}}
			if err := session.Configure(t.Context(), "q", settings); err != nil {
				t.Fatal(err)
			}
		}
		q := h.store.queues["q"]
		waiting := (call%calls + 1) * each
		parts := waiting
		if rate.N > 0 { // the time stands still, so that all starts count
			parts = (call + 1) * each
		}
		if len(q.parts) != parts || q.ring.size != parts || len(q.records) != waiting {
			t.Fatalf("got %d partitions, %d turns and %d tasks, want %d, %d and %d",
				len(q.parts), q.ring.size, len(q.records), parts, parts, waiting)
		}
		if waiting == calls*each {
			h.drain(each)
		}
	}
	if rate.N > 0 {
		time.Sleep(rate.Per + rate.Per/storage.RateParts)
		h.sweep()
	}
	q := h.store.queues["q"]
	left := len(q.parts) + q.ring.size + len(q.ring.chunks) + len(q.byKey.chunks) + len(q.records) + len(q.subs)
	if left > 0 {
		t.Errorf("left: got %d things, want nothing", left)
	}
	h.consistent()
}

// sweep claims until nothing is left to maintain, and wants no task.
func (h *harness) sweep() {
	h.Helper()
	session := storage.NewSession(h.store, 0)
	for more := true; more && !h.Failed(); {
		c, err := session.Claim(h.Context(), storage.ClaimRequest{
			Runner: "runner", Queues: []storage.ClaimQueue{{Name: "q"}}, Start: 1, Lease: 30 * time.Second,
		})
		if err != nil || len(c.Tasks) > 0 {
			h.Fatalf("a claim after the last task: got %d tasks, %v", len(c.Tasks), err)
		}
		more = c.More
	}
}
