package redis_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// decline has n tasks declined, of so many kinds.
func decline(t *testing.T, session *storage.Session, n, kinds int) {
	t.Helper()
	for done := 0; done < n; {
		fill(t, session, min(1000, n-done), func(in *storage.Insert) {
			in.Ref.ID = fmt.Sprintf("declined%d.%s", done, in.Ref.ID)
			in.Kind = fmt.Sprintf("kind%d", done%kinds)
			done++
		})
		req := claimOf(1000)
		req.Kinds = []string{"other"}
		claimed, err := session.Claim(t.Context(), req)
		if err != nil || len(claimed.Tasks) == 0 {
			t.Fatal(len(claimed.Tasks), err)
		}
		txs := make([]storage.Tx, len(claimed.Fences))
		for i, f := range claimed.Fences {
			txs[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Decline}}
		}
		if _, err := session.Apply(t.Context(), txs...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyDeclinedHoldNobodyUp: neither who declines, nor a claim that names a hundred kinds with lines,
// nor one that names none.
func TestManyDeclinedHoldNobodyUp(t *testing.T) {
	const tasks, kinds = 20_000, 100
	pace, begun := testserver.StartPace(t), time.Now()
	server, store, session := started(t, "slowlog-log-slower-than 5000", "slowlog-max-len 1000")
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	decline(t, session, tasks, kinds)
	stats, err := store.Stats(t.Context(), "main")
	if err != nil || stats[0].Waiting != tasks || len(stats[0].Declined) != storage.MaxStatsKinds {
		t.Fatalf("got %+v, %v, want %d waiting of %d kinds and more", stats, err, tasks, storage.MaxStatsKinds)
	}
	all := make([]string, kinds)
	for i := range all {
		all[i] = fmt.Sprintf("kind%d", i)
	}
	for n, taken := 0, 0; taken < tasks; n++ {
		req := claimOf(100)
		if n%2 == 0 {
			req.Kinds = all
		}
		claimed, err := session.Claim(t.Context(), req)
		if err != nil || len(claimed.Tasks) == 0 {
			t.Fatalf("after %d tasks: %d, %v", taken, len(claimed.Tasks), err)
		}
		taken += len(claimed.Tasks)
	}
	bound := pace.Stretch(5*time.Millisecond, begun)
	if got := slow(t, client, bound); len(got) > 40 {
		t.Errorf("script calls over %v: got %d of about 900: %v", bound, len(got), got)
	}
}

// TestDeclinedTasksCostOthersNothing: claims of other kinds go the short way beside them.
func TestDeclinedTasksCostOthersNothing(t *testing.T) {
	server, _, session := started(t)
	claim := func() map[string]int {
		req := claimOf(8)
		req.Kinds = []string{"other"}
		return commands(t, server, func() {
			if claimed, err := session.Claim(t.Context(), req); err != nil || len(claimed.Tasks) != 8 {
				t.Errorf("claimed %d, %v, want 8", len(claimed.Tasks), err)
			}
		})
	}
	fill(t, session, 32, nil)
	claim()
	want := claim()
	decline(t, session, 1000, 3)
	fill(t, session, 16, func(in *storage.Insert) { in.Ref.ID = "more" + in.Ref.ID })
	claim()
	got := claim()
	for _, command := range []string{"zrangebylex", "zcard", "hmget", "hget"} {
		if got[command] != want[command] {
			t.Errorf("%s: got %d beside declined tasks, want %d", command, got[command], want[command])
		}
	}
}
