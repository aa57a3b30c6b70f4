package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// laterPart is a part of a later version.
const laterPart = "\x09\x00\x05later"

// costing is the insert of a task with a cost into mail.
func costing(id string, c storage.Cost) storage.Tx {
	tx := insertOf("mail", id)
	tx.Inserts[0].Cost = c
	return tx
}

// withParts returns a record that has a cost, and neither a place nor a partition, with other parts in the
// place of its cost.
func withParts(record []byte, parts string) []byte {
	at := headerSize
	if record[1]&hasKeep != 0 {
		at += 7
	}
	after := record[at+2+len(packCost(2)):]
	return slices.Concat(record[:at], appendUint(nil, int64(len(parts)), 2), []byte(parts), after)
}

// TestADamagedCostIsNotRead: a part of another length, a cost out of range, and a second cost.
func TestADamagedCostIsNotRead(t *testing.T) {
	in := full()
	record, _ := newRecord(&in, nil)
	sound := map[string]storage.Cost{
		"":                                   0,
		laterPart:                            0,
		packCost(5):                          5,
		packCost(storage.NoCost):             storage.NoCost,
		packCost(storage.MaxCost):            storage.MaxCost,
		laterPart + packCost(5) + laterPart:  5,
		"\x01\x00\x00" + packCost(5):         5, // an attempt that cannot be read is left out
		packCost(storage.NoCost) + laterPart: storage.NoCost,
	}
	for parts, want := range sound {
		var task storage.Task
		if err := readRecord(string(withParts(record, parts)), &task); err != nil || task.Cost != want {
			t.Errorf("%q: got the cost %d, %v, want %d", parts, task.Cost, err, want)
		}
	}
	for _, parts := range []string{
		"\x02\x00\x00", "\x02\x00\x02\x00\x05", "\x02\x00\x04\x00\x00\x00\x05", "\x02\x00\x03\x0f\x42\x41",
		"\x02\x00\x03\xff\xff\xff",
		packCost(5) + packCost(5), packCost(storage.NoCost) + laterPart + packCost(5),
		"\x02", "\x02\x00", "\x02\x00\x03\x00\x00", laterPart[:7], packCost(5) + "\x09\x00",
	} {
		if err := readRecord(string(withParts(record, parts)), new(storage.Task)); err == nil {
			t.Errorf("%q: got no error", parts)
		}
	}
}

// TestATaskWithADamagedCostIsSetApart whether its queue has a rate or not.
func TestATaskWithADamagedCostIsSetApart(t *testing.T) {
	for _, rated := range []bool{false, true} {
		s, server := openMini(t)
		if rated {
			limit(t, s, rate(9, time.Minute))
		}
		for _, id := range []string{"a", "b", "c"} {
			if _, err := s.Apply(t.Context(), storage.Call{}, costing(id, 2)); err != nil {
				t.Fatal(err)
			}
		}
		damaged := withParts([]byte(server.HGet("midge:{mail}:tasks", "b")), "\x02\x00\x02\x00\x05")
		server.HSet("midge:{mail}:tasks", "b", string(damaged))
		c := claims(t, s, 9)
		if len(c.Tasks) != 2 || c.Tasks[0].ID != "a" || c.Tasks[1].ID != "c" {
			t.Errorf("rated %v: claimed %v, want a and c", rated, c.Tasks)
		}
		kept := server.HGet("midge:{mail}:damaged", "b")
		if stats := mailStats(t, s); stats.Damaged != 1 || stats.Pending != 2 || kept == "" {
			t.Errorf("rated %v: %d damaged and %d pending, want 1 and 2", rated, stats.Damaged, stats.Pending)
		}
	}
}

// A costed is a task with a cost and with a part of a later version, in mail or in other.
type costed struct {
	*testing.T
	s       *Storage
	server  *miniredis.Miniredis
	session *storage.Session
	ref     storage.Ref
	cost    storage.Cost
	fence   storage.Fence
}

// task reads the task, and checks its cost and its parts.
func (c *costed) task(after string) storage.Task {
	c.Helper()
	task, err := c.s.Task(c.Context(), c.ref)
	if err != nil {
		c.Fatal(after, err)
	}
	if task.Cost != c.cost {
		c.Errorf("%s: got the cost %d, want %d", after, task.Cost, c.cost)
	}
	record := c.server.HGet("midge:{"+c.ref.Queue+"}:tasks", c.ref.ID)
	if strings.Count(record, laterPart) != 1 || c.cost != 0 && strings.Count(record, packCost(c.cost)) != 1 {
		c.Errorf("%s: the record has other parts: %q", after, record)
	}
	return task
}

