package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// keyedOf is the insert of a task into mail, in a partition.
func keyedOf(key, id string) storage.Tx {
	tx := insertOf("mail", id)
	tx.Inserts[0].Partition = key
	return tx
}

// tended opens a miniredis whose claims search for damage whenever they come.
func tended(t *testing.T) (*Storage, *miniredis.Miniredis, *storage.Session) {
	t.Helper()
	server := miniredis.RunT(t)
	s, err := Open(t.Context(), Config{URL: "redis://" + server.Addr(), ways: ways{reindex: time.Microsecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, server, storage.NewSession(s, testserver.Patience)
}

func insertAll(t *testing.T, session *storage.Session, txs ...storage.Tx) {
	t.Helper()
	applied, err := session.Apply(t.Context(), txs...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range applied {
		if applied[i].Err != nil {
			t.Fatal(applied[i].Err)
		}
	}
}

// completedOf claims and completes all tasks of mail, n together, and returns their ids.
func completedOf(t *testing.T, session *storage.Session, n int) (ids []string) {
	t.Helper()
	for more := true; more; {
		c, err := session.Claim(t.Context(), claimOfKind("job", n))
		if err != nil {
			t.Fatal(err)
		}
		ends := make([]storage.Tx, len(c.Fences))
		for i, f := range c.Fences {
			ids = append(ids, f.ID)
			ends[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Complete}}
		}
		insertAll(t, session, ends...)
		more = c.More
	}
	return ids
}

// TestPartitionsLeaveNothingBehind: after many partitions came and went, each with a task or a pause, the database has
// the keys and fields of a queue that never had one, and the short claim serves it. If a rate counted their starts,
// that is so after one Per. A miniredis is too slow for so many.
func TestPartitionsLeaveNothingBehind(t *testing.T) {
	for name, rate := range map[string]storage.Rate{"unlimited": {}, "rated": {N: 1, Per: passingPer}} {
		t.Run(name+"/miniredis", func(t *testing.T) { testLeavesNothing(t, miniredis.RunT(t).Addr(), 300, rate) })
		t.Run(name+"/redis", func(t *testing.T) {
			testserver.Require(t)
			testLeavesNothing(t, testserver.Redis(t).Addr(), passingPartitions, rate)
		})
	}
}

func testLeavesNothing(t *testing.T, address string, parts int, rate storage.Rate) {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: "redis://" + address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	session := storage.NewSession(s, testserver.Patience)
	insertAll(t, session, insertOf("mail", "first"))
	if got := completedOf(t, session, 9); len(got) != 1 {
		t.Fatalf("claimed %v, want the first", got)
	}
	before := layoutOf(t, s)
	if rate.N > 0 {
		eachRate(t, session, rate)
	}
	const together = 10_000
	for from := 0; from < parts; from += together {
		pass(t, s, session, from, min(from+together, parts))
	}
	if rate.N > 0 {
		awaitNoRing(t, s, session)
		eachRate(t, session, storage.Rate{})
	}
	// The next claim maintains the queue, as a claim that comes a minute later does.
	if err := s.client.HSet(t.Context(), s.keys.key("mail", metaKey), "soon", 0, "reindex", 0).Err(); err != nil {
		t.Fatal(err)
	}
	completedOf(t, session, 1)
	if after := layoutOf(t, s); !slices.Equal(after, before) {
		t.Errorf("got the keys and fields\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	if got := linesOf(t, s); got <= 0 {
		t.Errorf("lines without partitions: got %d, want a mark", got)
	}
}

// eachRate sets the rate of each partition of mail. The zero Rate clears the limit.
func eachRate(t *testing.T, session *storage.Session, rate storage.Rate) {
	t.Helper()
	l := storage.Limit{Partition: storage.PartitionLimit{Rate: rate}}
	settings := storage.Settings{Limit: &storage.OperatorLimit{On: rate.N > 0, Limit: l}}
	if err := session.Configure(t.Context(), "mail", settings); err != nil {
		t.Fatal(err)
	}
}

// awaitNoRing claims until nothing is left of the partitions whose starts count for a rate, of which there are some.
func awaitNoRing(t *testing.T, s *Storage, session *storage.Session) {
	t.Helper()
	ring := s.keys.key("mail", ringKey)
	left := func() int64 {
		n, err := s.client.ZCard(t.Context(), ring).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// On a busy machine Per may be over before the claims of the partitions above have returned.
	last := 0
	testserver.Await(t, "a partition is left whose start counts", func() bool {
		last++
		insertAll(t, session, keyedOf(fmt.Sprint("last ", last), fmt.Sprint("last", last)))
		completedOf(t, session, 1)
		return left() > 0
	})
	testserver.Await(t, "no partition is left in the ring", func() bool {
		completedOf(t, session, 1)
		return left() == 0
	})
}

// pass lets partitions with a task come and go, and a hundred that are paused and resumed meanwhile.
func pass(t *testing.T, s *Storage, session *storage.Session, from, to int) {
	t.Helper()
	const at = 100
	for i := from; i < to; i += at {
		txs := make([]storage.Tx, at)
		for j := range txs {
			txs[j] = keyedOf(fmt.Sprint("of ", i+j), fmt.Sprint("t", i+j))
		}
		insertAll(t, session, txs...)
	}
	for _, on := range []bool{true, false} {
		for i := range at {
			settings := storage.Settings{Partition: fmt.Sprint("empty ", from+i), Pause: &storage.Pause{On: on}}
			if err := session.Configure(t.Context(), "mail", settings); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := linesOf(t, s); got != -1 {
		t.Errorf("lines with partitions: got %d, want -1", got)
	}
	if got := completedOf(t, session, 1000); len(got) != to-from {
		t.Fatalf("claimed %d tasks, want %d", len(got), to-from)
	}
}

// linesOf returns the field lines of mail.
func linesOf(t *testing.T, s *Storage) int64 {
	t.Helper()
	n, err := s.client.HGet(t.Context(), s.keys.key("mail", metaKey), "lines").Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// layoutOf returns the number of all keys, the keys of mail, and the fields of some.
func layoutOf(t *testing.T, s *Storage) (all []string) {
	t.Helper()
	keys, err := s.client.DBSize(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, fmt.Sprint(keys, " keys"))
	for at, suffix := range suffixes {
		key := s.keys.key("mail", at)
		if n, err := s.client.Exists(t.Context(), key).Result(); err != nil || n == 0 {
			continue
		}
		all = append(all, key)
		if suffix == "side" || suffix == "tasks" || suffix == "damaged" {
			fields, err := s.client.HKeys(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(fields)
			all = append(all, fields...)
		}
	}
	return all
}

// TestDamageOfPartitionsStopsNobody: members that no step has written in the ring and in the lines of
// partitions are set apart or removed, and all sound tasks are served.
func TestDamageOfPartitionsStopsNobody(t *testing.T) {
	const ring, lines = "midge:{mail}:ring", "midge:{mail}:lines"
	zadd := func(server *miniredis.Miniredis, key string, score float64, member string) {
		t.Helper()
		if _, err := server.ZAdd(key, score, member); err != nil {
			t.Fatal(err)
		}
	}
	long := string(make([]byte, 2*placeSize)) + "id"
	for name, damage := range map[string]func(server *miniredis.Miniredis){
		"a ready member of the ring without tasks":  func(server *miniredis.Miniredis) { zadd(server, ring, -never, "pnone") },
		"a paused member of the ring without tasks": func(server *miniredis.Miniredis) { zadd(server, ring, 1, "pnone") },
		"a member of the ring that is no line":      func(server *miniredis.Miniredis) { zadd(server, ring, -never, "") },
		"a member of a line that is too short":      func(server *miniredis.Miniredis) { zadd(server, lines, 0, "pa\x00\x00short") },
		"a member that stands for no task":          func(server *miniredis.Miniredis) { zadd(server, lines, 0, "pa\x00\x00"+long) },
		"a member of another priority":              func(server *miniredis.Miniredis) { zadd(server, lines, 0, "pa\x00\x30"+long) },
		"a member of no class":                      func(server *miniredis.Miniredis) { zadd(server, lines, 0, "pa\x00\xf0"+long) },
		"a member without a task":                   func(server *miniredis.Miniredis) { zadd(server, lines, 0, "pa") },
		"a line without a key":                      func(server *miniredis.Miniredis) { zadd(server, lines, 0, "p\x00\x00"+long) },
		"a line that the ring lacks":                func(server *miniredis.Miniredis) { _, _ = server.ZRem(ring, "pa") },
		"a lost ring":                               func(server *miniredis.Miniredis) { server.Del(ring) },
		"a number lines that tells of no partition": func(server *miniredis.Miniredis) { server.HSet("midge:{mail}:meta", "lines", "7") },
		"a number of the own turn that is none":     func(server *miniredis.Miniredis) { server.HSet("midge:{mail}:meta", "own", "x") },
		"scores in the lines": func(server *miniredis.Miniredis) {
			members, _ := server.ZMembers(lines)
			zadd(server, lines, 5, members[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, server, session := tended(t)
			insertAll(t, session, keyedOf("a", "a0"), keyedOf("b", "b0"), keyedOf("a", "a1"), insertOf("mail", "x"))
			damage(server)
			got := completedOf(t, session, 3)
			for range 3 {
				got = append(got, completedOf(t, session, 3)...)
			}
			slices.Sort(got)
			if want := []string{"a0", "a1", "b0", "x"}; !slices.Equal(got, want) {
				t.Errorf("claimed %v, want %v", got, want)
			}
			if server.Exists(ring) || server.Exists(lines) {
				t.Errorf("the damage is still there: %v", server.Dump())
			}
		})
	}
}

// TestManyDamagedPartitionsStopNobody: a claim passes over as many partitions as it may, all of which turn out to have
// no tasks, whether the ring was damaged or the tasks were. The claims after it serve the sound task.
func TestManyDamagedPartitionsStopNobody(t *testing.T) {
	const parts = storage.MaxTurns + 1
	for name, damage := range map[string]func(t *testing.T, server *miniredis.Miniredis, session *storage.Session){
		"members of the ring without tasks": func(t *testing.T, server *miniredis.Miniredis, _ *storage.Session) {
			t.Helper()
			for i := range parts {
				if _, err := server.ZAdd("midge:{mail}:ring", -never, fmt.Sprint("pof ", i)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"tasks without a record": func(t *testing.T, server *miniredis.Miniredis, session *storage.Session) {
			t.Helper()
			txs := make([]storage.Tx, parts)
			for i := range txs {
				txs[i] = keyedOf(fmt.Sprint("of ", i), fmt.Sprint("t", i))
			}
			insertAll(t, session, txs...)
			server.Del("midge:{mail}:tasks")
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, server, session := tended(t)
			damage(t, server, session)
			insertAll(t, session, keyedOf("z", "sound"))
			var got []string
			for range 3 {
				got = append(got, completedOf(t, session, 1)...)
			}
			if !slices.Equal(got, []string{"sound"}) {
				t.Errorf("claimed %q, want the sound task", got)
			}
		})
	}
}

// TestALostRingIsMadeAgain: the lines of partitions that the ring lacks come back to it step by step.
func TestALostRingIsMadeAgain(t *testing.T) {
	_, server, session := tended(t)
	const parts = 250
	txs := make([]storage.Tx, parts)
	for i := range txs {
		txs[i] = keyedOf(fmt.Sprintf("of %03d", i), fmt.Sprint("t", i))
	}
	insertAll(t, session, txs...)
	server.Del("midge:{mail}:ring")
	got := completedOf(t, session, 10)
	for range 3 {
		got = append(got, completedOf(t, session, 10)...)
	}
	if len(got) != parts {
		t.Errorf("claimed %d, want %d", len(got), parts)
	}
}

// TestTheSearchForDamageLeavesNoPlaceBehind: the place of the search among the lines of partitions is
// forgotten once there are none.
func TestTheSearchForDamageLeavesNoPlaceBehind(t *testing.T) {
	_, server, session := tended(t)
	const parts = 150 // more than a step reads
	txs := make([]storage.Tx, parts)
	for i := range txs {
		txs[i] = keyedOf(fmt.Sprintf("of %03d", i), fmt.Sprint("t", i))
	}
	insertAll(t, session, txs...)
	now := time.Now()
	server.SetTime(now)
	completedOf(t, session, parts)
	server.SetTime(now.Add(2 * time.Minute))
	completedOf(t, session, 1)
	if fields, _ := server.HKeys("midge:{mail}:side"); len(fields) > 0 {
		t.Errorf("the side hash has %q, want nothing", fields)
	}
}

// TestATaskOfAPartitionThatLostItsPlaceWaitsAgain: a torn append-only file can cost it its place.
func TestATaskOfAPartitionThatLostItsPlaceWaitsAgain(t *testing.T) {
	s, server, session := tended(t)
	insertAll(t, session, keyedOf("a", "a0"))
	server.Del("midge:{mail}:lines")
	server.Del("midge:{mail}:ring")
	got := completedOf(t, session, 9)
	got = append(got, completedOf(t, session, 9)...)
	if want := []string{"a0"}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Damaged != 0 {
		t.Errorf("got %+v, %v, want nothing damaged", stats, err)
	}
}

// TestPausesThatAreOverHideNoPartition: partitions without tasks, whose pauses no claim has ended yet, are
// not listed, and a page goes on behind them.
func TestPausesThatAreOverHideNoPartition(t *testing.T) {
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	session := storage.NewSession(s, testserver.Patience)
	for key, length := range map[string]time.Duration{
		"a": time.Second, "b": time.Second, "c": time.Second, "d": 0, "é": time.Hour, "Z": 0,
	} {
		settings := storage.Settings{Partition: key, Pause: &storage.Pause{On: true, For: length}}
		if err := session.Configure(t.Context(), "mail", settings); err != nil {
			t.Fatal(err)
		}
	}
	insertAll(t, session, keyedOf("b2", "t"))
	server.SetTime(now.Add(time.Minute))
	var got []string
	query := storage.PartitionsQuery{Queue: "mail", Limit: 1}
	for range 9 {
		page, err := s.Partitions(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Partitions {
			got = append(got, fmt.Sprint(p.Key, p.Waiting, p.Paused, p.PausedUntil.IsZero()))
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	want := []string{"Z0 true true", "b21 false true", "d0 true true", "é0 true false"}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// TestAPageOfPartitionsLooksAtABoundedNumber: of more partitions whose pauses are over it reads some, and Next names the
// last of these.
func TestAPageOfPartitionsLooksAtABoundedNumber(t *testing.T) {
	s, _, session := tended(t)
	forever := storage.Settings{Partition: "z", Pause: &storage.Pause{On: true}}
	if err := session.Configure(t.Context(), "mail", forever); err != nil {
		t.Fatal(err)
	}
	var over []goredis.Z
	for i := range 1100 {
		over = append(over, goredis.Z{Score: 2 * never, Member: fmt.Sprintf("q%04d", i)})
	}
	if err := s.client.ZAdd(t.Context(), s.keys.key("mail", ringKey), over...).Err(); err != nil {
		t.Fatal(err)
	}
	var read []string
	for query := (storage.PartitionsQuery{Queue: "mail", Limit: 1}); len(read) == 0 || query.After != ""; {
		page, err := s.Partitions(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		query.After = page.Next
		read = append(read, fmt.Sprint(len(page.Partitions), page.Next))
	}
	if want := []string{"01000", "1"}; !slices.Equal(read, want) {
		t.Errorf("read %q, want %q", read, want)
	}
}

// TestABoundedClaimKeepsTheOrderOfQueues: a claim that takes no more tasks of a queue with partitions takes none of
// the queues behind it while the first one has some.
func TestABoundedClaimKeepsTheOrderOfQueues(t *testing.T) {
	_, _, session := tended(t)
	const parts = mostKeyed + 50
	txs := []storage.Tx{insertOf("side", "plain"), insertOf("side", "other")}
	txs[1].Inserts[0].Partition = "a"
	for i := range parts {
		txs = append(txs, keyedOf(fmt.Sprint("of ", i), fmt.Sprint("t", i)))
	}
	insertAll(t, session, txs...)
	req := claimOfKind("job", 1000)
	req.Queues = []storage.ClaimQueue{{Name: "mail"}, {Name: "side"}}
	for _, want := range []int{mostKeyed, parts - mostKeyed + 2} {
		c, err := session.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Tasks) != want || c.More != (want == mostKeyed) {
			t.Errorf("claimed %d, more %v, want %d", len(c.Tasks), c.More, want)
		}
	}
}
