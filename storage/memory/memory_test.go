package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/storagetest"
)

func TestContract(t *testing.T) {
	storagetest.RunVirtual(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		var ahead atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		store, err := Open(Config{Limits: limits, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return storagetest.Opened{Storage: store, Jump: func(d time.Duration) { ahead.Add(int64(d)) }}
	})
}

// The tests below are particular to this storage: its time in a bubble, the memory that it
// sweeps, and the choices that the contract leaves open.

func job(id string) storage.Insert {
	return storage.Insert{
		Ref: storage.Ref{Queue: "q", ID: id}, Kind: "kind", Encoding: "raw", CrashLimit: 3, MaxRetries: 3,
	}
}

func (h *harness) add(ins ...storage.Insert) {
	h.Helper()
	h.apply(h.caller(), []storage.Tx{{Inserts: ins}})
}

// claim claims up to n tasks of the queue q to start at once.
func (h *harness) claim(n int) storage.Claimed {
	h.Helper()
	claimed, err := h.store.Claim(h.Context(), storage.ClaimRequest{
		Call: h.caller().next(), Token: storage.NewToken(), Runner: "runner", Start: n,
		Queues: []storage.ClaimQueue{{Name: "q"}}, Lease: time.Minute,
	})
	if err != nil {
		h.Fatal(err)
	}
	return claimed
}

func TestOpenRefusesLimits(t *testing.T) {
	_, err := Open(Config{Limits: storage.Limits{DeadMax: -2}})
	if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
		t.Fatalf("open: got %v, want an *InvalidError", err)
	}
}

// TestDueTaskIsClaimedAtItsMoment runs the loop of a runner: claim, then wait for an event or
// for the next due moment. Virtual time shows how late the claim is.
func TestDueTaskIsClaimedAtItsMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		go func() {
			time.Sleep(time.Minute)
			in := job("a")
			in.Delay = 90 * time.Millisecond
			h.add(in)
		}()
		begun := time.Now()
		for {
			claimed := h.claim(1)
			if len(claimed.Tasks) == 1 {
				break
			}
			wait := time.Hour
			if !claimed.NextDue.IsZero() {
				wait = claimed.NextDue.Sub(claimed.Now)
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_ = h.store.Wait(ctx, storage.WaitRequest{Queues: []string{"q"}, Since: claimed.Since})
			cancel()
		}
		late := time.Since(begun) - time.Minute - 90*time.Millisecond
		if late < 0 || late > time.Millisecond {
			t.Errorf("claimed %v after its moment, want at once", late)
		}
	})
}

func TestRequeueKeepsTheCheckpoint(t *testing.T) {
	h := newHarness(t)
	h.add(job("a"))
	fence := h.claim(1).Fences[0]
	_, err := h.store.Extend(t.Context(), storage.ExtendRequest{Leases: []storage.Extension{
		{Fence: fence, Progress: []byte("half"), Checkpoint: []byte("page 7")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.apply(h.caller(), []storage.Tx{{Settles: []storage.Settle{{
		Fence: fence, Outcome: storage.Bury, Reason: "broken", Error: "no", Stack: "main.go:1",
	}}}})
	if err := storage.NewSession(h.store, 0).Requeue(t.Context(), fence.Ref); err != nil {
		t.Fatal(err)
	}
	got, err := h.store.Task(t.Context(), fence.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Checkpoint) != "page 7" || string(got.Progress) != "half" {
		t.Errorf("after a requeue: got checkpoint %q and progress %q, want both as they were",
			got.Checkpoint, got.Progress)
	}
	if got.Stack != "main.go:1" || got.Reason != "" || len(got.Attempts) != 2 || !got.Expires.IsZero() {
		t.Errorf("after a requeue: got %+v, want its history, and neither reason nor expiry", got)
	}
}

// TestNothingIsLeft: tasks that ended, and windows, lanes and runners that expired take no memory.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		for i := range 500 {
			in := job(strconv.Itoa(i))
			in.Unique = storage.Unique{Key: in.Ref.ID, Mode: storage.UniqueWindow, For: time.Minute}
			in.Keep.For = time.Duration(i%2) * time.Hour
			h.add(in)
			h.beat("runner-" + in.Ref.ID)
		}
		h.drain(100)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := h.store.Wait(ctx, storage.WaitRequest{Queues: []string{"q", "p"}, Since: h.claim(0).Since})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait for nothing: got %v, want the context's error", err)
		}
		h.rest(2 * time.Hour)
		for h.claim(0).More {
			continue
		}
		for range 10 { // lanes and windows to be swept do not set More
			h.claim(0)
		}
		s, q := h.store, h.store.queues["q"]
		left := len(q.records) + len(q.keys) + len(q.lines[engine.Completed].chunks) + len(q.windows.chunks) +
			len(s.runners) + len(s.runnerEnds.chunks)
		if left > 0 || len(s.lanes) > 20 || len(s.lanes) != s.laneAges.size {
			t.Errorf("left: got %d things and %d lanes, want nothing and those of the last ten minutes",
				left, len(s.lanes))
		}
	})
}

