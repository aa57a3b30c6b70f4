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