func (c *costed) change(after string, ch storage.Change) {
	c.Helper()
	ch.Ref, ch.Version = c.ref, c.task("before "+after).Version
	insertAll(c.T, c.session, storage.Tx{Changes: []storage.Change{ch}})
	if ch.Queue != "" {
		c.ref.Queue = ch.Queue
	}
	if ch.Cost != nil {
		c.cost = *ch.Cost
	}
	c.task(after)
}

func (c *costed) claim(after string) {
	c.Helper()
	claimed, err := c.session.Claim(c.Context(), asking(storage.Call{}, 1, c.ref.Queue))
	if err != nil || len(claimed.Tasks) != 1 || claimed.Tasks[0].Cost != c.cost {
		c.Fatalf("%s: claimed %+v, %v, want the task with the cost %d", after, claimed.Tasks, err, c.cost)
	}
	c.fence = claimed.Fences[0]
	c.task(after)
}

func (c *costed) settle(after string, outcome storage.Outcome, delay time.Duration) storage.Task {
	c.Helper()
	tx := settleOf(c.fence, outcome)
	tx.Settles[0].Delay = delay
	insertAll(c.T, c.session, tx)
	return c.task(after)
}

// TestACostSurvivesEachChange of state, place and queue, beside the parts of later versions.
func TestACostSurvivesEachChange(t *testing.T) {
	for _, general := range []bool{false, true} {
		s, server := openMiniBy(t, general)
		c := &costed{T: t, s: s, server: server, session: storage.NewSession(s, testserver.Patience), cost: 300}
		c.ref = storage.Ref{Queue: "mail", ID: "a"}
		tx := costing("a", 300)
		tx.Inserts[0].Keep.For, tx.Inserts[0].Timeout = time.Hour, time.Minute
		insertAll(t, c.session, tx)
		record := withParts([]byte(server.HGet("midge:{mail}:tasks", "a")), packCost(300)+laterPart)
		server.HSet("midge:{mail}:tasks", "a", string(record))
		c.claim("claimed")
		c.settle("failed", storage.Fail, time.Hour)
		c.change("due now", storage.Change{Now: true})
		c.claim("claimed again")
		c.settle("snoozed", storage.Snooze, time.Minute)
		server.SetTime(time.Now().Add(2 * time.Minute))
		c.claim("promoted and claimed")
		server.SetTime(time.Now().Add(4 * time.Minute))
		c.claim("recovered and claimed")
		c.settle("released", storage.Release, 0)
		c.claim("claimed after the release")
		c.settle("declined", storage.Decline, 0)
		c.claim("claimed after the decline")
		c.settle("buried", storage.Bury, 0)
		c.change("the cost of a dead task changed", storage.Change{Cost: new(storage.NoCost)})
		c.change("requeued", storage.Change{Requeue: true, Delay: time.Hour})
		c.change("the cost of a scheduled task changed", storage.Change{Cost: new(storage.Cost(1))})
		c.change("in a partition", storage.Change{Partition: new("p"), Now: true, Priority: new(3)})
		large := make([]byte, 2*largePayload)
		c.change("in another queue", storage.Change{Queue: "other", Payload: large, Encoding: "raw"})
		c.change("in no partition", storage.Change{Partition: new("")})
		c.claim("claimed there")
		done := c.settle("completed", storage.Complete, 0).Attempts
		if len(done) == 0 || done[len(done)-1].Outcome != storage.AttemptSucceeded {
			t.Errorf("the attempts are %+v, want one that succeeded at the end", done)
		}
		c.change("requeued after its end", storage.Change{Requeue: true, Cost: new(storage.Cost(2))})
		c.change("with no cost of its own", storage.Change{Cost: new(storage.Cost(0))})
		c.claim("claimed at last")
		if task := c.settle("completed", storage.Complete, 0); len(task.Attempts) == 0 || task.Cost != 0 {
			t.Errorf("got %+v, want attempts and no cost", task)
		}
	}
}

