package memory

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSortedBesideASlice applies the same operations to a sorted and to a plain sorted slice.
func TestSortedBesideASlice(t *testing.T) {
	var s sorted[int64]
	var model []place
	random := rand.New(rand.NewPCG(1, 2))
	compare := func(a, b place) int {
		if a.Before(b) {
			return -1
		}
		if b.Before(a) {
			return 1
		}
		return 0
	}
	for minor := range int64(20_000) {
		at := place{Sort: random.Int64N(7), Turn: minor + 1}
		i, _ := slices.BinarySearchFunc(model, at, compare)
		model = slices.Insert(model, i, at)
		s.insert(at, at.Turn)
		// The order grows and shrinks in turn: at the head, in the middle, and at the tail.
		for range random.IntN(2) + int(minor/5000)%2 {
			if len(model) == 0 {
				break
			}
			i := []int{0, random.IntN(len(model)), len(model) - 1}[random.IntN(3)]
			s.remove(model[i])
			s.remove(model[i]) // the value is gone: nothing happens
			model = slices.Delete(model, i, i+1)
		}
		if minor%500 == 0 {
			sameOrder(t, &s, model, random)
		}
	}
	sameOrder(t, &s, model, random)
}

func sameOrder(t *testing.T, s *sorted[int64], model []place, random *rand.Rand) {
	t.Helper()
	if s.size != len(model) {
		t.Fatalf("size: got %d, want %d", s.size, len(model))
	}
	if at, _, ok := s.head(); ok != (len(model) > 0) || ok && at != model[0] {
		t.Fatalf("head: got %v %v, want the first of %d", at, ok, len(model))
	}
	from := place{Sort: math.MinInt64, Turn: math.MinInt64}
	i := 0
	if len(model) > 0 && random.IntN(2) == 0 {
		i = random.IntN(len(model))
		from = model[i]
		i++
	}
	n := random.IntN(len(model) + 2)
	got := s.after(from, n, nil)
	want := model[i:min(i+n, len(model))]
	if len(got) != len(want) {
		t.Fatalf("after %v: got %d values, want %d", from, len(got), len(want))
	}
	for i := range got {
		if got[i].place != want[i] || got[i].value != want[i].Turn {
			t.Fatalf("after %v: got %v, want %v", from, got[i], want[i])
		}
	}
	i = max(i-1, 0) // the index of from, or of the first value
	want = slices.Clone(model[max(i-n, 0):i])
	slices.Reverse(want)
	got = s.before(from, n, nil)
	if !slices.EqualFunc(got, want, func(e entry[int64], p place) bool { return e.place == p && e.value == p.Turn }) {
		t.Fatalf("before %v: got %v, want %v", from, got, want)
	}
	if got = s.before(place{Sort: math.MaxInt64}, len(model), nil); len(got) != len(model) {
		t.Fatalf("before the end: got %d values, want %d", len(got), len(model))
	}
}

func TestSortedUntil(t *testing.T) {
	var s sorted[string]
	const noon = int64(1_000_000)
	for i, name := range []string{"early", "due", "due too", "late"} {
		s.insert(place{Sort: noon + []int64{-1, 0, 0, 1}[i], Turn: int64(i + 1)}, name)
	}
	for n, want := range map[int][]string{
		0: nil, 2: {"early", "due"}, 9: {"early", "due", "due too"},
	} {
		if got := s.until(noon, n); !slices.Equal(got, want) {
			t.Errorf("until noon, at most %d: got %v, want %v", n, got, want)
		}
	}
}