// rest lets time pass, and then waits until the storage trusts its clock again.
func (h *harness) rest(d time.Duration) {
	h.Helper()
	time.Sleep(d)
	h.claim(0)
	time.Sleep(storage.JumpWait)
}

// beat sends the heartbeat of a runner.
func (h *harness) beat(id string) {
	h.Helper()
	_, err := h.store.Extend(h.Context(), storage.ExtendRequest{
		Call: h.caller().next(), Runner: storage.RunnerInfo{ID: id, For: time.Minute},
	})
	if err != nil {
		h.Fatal(err)
	}
}

// TestAbandonedQueueGoes: a queue is removed a day after its last record and setting, and
// not while it has a record, a setting, a unique window or a partition that is paused for a time.
func TestAbandonedQueueGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		in := func(queue string) storage.Insert {
			j := job("a")
			j.Ref.Queue = queue
			return j
		}
		window := in("window")
		window.Unique = storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: 30 * time.Hour}
		h.add(in("emptied"), in("paused"), in("used"), window)
		session := storage.NewSession(h.store, 0)
		for _, queue := range []string{"emptied", "paused", "window"} {
			if err := session.DeleteTask(t.Context(), in(queue).Ref); err != nil {
				t.Fatal(err)
			}
		}
		if err := session.Configure(t.Context(), "paused", storage.Settings{Pause: &storage.Pause{On: true}}); err != nil {
			t.Fatal(err)
		}
		for queue, pause := range map[string]time.Duration{"long": 30 * time.Hour, "short": time.Minute} {
			err := session.Configure(t.Context(), queue,
				storage.Settings{Partition: "p", Pause: &storage.Pause{On: true, For: pause}})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(23 * time.Hour)
		h.queuesAre("emptied", "long", "paused", "short", "used", "window")
		time.Sleep(2 * time.Hour)
		h.queuesAre("long", "paused", "used", "window")
		h.rest(6 * time.Hour)
		for range 4 { // each claim inspects a queue
			h.claim(0)
		}
		h.queuesAre("paused", "used")
	})
}

// queuesAre compares the list of queues, before claims inspect them and after.
func (h *harness) queuesAre(want ...string) {
	h.Helper()
	for range 2 {
		page, err := h.store.Queues(h.Context(), storage.QueuesQuery{})
		if err != nil {
			h.Fatal(err)
		}
		if len(page.Names) != len(want) {
			h.Fatalf("queues: got %v, want %v", page.Names, want)
		}
		for i := range want {
			if page.Names[i] != want[i] {
				h.Fatalf("queues: got %v, want %v", page.Names, want)
			}
		}
		for range 10 {
			h.claim(0)
		}
	}
}

// TestAClaimPassesOverABatchOfTasksThatAWrongClockDeclined: one Claim passes over at most a batch of tasks
// that a wrong clock stamped. Each Claim reports that there is more to do, until Claims have reached the
// tasks behind them.
func TestAClaimPassesOverABatchOfTasksThatAWrongClockDeclined(t *testing.T) {
	const wrong, least = 1000, 4
	var ahead time.Duration
	store, err := Open(Config{
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
	for n := 0; n < 14 && !c.More && len(c.Ended) == 0; n++ { // without a jump, until the line is searched
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

// TestNoRateMattersToAClaimThatTakesNothing: a claim of a queue that is paused, or from which it takes no tasks,
// returns no NextDue for a rate of partitions, because it would find nothing at that moment.
func TestNoRateMattersToAClaimThatTakesNothing(t *testing.T) {
	for _, paused := range []bool{true, false} {
		t.Run(fmt.Sprint("paused ", paused), func(t *testing.T) {
			h := newHarness(t)
			rate := storage.PartitionLimit{Rate: storage.Rate{N: 1, Per: time.Hour}}
			settings := storage.Settings{Limit: &storage.OperatorLimit{On: true, Limit: storage.Limit{Partition: rate}}}
			session := storage.NewSession(h.store, 0)
			if err := session.Configure(t.Context(), "q", settings); err != nil {
				t.Fatal(err)
			}
			first, second := job("first"), job("second")
			first.Partition, second.Partition = "p", "p"
			h.add(first, second)
			if got := h.claim(1); len(got.Tasks) != 1 || got.NextDue.IsZero() {
				t.Fatalf("claimed %d tasks, next due %v, want one and a moment", len(got.Tasks), got.NextDue)
			}
			most := storage.MaxNone
			if paused {
				most = 0
				if err := session.Configure(t.Context(), "q", storage.Settings{Pause: &storage.Pause{On: true}}); err != nil {
					t.Fatal(err)
				}
			}
			claimed, err := h.store.Claim(t.Context(), storage.ClaimRequest{
				Call: h.caller().next(), Token: storage.NewToken(), Runner: "runner", Start: 1,
				Queues: []storage.ClaimQueue{{Name: "q", Max: most}}, Lease: time.Minute,
			})
			if at := claimed.NextDue; err != nil || at.After(time.Now().Add(30*time.Minute)) {
				t.Errorf("next due: got %v, %v, want none that the rate decides", at, err)
			}
		})
	}
}
