package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// The policies of cursors, as storages keep them: for ticks that were missed while no runner
// lived, and for ticks whose task an earlier one would overlap.
const (
	SkipMissed  = "skip"
	OneMissed   = "one"
	AllMissed   = "all"
	SkipOverlap = "skip"
)

const (
	// MaxCatchUp bounds the tasks of one catching up, which is one transaction.
	MaxCatchUp = 100
	// lateAfter is how old a tick may be before SkipMissed counts it as missed: long
	// enough for another runner to take it up from one that died with it.
	lateAfter = 5 * time.Second
	// maxReplaced bounds how many earlier declarations a cursor remembers.
	maxReplaced = 16
)

// TickHeader is the header of a periodic task that holds the moment it stands for.
const TickHeader = storage.TickHeader

// Name prints a cursor's ref as its schedule is known to those who declare it.
func Name(cursor storage.Ref) string {
	return cursor.Queue + "/" + strings.TrimPrefix(cursor.ID, storage.CursorPrefix)
}

// Hash hashes all that is declared of a schedule: the task that its ticks insert, and d.
func Hash(in *storage.Insert, d *storage.Declaration) string {
	parts := [][]byte{
		[]byte(in.Kind), []byte(in.Encoding), in.Payload,
		fmt.Append(nil, in.Priority, in.MaxRetries, in.CrashLimit, in.Timeout, in.Keep.For, in.Keep.UntilRead),
		[]byte(d.Spec), []byte(d.Zone), []byte(d.CatchUp), fmt.Append(nil, d.CatchUpCap), []byte(d.Overlap),
	}
	parts = slices.Grow(parts, 2*len(in.Headers))
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		parts = append(parts, []byte(name), []byte(in.Headers[name]))
	}
	return storage.UniqueKey(parts...)
}

// Ticks decides what a cursor that is declared as d and due at next enqueues at the storage's
// time now: the ticks that are due by its policy, oldest first, and the next one, strictly later
// than now; zero where there will be none.
func Ticks(d *storage.Declaration, next, now time.Time) (due []time.Time, after time.Time, err error) {
	s, err := Parse(d.Spec, d.Zone)
	if err != nil {
		return nil, time.Time{}, err
	}
	if next.IsZero() || next.After(now) {
		return nil, next, nil
	}
	after = s.Next(now)
	latest := s.latest(next, now)
	switch {
	case d.CatchUp == SkipMissed && now.Sub(latest) > lateAfter:
		return nil, after, nil
	case d.CatchUp != AllMissed || d.Overlap == SkipOverlap: // of tasks that must not overlap one is enough
		return []time.Time{latest}, after, nil
	}
	most := d.CatchUpCap
	if most < 1 || most > MaxCatchUp {
		most = MaxCatchUp
	}
	due = []time.Time{latest}
	for len(due) < most && latest.After(next) {
		latest = s.latest(next, latest.Add(-time.Microsecond))
		due = append(due, latest)
	}
	slices.Reverse(due)
	return due, after, nil
}

// After makes the cursor that takes the place of the one before it, if there is one, where a
// schedule is declared as d. It is next due when that one was, if their moments are the same, so
// that a deploy drops no tick; else after now, and strictly later than the last tick. Of a cursor
// whose declaration is damaged the last tick alone is known.
func After(before *storage.Cursor, d storage.Declaration, now time.Time) (*storage.Cursor, error) {
	s, err := Parse(d.Spec, d.Zone)
	if err != nil {
		return nil, err
	}
	if before == nil {
		return &storage.Cursor{Next: s.Next(now), Declaration: d.Encode()}, nil
	}
	from := now
	if before.Last.After(from) {
		from = before.Last
	}
	c := &storage.Cursor{Next: s.Next(from), Last: before.Last}
	if old, err := before.Decode(); err == nil {
		if old.Spec == d.Spec && old.Zone == d.Zone && !before.Next.IsZero() {
			c.Next = before.Next
		}
		d.Replaced = append(slices.DeleteFunc(slices.Clone(old.Replaced), func(hash string) bool {
			return hash == d.Hash
		}), old.Hash)
		d.Replaced = d.Replaced[max(len(d.Replaced)-maxReplaced, 0):]
	}
	c.Declaration = d.Encode()
	return c, nil
}
