package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// These are the policies of cursors, as storages keep them: for ticks that were missed, and for ticks
// whose task would overlap an earlier one.
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
		[]byte(in.Kind), []byte(in.Encoding), in.Payload, []byte(in.Partition),
		fmt.Append(nil, in.Priority, in.MaxRetries, in.CrashLimit, in.Timeout, in.Keep.For, in.Keep.UntilRead, in.Cost),
		[]byte(d.Spec), []byte(d.Zone), []byte(d.CatchUp), fmt.Append(nil, d.CatchUpCap), []byte(d.Overlap),
	}
	parts = slices.Grow(parts, 2*len(in.Headers))
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		parts = append(parts, []byte(name), []byte(in.Headers[name]))
	}
	return storage.UniqueKey(parts...)
}

// Declare makes an insert the insert of a schedule that is declared as d, without a moment.
func Declare(in *storage.Insert, d storage.Declaration) {
	d.Hash = Hash(in, &d)
	in.Cursor = &storage.Cursor{Declaration: d.Encode()}
}

// Ticks returns what a cursor that is declared as d and due at next makes at the storage's time
// now: the due ticks, according to its policy, oldest first, and the next tick, strictly later than
// now; zero if there is none.
func Ticks(
	cursor storage.Ref, d *storage.Declaration, next, now time.Time,
) (due []time.Time, after time.Time, err error) {
	s, err := Of(cursor, d)
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
	case d.CatchUp != AllMissed || d.Overlap == SkipOverlap: // if tasks must not overlap, one is enough
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

// After returns the cursor of a schedule, under its ref, that is declared as d. before is the cursor that it
// replaces, nil for none. If both have the same moments, the new cursor is due for the moment for which
// before was, so that a deploy drops no tick. Otherwise it is due after now. It is due strictly later than the
// last tick, and never if before is paused. From a cursor with a damaged declaration only the last tick is
// taken.
func After(
	of storage.Ref, before *storage.Cursor, d storage.Declaration, now time.Time,
) (*storage.Cursor, error) {
	s, err := Of(of, &d)
	if err != nil {
		return nil, err
	}
	if before == nil {
		return &storage.Cursor{Next: s.Next(now), Declaration: d.Encode()}, nil
	}
	c := &storage.Cursor{Next: s.Next(later(now, before.Last)), Last: before.Last}
	if old, err := before.Decode(); err == nil {
		was, err := Of(of, &old)
		if err == nil && was.moments() == s.moments() && old.Zone == d.Zone && !before.Next.IsZero() {
			if next := before.Next.Add(s.offset - was.offset); next.After(c.Last) {
				c.Next = next
			}
		}
		if d.Paused = old.Paused; d.Paused {
			c.Next = time.Time{}
		}
		if !d.Kept {
			d.Replaced = replacing(&old, d.Hash)
		}
	}
	c.Declaration = d.Encode()
	return c, nil
}

// replacing returns the hashes of the declarations that one with a hash replaces, if it replaces old.
func replacing(old *storage.Declaration, hash string) []string {
	replaced := append(slices.DeleteFunc(slices.Clone(old.Replaced), func(h string) bool {
		return h == hash
	}), old.Hash)
	return replaced[max(len(replaced)-maxReplaced, 0):]
}

// moments is the text of the schedule without its jitter.
func (s Schedule) moments() string {
	text, _, _ := strings.Cut(s.Spec, jitterWord)
	return text
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
