package testserver

import (
	"testing"
	"time"
)

// TestABusyMachineStretchesABound checks that a bound grows with the average number of
// runnable programs per processor since the given time.
func TestABusyMachineStretchesABound(t *testing.T) {
	begin := time.Now()
	p := &Pace{}
	for i, wanted := range []float64{0, 0.5, 9, 1, 2, 3} {
		p.add(sample{begin.Add(time.Duration(i) * time.Second), wanted})
	}
	for since, want := range map[time.Duration]time.Duration{
		5 * time.Second:         time.Second, // there is no later sample
		2500 * time.Millisecond: 2 * time.Second,
		4500 * time.Millisecond: 3 * time.Second,
		1500 * time.Millisecond: 3750 * time.Millisecond,
	} {
		if got := p.Stretch(time.Second, begin.Add(since)); got != want {
			t.Errorf("a second, since %v: got %v, want %v", since, got, want)
		}
		slow := &Pace{samples: p.samples, times: 2}
		if got := slow.Stretch(time.Second, begin.Add(since)); got != 2*want {
			t.Errorf("a second on a slow machine, since %v: got %v, want %v", since, got, 2*want)
		}
	}
}

// TestAnOverloadLastsForASecond checks that a second of many programs is an overload, wherever it is among the
// samples, and that shorter overloads, and overloads before the given time, do not count.
func TestAnOverloadLastsForASecond(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	for name, c := range map[string]struct {
		at, n  int     // the busy samples
		wanted float64 // of each
		since  int     // the sample before the first that counts
		want   bool
	}{
		"a second":        {at: 30, n: samplesPerSecond, wanted: overload, want: true},
		"the last second": {at: 80, n: samplesPerSecond, wanted: overload, want: true},
		"half of it":      {at: 30, n: samplesPerSecond / 2, wanted: overload},
		"half, but twice": {at: 30, n: samplesPerSecond / 2, wanted: 2 * overload, want: true},
		"fewer programs":  {at: 0, n: 100, wanted: overload - 1},
		"before":          {at: 30, n: samplesPerSecond, wanted: overload, since: 35},
		"too few samples": {at: 95, n: 5, wanted: overload},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Pace{}
			for i := range 100 {
				s := sample{at: begin.Add(time.Duration(i) * samplesEvery)}
				if i >= c.at && i < c.at+c.n {
					s.wanted = c.wanted
				}
				p.add(s)
			}
			if got := p.Overloaded(begin.Add(time.Duration(c.since)*samplesEvery - 1)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestThePaceIsMeasured(t *testing.T) {
	p, begin := StartPace(t), time.Now()
	Await(t, "a sample", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.samples) > 0
	})
	if got := p.Stretch(time.Second, begin); got < time.Second {
		t.Errorf("a second became %v", got)
	}
	p.Close() // closing again is harmless
}
