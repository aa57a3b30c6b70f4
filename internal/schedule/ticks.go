package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// These are the policies of cursors, as storages keep them: for ticks that were missed while no
// runner lived, and for ticks whose task would overlap an earlier one.
const (
	SkipMissed  = "skip"
	OneMissed   = "one"
	AllMissed   = "all"
	SkipOverlap = "skip"
)

const (
	// MaxCatchUp bounds the tasks of one catch-up, which is a single transaction.
	MaxCatchUp = 100
	// lateAfter is how old a tick may be before SkipMissed counts it as missed. It leaves time for
	// another runner to make a tick whose runner died.
	lateAfter = 5 * time.Second
	// maxReplaced bounds how many earlier declarations a cursor remembers.
	maxReplaced = 16
)

// TickHeader is the header with the scheduled moment of a periodic task.
const TickHeader = storage.TickHeader

// Name returns the name of a cursor's schedule, as those who declare the schedule know it.
func Name(cursor storage.Ref) string {
	return cursor.Queue + "/" + strings.TrimPrefix(cursor.ID, storage.CursorPrefix)
}

// Hash hashes the whole declaration of a schedule: the insert of the tasks of its ticks, and d.
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

// Ticks returns what a cursor that is declared as d and due at next makes at the storage's time
// now: the due ticks, according to its policy, oldest first, and the next tick, strictly later than
// now; zero where there is none.
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
	case d.CatchUp != AllMissed || d.Overlap == SkipOverlap: // where tasks must not overlap, one is enough
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

// After returns the cursor of a schedule that is declared as d. before is the cursor that it
// replaces, nil for none. If both have the same moments, the new cursor is due when before was, so
// that a deploy drops no tick. Otherwise it is due after now, and strictly later than the last
// tick. From a cursor with a damaged declaration only the last tick is taken.
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
