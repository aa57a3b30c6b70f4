package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// openSlots opens a storage that treats each queue as if it were in a slot of its own, as on a
// Cluster.
func openSlots(t *testing.T) (*Storage, *miniredis.Miniredis) {
	t.Helper()
	s, server := openMini(t)
	s.cluster, s.keys.shared = true, false
	return s, server
}

func fill(t *testing.T, s *Storage, queue string, n int) {
	t.Helper()
	for i := range n {
		if _, err := s.Apply(t.Context(), storage.Call{}, insertOf(queue, fmt.Sprintf("t%d", i))); err != nil {
			t.Fatal(err)
		}
	}
}

// asking returns a claim of up to most tasks of several queues.
func asking(call storage.Call, most int, queues ...string) storage.ClaimRequest {
	req := storage.ClaimRequest{
		Call: call, Token: storage.NewToken(), Runner: "r", Start: most, Suspect: true, Lease: time.Minute,
	}
	for _, q := range queues {
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: q})
	}
	return req
}

// TestARepeatedClaimOverSlotsGivesAllItTook: new work in a slot that left room at first
// must not keep the repeat from asking the slot that filled it.
func TestARepeatedClaimOverSlotsGivesAllItTook(t *testing.T) {
	s, _ := openSlots(t)
	fill(t, s, "bulk", 4)
	req := asking(callOf(1), 4, "mail", "bulk")
	first, err := s.Claim(t.Context(), req)
	if err != nil || len(first.Tasks) != 4 {
		t.Fatalf("got %d tasks, %v, want 4", len(first.Tasks), err)
	}
	fill(t, s, "mail", 4)
	again, err := s.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[storage.Ref]bool)
	for _, task := range again.Tasks {
		got[task.Ref] = true
	}
	for _, task := range first.Tasks {
		if !got[task.Ref] {
			t.Errorf("the repeat does not give %s", task.Ref)
		}
	}
	if len(again.Tasks) > 4 {
		t.Errorf("the repeat gives %d tasks, want at most 4", len(again.Tasks))
	}
}

// TestARepeatedClaimBesideADamagedSlotGivesAllItTook: the first try finds out that one of two slots is
// damaged, so that the repeat asks only the other one.
func TestARepeatedClaimBesideADamagedSlotGivesAllItTook(t *testing.T) {
	s, server := openSlots(t)
	fill(t, s, "bulk", 5)
	if err := server.Set("midge:{mail}:meta", "of a wrong type"); err != nil {
		t.Fatal(err)
	}
	req := asking(callOf(1), 4, "mail", "bulk")
	for _, call := range []string{"first", "repeat"} {
		claimed, err := s.Claim(t.Context(), req)
		if err != nil || len(claimed.Tasks) != 4 || !claimed.More {
			t.Errorf("the %s call: got %d tasks, more %v, %v, want 4 and more",
				call, len(claimed.Tasks), claimed.More, err)
		}
	}
}

// TestAClaimOverSlotsKeepsToTheMostOfAQueue: the tasks that the first round took from a queue count in
// the second round, also if only some of a slot's queues have reached their limits.
func TestAClaimOverSlotsKeepsToTheMostOfAQueue(t *testing.T) {
	s, _ := openSlots(t)
	req := asking(callOf(1), 20)
	most := map[string]int{"mail": 1, "bulk": 3, "few": 5, "rest": 0}
	for _, queue := range []string{"mail", "bulk", "few", "rest"} {
		fill(t, s, queue, 10)
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: queue, Max: most[queue]})
	}
	for _, call := range []string{"first", "repeat"} {
		claimed, err := s.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]int)
		for _, task := range claimed.Tasks {
			got[task.Queue]++
		}
		if want := map[string]int{"mail": 1, "bulk": 3, "few": 5, "rest": 10}; !maps.Equal(got, want) {
			t.Errorf("the %s call took %v, want %v", call, got, want)
		}
		if !claimed.More {
			t.Errorf("the %s call does not say that there is more", call)
		}
	}
}

