package sqlite

import (
	"fmt"
	"sync"
	"time"
)

// lock records the times in which a storage could not write: another connection held the write lock,
// or a write failed, as on a full disk.
type lock struct {
	mu          sync.Mutex // guards the fields below
	since, last time.Time  // the first and the last miss since a step was written; zero if there was none
	failed      error      // the last failed write; nil if only the lock was missed
	told        string     // the warning of the last time that ended
	ended       time.Time
}

const (
	warned    = time.Second     // a time of this length is worth a warning
	warnedFor = time.Minute     // how long the warning stands
	waiting   = time.Second     // after a miss so long ago nobody waits any more
	apart     = 2 * time.Minute // two misses further from each other belong to two times
)

// missed notes that a step could not get the lock, or could not be written.
func (l *lock) missed(failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.since.IsZero() || now.Sub(l.last) > apart {
		l.since, l.failed = now, nil
	}
	l.last = now
	if failed != nil {
		l.failed = failed
	}
}

// had notes that a step was committed. A step that wrote nothing does not show that there is room again.
func (l *lock) had(wrote bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() || l.failed != nil && !wrote {
		return
	}
	if l.last.Sub(l.since) >= warned {
		l.told, l.ended = l.tell(), l.last
	}
	l.since, l.last, l.failed = time.Time{}, time.Time{}, nil
}

// tell returns for how long steps could not be written, and why. The caller holds mu.
func (l *lock) tell() string {
	const who = "another process, which may be frozen, or a transaction of the application's held it"
	length, until := l.last.Sub(l.since).Round(time.Millisecond), l.last.UTC().Format(time.TimeOnly)
	if l.failed != nil {
		return fmt.Sprintf("steps could not be written for %v until %s: %v", length, until, l.failed)
	}
	return fmt.Sprintf("steps waited for the write lock for %v until %s: %s", length, until, who)
}

func (l *lock) warnings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch long := l.last.Sub(l.since) >= warned; {
	case long && time.Since(l.last) < waiting && l.failed == nil:
		return []string{fmt.Sprintf("steps wait for the write lock since %s: another process, which may be "+
			"frozen, or a transaction of the application's holds it", l.since.UTC().Format(time.TimeOnly))}
	case long && time.Since(l.last) < warnedFor:
		return []string{l.tell()}
	case !l.ended.IsZero() && time.Since(l.ended) < warnedFor:
		return []string{l.told}
	}
	return nil
}
