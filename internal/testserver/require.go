package testserver

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// EnvServers is the environment variable that enables the tests with real servers. If it is
// unset, empty or "0", they are skipped.
const EnvServers = "MIDGE_TEST_SERVERS"

// Enabled reports whether the tests run with real servers, for a TestMain.
func Enabled() bool {
	v := os.Getenv(EnvServers)
	return v != "" && v != "0"
}

// Require skips the test unless [EnvServers] is set. There is no other reason to skip a test. If
// it is set and redis-server is not installed, the test fails.
func Require(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skipf("needs a real redis-server: set %s=1, or run make test", EnvServers)
	}
	if _, err := exec.LookPath(redisServer); err != nil {
		t.Fatalf("%s is set: %v; make test installs it", EnvServers, err)
	}
}

// started returns the server and closes it when the test ends. If err is not nil, the test fails.
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

// awaitLimit is how long [Await] and the conditions of the servers may take. It is long, because
// only a failure uses all of it, and a loaded machine under the race detector is slow.
const awaitLimit = time.Minute

// pollEvery is the pause between the first two checks of a condition.
const pollEvery = 5 * time.Millisecond

// Await checks a condition until it holds, and fails the test if that takes more than a minute.
// what names the condition, such as "the task is dead".
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !poll(awaitLimit, condition) {
		t.Fatalf("waited %v, and still not: %s", awaitLimit, what)
	}
}

// poll checks a condition until it holds or the limit has passed, and reports whether it holds. The longer
// that takes, the less often poll checks.
func poll(limit time.Duration, condition func() bool) bool {
	for begun := time.Now(); !condition(); {
		took := time.Since(begun)
		if took > limit {
			return condition()
		}
		<-time.NewTimer(min(max(pollEvery, took/20), 10*pollEvery)).C
	}
	return true
}
