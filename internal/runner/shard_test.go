package runner

import (
	"fmt"
	"testing"
)

// TestSharesAreNotTooSmall checks that tasks to start are distributed among all queues, tasks ahead
// among a few queues at a time, and that the last queue may take all that is left.
func TestSharesAreNotTooSmall(t *testing.T) {
	names, weights := []string{"a", "b", "c", "d", "e"}, map[string]int{"a": 6}
	first := func() float64 { return 0 }
	for _, c := range []struct {
		most, least int
		want        string
	}{
		{10, 0, "[{a 6} {b 1} {c 1} {d 1} {e 0}]"},
		{10, 2, "[{a 6} {b 2} {c 2} {d 2} {e 0}]"},
		{10, 4, "[{a 6} {b 4} {c 4} {d 4} {e 0}]"},
		{2, 0, "[{a 2} {b 1} {c 1} {d 1} {e 0}]"},
	} {
		if got := fmt.Sprint(shares(names, weights, c.most, c.least, first)); got != c.want {
			t.Errorf("%d tasks, at least %d each: got %s, want %s", c.most, c.least, got, c.want)
		}
	}
}
