package postgres

import (
	"testing"
	"time"
)

// TestHintsFollowAShortQueue has claims take tasks that were inserted a moment ago, as where runners
// keep up: places passed a while ago need not be looked at again, though the last task taken is new.
func TestHintsFollowAShortQueue(t *testing.T) {
	const second, priority = int64(time.Second / time.Microsecond), 9
	band := int64(priority) << 56
	h := &hints{known: make(map[string]*hint)}
	now := 1_000_000 * second
	for range 10 {
		now += second
		_, froms, _ := h.of([]string{"q"})
		h.learn("q", seen{now: now, base: now, from: froms[0], last: band + now - 100, looked: true, clean: true})
	}
	lows, froms, sinces := h.of([]string{"q"})
	if want := now - lagging.Microseconds(); lows[0] != band || froms[0] != band+want || sinces[0] != want {
		t.Errorf("got %d to %d since %d, want %d to %d since %d", lows[0], froms[0], sinces[0], band, band+want, want)
	}
}

// TestHintsNeedALook has claims without room, which tell nothing about the waiting tasks.
func TestHintsNeedALook(t *testing.T) {
	h := &hints{known: make(map[string]*hint)}
	h.learn("q", seen{now: 1, from: unknown, looked: false})
	if k := h.known["q"]; time.Now().Before(k.whole) {
		t.Error("a claim without room counts as one that looked at everything")
	}
}
