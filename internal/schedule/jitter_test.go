package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

func cursorNamed(name string) storage.Ref {
	return storage.Ref{Queue: "q", ID: storage.CursorPrefix + name}
}

// TestTheNameChoosesTheOffset pins offsets: another version of midge must choose the same.
func TestTheNameChoosesTheOffset(t *testing.T) {
	d := storage.Declaration{Spec: "every 1h0m0s jitter 30m0s"}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, want := range map[string]time.Duration{"ann": 808892 * time.Millisecond, "bo": 654616 * time.Millisecond} {
		s, err := Of(cursorNamed(name), &d)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(noon.Add(want - 1)).Sub(noon); got != want {
			t.Errorf("%s: a tick %v behind the hour, want %v", name, got, want)
		}
		if got := s.Next(noon.Add(want)).Sub(noon); got != want+time.Hour {
			t.Errorf("%s: the next tick %v behind the hour, want %v", name, got, want+time.Hour)
		}
	}
}

// TestOffsetsAreSpreadEvenly has names that differ in a few digits, as the names of customers do.
func TestOffsetsAreSpreadEvenly(t *testing.T) {
	const names, parts = 30_000, 30
	var in [parts]int
	d := storage.Declaration{Spec: "every 1h0m0s jitter 1h0m0s"}
	for n := range names {
		s, err := Of(cursorNamed(fmt.Sprint("customer-", n)), &d)
		if err != nil {
			t.Fatal(err)
		}
		in[s.offset/(time.Hour/parts)]++
	}
	for part, n := range in {
		if mean := names / parts; n < mean*8/10 || n > mean*12/10 { // six standard deviations
			t.Errorf("%d of %d offsets are in part %d, want about %d", n, names, part, mean)
		}
	}
}

func TestInvalidJitter(t *testing.T) {
	for d, want := range map[time.Duration]bool{
		-time.Second: false, 0: false, 30: false, time.Millisecond: true, 24 * time.Hour: true, 24*time.Hour + 1: false,
	} {
		s, err := Every(time.Hour).Spread(d).In("")
		var invalid *storage.InvalidError
		if got := err == nil; got != want || !want && !errors.As(err, &invalid) {
			t.Errorf("%v: got %v, want it valid: %t", d, err, want)
		}
		if _, err := Parse(s.Spec, ""); (err == nil) != want {
			t.Errorf("%q: got %v, want it valid: %t", s.Spec, err, want)
		}
	}
	for _, spec := range []string{"every 1h jitter", "every 1h jitter x", "jitter 1h", "every 1h jitter 1h jitter 1h"} {
		if _, err := Parse(spec, ""); err == nil {
			t.Errorf("%q is valid", spec)
		}
	}
}

// TestEachMomentTicksOnce declares random schedules, changes their jitter now and then, and reads at random
// times the moments that are due. Each moment of a schedule ticks once, however long the jitter is. A change
// of a jitter that is longer than the interval may leave moments out, so that no tick is before the last one.
func TestEachMomentTicksOnce(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		walk := tickWalk{T: t, random: random, cursor: cursorNamed(fmt.Sprint("s", seed))}
		spec := spreads[random.IntN(len(spreads))]
		walk.spec, walk.interval = spec.text, spec.interval
		walk.changes = random.IntN(2) == 0
		walk.run(fmt.Sprintf("seed %d, %s", seed, walk.spec))
	}
}

// spreads are schedules with the shortest interval of their moments.
var spreads = []struct {
	text     string
	interval time.Duration
}{
	{"every 1m0s", time.Minute},
	{"every 7s", 7 * time.Second},
	{"cron */5 * * * *", 5 * time.Minute},
	{"cron 30 1-4 * * 0,5,6", time.Hour},
	{"every 24h0m0s", 24 * time.Hour},
}

type tickWalk struct {
	*testing.T

	random   *rand.Rand
	cursor   storage.Ref
	spec     string
	interval time.Duration // the shortest of spec
	changes  bool
	now      time.Time
	moments  []time.Time // that ticked, without the offsets of their ticks
}

// jitter returns a random jitter: none, one below the interval, or a longer one.
func (w *tickWalk) jitter() string {
	switch w.random.IntN(4) {
	case 0:
		return ""
	case 1:
		return " jitter 5s"
	}
	return " jitter " + time.Duration(1+w.random.Int64N(int64(24*time.Hour))).Round(time.Second).String()
}

func (w *tickWalk) declaration(jitter string) storage.Declaration {
	if jitter == " jitter 0s" {
		jitter = ""
	}
	return storage.Declaration{Spec: w.spec + jitter, CatchUp: AllMissed, CatchUpCap: MaxCatchUp, Hash: jitter}
}

func (w *tickWalk) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *tickWalk) run(what string) {
	w.Helper()
	plain, err := Parse(w.spec, "")
	w.must(err)
	w.now = time.Date(2026, 3, 6, 0, 0, 0, w.random.IntN(1e9), time.UTC)
	begun := w.now
	d := w.declaration(w.jitter())
	c, err := After(w.cursor, nil, d, w.now)
	w.must(err)
	shortest, last := true, time.Time{}
	for range 30 {
		s, err := Of(w.cursor, &d)
		w.must(err)
		// At most as many ticks as a catch-up makes.
		ahead := c.Next
		for range w.random.IntN(10) {
			ahead = s.Next(ahead)
		}
		w.now = ahead.Add(time.Duration(w.random.Int64N(int64(time.Second))))
		due, next, err := Ticks(w.cursor, &d, c.Next, w.now)
		w.must(err)
		for _, at := range due {
			if !at.After(last) || at.After(w.now) {
				w.Fatalf("%s: a tick at %v behind one at %v, at %v", what, at, last, w.now)
			}
			last = at
			w.moments = append(w.moments, at.Add(-s.offset))
		}
		c = &storage.Cursor{Next: next, Last: last, Declaration: c.Declaration}
		if w.changes && w.random.IntN(4) == 0 {
			after := w.declaration(w.jitter())
			is, err := Of(w.cursor, &after)
			w.must(err)
			shortest = shortest && max(s.offset, is.offset) < w.interval
			c, err = After(w.cursor, c, after, w.now)
			w.must(err)
			if !c.Next.After(last) {
				w.Fatalf("%s: due at %v behind a tick at %v", what, c.Next, last)
			}
			d = after
		}
	}
	w.compare(what, plain, begun, shortest)
}

// compare compares the moments that ticked with the moments of the schedule. whole is true if none may be
// missing.
func (w *tickWalk) compare(what string, plain Schedule, begun time.Time, whole bool) {
	w.Helper()
	if !slices.IsSortedFunc(w.moments, time.Time.Compare) {
		w.Fatalf("%s: the moments are not in order: %v", what, w.moments)
	}
	for i, at := range w.moments {
		switch next := plain.Next(at.Add(-1)); {
		case !next.Equal(at):
			w.Fatalf("%s: a tick for %v, which is no moment of the schedule", what, at)
		case i > 0 && w.moments[i-1].Equal(at):
			w.Fatalf("%s: two ticks for %v", what, at)
		case i > 0 && whole && !plain.Next(w.moments[i-1]).Equal(at):
			w.Fatalf("%s: no tick between those of %v and %v", what, w.moments[i-1], at)
		}
	}
	if first := w.moments[0]; first.Before(begun.Add(-MaxJitter)) {
		w.Fatalf("%s: the first tick is for %v, long before the start %v", what, first, begun)
	}
}
