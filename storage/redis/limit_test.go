package redis

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// limit declares a limit of the queue mail; the zero Limit removes it.
func limit(t *testing.T, s *Storage, l storage.Limit) {
	t.Helper()
	settings := storage.Settings{Declared: &storage.DeclaredLimit{Limit: l}}
	if err := s.Configure(t.Context(), storage.Call{}, "mail", settings); err != nil {
		t.Fatal(err)
	}
}

func rate(n int, per time.Duration) storage.Limit {
	return storage.Limit{Rate: storage.Rate{N: n, Per: per}}
}

// inserted inserts n tasks into mail.
func inserted(t *testing.T, s *Storage, n int) {
	t.Helper()
	var txs []storage.Tx
	for i := range n {
		txs = append(txs, insertOf("mail", "t"+strconv.Itoa(i)))
	}
	if _, err := s.Apply(t.Context(), storage.Call{}, txs...); err != nil {
		t.Fatal(err)
	}
}

// claims claims up to most tasks of mail.
func claims(t *testing.T, s *Storage, most int) storage.Claimed {
	t.Helper()
	claimed, err := s.Claim(t.Context(), asking(storage.Call{}, most, "mail"))
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

// mailStats returns the Stats of mail.
func mailStats(t *testing.T, s *Storage) storage.Stats {
	t.Helper()
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	return stats[0]
}

// TestTheShortClaimLeavesALimit until the limit is cleared, also if the queue has had declined tasks
// meanwhile.
func TestTheShortClaimLeavesALimit(t *testing.T) {
	for _, declined := range []bool{false, true} {
		s, server := plainWorld(t)
		limit(t, s, storage.Limit{Concurrency: 10})
		if declined {
			declining(t, storage.NewSession(s, testserver.Patience), "news", 2)
		}
		seq := uint64(1)
		short := func() bool {
			seq++
			req := asking(callOf(seq), 1, "mail", "bulk")
			if _, err := s.Claim(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			before := server.Dump()
			req.Call.Seq++
			taken := takesShort(t, s, &req, true)
			if !taken && server.Dump() != before {
				t.Error("the short claim wrote something and left the call")
			}
			seq++
			return taken
		}
		for range 2 {
			if short() {
				t.Errorf("declined %v: with a limit the short claim takes tasks", declined)
			}
		}
		limit(t, s, storage.Limit{})
		if !short() {
			t.Errorf("declined %v: without a limit the short claim leaves the call", declined)
		}
		if server.HGet("midge:{mail}:side", "q:declared")+server.HGet("midge:{mail}:side", "q:starts") != "" {
			t.Errorf("declined %v: the limit that was cleared has left fields", declined)
		}
	}
}

// TestALimitOutlivesADamagedMark: the field lines makes claims read a limit.
func TestALimitOutlivesADamagedMark(t *testing.T) {
	s, server := openMini(t)
	inserted(t, s, 5)
	limit(t, s, storage.Limit{Concurrency: 1})
	server.HSet("midge:{mail}:meta", "lines", "x")
	if c := claims(t, s, 5); len(c.Tasks) != 1 || c.More || fmt.Sprint(c.Bounded) != "[mail]" {
		t.Errorf("claimed %d, more %v, bounded %v; want one task, and mail bounded", len(c.Tasks), c.More, c.Bounded)
	}
	limit(t, s, storage.Limit{})
	server.HSet("midge:{mail}:meta", "lines", "x")
	if c := claims(t, s, 5); len(c.Tasks) != 4 || len(c.Bounded) > 0 {
		t.Errorf("without a limit: claimed %d, bounded %v", len(c.Tasks), c.Bounded)
	}
	if lines, err := strconv.Atoi(server.HGet("midge:{mail}:meta", "lines")); err != nil || lines <= 0 {
		t.Errorf("lines is %d, %v; want it mended", lines, err)
	}
}

// TestClaimsReadALimitAsTheEngineDoes: a text is that of a limit for both or for neither, and the limit of
// the operator stands above the declared one.
func TestClaimsReadALimitAsTheEngineDoes(t *testing.T) {
	texts := []string{
		"", "1 0 0", "10000 0 0", "10001 0 0", "0 0 0", "0 1 1000", "0 1 1", "0 1 999", "2 1000000000 1000",
		"2 1000000001 1000", "0 0 1000", "0 1 0", "0 1 2678400000000", "0 1 2678400000001", "-1 0 0", "-0 1 1000",
		"+3 0 0", "0 -1 1000", "1 0", "1 0 0 0", "1  0 0", " 1 0 0", "1 0 0 ", "1,0,0", "x", "1 x 0", "1e1 0 0", "1.0 0 0",
		"0x1 0 0", "1 0 0 2 0 0 0", "1 0 0 0 0 0 5", "1 0 0 0 0 0 0", "1 0 0 2 0 0", "1 0 0 2 0 0 1001", "1 0 0 2 0 0 -1",
		"1 0 0;2 0 0", "1 0 0;x", ";1 0 0", "99999999999999999999 0 0",
	}
	for _, operator := range texts {
		for _, declared := range []string{"", "3 0 0", "3 0 0;x", "x", "x;3 0 0", "0 2 60000000"} {
			s, server := openMini(t)
			inserted(t, s, 5)
			limit(t, s, storage.Limit{Concurrency: 1})
			for field, text := range map[string]string{"q:operator": operator, "q:declared": declared} {
				server.HDel("midge:{mail}:side", field)
				if text != "" {
					server.HSet("midge:{mail}:side", field, text)
				}
			}
			want := engine.LimitOf(operator, declared, nil)
			admits := 5
			if l := want.InForce(); l.Concurrency > 0 {
				admits = min(admits, l.Concurrency)
			}
			if r := want.InForce().Rate; r.N > 0 {
				admits = min(admits, r.N)
			}
			stats := mailStats(t, s)
			damaged := want != nil && want.Damaged
			if damaged != (stats.Damaged == 1) || (stats.Limit == nil) != (want == nil) {
				t.Errorf("%q, %q: damaged %d, limit %v", operator, declared, stats.Damaged, stats.Limit)
			}
			if c := claims(t, s, 5); len(c.Tasks) != admits || len(c.Bounded) > 0 != (len(c.Tasks) < 5) {
				t.Errorf("%q, %q: claimed %d, bounded %v, want %d", operator, declared, len(c.Tasks), c.Bounded, admits)
			}
		}
	}
}

// TestDamagedStartsCountAsNone and are counted as damage until the next start.
func TestDamagedStartsCountAsNone(t *testing.T) {
	now := time.Now().UnixMicro()
	start := func(end int64, n uint32) string {
		return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(end)), n))
	}
	many := ""
	for i := range int64(engine.MostStarts + 1) {
		many += start(now-1000+i, 1)
	}
	for _, damaged := range []string{
		"x", start(now, 5)[1:], start(now, 5) + "x", start(now, 5) + start(now, 1), start(now, 5) + start(now-1, 1),
		start(0, 5), start(-1, 5), start(1<<53, 5), start(now, storage.MaxRate+1), many,
	} {
		s, server := openMini(t)
		inserted(t, s, 9)
		limit(t, s, rate(5, time.Minute))
		server.HSet("midge:{mail}:side", "q:starts", damaged)
		if stats := mailStats(t, s); stats.Damaged != 1 || stats.Limit.Started != 0 {
			t.Errorf("%x: damaged %d, started %d, want 1 and 0", damaged, stats.Damaged, stats.Limit.Started)
		}
		if c := claims(t, s, 9); len(c.Tasks) != 5 {
			t.Errorf("%x: claimed %d, want 5", damaged, len(c.Tasks))
		}
		if stats := mailStats(t, s); stats.Damaged != 0 || stats.Limit.Started != 5 {
			t.Errorf("%x: then damaged %d, started %d, want 0 and 5", damaged, stats.Damaged, stats.Limit.Started)
		}
	}
}

