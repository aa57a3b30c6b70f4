//go:build unix

package faulttest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rooms admits fleets one by one. On a machine that is slow to start processes, running fleets would lose
// their leases while others start. So a fleet waits until the processors have caught up with those before it.
var rooms struct {
	sync.Mutex // held by the fleet that waits

	admitted time.Time // the last fleet
	fleets   atomic.Int64
}

const (
	roomFree = 2                      // this many fleets run on a machine that is always busy
	roomGap  = 500 * time.Millisecond // later, the processes of a fleet show in the pace of the machine
	roomWait = 2 * time.Minute        // at most: the machine may be busy with other programs
)

// enter waits until the machine has room for the fleet of a test.
func enter(t *testing.T) {
	t.Helper()
	rooms.Lock()
	defer rooms.Unlock()
	begun := time.Now()
	poll(roomWait, func() bool {
		now := time.Now()
		return rooms.fleets.Load() < roomFree || now.Sub(begun) > roomWait ||
			now.Sub(rooms.admitted) > roomGap && !machine.Overloaded(now.Add(-2*time.Second))
	})
	rooms.admitted = time.Now()
	rooms.fleets.Add(1)
	t.Cleanup(func() { rooms.fleets.Add(-1) })
}
