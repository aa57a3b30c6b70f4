//go:build unix

package faulttest

import (
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/midgehq/midge/internal/testserver"
)

// atOnce is the number of tests that run in parallel. They mostly wait for leases, outages and
// ticks, so the number of processors is no measure. The few that compute run on one server after
// the other: see eachServerInTurn.
const atOnce = 12

// machine measures how busy the machine is while the tests run.
var machine *testserver.Pace

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs each failed dial, and these tests cut connections all the time
	if config := os.Getenv(envWorker); config != "" {
		os.Exit(workerMain(config))
	}
	if err := testserver.SetParallel(atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	machine = testserver.NewPace()
	code := m.Run()
	machine.Close()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines outlived the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}
