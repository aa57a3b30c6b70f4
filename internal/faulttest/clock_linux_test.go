package faulttest

import (
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// TestTheServersClockIsTheClock is the counterpart of TestClocksOfRunnersChangeNothing
// without anything between midge and the storage: only the difference between the clocks
// matters, so the server itself is set ten minutes ahead of all runners, or behind them.
// It needs a C compiler, as the race detector does.
func TestTheServersClockIsTheClock(t *testing.T) {
	require(t)
	t.Parallel()
	for name, by := range map[string]time.Duration{"ahead": farOff, "behind": -farOff} {
		clock, err := testserver.StartClock()
		must(t, err)
		t.Cleanup(func() { must(t, clock.Close()) })
		clock.Set(by)
		options := testserver.Options{Env: clock.Env()}
		t.Run("redis-"+name, func(t *testing.T) {
			testserver.Parallel(t)
			redis, err := testserver.Start(options)
			must(t, err)
			t.Cleanup(func() { _ = redis.Close() })
			underOtherClock(t, &server{kind: oneRedis, nodes: []node{redis}}, by)
		})
		t.Run("cluster-"+name, func(t *testing.T) {
			testserver.Parallel(t)
			cluster, err := testserver.StartCluster(options)
			must(t, err)
			t.Cleanup(func() { _ = cluster.Close() })
			s := &server{kind: aCluster, cluster: cluster}
			for _, master := range cluster.Nodes() {
				s.nodes = append(s.nodes, master)
			}
			underOtherClock(t, s, by)
		})
		t.Run("postgres-"+name, func(t *testing.T) {
			testserver.Parallel(t)
			pg := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true, Env: options.Env})
			underOtherClock(t, &server{kind: onePostgres, nodes: []node{pg}}, by)
		})
	}
}

func underOtherClock(t *testing.T, s *server, by time.Duration) {
	t.Helper()
	begun := time.Now()
	f := newFleet(t, s)
	description, err := f.store.Describe(t.Context())
	must(t, err)
	if off := time.Until(description.Now) - by; off.Abs() > 10*time.Second {
		t.Fatalf("the server's clock is %v ahead, want %v", time.Until(description.Now), by)
	}
	var fleet []*worker
	for range 2 {
		fleet = append(fleet, f.start(workerConfig{
			Queues: []string{"q"}, Concurrency: 20, Lease: 2 * time.Second, Every: tickEvery,
		}))
	}
	f.awaitWhat("", workerReady, len(fleet), 20*time.Second)
	observeClocks(t, f, fleet)
	ticks := checkTicks(t, tasksOf(t, f.store, "q"))
	t.Logf("%d ticks, each with one task", ticks)
	if ticks < 5 {
		t.Errorf("%d ticks, want at least 5", ticks)
	}
	for _, e := range f.history().of(runStart) {
		if e.Tick == "" {
			continue
		}
		moment, err := time.Parse(time.RFC3339Nano, e.Tick)
		must(t, err)
		if late := e.At.Add(by).Sub(moment); late < 0 || late > machine.Stretch(5*time.Second, begun) {
			t.Errorf("the task of %s started %v after its moment by the server's clock", e.Tick, late)
		}
	}
}
