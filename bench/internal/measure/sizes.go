package measure

import (
	"time"

	"github.com/midgehq/midge/bench/internal/system"
)

// Sizes say how much is done in each measurement.
type Sizes struct {
	Tasks    int           // drained, or enqueued in bulk
	Singles  int           // enqueued one by one
	Far      int           // drained at 1 ms of delay
	Counted  int           // whose commands are counted
	Samples  int           // of the idle pick-up
	Kinds    int           // tasks of two kinds in one queue
	Half     time.Duration // of enqueueing at half of the rate
	Due      int           // tasks due evenly
	Over     time.Duration // what they are spread over
	Burst    int           // tasks due at one instant
	Lead     time.Duration // from their enqueue to that instant, at most
	Idle     time.Duration // of watching an idle worker
	Deep     int           // waiting tasks
	Shallow  int           // waiting tasks that Deep is compared with
	Shallows int           // how many queues of them, for a longer look
}

// Full are the sizes of the published figures.
func Full() Sizes {
	return Sizes{
		Tasks: 100_000, Singles: 100_000, Far: 100_000, Counted: 20_000,
		Samples: 400, Kinds: 5000, Half: 4 * time.Second,
		Due: 1000, Over: 4 * time.Second, Burst: 100_000, Lead: 8 * time.Second,
		Idle: 20 * time.Second,
		Deep: 1_000_000, Shallow: 10_000, Shallows: 10,
	}
}

// Quick are sizes for a look while working.
func Quick() Sizes {
	return Sizes{
		Tasks: 100_000, Singles: 30_000, Far: 50_000, Counted: 5000,
		Samples: 60, Kinds: 2000, Half: 2 * time.Second,
		Due: 1000, Over: 4 * time.Second, Burst: 50_000, Lead: 3 * time.Second,
		Idle: 4 * time.Second,
		Deep: 100_000, Shallow: 10_000, Shallows: 5,
	}
}

// onDisk is the share of jobs that are enqueued one by one where each of them is on the
// disk before the next.
const onDisk = 0.2

// On gives the sizes for a storage.
func (s Sizes) On(storage string) Sizes {
	if storage == system.Postgres || storage == system.SQLite {
		s.Singles = int(float64(s.Singles) * onDisk)
	}
	return s
}

// Scaled gives the sizes with the numbers of tasks multiplied, but none below a few.
func (s Sizes) Scaled(by float64) Sizes {
	for _, n := range []*int{&s.Tasks, &s.Singles, &s.Far, &s.Counted, &s.Kinds, &s.Burst, &s.Deep, &s.Shallow} {
		*n = max(int(float64(*n)*by), min(*n, 100))
	}
	return s
}
