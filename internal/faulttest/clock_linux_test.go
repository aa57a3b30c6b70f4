package faulttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// shim is a library that puts the wall clock of a C program ahead by as many seconds
// as MIDGE_CLOCK_AHEAD says.
const shim = `
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
	const char *s = getenv("MIDGE_CLOCK_AHEAD");
	return s ? atol(s) : 0;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int failed = syscall(SYS_clock_gettime, id, ts);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) ts->tv_sec += ahead();
	return failed;
}

int gettimeofday(struct timeval *tv, void *zone) {
	struct timespec ts;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &ts)) return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *to) {
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts)) return -1;
	if (to) *to = ts.tv_sec;
	return ts.tv_sec;
}
`

// TestTheServersClockIsTheClock is point 7 from the other side, with nothing between
// midge and the storage: what counts is the difference between the clocks, so the server
// itself is put ten minutes ahead of all runners, or behind them. It takes a C
// compiler, as the race detector does.
func TestTheServersClockIsTheClock(t *testing.T) {
	require(t)
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // a server may belong to another user
	source, library := filepath.Join(dir, "shim.c"), filepath.Join(dir, "shim.so")
	must(t, os.WriteFile(source, []byte(shim), 0o600))
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	for name, by := range map[string]time.Duration{"ahead": farOff, "behind": -farOff} {
		options := testserver.Options{Env: []string{
			"LD_PRELOAD=" + library, fmt.Sprint("MIDGE_CLOCK_AHEAD=", int(by.Seconds())),
		}}
		t.Run("redis-"+name, func(t *testing.T) {
			t.Parallel()
			redis, err := testserver.Start(options)
			must(t, err)
			t.Cleanup(func() { _ = redis.Close() })
			underOtherClock(t, &server{kind: oneRedis, nodes: []node{redis}}, by)
		})
		t.Run("cluster-"+name, func(t *testing.T) {
			t.Parallel()
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
			t.Parallel()
			pg := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true, Env: options.Env})
			underOtherClock(t, &server{kind: onePostgres, nodes: []node{pg}}, by)
		})
	}
}

func underOtherClock(t *testing.T, s *server, by time.Duration) {
	t.Helper()
	f := newFleet(t, s)
	told, err := f.store.Describe(t.Context())
	must(t, err)
	if off := time.Until(told.Now) - by; off.Abs() > 10*time.Second {
		t.Fatalf("the server's clock is %v ahead, want %v", time.Until(told.Now), by)
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
		if late := e.At.Add(by).Sub(moment); late < 0 || late > 5*time.Second {
			t.Errorf("the task of %s started %v after its moment by the server's clock", e.Tick, late)
		}
	}
}
