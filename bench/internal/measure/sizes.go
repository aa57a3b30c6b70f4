package measure

import (
	"time"

	"github.com/midgehq/midge/bench/internal/system"
)

// Sizes are the amounts of work in each measurement.
type Sizes struct {
	Tasks    int           // drained, or enqueued in bulk
	Singles  int           // enqueued one by one
	Far      int           // drained at 1 ms of delay
	Counted  int           // tasks whose commands are counted
	Samples  int           // samples of the idle pick-up
	Kinds    int           // tasks of two kinds in one queue
	Half     time.Duration // duration of the enqueueing at half of the rate
	Due      int           // tasks due evenly
	Over     time.Duration // time over which they are spread
	Burst    int           // tasks due at one instant
	Lead     time.Duration // from their enqueue to that instant, at most
	Idle     time.Duration // duration for which an idle worker is watched
	Deep     int           // waiting tasks
	Shallow  int           // waiting tasks that Deep is compared with
	Shallows int           // number of queues with Shallow tasks, for a longer measurement
}

// Full returns the sizes of the published figures.
func Full() Sizes {
	return Sizes{
		Tasks: 100_000, Singles: 100_000, Far: 100_000, Counted: 20_000,
		Samples: 400, Kinds: 5000, Half: 4 * time.Second,
		Due: 1000, Over: 4 * time.Second, Burst: 100_000, Lead: 8 * time.Second,
		Idle: 20 * time.Second,
		Deep: 1_000_000, Shallow: 10_000, Shallows: 10,
	}
}

// Quick returns sizes for a quick check during development.
func Quick() Sizes {
	return Sizes{
		Tasks: 100_000, Singles: 30_000, Far: 50_000, Counted: 5000,
		Samples: 60, Kinds: 2000, Half: 2 * time.Second,
		Due: 1000, Over: 4 * time.Second, Burst: 50_000, Lead: 3 * time.Second,
		Idle: 4 * time.Second,
		Deep: 100_000, Shallow: 10_000, Shallows: 5,
	}
}

// onDisk is the factor for the number of jobs that are enqueued one by one if each must
// be on the disk before the next.
const onDisk = 0.2

// On returns the sizes for a storage.
func (s Sizes) On(storage string) Sizes {
	if storage == system.Postgres || storage == system.SQLite {
		s.Singles = int(float64(s.Singles) * onDisk)
	}
	return s
}

// Scaled returns the sizes with the numbers of tasks multiplied, but none of them below
// a minimum.
func (s Sizes) Scaled(by float64) Sizes {
	for _, n := range []*int{&s.Tasks, &s.Singles, &s.Far, &s.Counted, &s.Kinds, &s.Burst, &s.Deep, &s.Shallow} {
		*n = max(int(float64(*n)*by), min(*n, 100))
	}
	return s
}
