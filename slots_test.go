package midge

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// slotsOf makes slots that serve one queue, and attempts without any.
func slotsOf(limit int) *slots {
	s := newSlots(limit)
	s.served = map[string]bool{"q": true, "": true}
	return s
}

// TestASuspectThatWaitsIsTheOnlyOne: one that was claimed to start and found its slot
// gone must not be joined by another.
func TestASuspectThatWaitsIsTheOnlyOne(t *testing.T) {
	s := slotsOf(2)
	s.resize(0)
	pill := &attempt{suspect: true, fence: storage.Fence{Ref: storage.Ref{Queue: "q", ID: "a"}}}
	if roused, _ := s.add(pill); roused != nil {
		t.Fatal("a worker comes for it without a slot")
	}
	s.resize(3)
	d := newDomain(&Runner{}, "q")
	s.arrange([]*domain{d}, []int{1}, true, []string{"q"})
	if start, _, suspect := s.ask(d, 0); start != 2 || suspect {
		t.Errorf("asked for %d, another suspect: %v; want 2, false", start, suspect)
	}
}

// TestReleaseLeavesASettleToItsEnd: a job that returns as its grace ends is settled by
// itself, and its runner waits for that.
func TestReleaseLeavesASettleToItsEnd(t *testing.T) {
	r := &Runner{slots: slotsOf(1)}
	a := &attempt{arrival: &arrival{r: r, domain: newDomain(r, "q")}, phase: settling}
	r.slots.hold(a)
	r.release(a)
	if !r.slots.any() {
		t.Error("a task whose settle is under way is forgotten")
	}
}

// TestASecondSuspectIsGivenBack, also where it came with the claim of another domain.
func TestASecondSuspectIsGivenBack(t *testing.T) {
	s := slotsOf(4)
	first, second := &attempt{suspect: true}, &attempt{suspect: true}
	if _, back := s.add(first); len(back) != 0 {
		t.Fatalf("the first: %d are given back, want 0", len(back))
	}
	if _, back := s.add(second, &attempt{}); len(back) != 1 || back[0] != second {
		t.Errorf("the second, and another: %d are given back, want 1", len(back))
	}
}

// TestWorkersComeOneByOne, each before the one before it runs its job: what is short is
// run by a few, and a job that blocks keeps nobody from starting.
func TestWorkersComeOneByOne(t *testing.T) {
	s := slotsOf(3)
	roused, _ := s.add(&attempt{}, &attempt{}, &attempt{}, &attempt{})
	if again, _ := s.add(&attempt{}); roused == nil || again != nil {
		t.Fatalf("roused %v, then %v; want one worker", roused, again)
	}
	for n := 1; n <= 3; n++ {
		a, another := s.next(roused, nil, 0, 0)
		if a == nil || (another != nil) != (n < 3) {
			t.Fatalf("worker %d: runs %v, another is roused: %v", n, a != nil, another != nil)
		}
		if another != nil {
			roused = another
		}
	}
	done := s.all(nil)[0]
	for left := 2; left >= 0; left-- {
		a, another := s.next(roused, done, time.Microsecond, 0)
		if (a != nil) != (left > 0) || another != nil {
			t.Fatalf("with %d left: runs %v, another is roused: %v", left, a != nil, another != nil)
		}
	}
}

// TestWhatHasASlotIsNotStale, however late its worker comes.
func TestWhatHasASlotIsNotStale(t *testing.T) {
	s := slotsOf(2)
	long := &arrival{}
	s.add(&attempt{arrival: long}, &attempt{arrival: long}, &attempt{arrival: long})
	if out := s.stale(nil); len(out) != 1 || len(s.ahead) != 2 {
		t.Errorf("%d are given back, %d are kept; want 1, 2", len(out), len(s.ahead))
	}
	if s.untilStale(nil) != 0 || len(s.stale(nil)) != 0 {
		t.Error("what has a slot is to be given back")
	}
}

func TestWhatIsWantedAheadHasNoOverflow(t *testing.T) {
	s := slotsOf(mostAtOnce)
	s.pace = 1
	if got := s.aheadWanted(storage.MaxDelay / 3); got != aheadMost {
		t.Errorf("got %d, want %d", got, aheadMost)
	}
}
