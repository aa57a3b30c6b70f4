package redis_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// decline inserts n tasks of so many kinds and declines them. It calls each function of after after each
// step.
func decline(t *testing.T, session *storage.Session, n, kinds int, after ...func()) {
	t.Helper()
	for done := 0; done < n; {
		fill(t, session, min(1000, n-done), func(in *storage.Insert) {
			in.Ref.ID = fmt.Sprintf("declined%d.%s", done, in.Ref.ID)
			in.Kind = fmt.Sprintf("kind%d", done%kinds)
			done++
		})
		callAll(after)
		req := claimOf(1000)
		req.Kinds = []string{"other"}
		claimed, err := session.Claim(t.Context(), req)
		if err != nil || len(claimed.Tasks) == 0 {
			t.Fatal(len(claimed.Tasks), err)
		}
		callAll(after)
		txs := make([]storage.Tx, len(claimed.Fences))
		for i, f := range claimed.Fences {
			txs[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Decline}}
		}
		if _, err := session.Apply(t.Context(), txs...); err != nil {
			t.Fatal(err)
		}
		callAll(after)
	}
}

// TestManyDeclinedHoldNobodyUp: declines take the server little time, as do claims that name a hundred
// kinds with lines and claims that name none.
func TestManyDeclinedHoldNobodyUp(t *testing.T) {
	const tasks, kinds = 20_000, 100
	server, store, session := started(t)
	m := startMeter(t, server)
	decline(t, session, tasks, kinds, m.step)
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
		m.step()
	}
	m.check(12) // of about 260
}

// TestDeclinedTasksCostOthersNothing: claims of other kinds still go the short way.
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

// TestClaimsOfManyLinesHoldNobodyUp: claims take the server little time if they take many tasks at
// once, over many kinds, and over many queues of many kinds. Each claim takes some tasks, until none is
// left.
func TestClaimsOfManyLinesHoldNobodyUp(t *testing.T) {
	kinds := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("kind%03d", i))
		}
		return all
	}
	queues := make([]storage.ClaimQueue, 24)
	for i := range queues {
		queues[i].Name = fmt.Sprintf("q%02d", i)
	}
	for _, c := range []struct {
		name   string
		queues []storage.ClaimQueue
		kinds  int
		each   int // tasks of a kind in a queue
		start  int
	}{
		{"1,000 tasks", queues[:1], 1, 5000, 1000},
		{"100 tasks of 1,000 kinds", queues[:1], 1000, 2, 100},
		{"24 queues of 200 kinds", queues, 200, 1, 100},
		{"4 queues of 1,000 kinds", queues[:4], 1000, 1, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, _, session := started(t)
			named := kinds(c.kinds)
			for _, q := range c.queues {
				declineIn(t, session, q.Name, named, c.each)
			}
			m, left := startMeter(t, server), len(c.queues)*c.kinds*c.each
			for left > 0 {
				req := claimOf(c.start)
				req.Queues, req.Kinds = c.queues, named
				claimed, err := session.Claim(t.Context(), req)
				if err != nil || len(claimed.Tasks) == 0 || claimed.More != (left > len(claimed.Tasks)) {
					t.Fatalf("%d left: claimed %d, more %v, %v", left, len(claimed.Tasks), claimed.More, err)
				}
				left -= len(claimed.Tasks)
				m.step()
			}
			m.checkMean()
		})
	}
}

// processor returns how much processor time the server has taken.
func processor(t *testing.T, server *testserver.Server) time.Duration {
	t.Helper()
	var all time.Duration
	for line := range strings.Lines(do(t, server, "INFO", "cpu")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			all += time.Duration(seconds * float64(time.Second))
		}
	}
	return all
}

// scriptCalls returns how many script calls the server has run.
func scriptCalls(t *testing.T, server *testserver.Server) int {
	t.Helper()
	_, rest, _ := strings.Cut(do(t, server, "INFO", "commandstats"), "cmdstat_evalsha:calls=")
	calls, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(calls)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// declineIn inserts so many tasks of each kind into a queue and declines them.
func declineIn(t *testing.T, session *storage.Session, queue string, kinds []string, each int) {
	t.Helper()
	var txs []storage.Tx
	for n := range each {
		for _, kind := range kinds {
			in := insertOf(fmt.Sprintf("%s.%d", kind, n))
			in.Ref.Queue, in.Kind = queue, kind
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
		}
	}
	for some := range slices.Chunk(txs, 1000) {
		if _, err := session.Apply(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
		req := claimOf(1000)
		req.Queues, req.Kinds = []storage.ClaimQueue{{Name: queue}}, []string{"other"}
		claimed, err := session.Claim(t.Context(), req)
		if err != nil || len(claimed.Fences) != len(some) {
			t.Fatalf("claimed %d, %v, want %d", len(claimed.Fences), err, len(some))
		}
		declines := make([]storage.Tx, len(claimed.Fences))
		for i, f := range claimed.Fences {
			declines[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Decline}}
		}
		if _, err := session.Apply(t.Context(), declines...); err != nil {
			t.Fatal(err)
		}
	}
}
