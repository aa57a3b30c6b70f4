package record

import (
	"errors"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Newer is the set of flags that this version does not know. A task with one of them has a form that
// only a newer version can read: this version leaves the task to processes of that version.
const Newer = ^(engine.Special | engine.Started | engine.StartOnly | engine.IsSuspect | engine.HasSide |
	engine.Counted)

// ErrNewer is the error for a task that this version leaves to processes of a newer version.
var ErrNewer = errors.New("a newer version of midge wrote this task, and can read it")

// Check returns storage.ErrDamaged for a record that no step can have written. It does not check the lease
// and the Side. The caller has read the past with Past, and made sure that none of the flags is in Newer.
func Check(r *engine.Record) error {
	sp := &r.Spec
	in := storage.Insert{
		Ref: r.Ref, Kind: sp.Kind, Encoding: sp.Encoding, Payload: sp.Payload, Headers: sp.Headers,
		Priority: int(r.Priority), MaxRetries: sp.MaxRetries, CrashLimit: sp.CrashLimit, Timeout: sp.Timeout,
		Keep: sp.Keep, Unique: sp.Unique, Cursor: sp.Cursor, Partition: sp.Partition, Cost: sp.Cost,
	}
	// The limit may have been higher when the task was inserted than it is today.
	if err := storage.CheckInsert(storage.Limits{MaxPayload: storage.MaxPayloadCap}, &in); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	if (r.State == engine.Cursor) != (sp.Cursor != nil) || r.State == engine.Keyed && sp.Partition == "" ||
		r.Version <= 0 || !isMoment(r.Version) ||
		!IsPlaced(r) {
		return storage.ErrDamaged
	}
	return nil
}

// IsPlaced reports whether callers know the state of a task, and its place and end fit that state.
func IsPlaced(r *engine.Record) bool {
	switch s := r.State; {
	case s.Public() == "":
		return false
	case s == engine.Declined: // its Turn is a moment
		return isMoment(r.Turn)
	case s <= engine.Suspect || s == engine.Keyed || s == engine.Cursor: // its Sort is no moment, or Never
		return true
	}
	return isMoment(r.Sort) && isMoment(r.At)
}

// LastMoment is the last microsecond of the year 9999: JSON has no later time.
const LastMoment = 253402300799_999999

// isMoment reports whether a time that was read can be shown to callers.
func isMoment(us int64) bool { return us >= 0 && us <= LastMoment }
