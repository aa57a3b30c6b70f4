package runner

import (
	"fmt"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestRunnersShareQueuesOfSimilarNames has pairs of runners divide queues that differ in a number alone: each queue has
// one sweeper, and each runner a share.
func TestRunnersShareQueuesOfSimilarNames(t *testing.T) {
	t.Parallel()
	const pairs, queues = 300, 100
	for i := range pairs {
		runners := []string{storage.NewID(), storage.NewID()}
		if i%3 == 0 {
			runners = []string{fmt.Sprint("runner-", i), fmt.Sprint("runner-", i+1)}
		}
		var share [2]int
		for q := range queues {
			swept := 0
			for r, id := range runners {
				s := &sweeper{shared: &shared{id: id}}
				if s.sweeps(fmt.Sprint("tenant-", q), runners) {
					share[r]++
					swept++
				}
			}
			if swept != 1 {
				t.Fatalf("%d of the runners %v sweep queue %d, want 1", swept, runners, q)
			}
		}
		// A fair coin stays below 20 of 100 once in a thousand million times.
		if least := min(share[0], share[1]); least < 20 {
			t.Errorf("of %d queues, the runners %v sweep %v", queues, runners, share)
		}
	}
}