// TestAChangeOfTheCostChangesNothingElse: a waiting task keeps its place, and a task without a cost of its own
// has the record of a task that never had one.
func TestAChangeOfTheCostChangesNothingElse(t *testing.T) {
	s, server := openMini(t)
	session := storage.NewSession(s, testserver.Patience)
	insertAll(t, session, costing("a", 0), costing("b", 7), costing("c", 7))
	cursor := costing("cursor.x", 7)
	cursor.Inserts[0].Cursor = &storage.Cursor{Declaration: "{}", Next: time.Now().Add(time.Hour)}
	insertAll(t, session, cursor)
	record := func(id string) string { return server.HGet("midge:{mail}:tasks", id)[stampEnd:] }
	lead := func(id string) string { return server.HGet("midge:{mail}:tasks", id)[:leadSize] }
	plain, ticking := record("a"), record("cursor.x")
	reprice := func(id string, cost storage.Cost) {
		t.Helper()
		task, err := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: id})
		if err != nil {
			t.Fatal(err)
		}
		ch := storage.Change{Ref: task.Ref, Version: task.Version, Cost: &cost}
		insertAll(t, session, storage.Tx{Changes: []storage.Change{ch}})
	}
	reprice("b", 0)
	if record("b") != plain || lead("b") != lead("a") {
		t.Errorf("without a cost: got the record %q, want %q", record("b"), plain)
	}
	reprice("a", 7)
	if record("a") != record("c") || lead("a") != lead("c") {
		t.Errorf("with a cost: got the record %q, want %q", record("a"), record("c"))
	}
	reprice("cursor.x", storage.NoCost)
	reprice("cursor.x", 7)
	if record("cursor.x") != ticking {
		t.Errorf("a cursor: got the record %q, want %q", record("cursor.x"), ticking)
	}
	if c := claims(t, s, 9); fmt.Sprint(idsOf(c)) != "[a b c]" {
		t.Errorf("claimed %v, want a, b and c", idsOf(c))
	}
}

// idsOf returns the ids of the tasks that a claim took.
func idsOf(c storage.Claimed) (ids []string) {
	for i := range c.Tasks {
		ids = append(ids, c.Tasks[i].ID)
	}
	return ids
}

// TestCostsGoTheShortWays in a queue without a limit: tasks with a cost are inserted, claimed and completed
// there as others are.
func TestCostsGoTheShortWays(t *testing.T) {
	s, server := plainWorld(t)
	insertAll(t, storage.NewSession(s, testserver.Patience), costing("x", 9), costing("y", storage.NoCost))
	req := asking(callOf(2), 100, "mail")
	if !takesShort(t, s, &req, true) {
		t.Fatal("the short claim leaves the call")
	}
	for _, id := range []string{"x", "y"} {
		held := server.HGet("midge:{mail}:pending", id)
		if len(held) <= fenceSize || held[fenceSize]&leaseRecord != 0 {
			t.Errorf("%s is leased as %q, want its end to be a removal", id, held)
		}
	}
}

// TestARateAdmitsCostsAsTheContractSays plays random claims of tasks with costs, of which some stand in
// partitions. Each takes the tasks in their order, up to the first that the rate does not admit by the Stats
// before it.
func TestARateAdmitsCostsAsTheContractSays(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			s, server := openMini(t)
			now := time.Now().Truncate(time.Microsecond)
			server.SetTime(now)
			per := time.Duration(1+rng.IntN(9000)) * time.Millisecond
			l := turnsOf(rng, []string{"", "a", "b", "c"}[:1+3*(seed%2)])
			l.rate = storage.Rate{N: 1 + rng.IntN(12), Per: per}
			limit(t, s, storage.Limit{Rate: l.rate})
			insertAll(t, storage.NewSession(s, testserver.Patience), l.inserts...)
			for range 40 {
				next := l.check(t, s, 1+rng.IntN(9))
				if next.IsZero() || rng.IntN(2) == 0 {
					next = now.Add(time.Duration(rng.Int64N(per.Microseconds()/2)) * time.Microsecond)
				}
				now = next
				server.SetTime(now)
			}
		})
	}
}

