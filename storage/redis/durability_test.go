package redis

import "testing"

// TestTheLeastDurableMasterCounts, in whatever order the masters of a Cluster answer.
func TestTheLeastDurableMasterCounts(t *testing.T) {
	for i, worse := range durabilities {
		for _, better := range durabilities[:i+1] {
			for _, pair := range [][2]string{{better, worse}, {worse, better}} {
				var seen findings
				for _, durable := range pair {
					seen.add(&findings{durable: durable}, nil)
				}
				if seen.durable != worse {
					t.Errorf("of %q: got %q, want %q", pair, seen.durable, worse)
				}
			}
		}
	}
}
