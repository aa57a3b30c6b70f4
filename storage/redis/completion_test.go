package redis

import (
	"errors"
	"fmt"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
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

// TestManyCompletionsGoTheShortWay: a call of more completions than one part has goes by the short script, unless
// it completes a task twice. Then the first of the two completions happens.
func TestManyCompletionsGoTheShortWay(t *testing.T) {
	for _, twice := range []bool{false, true} {
		s, _ := openMini(t)
		session := storage.NewSession(s, testserver.Patience)
		inserts := make([]storage.Tx, 2*endOps+100)
		for i := range inserts {
			inserts[i] = insertOf("mail", fmt.Sprint("t", i))
		}
		if _, err := session.Apply(t.Context(), inserts...); err != nil {
			t.Fatal(err)
		}
		claimed, err := s.Claim(t.Context(), asking(callOf(1), 1000, "mail"))
		if err != nil || len(claimed.Fences) != 1000 {
			t.Fatal(len(claimed.Fences), err)
		}
		var txs []storage.Tx
		for _, f := range claimed.Fences {
			txs = append(txs, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
		}
		if twice {
			txs[999] = txs[0]
		}
		parts, _ := s.split(callOf(2), txs)
		if len(parts) != 2 || parts[0].short == twice || parts[1].short == twice {
			t.Errorf("twice %v: the %d parts go the short way: %v", twice, len(parts), parts[0].short)
		}
		applied, err := session.Apply(t.Context(), txs...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range applied {
			if lost := errors.Is(applied[i].Err, storage.ErrLeaseLost); lost != (twice && i == 999) {
				t.Errorf("twice %v: completion %d: %v", twice, i, applied[i].Err)
			}
		}
	}
}
