package storage

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// TestIDsGrow checks that the ids of one process grow and contain their time, whatever the clock does.
func TestIDsGrow(t *testing.T) {
	var s idSource
	start := time.UnixMilli(1_800_000_000_000)
	var last [16]byte
	for i, now := range []time.Time{
		start, start, start, start.Add(time.Millisecond), start.Add(time.Millisecond),
		start.Add(-time.Hour), start.Add(-time.Hour), start.Add(time.Hour), start.Add(time.Hour),
	} {
		id := s.next(now)
		if bytes.Compare(id[:], last[:]) <= 0 {
			t.Errorf("id %d: %x after %x, want it greater", i, id, last)
		}
		if ms := timeOf(id); ms < now.UnixMilli() || ms > now.UnixMilli()+2*time.Hour.Milliseconds() {
			t.Errorf("id %d is of %d, want about %d", i, ms, now.UnixMilli())
		}
		last = id
	}
	if got := timeOf(last); got != start.Add(time.Hour).UnixMilli() {
		t.Errorf("the last id is of %d, want the clock's %d", got, start.Add(time.Hour).UnixMilli())
	}
}

// TestIDsCarry lets the lower half of an id overflow.
func TestIDsCarry(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	s := idSource{ms: now.UnixMilli()}
	for i := range s.last {
		s.last[i] = 0xff
	}
	s.last[7] = 7
	before := s.last
	after := s.next(now)
	if after[7] != 8 || bytes.Compare(after[:], before[:]) <= 0 {
		t.Errorf("%x after %x, want what ran over carried", after, before)
	}
}

// TestIDsDiffer makes ids in several goroutines and in several processes, all of which must differ.
func TestIDsDiffer(t *testing.T) {
	const processes, goroutines, each = 4, 4, 5_000
	now := time.Now()
	var mu sync.Mutex
	seen := make(map[[16]byte]bool)
	var all sync.WaitGroup
	for range processes {
		source := new(idSource)
		for range goroutines {
			all.Go(func() {
				for range each {
					id := source.next(now)
					mu.Lock()
					if seen[id] {
						t.Errorf("%x was made twice", id)
					}
					seen[id] = true
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
}

// timeOf returns the milliseconds in an id.
func timeOf(id [16]byte) (ms int64) {
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return ms
}
