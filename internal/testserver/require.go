package testserver

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// EnvServers is the environment variable which says that the tests run with real
// servers. Unset, empty or "0" means that they do not.
const EnvServers = "MIDGE_TEST_SERVERS"

// Enabled reports whether the tests run with real servers, for a TestMain.
func Enabled() bool {
	v := os.Getenv(EnvServers)
	return v != "" && v != "0"
}

// Require skips the test unless [EnvServers] is set, the only skip there is. Where
// it is set, a missing redis-server is fatal: what a test needs is brought.
func Require(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skipf("needs a real redis-server: set %s=1, or run make test", EnvServers)
	}
	if _, err := exec.LookPath(redisServer); err != nil {
		t.Fatalf("%s is set: %v; make test installs it", EnvServers, err)
	}
}

// started gives a server for the test, which closes it when it ends, or fails where it did not start.
func started[S io.Closer](t testing.TB, server S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return server
}

// awaitLimit is how long [Await] and the servers' own conditions may take. It is
// long because it is spent only where something is broken, and a loaded machine
// under the race detector is slow.
const awaitLimit = time.Minute

// pollEvery is the pause between two looks at a condition.
const pollEvery = 5 * time.Millisecond

// Await looks at a condition until it holds and fails the test where that takes
// more than a minute. what says what is awaited, such as "the task is dead".
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !poll(awaitLimit, condition) {
		t.Fatalf("waited %v, and still not: %s", awaitLimit, what)
	}
}

// poll looks at a condition until it holds or the limit has passed, and reports
// whether it holds.
func poll(limit time.Duration, condition func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			return condition()
		case <-tick.C:
		}
	}
	return true
}