// TestAClaimThatHappenedInPartKeepsToTheMostOfAQueue: the repeat of a claim that failed in one
// slot takes no second share of the others.
func TestAClaimThatHappenedInPartKeepsToTheMostOfAQueue(t *testing.T) {
	s, server := openSlots(t)
	req := asking(callOf(1), 20)
	for _, queue := range []string{"mail", "bulk"} {
		fill(t, s, queue, 10)
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: queue, Max: 2})
	}
	s.client.AddHook(silent{queue: "bulk"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Claim(ctx, req); !errors.Is(err, storage.ErrUnknown) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	s, err := Open(t.Context(), Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.cluster, s.keys.shared = true, false
	for range 2 {
		claimed, err := s.Claim(t.Context(), req)
		if err != nil || len(claimed.Tasks) != 4 || !claimed.More {
			t.Errorf("the repeat took %d tasks, more %v, %v, want two of each queue and more",
				len(claimed.Tasks), claimed.More, err)
		}
	}
}

// TestASuspectOfALaterSlotHasItsTurn: also with a runner that can take only one task.
func TestASuspectOfALaterSlotHasItsTurn(t *testing.T) {
	s, _ := openSlots(t)
	tx := insertOf("bulk", "pill")
	tx.Inserts[0].CrashLimit = 2
	if _, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil {
		t.Fatal(err)
	}
	short := asking(callOf(1), 1, "bulk")
	short.Lease = time.Microsecond // expires at once
	if c, err := s.claim(t.Context(), &short); err != nil || len(c.Tasks) != 1 {
		t.Fatal(c, err)
	}
	for seq := range uint64(8) {
		c, err := s.Claim(t.Context(), asking(callOf(seq+2), 1, "mail", "bulk"))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Tasks) == 1 && c.Tasks[0].Crashes == 1 {
			return
		}
	}
	t.Error("the suspect was never claimed")
}

// TestAClaimGivesWhatHealthySlotsTook: if one slot refuses, the claim returns the tasks of the other
// slots. Otherwise nobody would know of their leases until they expire.
func TestAClaimGivesWhatHealthySlotsTook(t *testing.T) {
	s, server := openSlots(t)
	fill(t, s, "mail", 2)
	if err := server.Set("midge:{bulk}:meta", "of a wrong type"); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(t.Context(), asking(callOf(1), 8, "mail", "bulk"))
	if err != nil || len(claimed.Tasks) != 2 {
		t.Errorf("got %d tasks, %v, want the two of the healthy slot", len(claimed.Tasks), err)
	}
	if warnings := s.unsound.warnings(); len(warnings) != 1 || !strings.Contains(warnings[0], "bulk") {
		t.Errorf("warned of %q, want the queue that refuses", warnings)
	}
}

// TestAHealthySlotKeepsItsLeases: its leases are extended if another slot refuses.
func TestAHealthySlotKeepsItsLeases(t *testing.T) {
	s, server := openSlots(t)
	fill(t, s, "bulk", 1)
	fill(t, s, "mail", 1)
	req := storage.ExtendRequest{Call: callOf(2)}
	claimed, err := s.Claim(t.Context(), asking(callOf(1), 8, "bulk", "mail"))
	if err != nil || len(claimed.Fences) != 2 {
		t.Fatal(claimed, err)
	}
	for _, f := range claimed.Fences {
		req.Leases = append(req.Leases, storage.Extension{Fence: f, For: time.Hour})
	}
	server.Del("midge:{bulk}:meta")
	if err := server.Set("midge:{bulk}:meta", "of a wrong type"); err != nil {
		t.Fatal(err)
	}
	extended, err := s.Extend(t.Context(), req)
	if err != nil || len(extended.Locked) != 1 || extended.Locked[0].Queue != "bulk" {
		t.Errorf("passed over %v, %v, want the task of the slot that refuses", extended.Locked, err)
	}
	task, err := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "t0"})
	if err != nil || time.Until(task.LeaseUntil) < time.Minute*2 {
		t.Errorf("the lease of the healthy slot ends at %v, %v, want it extended", task.LeaseUntil, err)
	}
}

