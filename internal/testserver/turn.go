package testserver

import (
	"flag"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	// crowd is how many runnable programs per processor keep further tests waiting for their turn. Beside half
	// as many as an overload, leases are extended in time.
	crowd = overload / 2
	// turnSamples is how many samples of the load decide about a turn. A test that has just begun is part of
	// the load by then.
	turnSamples = 5
	// turnLimit bounds how long the first of the tests in the line waits, since a load that other programs cause
	// may never end. Tests of failures take half a minute, of which they use a processor for a few seconds.
	turnLimit = 20 * time.Second
)

// line is the line of the tests of this program that wait for their turn.
var line = newTurns()

// turns admits tests one after the other.
type turns struct {
	next chan struct{} // has a value while a test is next

	mu      sync.Mutex // guards the fields below
	least   int        // how many run however busy the machine is
	running map[string]bool
}

func newTurns() *turns {
	return &turns{next: make(chan struct{}, 1), least: 1, running: make(map[string]bool)}
}

// SetParallel sets how many parallel tests of a package run at once, as the flag test.parallel does. n is meant for
// tests that wait for most of their time. While the machine is busy, only a quarter of n tests run, and at least
// two: see [Turn]. A TestMain calls SetParallel.
func SetParallel(n int) error {
	line.mu.Lock()
	defer line.mu.Unlock()
	line.least = max(n/4, min(n, 2))
	return flag.Set("test.parallel", strconv.Itoa(n))
}

// Parallel makes the test a parallel one, and returns at its [Turn]. A test that only waits for parallel subtests
// calls t.Parallel instead.
func Parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	Turn(t)
}

// Turn waits while the machine is busy and enough tests of this program have had their turn and not yet ended. So
// as many tests run at once as the machine has room for. If more of them started servers and processes, the leases
// of all would run out. A test that has had its turn does not wait again.
func Turn(t testing.TB) {
	t.Helper()
	if line.await(t.Name(), wanted) {
		t.Cleanup(func() { line.leave(t.Name()) })
	}
}

// await reports whether the test did not have its turn before. wanted samples the load.
func (ts *turns) await(name string, wanted func() float64) bool {
	if ts.has(name) {
		return false
	}
	ts.next <- struct{}{}
	defer func() { <-ts.next }()
	every := time.NewTicker(samplesEvery)
	defer every.Stop()
	var recent []float64
	for begun := time.Now(); !ts.enter(name, isCrowd(recent) && time.Since(begun) < turnLimit); <-every.C {
		recent = append(recent, wanted())
		recent = recent[max(0, len(recent)-turnSamples):]
	}
	return true
}

// isCrowd reports whether the samples are too few, or of a busy machine.
func isCrowd(samples []float64) bool {
	sum := 0.0
	for _, wanted := range samples {
		sum += wanted
	}
	return len(samples) < turnSamples || sum > crowd*turnSamples
}

func (ts *turns) has(name string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.running[name]
}

// enter admits the test, unless the machine is busy and enough tests run.
func (ts *turns) enter(name string, busy bool) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if busy && len(ts.running) >= ts.least {
		return false
	}
	ts.running[name] = true
	return true
}

func (ts *turns) leave(name string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.running, name)
}
