package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestWhatFallsDueAtOnceComesInItsOrder, over as many claims as it takes, and a damaged
// record among it does not hold it up.
func TestWhatFallsDueAtOnceComesInItsOrder(t *testing.T) {
	const n = 700
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	at := now.Add(200 * time.Millisecond)
	txs := make([]storage.Tx, n)
	for i := range txs {
		txs[i] = insertOf("mail", fmt.Sprintf("t%04d", i))
		txs[i].Inserts[0].At = at
	}
	if _, err := s.Apply(t.Context(), callOf(1), txs...); err != nil {
		t.Fatal(err)
	}
	server.HSet("midge:{mail}:tasks", "t0450", "damaged")
	server.SetTime(at)
	var got []string
	for seq := uint64(2); len(got) < n-1; seq++ {
		c, err := s.Claim(t.Context(), asking(callOf(seq), 1000, "mail"))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Tasks) > 0 && len(got)+len(c.Tasks) < n-1 && !c.More {
			t.Errorf("after %d tasks no more are told of", len(got)+len(c.Tasks))
		}
		for i := range c.Tasks {
			got = append(got, c.Tasks[i].ID)
		}
	}
	next := 0
	for _, id := range got {
		if next == 450 {
			next++
		}
		if want := fmt.Sprintf("t%04d", next); id != want {
			t.Fatalf("claimed %s, want %s", id, want)
		}
		next++
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Damaged != 1 || stats[0].Pending != n-1 {
		t.Errorf("got %d damaged and %d pending, %v, want 1 and %d", stats[0].Damaged, stats[0].Pending, err, n-1)
	}
}
