package redis

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// insertMany inserts one task more than a part carries, so that the last task is a part of its own.
func insertMany(t *testing.T, s *Storage, seq uint64, id func(i int) string) []storage.Applied {
	t.Helper()
	var txs []storage.Tx
	for i := range insertOps + 1 {
		txs = append(txs, insertOf("mail", id(i)))
	}
	applied, err := s.Apply(t.Context(), callOf(seq), txs...)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// TestPartsOfACallStayInOrderWhereTheLastIsOneInsert: although the short way leaves the part before it
// to the general way.
func TestPartsOfACallStayInOrderWhereTheLastIsOneInsert(t *testing.T) {
	s, _ := openMini(t)
	insertMany(t, s, 1, func(i int) string { return "a" + strconv.Itoa(i) })
	insertMany(t, s, 2, func(i int) string {
		if i == 0 {
			return "a0" // is there
		}
		return "b" + strconv.Itoa(i)
	})
	var order []string
	for seq := uint64(3); ; seq++ {
		claimed, err := s.Claim(t.Context(), asking(callOf(seq), 500, "mail"))
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed.Tasks) == 0 {
			break
		}
		for _, task := range claimed.Tasks {
			order = append(order, task.Ref.ID)
		}
	}
	if last := order[len(order)-1]; last != "b"+strconv.Itoa(insertOps) {
		t.Errorf("the last task is %s, want b%d", last, insertOps)
	}
}

// TestTheFirstOfACallWinsAnID: of two inserts with the same id the first one happens, also if the
// second is alone in the last part.
func TestTheFirstOfACallWinsAnID(t *testing.T) {
	s, _ := openMini(t)
	insertMany(t, s, 1, func(i int) string { return "a" + strconv.Itoa(i) })
	second := insertMany(t, s, 2, func(i int) string {
		switch i {
		case 0:
			return "a0" // is there
		case 1, insertOps:
			return "twice"
		}
		return "b" + strconv.Itoa(i)
	})
	if second[1].Inserted[0].Existing || !second[insertOps].Inserted[0].Existing {
		t.Errorf("the first gave %+v and the last %+v, want the first to win", second[1].Inserted, second[insertOps].Inserted)
	}
}

// TestARepeatedClaimTellsOfWhatCameMeanwhile: otherwise the caller would sleep although tasks wait.
func TestARepeatedClaimTellsOfWhatCameMeanwhile(t *testing.T) {
	s, _ := openMini(t)
	for seq := range uint64(2) {
		if _, err := s.Claim(t.Context(), asking(callOf(seq+1), 1, "mail")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Wait(t.Context(), storage.WaitRequest{Queues: []string{"mail"}}); err != nil { // the subscription
		t.Fatal(err)
	}
	req := asking(callOf(3), 1, "mail")
	lost, err := s.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("mail", "a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context(), storage.WaitRequest{Queues: []string{"mail"}, Since: lost.Since}); err != nil {
		t.Fatal(err)
	}
	again, err := s.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if again.More {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err = s.Wait(ctx, storage.WaitRequest{Queues: []string{"mail"}, Since: again.Since}); err != nil {
		t.Errorf("took %d, no more, and nothing wakes the caller: %v", len(again.Tasks), err)
	}
}

// TestARepeatedClaimHasTheMomentOfTheFirst: also for a runner whose name is as long as a packed moment, or one
// byte shorter.
func TestARepeatedClaimHasTheMomentOfTheFirst(t *testing.T) {
	s, _ := openMini(t)
	for i, runner := range []string{"r", "runner", "runner1", "runner12"} {
		if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("mail", runner)); err != nil {
			t.Fatal(err)
		}
		req := asking(callOf(uint64(i+1)), 1, "mail")
		req.Runner = runner
		first, err := s.Claim(t.Context(), req)
		if err != nil || len(first.Tasks) != 1 {
			t.Fatalf("got %d tasks, %v; want one", len(first.Tasks), err)
		}
		again, err := s.Claim(t.Context(), req)
		if err != nil || len(again.Tasks) != 1 {
			t.Fatalf("the repeat gives %d tasks, %v; want one", len(again.Tasks), err)
		}
		if got, want := again.Tasks[0].Claimed, first.Tasks[0].Claimed; !got.Equal(want) {
			t.Errorf("the repeat of %s was claimed at %v, want %v", runner, got, want)
		}
	}
}
