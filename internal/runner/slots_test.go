package runner

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// slotsOf returns slots that serve the queue q, and attempts without a queue.
func slotsOf(limit int) *slots {
	s := newSlots(limit, 0)
	s.served = map[string]bool{"q": true, "": true}
	return s
}

// TestASuspectThatWaitsIsTheOnlyOne has a suspect that was claimed to start and found no slot. No
// other suspect may be claimed meanwhile.
func TestASuspectThatWaitsIsTheOnlyOne(t *testing.T) {
	s := slotsOf(2)
	s.resize(0)
	pill := &Attempt{suspect: true, Fence: storage.Fence{Ref: storage.Ref{Queue: "q", ID: "a"}}}
	if woken, _ := s.add(pill); woken != nil {
		t.Fatal("a worker comes for it without a slot")
	}
	s.resize(3)
	d := newShard(&workers{shared: &shared{slots: s, health: &health{}}}, nil, "q")
	s.arrange([]*shard{d}, []int{1}, true, []string{"q"})
	if start, _, suspect := s.ask(d); start != 2 || suspect {
		t.Errorf("asked for %d, another suspect: %v; want 2, false", start, suspect)
	}
}

// TestReleaseLeavesASettleToItsEnd has a job that returns when its grace ends. Its own verdict
// settles it, and its runner waits for that settle.
func TestReleaseLeavesASettleToItsEnd(t *testing.T) {
	r := &shared{slots: slotsOf(1), health: &health{}}
	a := &Attempt{batch: &batch{shared: r, shard: newShard(&workers{shared: r}, nil, "q")}, phase: settling}
	r.slots.inFlight.add([]*Attempt{a})
	r.release(a)
	if r.slots.inFlight.count() == 0 {
		t.Error("a task whose settle is under way is forgotten")
	}
}

// TestASecondSuspectIsGivenBack checks this also if another claim brought the second one.
func TestASecondSuspectIsGivenBack(t *testing.T) {
	s := slotsOf(4)
	first, second := &Attempt{suspect: true}, &Attempt{suspect: true}
	if _, back := s.add(first); len(back) != 0 {
		t.Fatalf("the first: %d are given back, want 0", len(back))
	}
	if _, back := s.add(second, &Attempt{}); len(back) != 1 || back[0] != second {
		t.Errorf("the second, and another: %d are given back, want 1", len(back))
	}
}

// TestWorkersComeOneByOne checks that each worker wakes the next before it runs its job: a few
// workers run all short jobs, and a job that blocks keeps no other from starting.
func TestWorkersComeOneByOne(t *testing.T) {
	s := slotsOf(3)
	woken, _ := s.add(&Attempt{}, &Attempt{}, &Attempt{}, &Attempt{})
	if again, _ := s.add(&Attempt{}); woken == nil || again != nil {
		t.Fatalf("woken %v, then %v; want one worker", woken, again)
	}
	for n := 1; n <= 3; n++ {
		a, another := s.next(woken, nil, 0)
		if a == nil || (another != nil) != (n < 3) {
			t.Fatalf("worker %d: runs %v, another is woken: %v", n, a != nil, another != nil)
		}
		if another != nil {
			woken = another
		}
	}
	done := s.inFlight.snapshot(nil)[0]
	for left := 2; left >= 0; left-- {
		a, another := s.next(woken, done, time.Microsecond)
		if (a != nil) != (left > 0) || another != nil {
			t.Fatalf("with %d left: runs %v, another is woken: %v", left, a != nil, another != nil)
		}
	}
}

// TestANewBoundIsNotLeftByAnAttemptThatItDoesNotCount has a bound made after the settle of an attempt, before
// the attempt's worker asks for the next.
func TestANewBoundIsNotLeftByAnAttemptThatItDoesNotCount(t *testing.T) {
	s := slotsOf(1)
	a := &Attempt{Fence: storage.Fence{Ref: storage.Ref{Queue: "q", ID: "a"}}}
	worker, _ := s.add(a)
	if next, _ := s.next(worker, nil, 0); next != a {
		t.Fatalf("the worker got %v, want the attempt", next)
	}
	s.settled(a)
	s.bind("q", 1)
	s.next(worker, a, 0)
	if taken := s.bounds["q"].taken; taken != 0 {
		t.Errorf("%d slots of the queue are taken, want none", taken)
	}
}

