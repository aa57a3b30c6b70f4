package record

import (
	"errors"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Newer are the flags that this version does not know. A task with one of them has a form that a
// newer version knows alone: it is left to the processes of that version.
const Newer = ^(engine.Special | engine.Started | engine.StartOnly | engine.IsSuspect | engine.HasSide)

// ErrNewer is a task that this version leaves to processes of a newer one.
var ErrNewer = errors.New("a newer version of midge wrote this task, and can read it")

// Check gives storage.ErrDamaged for a task that no step has written. All but its lease and its Side was
// read, its past by Past, and none of its flags is among Newer.
func Check(r *engine.Record) error {
	sp := &r.Spec
	in := storage.Insert{
		Ref: r.Ref, Kind: sp.Kind, Encoding: sp.Encoding, Payload: sp.Payload, Headers: sp.Headers,
		Priority: int(r.Priority), MaxRetries: sp.MaxRetries, CrashLimit: sp.CrashLimit, Timeout: sp.Timeout,
		Keep: sp.Keep, Unique: sp.Unique, Cursor: sp.Cursor,
	}
	// The limit at its insert may have been higher than that of today.
	if err := storage.CheckInsert(storage.Limits{MaxPayload: storage.MaxPayloadCap}, &in); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	if (r.State == engine.Cursor) != (sp.Cursor != nil) || r.Version <= 0 || !isMoment(r.Version) ||
		!IsPlaced(r) {
		return storage.ErrDamaged
	}
	return nil
}

// IsPlaced reports whether the state of a task is one of those in which tasks are read, and its place and
// its end agree with it.
func IsPlaced(r *engine.Record) bool {
	switch s := r.State; {
	case s.Public() == "":
		return false
	case s == engine.Declined: // the turn is a moment
		return isMoment(r.Turn)
	case s <= engine.Suspect || s == engine.Cursor: // the sort is a place, or never comes
		return true
	}
	return isMoment(r.Sort) && isMoment(r.Ended)
}

// LastMoment is the last microsecond of the year 9999: JSON has no later time.
const LastMoment = 253402300799_999999

// isMoment reports whether a time that was read is one that can be told.
func isMoment(us int64) bool { return us >= 0 && us <= LastMoment }
