//go:build unix

package faulttest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// TestACrashedServerLosesNothing lets PostgreSQL crash under load several times and recover
// from its log, before any lease has run out. Nothing may be lost, and nothing may run
// twice.
func TestACrashedServerLosesNothing(t *testing.T) {
	require(t)
	testserver.Parallel(t)
	s := ownServer(t, onePostgres, testserver.Options{})
	f := newFleet(t, s)
	var runners []*worker
	for range 2 {
		runners = append(runners, f.start(workerConfig{Queues: []string{"q"}, Concurrency: 10, Lease: 20 * time.Second}))
	}
	f.awaitWhat("", workerReady, len(runners), 20*time.Second)
	load := f.load()
	crashes := count(3, 30)
	begun := time.Now()
	var slowest time.Duration
	for range crashes {
		f.awaitActive(time.Now(), runners...)
		must(t, s.nodes[0].Kill())
		must(t, s.nodes[0].Restart())
		slowest = max(slowest, f.awaitActive(time.Now(), runners...))
	}
	load.end()
	awaitDrained(t, f.store, "q", 30*time.Second)
	h := f.history()
	checkRuns(t, h)
	acknowledged, _ := f.checkLoad(none)
	t.Logf("%d tasks over %d crashes; all runners worked %v after the server was ready at the latest",
		acknowledged, crashes, slowest.Round(time.Millisecond))
	if bound := machine.Stretch(3*time.Second, begun); slowest > bound {
		t.Errorf("a runner worked %v after the server was ready, want within %v", slowest, bound)
	}
	if twice := logTwice(t, h); twice > 0 {
		t.Errorf("%d tasks were started more than once", twice)
	}
	if unknown := len(h.of(enqueueUnknown)); unknown > 0 {
		t.Errorf("%d enqueues had an unknown outcome, want them repeated until it was known", unknown)
	}
}

// TestAnUnsafeServerIsWarnedOf checks that the runner logs a warning for each setting that
// can lose acknowledged tasks.
func TestAnUnsafeServerIsWarnedOf(t *testing.T) {
	require(t)
	testserver.Parallel(t)
	f := newFleet(t, sharedServer(t, onePostgres))
	w := f.start(workerConfig{Queues: []string{"q"}, Concurrency: 1})
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		warned := func(history) bool {
			log, err := os.ReadFile(w.log)
			must(t, err)
			return strings.Contains(string(log), setting+" is off")
		}
		f.await("a warning of "+setting, 20*time.Second, warned)
	}
}
