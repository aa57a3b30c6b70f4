package testserver

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTestsTakeTurnsOnABusyMachine checks that only some of the tests run while the machine is busy, that each of them
// that ends makes room for one more, that all run while the machine has room, and that none waits for ever.
func TestTestsTakeTurnsOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var load atomic.Int64
		load.Store(crowd + 1)
		ts := newTurns()
		ts.least = 4
		begun := make(chan string, 13)
		for i := range 13 {
			name := fmt.Sprint("test ", i)
			go func() {
				if !ts.await(name, func() float64 { return float64(load.Load()) }) || ts.await(name, nil) {
					t.Errorf("%s has its turn twice", name)
				}
				begun <- name
			}()
		}
		expect := func(after time.Duration, want int, what string) {
			t.Helper()
			<-time.After(after) // virtual
			synctest.Wait()
			if len(begun) != want {
				t.Fatalf("%s: %d tests run, want %d", what, len(begun), want)
			}
		}
		expect(turnLimit/2, 4, "a busy machine")
		ts.leave(<-begun)
		ts.leave(<-begun)
		expect(samplesEvery, 4, "a busy machine after two have ended")
		expect(turnLimit, 5, "a machine that stays busy")
		load.Store(crowd)
		expect(2*turnSamples*samplesEvery, 6, "a machine with room for one, of which nothing is known yet")
		expect(2*turnLimit, 11, "a machine with room")
		ts.leave("unknown") // harmless
	})
}
