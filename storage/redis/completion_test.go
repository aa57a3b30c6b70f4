package redis

import (
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestTheSecondOfTwoCompletionsInACallIsLost: the short way leaves a call that completes a task twice to
// the general way.
func TestTheSecondOfTwoCompletionsInACallIsLost(t *testing.T) {
	s, _ := openMini(t)
	mixture(t, s, "mail", 8)
	claimed, err := s.Claim(t.Context(), asking(callOf(1), 8, "mail"))
	if err != nil || len(claimed.Fences) != 8 {
		t.Fatal(len(claimed.Fences), err)
	}
	done := func(i int) storage.Tx {
		return storage.Tx{Settles: []storage.Settle{{Fence: claimed.Fences[i], Outcome: storage.Complete}}}
	}
	for seq, i := range []int{0, 1} { // the second call goes by the short way
		applied, err := s.Apply(t.Context(), callOf(uint64(seq+2)), done(i))
		if err != nil || applied[0].Err != nil {
			t.Fatal(applied, err)
		}
	}
	applied, err := s.Apply(t.Context(), callOf(4), done(2), done(3), done(2))
	if err != nil || applied[0].Err != nil || applied[1].Err != nil || applied[2].Err == nil {
		t.Errorf("got %v, %v, want only the third refused", applied, err)
	}
	stats, err := s.Stats(t.Context(), "mail")
	if err != nil || stats[0].Totals.Completed != 4 || stats[0].Pending != 4 {
		t.Errorf("got %+v, %v, want 4 completed and 4 pending", stats, err)
	}
}
