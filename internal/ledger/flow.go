package ledger

import (
	"math"

	"github.com/midgehq/midge/storage"
)

// Flow counts what happened to the tasks of a queue. Its growth is the source of the rates of the queue. No
// count is negative.
type Flow struct {
	In     int64 // tasks that joined the queue, requeues included
	Done   int64 // attempts that completed their task
	Failed int64 // attempts that failed, and charged crashes
	Dead   int64 // tasks that died
}

// FlowOf returns the flow over a queue's lifetime.
func FlowOf(t *storage.Totals) Flow {
	return Flow{
		In: Sum(t.Enqueued, t.Requeued), Done: Sum(t.Completed), Failed: Sum(t.Failed, t.Crashed), Dead: Sum(t.Dead),
	}
}

// Sum adds counts and bounds the result, because a damaged record may contain any count.
func Sum(counts ...int64) (all int64) {
	for _, n := range counts {
		all += min(max(n, 0), math.MaxInt64-all)
	}
	return all
}

// Since returns how much the flow has grown. A count that shrank, because a queue was removed or a failover lost
// its last steps, has not grown.
func (f Flow) Since(before Flow) Flow {
	return Flow{
		In: max(f.In-before.In, 0), Done: max(f.Done-before.Done, 0), Failed: max(f.Failed-before.Failed, 0),
		Dead: max(f.Dead-before.Dead, 0),
	}
}

// PerSecond returns the rates of a flow that passed in so many seconds.
func (f Flow) PerSecond(seconds float64) (in, done, failed float64) {
	return float64(f.In) / seconds, float64(f.Done) / seconds, float64(f.Failed) / seconds
}
