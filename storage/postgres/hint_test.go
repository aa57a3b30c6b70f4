package postgres

import (
	"math"
	"testing"
	"time"
)

// TestHintsFollowAShortQueue has claims take tasks that were inserted a moment ago, as happens while runners
// keep up: places passed a while ago need not be read again, though the last task taken is new.
func TestHintsFollowAShortQueue(t *testing.T) {
	const second, priority = int64(time.Second / time.Microsecond), 9
	band := int64(priority) << 56
	h := &hints{known: make(map[string]*hint)}
	now := 1_000_000 * second
	for range 10 {
		now += second
		_, froms, _, _ := h.of([]string{"q"})
		h.learn("q", seen{now: now, base: now, from: froms[0], last: band + now - 100, looked: true, clean: true})
	}
	lows, froms, sinces, _ := h.of([]string{"q"})
	if want := now - lagging.Microseconds(); lows[0] != band || froms[0] != band+want || sinces[0] != want {
		t.Errorf("got %d to %d since %d, want %d to %d since %d", lows[0], froms[0], sinces[0], band, band+want, want)
	}
}

// TestHintsNeedALook has claims without room, which show nothing about the waiting tasks.
func TestHintsNeedALook(t *testing.T) {
	h := &hints{known: make(map[string]*hint)}
	h.learn("q", seen{now: 1, from: unknown, looked: false})
	if k := h.known["q"]; time.Now().Before(k.whole) {
		t.Error("a claim without room counts as one that looked at everything")
	}
}

// TestHintsKnowLeasesThatWereLeft by a claim that was not to recover them: a claim that may recover them has to
// find them.
func TestHintsKnowLeasesThatWereLeft(t *testing.T) {
	const second = int64(time.Second / time.Microsecond)
	h := &hints{known: make(map[string]*hint)}
	for _, c := range []struct{ now, recoverTo, want int64 }{
		{10 * second, 9 * second, 9 * second},
		{11 * second, 5 * second, 9 * second}, // of another runner, which was away for longer
		{12 * second, math.MaxInt64, 12*second - lagging.Microseconds()},
		{3 * second, math.MaxInt64, 3*second - lagging.Microseconds()}, // the clock was set back
	} {
		h.learn("q", seen{now: c.now, recoverTo: c.recoverTo, from: unknown, looked: true, clean: true})
		if _, _, _, recovered := h.of([]string{"q"}); recovered[0] != c.want {
			t.Errorf("after a claim at %d that recovered to %d: recovered to %d, want %d",
				c.now, c.recoverTo, recovered[0], c.want)
		}
	}
}
