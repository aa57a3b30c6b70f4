package redis_test

import (
	"fmt"
	"testing"

	"github.com/midgehq/midge/storage"
)

// mostOfRing is how many tasks of queues with partitions a step takes at most.
const mostOfRing = 200

// TestAClaimOfManyPartitionsIsBounded: a claim takes few tasks of a queue with many partitions, about one command
// each, and reports that there are more.
func TestAClaimOfManyPartitionsIsBounded(t *testing.T) {
	const parts, each, fixed = 500, 3, 60
	server, _, session := started(t)
	n := 0
	fill(t, session, parts*each, func(in *storage.Insert) {
		in.Partition = fmt.Sprint("of ", n%parts)
		n++
	})
	if _, err := session.Claim(t.Context(), claimOf(1)); err != nil { // after it the server knows the script
		t.Fatal(err)
	}
	for taken := 1; taken < parts*each; {
		var claimed storage.Claimed
		counts := commands(t, server, func() {
			var err error
			if claimed, err = session.Claim(t.Context(), claimOf(1000)); err != nil {
				t.Fatal(err)
			}
		})
		got := len(claimed.Tasks)
		taken += got
		if want := min(mostOfRing, got+parts*each-taken); got != want || claimed.More != (taken < parts*each) {
			t.Fatalf("claimed %d, more %v, after %d of %d, want %d", got, claimed.More, taken, parts*each, want)
		}
		all := 0
		for _, command := range []string{"zrangebylex", "zlexcount", "zscore", "hmget", "hget", "zadd", "zrem", "hset"} {
			all += counts[command]
		}
		if all > 2*got+fixed || all == 0 {
			t.Errorf("a claim of %d tasks: got %d commands, want 1 to %d: %v", got, all, 2*got+fixed, counts)
		}
	}
}
