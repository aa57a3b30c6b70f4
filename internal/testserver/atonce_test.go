package testserver

import "testing"

// TestASlowMachineRunsFewerTestsAtOnce checks that a third of the tests run at once on a slow machine, and at
// least two if there are so many.
func TestASlowMachineRunsFewerTestsAtOnce(t *testing.T) {
	t.Parallel()
	for n, third := range map[int]int{32: 10, 12: 4, 4: 2, 1: 1} {
		if got := atOnce(n, false); got != n {
			t.Errorf("of %d on a machine that is not slow: got %d, want all", n, got)
		}
		if got := atOnce(n, true); got != third {
			t.Errorf("of %d on a slow machine: got %d, want %d", n, got, third)
		}
	}
	if took := startTime(); took < 0 || took > awaitLimit {
		t.Errorf("a small program took %v of a processor", took)
	}
}
