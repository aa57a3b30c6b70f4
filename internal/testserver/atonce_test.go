package testserver

import (
	"strconv"
	"testing"
)

// TestASlowMachineRunsFewerTestsAtOnce checks that the number is that of the machine: all, or a third, but two.
func TestASlowMachineRunsFewerTestsAtOnce(t *testing.T) {
	t.Parallel()
	took := startTime()
	t.Logf("a program starts in %v", took)
	for n, third := range map[int]int{12: 4, 4: 2} {
		got, err := strconv.Atoi(AtOnce(n))
		if err != nil || got != n && got != third {
			t.Errorf("of %d: got %d, %v; want all or %d", n, got, err, third)
		}
	}
}
