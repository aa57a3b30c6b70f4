package ledger

import (
	"math"
	"testing"

	"github.com/midgehq/midge/storage"
)

func TestTheFlowOfAQueueCountsRequeuesAndCrashes(t *testing.T) {
	before := storage.Totals{Enqueued: 10, Requeued: 2, Completed: 5, Dead: 1, Failed: 3, Crashed: 1}
	after := storage.Totals{
		Enqueued: 14, Requeued: 4, Completed: 9, Dead: 3, Cancelled: 7, Deleted: 8, Failed: 5, Crashed: 9,
	}
	grown := FlowOf(&after).Since(FlowOf(&before))
	if want := (Flow{In: 6, Done: 4, Failed: 10, Dead: 2}); grown != want {
		t.Errorf("got %+v, want %+v", grown, want)
	}
	if in, done, failed := grown.PerSecond(2); in != 3 || done != 2 || failed != 5 {
		t.Errorf("per second: got %v in, %v done and %v failed, want 3, 2 and 5", in, done, failed)
	}
	if shrunk := FlowOf(&before).Since(FlowOf(&after)); shrunk != (Flow{}) {
		t.Errorf("of totals that shrank: got %+v, want no growth", shrunk)
	}
	damaged := FlowOf(&storage.Totals{Enqueued: math.MaxInt64, Requeued: 1, Completed: math.MinInt64})
	if want := (Flow{In: math.MaxInt64}); damaged != want {
		t.Errorf("of a damaged record: got %+v, want %+v", damaged, want)
	}
}
