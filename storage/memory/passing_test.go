package memory

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestNothingIsLeftOfPartitions: after many partitions came and went, each with a task, and some that were paused and
// resumed meanwhile, no entry of any is left.
func TestNothingIsLeftOfPartitions(t *testing.T) {
	h := newHarness(t)
	session := storage.NewSession(h.store, 0)
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
		if len(q.parts) != waiting || q.ring.size != waiting || len(q.records) != waiting {
			t.Fatalf("got %d partitions, %d turns and %d tasks, want %d of each",
				len(q.parts), q.ring.size, len(q.records), waiting)
		}
		if waiting == calls*each {
			h.drain(each)
		}
	}
	q := h.store.queues["q"]
	left := len(q.parts) + q.ring.size + len(q.ring.chunks) + len(q.byKey.chunks) + len(q.records) + len(q.subs)
	if left > 0 {
		t.Errorf("left: got %d things, want nothing", left)
	}
	h.consistent()
}