// TestARateIsThatOfTheEngine plays random claims, and compares their replies with the engine's reading of
// their starts.
func TestARateIsThatOfTheEngine(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s, server := openMini(t)
		now := time.Now().Truncate(time.Microsecond)
		per, n := time.Duration(1+rng.IntN(9000))*time.Millisecond, 1+rng.IntN(9)
		server.SetTime(now)
		inserted(t, s, 100)
		limit(t, s, rate(n, per))
		var ends []time.Time // of the parts in which tasks started
		for range 40 {
			claimed := claims(t, s, 1+rng.IntN(4))
			width := (per.Microseconds() + storage.RateParts - 1) / storage.RateParts
			for range claimed.Tasks {
				ends = append(ends, time.UnixMicro(now.UnixMicro()/width*width+width-1))
			}
			ends = slices.DeleteFunc(ends, func(end time.Time) bool { return !now.Before(end.Add(per)) })
			stats := mailStats(t, s)
			if len(ends) > n || stats.Limit.Started != int64(len(ends)) || stats.Damaged > 0 {
				t.Fatalf("seed %d: %+v after %d starts in %v, want at most %d", seed, stats.Limit, len(ends), per, n)
			}
			bounded := len(claimed.Bounded) == 1
			if bounded != (len(ends) == n) || !claimed.NextDue.Equal(stats.Limit.Next) {
				t.Fatalf("seed %d: bounded %v until %v, and by the engine until %v; %d of %d starts", seed,
					claimed.Bounded, claimed.NextDue, stats.Limit.Next, len(ends), n)
			}
			if next := claimed.NextDue; !next.IsZero() && rng.IntN(2) == 0 {
				now = next
			} else {
				now = now.Add(time.Duration(rng.Int64N(int64(per) / 2)).Truncate(time.Microsecond))
			}
			server.SetTime(now)
		}
	}
}

