package testserver

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Pace measures how busy the machine is, so that a test can tell a program that is slow from
// a machine that has other things to do: a bound in time holds for a machine that is free, and
// where three programs want each processor all of them take three times as long.
type Pace struct {
	stop func()
	done chan struct{}

	mu      sync.Mutex // guards samples
	samples []sample
}

// sample is how many programs wanted a processor at a moment, a processor.
type sample struct {
	at     time.Time
	wanted float64
}

// samplesEvery is how often a Pace looks.
const samplesEvery = 50 * time.Millisecond

// NewPace begins to look. On a system other than Linux it takes the machine for free.
func NewPace() *Pace {
	stop := make(chan struct{})
	p := &Pace{stop: sync.OnceFunc(func() { close(stop) }), done: make(chan struct{})}
	go func() { // ends with Close
		defer close(p.done)
		every := time.NewTicker(samplesEvery)
		defer every.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-every.C:
				p.add(sample{now, wanted()})
			}
		}
	}()
	return p
}

// StartPace begins to look until the test is over.
func StartPace(t testing.TB) *Pace {
	t.Helper()
	p := NewPace()
	t.Cleanup(p.Close)
	return p
}

// Close ends the looking.
func (p *Pace) Close() {
	p.stop()
	<-p.done
}

func (p *Pace) add(s sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples = append(p.samples, s)
}

// Stretch gives the time that d is on this machine, as busy as it has been since a moment: d
// itself where it was free, and where p is nil.
func (p *Pace) Stretch(d time.Duration, since time.Time) time.Duration {
	if p == nil {
		return d
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, n := 0.0, 0.0
	for i := len(p.samples) - 1; i >= 0 && p.samples[i].at.After(since); i-- {
		sum += max(p.samples[i].wanted, 1)
		n++
	}
	if n == 0 {
		return d
	}
	return time.Duration(float64(d) * sum / n)
}

// wanted is how many programs want a processor now, a processor, this one left out.
func wanted() float64 {
	text, err := os.ReadFile("/proc/loadavg") // such as 0.20 0.18 0.12 3/80 11206
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 4 {
		return 0
	}
	running, _, _ := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(running)
	if err != nil {
		return 0
	}
	return float64(n-1) / float64(runtime.NumCPU())
}
