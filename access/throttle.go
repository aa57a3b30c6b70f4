package access

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// An address, a name and a browser may each fail failuresAtOnce times at once, and then once each
// failureCost.
const (
	failuresAtOnce = 20
	failureCost    = time.Minute / failuresAtOnce
)

// hashesAtOnce is how many passwords of strangers are hashed at a time. Each takes 0.1 to 0.2 s of a
// processor, and logins must not take all processors from the rest of the process.
const hashesAtOnce = 2

// maxKeys bounds the addresses, names and browsers that a throttle remembers.
const maxKeys = 10_000

// ThrottledError is the error of a login after too many failures.
type ThrottledError struct {
	// After is how long to wait before the next try.
	After time.Duration
}

// Error names the time to wait.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("access: too many failed logins: try again in %v", e.After.Round(time.Second))
}

// throttle lets a key, such as an address, fail 20 times a minute. It keeps one moment for each key, and each
// failure moves that moment on by failureCost. A key whose moment lies a minute ahead may not fail again.
type throttle struct {
	mu  sync.Mutex
	all map[string]time.Time // the moment of each key
}

func newThrottle() *throttle { return &throttle{all: make(map[string]time.Time)} }

// charge counts a try as failed before it is made, so that concurrent tries count too. The try counts for
// each of its keys, or for none: charge returns a *ThrottledError if one of them has failed too often.
func (t *throttle) charge(keys ...string) error {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	var ahead time.Duration // of the key that has failed most
	for _, key := range keys {
		ahead = max(ahead, t.all[key].Sub(now))
	}
	if over := ahead - (failuresAtOnce-1)*failureCost; over > 0 {
		return &ThrottledError{After: over}
	}
	if len(t.all) > maxKeys-len(keys) {
		t.forgetLocked(now)
	}
	for _, key := range keys {
		until := t.all[key]
		if until.Before(now) {
			until = now
		}
		t.all[key] = until.Add(failureCost)
	}
	return nil
}

// refund takes back a charge, for a try that succeeded.
func (t *throttle) refund(keys ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		if until, ok := t.all[key]; ok {
			t.all[key] = until.Add(-failureCost)
		}
	}
}

// forgetLocked makes room. It drops keys whose moment has passed, and then others until half of the room
// is free.
func (t *throttle) forgetLocked(now time.Time) {
	for key, until := range t.all {
		if until.Before(now) {
			delete(t.all, key)
		}
	}
	for key := range t.all {
		if len(t.all) <= maxKeys/2 {
			break
		}
		delete(t.all, key)
	}
}

// digest returns a short text for a name, which may have any length.
func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return string(sum[:16])
}

// origin returns the part of an address that counts as one client: an IPv4 address, or the /64 network of an
// IPv6 address. All texts that are not addresses count as one client.
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