// TestStartsOfAWrongClockCountAsMadeNow: a clock that was ahead by days holds the queue up for one Per at
// most.
func TestStartsOfAWrongClockCountAsMadeNow(t *testing.T) {
	j := newJumping(t)
	limit(t, j.s, rate(2, 10*time.Second))
	for i := range 9 {
		j.insert("t"+strconv.Itoa(i), 0)
	}
	j.want("at first", j.claim(), "t0", "t1")
	j.at(48 * time.Hour)
	j.want("ahead, in the wait of the clock", j.claim())
	j.at(48*time.Hour + storage.JumpWait)
	j.want("ahead, after the wait", j.claim(), "t0", "t1") // their leases have expired
	j.at(time.Second)
	c := j.want("back", j.claim())
	if late := c.NextDue.Sub(j.now); late < 10*time.Second || late > 10*time.Second+11*time.Second/storage.RateParts {
		t.Errorf("the next start is %v after now, want about ten seconds", late)
	}
	j.at(c.NextDue.Sub(j.begun))
	j.want("ten seconds later", j.claim(), "t2", "t3")
	if stats := mailStats(t, j.s); stats.Limit.Started != 2 || stats.Damaged != 0 {
		t.Errorf("%d starts count, %d are damaged; want 2 and none", stats.Limit.Started, stats.Damaged)
	}
}

// TestARepeatedClaimStartsNothing: it returns the tasks of the first try and leaves the starts as they are.
func TestARepeatedClaimStartsNothing(t *testing.T) {
	s, server := openMini(t)
	inserted(t, s, 9)
	limit(t, s, rate(3, time.Minute))
	req := asking(callOf(1), 2, "mail")
	for range 3 {
		if c, err := s.Claim(t.Context(), req); err != nil || len(c.Tasks) != 2 || len(c.Bounded) > 0 {
			t.Fatalf("claimed %d, bounded %v, %v; want two tasks", len(c.Tasks), c.Bounded, err)
		}
	}
	if started := mailStats(t, s).Limit.Started; started != 2 {
		t.Errorf("%d starts count, want 2", started)
	}
	before := server.HGet("midge:{mail}:side", "q:starts")
	limit(t, s, rate(4, time.Minute))
	if server.HGet("midge:{mail}:side", "q:starts") != before {
		t.Error("another rate has changed the starts")
	}
}

// TestABoundedClaimIsNotIdle: tasks that only the limit holds back wake nobody, and a process that cannot
// take them is not marked for the next ones.
func TestABoundedClaimIsNotIdle(t *testing.T) {
	s, server := openMini(t)
	inserted(t, s, 3)
	limit(t, s, storage.Limit{Concurrency: 1})
	if c := claims(t, s, 3); len(c.Tasks) != 1 || c.More {
		t.Fatalf("claimed %d, more %v; want one task", len(c.Tasks), c.More)
	}
	if server.Exists("midge:{mail}:idle") {
		t.Error("the claim has marked its process as idle")
	}
	limit(t, s, storage.Limit{Concurrency: 2})
	if c := claims(t, s, 1); len(c.Tasks) != 1 || c.More || len(c.Bounded) != 1 {
		t.Errorf("claimed %d, more %v, bounded %v; want one task, and mail bounded", len(c.Tasks), c.More, c.Bounded)
	}
	limit(t, s, storage.Limit{Concurrency: 9})
	if c := claims(t, s, 1); len(c.Tasks) != 1 || len(c.Bounded) > 0 {
		t.Errorf("claimed %d, bounded %v; want one task", len(c.Tasks), c.Bounded)
	}
	if !server.Exists("midge:{mail}:idle") {
		t.Error("the claim that found the last task has not marked its process as idle")
	}
}

