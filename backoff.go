package midge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/storage"
)

// Backoff returns the delay before a retry. retry counts from 1: the first retry follows the first
// failure. Many goroutines may call it at once.
//
// A delay of 0 retries at once. A negative delay comes from a formula that has overflowed: the
// runner replaces it by the delay of the zero [Geometric], and logs one warning for each kind. A
// delay of more than a year becomes a year. These rules hold for [RetryIn] too. A backoff that
// panics, or calls runtime.Goexit, leads to the default too, with an error in the log.
type Backoff func(retry int) time.Duration

// Constant returns a backoff with the same delay each time, without jitter.
func Constant(d time.Duration) Backoff { return func(int) time.Duration { return d } }

// Geometric multiplies the delay by a factor with each retry; its method Delay is a [Backoff]. The
// zero value is the backoff of jobs and runners that set none: 2 s × 2ⁿ up to 6 h, ± 10 %.
//
// A Geometric is also an [Option]: it is recorded with the task, and then delays the task's retries
// instead of the backoff of the kind.
type Geometric struct {
	// First is the delay before the first retry, a millisecond at least, and at most Max: default 2 s.
	First time.Duration
	// Factor, at least 1, is the ratio of each delay to the one before: default 2.
	Factor float64
	// Max bounds every delay, jitter included: default 6 h.
	Max time.Duration
	// Jitter, up to 1, is the fraction of the delay by which it varies in both directions, so that
	// tasks that failed together are not retried together: default 0.1, negative for none.
	Jitter float64
}

// These are the defaults of Geometric.
const (
	defaultFirst  = 2 * time.Second
	defaultFactor = 2
	defaultMax    = 6 * time.Hour
	defaultJitter = 0.1
)

// shortestDelay keeps the retries of a Geometric from spinning.
const shortestDelay = time.Millisecond

// Delay returns the delay before a retry, with random jitter. It is positive and at most Max,
// whatever the fields.
func (g Geometric) Delay(retry int) time.Duration { return g.delay(retry, rand.Float64()) }

// delay is Delay as a pure function; random is in [0, 1).
func (g Geometric) delay(retry int, random float64) time.Duration {
	g = g.withDefaults()
	// Max bounds the delay with its jitter: delays that have reached it are spread below it.
	top := float64(g.Max) / (1 + g.Jitter)
	base := math.Min(top, float64(g.First)*math.Pow(g.Factor, float64(max(retry, 1)-1)))
	return clampDelay(time.Duration(base*(1+g.Jitter*(2*random-1))), g.Max)
}

// withDefaults replaces zero fields by their defaults, and fields that check refuses by valid
// values.
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

// check returns an *InvalidError if a field is out of range.
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
	if err := checkSpan("Geometric.Max", g.Max, "0 for the default"); err != nil {
		return err
	}
	if d := g.withDefaults(); g.First > d.Max {
		return storage.Invalid("Geometric.First", g.First, "at most Geometric.Max, %v", d.Max)
	}
	return nil
}

// clampDelay returns d brought into the range from shortestDelay to limit, or limit if that is
// shorter than shortestDelay.
func clampDelay(d, limit time.Duration) time.Duration {
	return min(max(d, shortestDelay), limit)
}

// backoffHeader is the header that holds the Geometric recorded with a task.
const backoffHeader = reservedHeaders + "backoff"

// header returns g as the value of backoffHeader.
func (g Geometric) header() string {
	return fmt.Sprintf("%v %v %v %v", g.First, g.Factor, g.Max, g.Jitter)
}

// recordedBackoff returns the backoff that was recorded with a task, or nil.
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
