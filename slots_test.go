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
	pill := &attempt{suspect: true, claimed: time.Now(), task: storage.Task{Ref: storage.Ref{Queue: "q", ID: "a"}}}
	if run := s.add(pill); len(run) > 0 {
		t.Fatal("it runs without a slot")
	}
	s.resize(3)
	if _, _, suspect := s.room(0); suspect {
		t.Error("another suspect is asked for")
	}
}

// TestReleaseLeavesASettleToItsEnd: a job that returns as its grace ends is settled by
// itself, and its runner waits for that.
func TestReleaseLeavesASettleToItsEnd(t *testing.T) {
	r := &Runner{slots: newSlots(1)}
	r.settle = newSettler(r)
	a := &attempt{r: r, phase: settling}
	r.slots.hold([]*attempt{a})
	r.settle.release(a)
	if !r.slots.any() {
		t.Error("a task whose settle is under way is forgotten")
	}
}
