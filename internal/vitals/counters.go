package vitals

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Counters count the runs of a runner. What they count for a kind is made once, so that a run costs
// one atomic addition, and a failed one two.
type Counters struct {
	kinds []Counter // sorted as the names
	names []string
}

// Counter counts the runs of a kind. A nil one counts nothing.
type Counter struct {
	failed atomic.Uint64
	runs   [buckets]atomic.Uint64
}

// NewCounters makes counters for kinds, of which each is named once.
func NewCounters(kinds []string) *Counters {
	return &Counters{names: kinds, kinds: make([]Counter, len(kinds))}
}

// At gives the counter of the kind at a place among those that NewCounters was given.
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

// Read gives the vitals of this process, with the kinds that have run. Runs that end meanwhile may
// be in it or not.
func (c *Counters) Read() Vitals {
	v := Vitals{Memory: memory(), Goroutines: runtime.NumGoroutine()}
	for i := range c.kinds {
		k := Kind{Name: c.names[i], Failed: c.kinds[i].failed.Load()} // first: a failure is a run
		for j := range c.kinds[i].runs {
			k.Runs[j] = c.kinds[i].runs[j].Load()
		}
		if k.Runs.Count() > 0 {
			v.Kinds = append(v.Kinds, k)
		}
	}
	return v
}
