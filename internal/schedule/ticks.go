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
const TickHeader = "midge.tick"

// Name prints a cursor's ref as its schedule is known to those who declare it.
func Name(cursor storage.Ref) string {
	return cursor.Queue + "/" + strings.TrimPrefix(cursor.ID, storage.CursorPrefix)
}

// Declaration hashes all that is declared of a schedule.
func Declaration(in *storage.Insert) string {
	c := in.Cursor
	parts := [][]byte{
		[]byte(in.Kind), []byte(in.Encoding), in.Payload,
		fmt.Append(nil, in.Priority, in.MaxRetries, in.CrashLimit, in.Timeout, in.Keep.For, in.Keep.UntilRead),
		[]byte(c.Spec), []byte(c.Zone), []byte(c.CatchUp), fmt.Append(nil, c.CatchUpCap), []byte(c.Overlap),
	}
	parts = slices.Grow(parts, 2*len(in.Headers))
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		parts = append(parts, []byte(name), []byte(in.Headers[name]))
	}
	return storage.UniqueKey(parts...)
}

// Ticks decides what a due cursor enqueues at the storage's time now: the ticks that
// are due by its policy, oldest first, and the next one, strictly later than now; zero
// where there will be none.
func Ticks(c storage.Cursor, now time.Time) (due []time.Time, next time.Time, err error) {
	s, err := Parse(c.Spec, c.Zone)
	if err != nil {
		return nil, time.Time{}, err
	}
	if c.Next.IsZero() || c.Next.After(now) {
		return nil, c.Next, nil
	}
	next = s.Next(now)
	latest := s.latest(c.Next, now)
	switch {
	case c.CatchUp == SkipMissed && now.Sub(latest) > lateAfter:
		return nil, next, nil
	case c.CatchUp != AllMissed || c.Overlap == SkipOverlap: // of tasks that must not overlap one is enough
		return []time.Time{latest}, next, nil
	}
	most := c.CatchUpCap
	if most < 1 || most > MaxCatchUp {
		most = MaxCatchUp
	}
	due = []time.Time{latest}
	for len(due) < most && latest.After(c.Next) {
		latest = s.latest(c.Next, latest.Add(-time.Microsecond))
		due = append(due, latest)
	}
	slices.Reverse(due)
	return due, next, nil
}

// WithNext fills in when the cursor of an insert is next due: when the cursor before it was, if
// its moments are the same, so that a deploy drops no tick; else after now, and strictly
// later than the last tick.
func WithNext(in storage.Insert, before storage.Cursor, now time.Time) (storage.Insert, error) {
	c := *in.Cursor
	s, err := Parse(c.Spec, c.Zone)
	if err != nil {
		return in, err
	}
	from := now
	if before.Last.After(from) {
		from = before.Last
	}
	c.Next = s.Next(from)
	if before.Spec == c.Spec && before.Zone == c.Zone && !before.Next.IsZero() {
		c.Next = before.Next
	}
	c.Last = before.Last
	if before.Declaration != "" {
		c.Replaced = append(slices.DeleteFunc(slices.Clone(before.Replaced), func(d string) bool {
			return d == c.Declaration
		}), before.Declaration)
		c.Replaced = c.Replaced[max(len(c.Replaced)-maxReplaced, 0):]
	}
	in.Cursor = &c
	return in, nil
}