// TestACostIsToldWhereAClaimTakesNothing: a claim that has no start left for a queue reads the cost of the task
// that comes next all the same, since the task does not count for More.
func TestACostIsToldWhereAClaimTakesNothing(t *testing.T) {
	for _, partition := range []string{"", "p"} {
		s, _ := openMini(t)
		session := storage.NewSession(s, testserver.Patience)
		limit(t, s, rate(9, time.Minute))
		var txs []storage.Tx
		for i, cost := range []storage.Cost{5, 5, 0} {
			tx := costing(fmt.Sprint("t", i), cost)
			tx.Inserts[0].Partition = partition
			txs = append(txs, tx)
		}
		insertAll(t, session, append(txs, insertOf("bulk", "b"))...)
		if c := claims(t, s, 1); fmt.Sprint(idsOf(c)) != "[t0]" || fmt.Sprint(c.Bounded) != "[mail]" || c.More {
			t.Errorf("%q: %v, bounded %v, more %v; want t0, and mail bounded", partition, idsOf(c), c.Bounded, c.More)
		}
		c, err := s.Claim(t.Context(), asking(storage.Call{}, 1, "bulk", "mail"))
		if err != nil || fmt.Sprint(idsOf(c)) != "[b]" || fmt.Sprint(c.Bounded) != "[mail]" || c.More {
			t.Errorf("%q: %v, bounded %v, more %v, %v; want b, and mail bounded", partition, idsOf(c), c.Bounded,
				c.More, err)
		}
		if next := mailStats(t, s).Limit.NextOf(5); next.IsZero() || !c.NextDue.Equal(next) {
			t.Errorf("%q: the next start is at %v, want %v", partition, c.NextDue, next)
		}
	}
}

// turns are the waiting tasks of a queue by partition, and its partitions in the order of their turns.
type turns struct {
	rate    storage.Rate
	ring    []string
	of      map[string][]storage.Insert
	inserts []storage.Tx // all of its tasks
}

// turnsOf returns tasks of random costs, in some partitions.
func turnsOf(rng *rand.Rand, partitions []string) *turns {
	costs := []storage.Cost{0, 0, storage.NoCost, 2, 3, 5, 9, 40}
	l := &turns{of: make(map[string][]storage.Insert)}
	for i := range 120 {
		tx := costing(fmt.Sprint("t", i), costs[rng.IntN(len(costs))])
		in := &tx.Inserts[0]
		in.Partition = partitions[rng.IntN(len(partitions))]
		switch {
		case len(l.of[in.Partition]) > 0:
		case in.Partition == "": // before all turns that a partition has got
			l.ring = append([]string{""}, l.ring...)
		default:
			l.ring = append(l.ring, in.Partition)
		}
		l.of[in.Partition] = append(l.of[in.Partition], *in)
		l.inserts = append(l.inserts, tx)
	}
	return l
}

// first returns the task that comes next, nil for none.
func (l *turns) first() *storage.Insert {
	if len(l.ring) == 0 {
		return nil
	}
	return &l.of[l.ring[0]][0]
}

// take takes up to most tasks that the rate admits, and returns their ids and the costs that count then.
func (l *turns) take(started int64, most int) ([]string, int64) {
	var ids []string
	for len(ids) < most && l.first() != nil && started+l.rate.Of(l.first().Cost) <= int64(l.rate.N) {
		in, key := *l.first(), l.ring[0]
		started += int64(min(in.Cost.N(), l.rate.N))
		ids = append(ids, in.Ref.ID)
		l.ring, l.of[key] = l.ring[1:], l.of[key][1:]
		if len(l.of[key]) > 0 {
			l.ring = append(l.ring, key)
		}
	}
	return ids, started
}

// check claims up to most tasks, checks the answer, and returns the moment from which the rate admits the next
// one, zero if it admits that now.
func (l *turns) check(t *testing.T, s *Storage, most int) time.Time {
	t.Helper()
	before := mailStats(t, s).Limit.Started
	want, started := l.take(before, most)
	req := asking(storage.Call{}, most, "mail")
	req.Lease = time.Hour
	c, err := s.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(idsOf(c), want) {
		t.Fatalf("claimed %v with %d of %d, want %v", idsOf(c), before, l.rate.N, want)
	}
	after := mailStats(t, s)
	if after.Limit.Started != started || after.Damaged > 0 {
		t.Fatalf("%d count, and %d are damaged, want %d and 0", after.Limit.Started, after.Damaged, started)
	}
	cost, first := storage.Cost(0), l.first()
	if first != nil && started < int64(l.rate.N) {
		cost = first.Cost
	}
	next := after.Limit.NextOf(cost)
	more := next.IsZero() && first != nil
	if !c.NextDue.Equal(next) || len(c.Bounded) == 1 == next.IsZero() || c.More != more {
		t.Fatalf("next %v, bounded %v, more %v; want next %v", c.NextDue, c.Bounded, c.More, next)
	}
	return next
}
