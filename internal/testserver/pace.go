package testserver

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is the patience of tests' sessions: on a busy machine a call takes longer than storage.DefaultPatience.
const Patience = time.Minute

// Pace measures how busy the machine is, so that a test can distinguish a slow program from a busy
// machine. A time bound of a test is meant for an idle machine: if three programs compete for each
// processor, each of them takes three times as long.
type Pace struct {
	stop  func()
	done  chan struct{}
	times float64 // how many times as long all work takes on this machine as on others; 0 counts as 1

	mu      sync.Mutex // guards samples
	samples []sample
}

// sample is the number of runnable programs per processor at a moment.
type sample struct {
	at     time.Time
	wanted float64
}

const (
	samplesEvery     = 50 * time.Millisecond // between two samples of a Pace
	samplesPerSecond = int(time.Second / samplesEvery)
)

const (
	// slowStart is the most processor time that a small program takes to start on a machine that is not
	// slow. On a virtual machine in which a page fault takes 20 µs, a program takes 2 to 4 ms.
	slowStart = 1500 * time.Microsecond
	// slowTimes is how many times as long all work may take on a slow machine as on others.
	slowTimes = 2
)

// isSlow reports whether the machine is slow.
var isSlow = sync.OnceValue(func() bool { return startTime() > slowStart })

// startTime returns the least processor time that the start of a small program took. Beside other programs it is
// two to three times as long as on an idle machine. It is 0 if there is no such program.
func startTime() time.Duration {
	least := time.Duration(0)
	for range 5 {
		cmd := exec.Command("true")
		if cmd.Run() != nil {
			return 0
		}
		if took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); least == 0 || took < least {
			least = took
		}
	}
	return least
}

// NewPace starts to sample. On systems other than Linux it takes the machine to be idle. The
// caller closes it.
func NewPace() *Pace {
	stop := make(chan struct{})
	p := &Pace{stop: sync.OnceFunc(func() { close(stop) }), done: make(chan struct{})}
	if isSlow() {
		p.times = slowTimes
	}
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

// StartPace starts to sample and stops when the test ends.
func StartPace(t testing.TB) *Pace {
	t.Helper()
	p := NewPace()
	t.Cleanup(p.Close)
	return p
}

// Close stops the sampling.
func (p *Pace) Close() {
	p.stop()
	<-p.done
}

func (p *Pace) add(s sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples = append(p.samples, s)
}

// Stretch returns how long work that takes d on an idle machine may take, as busy as the
// machine has been since the given time, and as slow as it is. It returns d itself if the machine
// was idle and is not slow, or p is nil.
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
		sum, n = 1, 1
	}
	return time.Duration(float64(d) * max(p.times, 1) * sum / n)
}

// overload is the number of runnable programs per processor from which on a call of a server, which waits for
// a processor several times, may take longer than half a second.
const overload = 10

// Overloaded reports whether there were more programs than the processors can run in time for a second or
// longer since the given time.
func (p *Pace) Overloaded(since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0.0
	for i := len(p.samples) - 1; i >= 0 && p.samples[i].at.After(since); i-- {
		sum += p.samples[i].wanted
		if last := i + samplesPerSecond; last < len(p.samples) {
			sum -= p.samples[last].wanted
		}
		if sum >= float64(overload*samplesPerSecond) {
			return true
		}
	}
	return false
}

// wanted returns the current number of runnable programs per processor, without this program.
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
