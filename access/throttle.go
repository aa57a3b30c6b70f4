package access

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Failed logins that an address has at once by a name, and how long it takes until another one is let in.
const (
	failuresAtOnce = 20
	failureCost    = time.Minute / failuresAtOnce
)

// hashesAtOnce is how many passwords are hashed at a time: one takes a tenth of a second or two, and
// logins must not take the processors from all else.
const hashesAtOnce = 2

// maxAddresses bounds the addresses that a throttle remembers.
const maxAddresses = 10_000

// ThrottledError is the error of a login from an address with too many failed ones.
type ThrottledError struct {
	// After is how long to wait before the next try.
	After time.Duration
}

// Error says how long to wait.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("access: too many failed logins: try again in %v", e.After.Round(time.Second))
}

// throttle lets an address fail 20 times a minute: each failure moves the moment on from which
// the address has none left.
type throttle struct {
	mu  sync.Mutex
	all map[string]time.Time // until when the failures of an address last
}

func newThrottle() *throttle { return &throttle{all: make(map[string]time.Time)} }

// charge notes a try before it is made, so that tries side by side count too, and gives a
// *ThrottledError where the address has too many.
func (t *throttle) charge(key string) error {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	until, known := t.all[key]
	if until.Before(now) {
		until = now
	}
	if over := until.Add(failureCost).Sub(now) - failuresAtOnce*failureCost; over > 0 {
		return &ThrottledError{After: over}
	}
	if !known && len(t.all) >= maxAddresses {
		t.forgetLocked(now)
	}
	t.all[key] = until.Add(failureCost)
	return nil
}

// refund takes back what charge noted, for a try that succeeded.
func (t *throttle) refund(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until, ok := t.all[key]; ok {
		t.all[key] = until.Add(-failureCost)
	}
}

// forgetLocked makes room: it drops what has passed, and where that is nothing, any half.
func (t *throttle) forgetLocked(now time.Time) {
	for key, until := range t.all {
		if until.Before(now) {
			delete(t.all, key)
		}
	}
	for key := range t.all {
		if len(t.all) <= maxAddresses/2 {
			break
		}
		delete(t.all, key)
	}
}

// tryOf is what counts as one at a login: an origin and a name, of any length.
func tryOf(remote, name string) string {
	sum := sha256.Sum256([]byte(name))
	return origin(remote) + " " + string(sum[:16])
}

// origin is what of an address counts as one: an IPv4 address, or the network of 64 bits of an
// IPv6 address. What is no address counts as one of its own.
func origin(remote string) string {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return network(ap.Addr())
	}
	if a, err := netip.ParseAddr(remote); err == nil {
		return network(a)
	}
	return ""
}

func network(a netip.Addr) string {
	if a = a.Unmap(); a.Is4() {
		return a.String()
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return ""
	}
	return p.String()
}