// TestALaneThatExpiredInOneSlotHidesNoOther: a caller that gets an ErrLaneExpired sends the call again on
// a new lane, and the part that happened in the other slot would then happen twice.
func TestALaneThatExpiredInOneSlotHidesNoOther(t *testing.T) {
	s, server := openSlots(t)
	first, second := callOf(1), callOf(2)
	opened := time.Now()
	// All lanes that were opened up to this time have been swept.
	server.HSet("midge:{bulk}:lanes", "", strconv.FormatInt(opened.UnixMicro(), 10))
	server.SetTime(opened.Add(time.Second))
	_, err := s.Apply(t.Context(), first, insertOf("mail", "a"), insertOf("bulk", "b"))
	if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrLaneExpired) {
		t.Errorf("Apply gave %v, want an unknown outcome", err)
	}
	_, err = s.Claim(t.Context(), asking(second, 8, "mail", "bulk"))
	if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrLaneExpired) {
		t.Errorf("Claim gave %v, want an unknown outcome", err)
	}
}

// TestASweepListensToNoQueue: a process that only maintains queues of others must not end up listening
// to every queue that ever existed.
func TestASweepListensToNoQueue(t *testing.T) {
	s, _ := openMini(t)
	req := asking(storage.Call{}, 0, "mail", "bulk")
	req.Queues[0].Max, req.Queues[1].Max = -1, -1
	if _, err := s.Claim(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if known := s.wake.known(); len(known) > 0 {
		t.Errorf("listens to %v, want none", known)
	}
}

// TestNextDueIsReckonedByTheClockOfItsSlot: if the clocks of two slots differ, a future moment must
// not seem to be past. Otherwise the runner would claim in a tight loop until that moment.
func TestNextDueIsReckonedByTheClockOfItsSlot(t *testing.T) {
	now := time.Now()
	later := storage.Claimed{Now: now, NextDue: now.Add(10 * time.Second)}
	idle := storage.Claimed{Now: now.Add(time.Hour)}
	for _, answers := range [][]storage.Claimed{{later, idle}, {idle, later}, {later}} {
		var c claiming
		for _, a := range answers {
			c.take(&claimAnswer{Claimed: a})
		}
		if in := c.NextDue.Sub(c.Now); in != 10*time.Second {
			t.Errorf("of %v the next is due in %v, want 10s", answers, in)
		}
	}
}

// silent is a hook that makes the node of one queue send no answer.
type silent struct {
	goredis.Hook
	queue string
}

func (h silent) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h silent) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (h silent) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		for _, arg := range cmd.Args() {
			if name, ok := arg.(*noted); ok {
				name.in.Store(true) // it was sent
			}
			if key, ok := arg.(string); ok && strings.Contains(key, "{"+h.queue+"}") {
				<-ctx.Done()
				cmd.SetErr(ctx.Err())
				return ctx.Err()
			}
		}
		return next(ctx, cmd)
	}
}

// TestASilentSlotCostsNoOtherItsLeases: the extensions in other slots must not wait for its answer.
func TestASilentSlotCostsNoOtherItsLeases(t *testing.T) {
	s, _ := openSlots(t)
	fill(t, s, "bulk", 1)
	fill(t, s, "mail", 1)
	claimed, err := s.Claim(t.Context(), asking(callOf(1), 8, "bulk", "mail"))
	if err != nil || len(claimed.Fences) != 2 {
		t.Fatal(claimed, err)
	}
	req := storage.ExtendRequest{Call: callOf(2)}
	for _, f := range claimed.Fences {
		req.Leases = append(req.Leases, storage.Extension{Fence: f, For: time.Hour})
	}
	s.client.AddHook(silent{queue: "bulk"})
	ctx, cancel := context.WithCancel(t.Context())
	extended := make(chan error, 1)
	go func() {
		_, err := s.Extend(ctx, req)
		extended <- err
	}()
	testserver.Await(t, "the lease of the other slot is extended", func() bool {
		task, err := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "t0"})
		return err == nil && time.Until(task.LeaseUntil) > 2*time.Minute
	})
	cancel()
	if err := <-extended; !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}
