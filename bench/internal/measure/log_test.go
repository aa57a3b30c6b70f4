package measure

import (
	"slices"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, c := range []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{4}, 0.99, 4},
		{[]time.Duration{1, 2, 3}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.999, 100},
		{hundred, 1, 100},
	} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("percentile %v of %d times = %v, want %v", c.p, len(c.sorted), got, c.want)
		}
	}
}

func TestLogSortsAndSkips(t *testing.T) {
	l := newLog(4)
	for _, d := range []time.Duration{9, 3, 1, 2, 8} { // one more than it has room for
		l.note(d)
	}
	if got, want := l.sorted(1), []time.Duration{1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("sorted without the first = %v, want %v", got, want)
	}
}

func TestScaledKeepsAFew(t *testing.T) {
	s := Sizes{Tasks: 100_000, Shallow: 50, Burst: 500}.Scaled(0.1)
	if want := (Sizes{Tasks: 10_000, Shallow: 50, Burst: 100}); s != want {
		t.Errorf("scaled = %+v, want %+v", s, want)
	}
}

func TestPayloadsDiffer(t *testing.T) {
	a, b := payload(), payload()
	if len(a) != payloadSize || slices.Equal(a, b) {
		t.Errorf("payloads %x and %x, want %d random bytes each", a, b, payloadSize)
	}
}
