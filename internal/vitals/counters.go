package vitals

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Counters count the runs of a runner. The counters of a kind are allocated once, so that a run
// costs one atomic addition, and a failed run two.
type Counters struct {
	kinds []Counter // in the order of the names
	names []string
}

// Counter counts the runs of a kind. A nil Counter counts nothing.
type Counter struct {
	failed atomic.Uint64
	runs   [buckets]atomic.Uint64
}

// NewCounters returns counters for kinds, each of which must be named only once.
func NewCounters(kinds []string) *Counters {
	return &Counters{names: kinds, kinds: make([]Counter, len(kinds))}
}

// At returns the counter of the i-th of the kinds that NewCounters received.
func (c *Counters) At(i int) *Counter { return &c.kinds[i] }

// Count counts a run that has ended.
func (c *Counter) Count(took time.Duration, failed bool) {
	if c == nil {
		return
	}
	c.runs[bucket(took)].Add(1)
	if failed {
		c.failed.Add(1)
	}
}

// Fail counts a run as failed that was counted as a success.
func (c *Counter) Fail() {
	if c != nil {
		c.failed.Add(1)
	}
}

// Read returns the vitals of this process, with the kinds that have run. It may or may not
// include runs that end during the call.
func (c *Counters) Read() Vitals {
	v := Vitals{Memory: memory(), Goroutines: runtime.NumGoroutine()}
	for i := range c.kinds {
		k := Kind{Name: c.names[i], Failed: c.kinds[i].failed.Load()} // first, so that failures never exceed runs
		for j := range c.kinds[i].runs {
			k.Runs[j] = c.kinds[i].runs[j].Load()
		}
		if k.Runs.Count() > 0 {
			v.Kinds = append(v.Kinds, k)
		}
	}
	return v
}
