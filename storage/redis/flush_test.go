package redis

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
)

// openMini opens a storage on a miniredis, which runs in this process.
func openMini(t *testing.T) (*Storage, *miniredis.Miniredis) {
	t.Helper()
	return openMiniBy(t, false)
}

// openMiniBy is openMini; if general is true, calls go by the general ways of the scripts only.
func openMiniBy(t *testing.T, general bool) (*Storage, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	s, err := Open(t.Context(), Config{URL: "redis://" + server.Addr(), ways: ways{general: general}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, server
}

func insertOf(queue, id string) storage.Tx {
	return storage.Tx{Inserts: []storage.Insert{{
		Ref: storage.Ref{Queue: queue, ID: id}, Kind: "job", Encoding: "json", Payload: []byte("{}"),
		MaxRetries: 3, CrashLimit: 3,
	}}}
}

func callOf(seq uint64) storage.Call {
	return storage.Call{Lane: storage.Lane{ID: [16]byte{1}, Opened: time.Now()}, Seq: seq}
}

// flushAll carries out calls in one flush.
func flushAll(t *testing.T, s *Storage, calls ...[]*part) {
	t.Helper()
	var all []*slotCall
	for _, parts := range calls {
		all = append(all, bySlot(storage.Call{}, parts)...)
	}
	if spoiled := s.flush(t.Context(), 0, all); len(spoiled) > 0 {
		s.flushApart(t.Context(), 0, spoiled)
	}
}

// TestACallAndItsRepeatInOneFlushHappenOnce: the script carries out only one of them.
func TestACallAndItsRepeatInOneFlushHappenOnce(t *testing.T) {
	s, _ := openMini(t)
	if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("mail", "a")); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(t.Context(), storage.ClaimRequest{
		Token: storage.NewToken(), Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}},
		Start: 1, Lease: time.Minute,
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatal(claimed, err)
	}
	txs := []storage.Tx{{Settles: []storage.Settle{{Fence: claimed.Fences[0], Outcome: storage.Complete}}}}
	first, _ := s.split(callOf(1), txs)
	repeat, _ := s.split(callOf(1), txs)
	flushAll(t, s, first, repeat)
	for what, parts := range map[string][]*part{"the call": first, "its repeat": repeat} {
		applied := make([]storage.Applied, 1)
		if err := gather(parts, txs, applied); err != nil || applied[0].Err != nil {
			t.Errorf("%s gave %v, %v, want a completion", what, applied[0].Err, err)
		}
	}
}

// TestALaneSweptByAFastClockIsNotOpenedAgain: the server's clock jumps ahead, a call on
// one queue sweeps lanes, and the clock is set right. The next call on a swept lane must not be
// taken for the first one of a new lane.
func TestALaneSweptByAFastClockIsNotOpenedAgain(t *testing.T) {
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	call := storage.Call{Lane: storage.Lane{ID: [16]byte{1}, Opened: now}, Seq: 1}
	if _, err := s.Apply(t.Context(), call, insertOf("mail", "a")); err != nil {
		t.Fatal(err)
	}
	server.SetTime(now.Add(time.Hour))
	other := storage.Call{Lane: storage.Lane{ID: [16]byte{2}, Opened: now.Add(time.Hour)}, Seq: 1}
	if _, err := s.Apply(t.Context(), other, insertOf("bulk", "b")); err != nil {
		t.Fatal(err)
	}
	server.SetTime(now.Add(time.Second))
	del := storage.Tx{Deletes: []storage.Delete{{Ref: storage.Ref{Queue: "mail", ID: "a"}}}}
	task, err := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	del.Deletes[0].Version = task.Version
	if applied, err := s.Apply(t.Context(), storage.Call{}, del); err != nil || applied[0].Err != nil {
		t.Fatal(applied, err)
	}
	_, err = s.Apply(t.Context(), call, insertOf("mail", "a"))
	if _, gone := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"}); gone == nil {
		t.Errorf("the call happened twice: the repeat gave %v", err)
	}
}

// TestACallThatFailsSpoilsNoOther: the calls that share its flush succeed.
func TestACallThatFailsSpoilsNoOther(t *testing.T) {
	s, server := openMini(t)
	if err := server.Set("midge:{bulk}:meta", "of a wrong type"); err != nil {
		t.Fatal(err)
	}
	good, bad := []storage.Tx{insertOf("mail", "a")}, []storage.Tx{insertOf("bulk", "b")}
	first, _ := s.split(callOf(1), bad)
	second, _ := s.split(storage.Call{}, good)
	flushAll(t, s, first, second)
	if err := gather(second, good, make([]storage.Applied, 1)); err != nil {
		t.Errorf("the other call gave %v", err)
	}
	if err := gather(first, bad, make([]storage.Applied, 1)); err == nil {
		t.Error("the call on a key of a wrong type succeeded")
	}
}

// TestACallThatFailsKeepsTheOrderOfOthers: the calls that share its flush happen in their order.
func TestACallThatFailsKeepsTheOrderOfOthers(t *testing.T) {
	s, server := openMini(t)
	if err := server.Set("midge:{bulk}:meta", "of a wrong type"); err != nil {
		t.Fatal(err)
	}
	ref := storage.Ref{Queue: "mail", ID: "a"}
	txs := []storage.Tx{insertOf("mail", "a"), {Deletes: []storage.Delete{{Ref: ref, Version: 1}}}}
	bad, _ := s.split(storage.Call{}, []storage.Tx{insertOf("bulk", "b")})
	parts, _ := s.split(callOf(1), txs)
	if len(parts) != 2 {
		t.Fatal(parts)
	}
	flushAll(t, s, bad, parts)
	applied := make([]storage.Applied, 2)
	if err := gather(parts, txs, applied); err != nil {
		t.Fatal(err)
	}
	var refused *storage.DependencyError
	if !errors.As(applied[1].Err, &refused) || len(refused.Stale) != 1 {
		t.Errorf("the second Tx gave %v, want that the first one's task has another version", applied[1].Err)
	}
}

// TestNothingOfACallerWhoLeftIsSent: Apply copies the caller's memory, so that the caller may change its
// slices after it has left, and the flush still sends their first contents.
func TestNothingOfACallerWhoLeftIsSent(t *testing.T) {
	s, _ := openMini(t)
	given := bytes.Repeat([]byte("x"), largePayload+1)
	insert := insertOf("mail", "a")
	insert.Inserts[0].Payload = given
	for what, tx := range map[string]storage.Tx{
		"an insert": insert,
		"a change":  {Changes: []storage.Change{{Ref: insert.Inserts[0].Ref, Encoding: "json", Payload: given}}},
		"a result": {Settles: []storage.Settle{{
			Fence: storage.Fence{Ref: insert.Inserts[0].Ref}, Outcome: storage.Complete, Result: given,
		}}},
	} {
		parts, _ := s.split(callOf(1), []storage.Tx{tx})
		given[0] = 'y'
		for _, arg := range parts[0].args {
			if sent, some := arg.([]byte); some && bytes.HasPrefix(sent, []byte("yxx")) {
				t.Errorf("%s sends what its caller wrote afterwards", what)
			}
		}
		given[0] = 'x'
	}
}
