package midge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/storage"
)

// Backoff gives the delay before a retry, which counts from 1: the first retry
// follows the first failure. It is called by many goroutines. The runner brings a
// delay that is negative, or beyond a hundred years, within those bounds.
type Backoff func(retry int) time.Duration

// Constant is a backoff of the same delay each time, without jitter.
func Constant(d time.Duration) Backoff {
	return func(int) time.Duration { return clampDelay(d, storage.MaxDelay) }
}

// Geometric grows the delay by a factor with each retry; its method Delay is a
// [Backoff]. The zero value is the backoff of jobs and runners that do not say otherwise:
// 2 s × 2ⁿ up to 6 h, ± 10 %.
//
// A Geometric is an [Option] too: it is recorded with the task, whose retries it
// delays instead of the backoff of the kind.
type Geometric struct {
	// First is the delay before the first retry, a millisecond at least: default 2 s.
	First time.Duration
	// Factor, at least 1, is how much longer each delay is than the one before:
	// default 2.
	Factor float64
	// Max bounds every delay, jitter included: default 6 h.
	Max time.Duration
	// Jitter, up to 1, is the part of the delay by which it varies in both
	// directions, so that what failed together is not retried together: default
	// 0.1, a negative one is none.
	Jitter float64
}

// The defaults of Geometric.
const (
	defaultFirst  = 2 * time.Second
	defaultFactor = 2
	defaultMax    = 6 * time.Hour
	defaultJitter = 0.1
)

// shortestDelay keeps a backoff from spinning.
const shortestDelay = time.Millisecond

// Delay gives the delay before a retry, with random jitter. It is positive and at
// most Max, whatever the fields.
func (g Geometric) Delay(retry int) time.Duration { return g.delay(retry, rand.Float64()) }

// delay is Delay as a pure function; random is in [0, 1).
func (g Geometric) delay(retry int, random float64) time.Duration {
	g = g.withDefaults()
	// The jitter stays below Max: what has reached the bound is spread below it.
	top := float64(g.Max) / (1 + g.Jitter)
	base := math.Min(top, float64(g.First)*math.Pow(g.Factor, float64(max(retry, 1)-1)))
	return clampDelay(time.Duration(base*(1+g.Jitter*(2*random-1))), g.Max)
}

// withDefaults fills what is zero and repairs what check refuses.
func (g Geometric) withDefaults() Geometric {
	if g.First <= 0 {
		g.First = defaultFirst
	}
	if math.IsNaN(g.Factor) || g.Factor < 1 {
		g.Factor = defaultFactor
	}
	if g.Max <= 0 {
		g.Max = defaultMax
	}
	if math.IsNaN(g.Jitter) || g.Jitter == 0 {
		g.Jitter = defaultJitter
	}
	g.Jitter = math.Min(math.Max(g.Jitter, 0), 1)
	g.Max = min(g.Max, storage.MaxDelay)
	return g
}

// check gives an *InvalidError where a field is out of range.
func (g Geometric) check() error {
	switch {
	case math.IsNaN(g.Factor) || math.IsInf(g.Factor, 0) || g.Factor != 0 && g.Factor < 1:
		return storage.Invalid("Geometric.Factor", g.Factor, "0 for the default, or at least 1")
	case math.IsNaN(g.Jitter) || math.IsInf(g.Jitter, 0) || g.Jitter > 1:
		return storage.Invalid("Geometric.Jitter", g.Jitter, "at most 1, negative for none")
	}
	if err := checkSpan("Geometric.First", g.First, "0 for the default"); err != nil {
		return err
	}
	return checkSpan("Geometric.Max", g.Max, "0 for the default")
}

// clampDelay brings d within shortestDelay and limit, or to limit where that is
// shorter still.
func clampDelay(d, limit time.Duration) time.Duration {
	return min(max(d, shortestDelay), limit)
}

// backoffHeader is the header that holds the Geometric recorded with a task.
const backoffHeader = reservedHeaders + "backoff"

// header is g as the value of backoffHeader.
func (g Geometric) header() string {
	return fmt.Sprintf("%v %v %v %v", g.First, g.Factor, g.Max, g.Jitter)
}

// recordedBackoff gives the backoff that was recorded with a task, nil if none.
func recordedBackoff(headers map[string]string) Backoff {
	var g Geometric
	var first, longest string
	text, ok := headers[backoffHeader]
	if !ok {
		return nil
	}
	if _, err := fmt.Sscan(text, &first, &g.Factor, &longest, &g.Jitter); err != nil {
		return nil
	}
	var err1, err2 error
	g.First, err1 = time.ParseDuration(first)
	g.Max, err2 = time.ParseDuration(longest)
	if err1 != nil || err2 != nil {
		return nil
	}
	return g.Delay
}
