package measure

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// log records times from many goroutines, each in a slot of its own.
type log struct {
	times []atomic.Int64
	taken atomic.Int64
}

func newLog(size int) *log { return &log{times: make([]atomic.Int64, size)} }

// note records a time. Times beyond the size are dropped; the count of runs reveals them.
func (l *log) note(d time.Duration) {
	if i := l.taken.Add(1) - 1; i < int64(len(l.times)) {
		l.times[i].Store(int64(d))
	}
}

// reaches waits until n times were recorded.
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

// sorted returns the times without the first skipped ones, in ascending order.
func (l *log) sorted(skipped int) []time.Duration {
	all := make([]time.Duration, 0, len(l.times))
	for i := skipped; i < min(len(l.times), int(l.taken.Load())); i++ {
		all = append(all, time.Duration(l.times[i].Load()))
	}
	slices.Sort(all)
	return all
}

// percentile returns the least of the sorted times that a share p of them does not
// exceed, or 0 if there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
