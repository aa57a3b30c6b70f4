package modernc_test

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestAClaimPassesOverABatchOfTasksThatAWrongClockDeclined at most. Each claim reports that there is more to
// do, until claims have come to the tasks behind them.
func TestAClaimPassesOverABatchOfTasksThatAWrongClockDeclined(t *testing.T) {
	t.Parallel()
	const wrong, least = 1000, 4
	var ahead time.Duration
	store, err := sqlite.Open(t.Context(), sqlite.Config{
		Path: file(t), Driver: modernc.Driver,
		Limits: storage.Limits{DeclinedFor: time.Hour}, Now: func() time.Time { return time.Now().Add(ahead) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	session := storage.NewSession(store, 0)
	claim := func(n int) storage.Claimed {
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "q"}}, Start: n, Lease: time.Minute, Kinds: []string{"other"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return claimed
	}
	apply := func(tx storage.Tx) {
		if _, err := session.ApplyOne(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	decline := func(n int) {
		var in, out storage.Tx
		for range n {
			in.Inserts = append(in.Inserts, job(storage.NewID()))
		}
		apply(in)
		for _, f := range claim(n).Fences {
			out.Settles = append(out.Settles, storage.Settle{Fence: f, Outcome: storage.Decline})
		}
		apply(out)
	}
	ahead = 365 * 24 * time.Hour
	decline(wrong)
	ahead = 0
	decline(1)
	c := claim(0)
	for n := 0; n < 14 && !c.More && len(c.Ended) == 0; n++ { // no jump: until a claim reads the line
		ahead += 5 * time.Minute
		c = claim(0)
	}
	claims := 1
	for ; len(c.Ended) == 0; claims++ {
		if !c.More {
			t.Fatalf("claim %d says that there is no more to do", claims)
		}
		c = claim(0)
	}
	if claims < least || c.More {
		t.Errorf("got %d claims, at last with more %v, want %d or more, and no more to do", claims, c.More, least)
	}
}
