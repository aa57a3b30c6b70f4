package measure

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// log takes times from many goroutines, each in a place of its own.
type log struct {
	times []atomic.Int64
	taken atomic.Int64
}

func newLog(size int) *log { return &log{times: make([]atomic.Int64, size)} }

// note takes a time. What is more than the size is dropped: the count of runs tells of it.
func (l *log) note(d time.Duration) {
	if i := l.taken.Add(1) - 1; i < int64(len(l.times)) {
		l.times[i].Store(int64(d))
	}
}

// reaches waits until so many times were taken.
func (l *log) reaches(ctx context.Context, n int64) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for l.taken.Load() < n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// sorted gives the times but for the first skipped, in order of size.
func (l *log) sorted(skipped int) []time.Duration {
	all := make([]time.Duration, 0, len(l.times))
	for i := skipped; i < min(len(l.times), int(l.taken.Load())); i++ {
		all = append(all, time.Duration(l.times[i].Load()))
	}
	slices.Sort(all)
	return all
}

// percentile gives the least of the sorted times that the share p of them does not
// exceed, 0 of none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