// TestWhatHasASlotIsNotStale checks this however late the attempt's worker comes.
func TestWhatHasASlotIsNotStale(t *testing.T) {
	s := slotsOf(2)
	long := &batch{}
	s.add(&Attempt{batch: long}, &Attempt{batch: long}, &Attempt{batch: long})
	if out := s.removeStale(nil); len(out) != 1 || len(s.ahead) != 2 {
		t.Errorf("%d are given back, %d are kept; want 1, 2", len(out), len(s.ahead))
	}
	if s.untilStale(nil) != 0 || len(s.removeStale(nil)) != 0 {
		t.Error("what has a slot is to be given back")
	}
}

func TestWhatIsWantedAheadHasNoOverflow(t *testing.T) {
	s := newSlots(1_000_000, storage.MaxDelay/3)
	s.pace = 1
	if got := s.aheadWanted(); got != aheadMost {
		t.Errorf("got %d, want %d", got, aheadMost)
	}
}

// TestAShardThatRestsWaitsForTasksOnceAnotherLeavesItsSlots has two claims under way on an idle runner. The answer to
// the first deals all slots to the other shard, whose next claim leaves them free.
func TestAShardThatRestsWaitsForTasksOnceAnotherLeavesItsSlots(t *testing.T) {
	for name, end := range map[string]func(*slots, *shard){
		"answered": func(s *slots, d *shard) { s.answered(d, storage.Claimed{}) },
		"refused":  (*slots).refused,
	} {
		s := newSlots(4, 0)
		w := &workers{shared: &shared{slots: s, health: &health{}}}
		a, b := newShard(w, nil, "a"), newShard(w, nil, "b")
		s.arrange([]*shard{a, b}, []int{1, 1}, true, []string{"a", "b"})
		s.ask(a)
		s.ask(b)
		s.answered(a, storage.Claimed{})
		if !s.rests(a) {
			t.Fatalf("%s: the shard does not rest although another has all slots", name)
		}
		woken := 0
		a.wakeUp.arm(func() { woken++ }, true)
		s.answered(b, storage.Claimed{}) // it asked for none, and asks again
		if start, _, _ := s.ask(b); start != 4 || woken != 0 {
			t.Fatalf("%s: the other shard asks for %d, woken %d times; want 4 and none", name, start, woken)
		}
		end(s, b)
		if woken != 1 || s.rests(a) {
			t.Errorf("%s: woken %d times, rests: %v; want once, and not", name, woken, s.rests(a))
		}
		s.ask(b)
		end(s, b)
		if woken != 1 {
			t.Errorf("%s: woken again although it does not rest", name)
		}
	}
}

// TestAThrottleHoldsWhatAClaimUnderWayBrings has a job throttle its partition while a claim is under way, which may
// have taken a task of the partition before the storage learned of the rest.
func TestAThrottleHoldsWhatAClaimUnderWayBrings(t *testing.T) {
	s := newSlots(4, 0)
	w := &workers{shared: &shared{slots: s, health: &health{}}}
	d, elsewhere := newShard(w, nil, "q"), newShard(w, nil, "p")
	s.arrange([]*shard{d, elsewhere}, []int{1, 1}, true, []string{"q", "p"})
	of := func(d *shard, queue, partition string) *Attempt {
		fence := storage.Fence{Ref: storage.Ref{Queue: queue}}
		return &Attempt{batch: &batch{shard: d}, Fence: fence, Partition: partition}
	}
	s.ask(d)
	s.throttle(of(d, "q", "acme"))
	beside := of(d, "q", "acme")
	s.answered(elsewhere, storage.Claimed{})
	_, back := s.add(beside, of(d, "q", "other"), of(d, "q", ""), of(elsewhere, "p", "acme"))
	if len(back) != 1 || back[0] != beside {
		t.Errorf("%d are given back, want the task of the partition that rests", len(back))
	}
	s.answered(d, storage.Claimed{})
	if _, back := s.add(of(d, "q", "acme")); len(back) != 0 {
		t.Error("what a later claim brings is given back, although the storage knows of the rest")
	}
}

// TestNoClaimOvertakesAThrottle asks for tasks after a job has throttled its partition, before the settle.
func TestNoClaimOvertakesAThrottle(t *testing.T) {
	s := newSlots(4, 0)
	d := newShard(&workers{shared: &shared{slots: s, health: &health{}}}, nil, "q")
	s.arrange([]*shard{d}, []int{1}, true, []string{"q"})
	a := &Attempt{batch: &batch{shard: d}}
	s.returning(a)
	s.throttle(a)
	if start, ahead, _ := s.ask(d); start+ahead > 0 {
		t.Errorf("a claim asks for %d tasks before the storage knows of the rest", start+ahead)
	}
	s.settled(a)
	if start, _, _ := s.ask(d); start != 4 {
		t.Errorf("a claim asks for %d tasks afterwards, want 4", start)
	}
}
