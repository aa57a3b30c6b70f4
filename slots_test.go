package midge

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestASuspectThatWaitsIsTheOnlyOne: one that was claimed to start and found its slot
// gone must not be joined by another.
func TestASuspectThatWaitsIsTheOnlyOne(t *testing.T) {
	s := newSlots(2)
	s.resize(0)
	pill := &attempt{suspect: true, claimed: time.Now(), fence: storage.Fence{Ref: storage.Ref{Queue: "q", ID: "a"}}}
	if run, _ := s.add(pill); len(run) > 0 {
		t.Fatal("it runs without a slot")
	}
	s.resize(3)
	d := newDomain(&Runner{}, "q")
	s.arrange([]*domain{d}, []int{1}, true)
	if start, _, suspect := s.ask(d, 0); start != 2 || suspect {
		t.Errorf("asked for %d, another suspect: %v; want 2, false", start, suspect)
	}
}

// TestReleaseLeavesASettleToItsEnd: a job that returns as its grace ends is settled by
// itself, and its runner waits for that.
func TestReleaseLeavesASettleToItsEnd(t *testing.T) {
	r := &Runner{slots: newSlots(1)}
	a := &attempt{r: r, domain: newDomain(r, "q"), phase: settling}
	r.slots.hold(a)
	r.release(a)
	if !r.slots.any() {
		t.Error("a task whose settle is under way is forgotten")
	}
}

// TestASecondSuspectIsGivenBack, also where it came with the claim of another domain.
func TestASecondSuspectIsGivenBack(t *testing.T) {
	s := newSlots(4)
	first, second := &attempt{suspect: true}, &attempt{suspect: true}
	if run, back := s.add(first); len(run) != 1 || len(back) != 0 {
		t.Fatalf("the first: %d run, %d are given back; want 1, 0", len(run), len(back))
	}
	if run, back := s.add(second, &attempt{}); len(run) != 1 || len(back) != 1 || back[0] != second {
		t.Errorf("the second, and another: %d run, %d are given back; want 1, 1", len(run), len(back))
	}
}

func TestWhatIsWantedAheadHasNoOverflow(t *testing.T) {
	s := newSlots(mostAtOnce)
	s.average = 1
	if got := s.aheadWanted(storage.MaxDelay / 3); got != aheadMost {
		t.Errorf("got %d, want %d", got, aheadMost)
	}
}