// TestALimitHoldsAcrossTheScriptCallsOfAClaim: in a claim of more queues than a script call serves, a
// later call may have no task left to start.
func TestALimitHoldsAcrossTheScriptCallsOfAClaim(t *testing.T) {
	s, _ := openMini(t)
	queues := make([]string, claimQueues, claimQueues+1)
	for i := range queues {
		queues[i] = "q" + strconv.Itoa(i)
	}
	queues = append(queues, "mail")
	limit(t, s, storage.Limit{Concurrency: 2})
	inserted(t, s, 5)
	if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("q1", "other")); err != nil {
		t.Fatal(err)
	}
	req := asking(storage.Call{}, 1, queues...)
	req.Ahead = 8
	c, err := s.Claim(t.Context(), req)
	if err != nil || len(c.Tasks) != 2 || c.Tasks[0].ID != "other" || c.Tasks[1].Started || !c.More || len(c.Bounded) > 0 {
		t.Errorf("claimed %v, more %v, bounded %v, %v; want the other task, one ahead, and more", c.Tasks, c.More, c.Bounded, err)
	}
	req.Start = 0
	c, err = s.Claim(t.Context(), req)
	if err != nil || len(c.Tasks) != 0 || c.More || fmt.Sprint(c.Bounded) != "[mail]" {
		t.Errorf("claimed %v, more %v, bounded %v, %v; want none, because one is ahead", c.Tasks, c.More, c.Bounded, err)
	}
	req.Start = 4
	c, err = s.Claim(t.Context(), req)
	if err != nil || len(c.Tasks) != 1 || c.More || fmt.Sprint(c.Bounded) != "[mail]" {
		t.Errorf("claimed %v, more %v, bounded %v, %v; want one more task", c.Tasks, c.More, c.Bounded, err)
	}
}

// TestALimitHoldsOverSlots: the second round of a claim takes no more than the limit admits after the first
// one.
func TestALimitHoldsOverSlots(t *testing.T) {
	for _, most := range []int{1, 2, 4, 8, 20} {
		s, _ := openSlots(t)
		inserted(t, s, 9)
		limit(t, s, storage.Limit{Concurrency: 3, Rate: storage.Rate{N: 5, Per: time.Minute}})
		want, bounded := min(most, 3), "[]"
		if want == 3 {
			bounded = "[mail]"
		}
		req := asking(callOf(1), most, "bulk", "mail", "few")
		for _, call := range []string{"first", "repeat"} {
			c, err := s.Claim(t.Context(), req)
			if err != nil || len(c.Tasks) != want {
				t.Fatalf("the %s call for %d took %d, %v; want %d", call, most, len(c.Tasks), err, want)
			}
			if got := fmt.Sprint(c.Bounded); call == "first" && (got != bounded || c.More != (want < 3)) {
				t.Errorf("%d: bounded %s, more %v; want %s and %v", most, got, c.More, bounded, want < 3)
			}
		}
		if started := mailStats(t, s).Limit.Started; started != int64(want) {
			t.Errorf("%d: %d starts count, want %d", most, started, want)
		}
	}
}

// TestAQueueWithALimitIsListed and one for which a limit was only cleared does not exist.
func TestAQueueWithALimitIsListed(t *testing.T) {
	s, server := openMini(t)
	limit(t, s, storage.Limit{})
	if got := queuesListed(t, s); got != "" || anyKey(server) {
		t.Errorf("queues %q, keys %v; want none", got, server.Keys())
	}
	now := time.Now()
	server.SetTime(now)
	limit(t, s, storage.Limit{Concurrency: 1})
	for range 30 {
		now = now.Add(storage.JumpAfter - time.Minute)
		server.SetTime(now)
		claims(t, s, 1)
	}
	server.SetTime(now.Add(2 * queueLife))
	for range 2 {
		claims(t, s, 1)
		server.SetTime(now.Add(2*queueLife + storage.JumpWait))
	}
	if got := queuesListed(t, s); got != "mail" || mailStats(t, s).Limit.InForce().Concurrency != 1 {
		t.Errorf("queues %q after two days, want mail with its limit", got)
	}
}

// anyKey reports whether a queue has keys.
func anyKey(server *miniredis.Miniredis) bool {
	return server.Exists("midge:{mail}:meta") || server.Exists("midge:{mail}:side")
}

// TestTheShortClaimLeavesTheLimitOfOnePartition until that is cleared, and the limit of the queue too.
func TestTheShortClaimLeavesTheLimitOfOnePartition(t *testing.T) {
	for _, beside := range []bool{false, true} {
		s, server := plainWorld(t)
		own := func(on bool) {
			o := storage.OperatorLimit{On: on}
			o.Limit.Partition.Weight = map[bool]int{true: 2}[on]
			settings := storage.Settings{Partition: "a", Limit: &o}
			if err := s.Configure(t.Context(), storage.Call{}, "mail", settings); err != nil {
				t.Fatal(err)
			}
		}
		own(true)
		if beside {
			limit(t, s, storage.Limit{Concurrency: 10})
		}
		req := asking(callOf(2), 1, "mail", "bulk")
		if takesShort(t, s, &req, true) {
			t.Errorf("beside %v: with a limit of one partition the short claim takes tasks", beside)
		}
		own(false)
		limit(t, s, storage.Limit{})
		claims(t, s, 1)
		req = asking(callOf(3), 1, "mail", "bulk")
		if !takesShort(t, s, &req, true) {
			t.Errorf("beside %v: without the limit the short claim leaves the call", beside)
		}
		if server.HGet("midge:{mail}:side", "q:owned") != "" {
			t.Errorf("beside %v: the limit that was cleared has left a field", beside)
		}
	}
}
