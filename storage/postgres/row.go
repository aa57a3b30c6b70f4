package postgres

import (
	"encoding/json"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// newer are the flags that this version does not know. A task with one of them has a form that a
// newer version knows alone: it is left to the clients of that version.
const newer = ^(engine.Special | engine.Started | engine.StartOnly | engine.IsSuspect | engine.HasSide)

const tokenSize = len(storage.Token{})

// row is a task as it is kept.
type row struct {
	engine.Record

	was   origin
	queue int32  // the number of its queue, once it is to be saved
	rest  []byte // the parts of its record that only newer versions know
	size  int    // of its record, where that alone is known of it
}

// origin is where a row was when it was loaded.
type origin struct {
	table    table
	queue    int32
	flags    engine.Flags
	declined bool
}

// table is where a row stands.
type table int

const (
	nowhere table = iota
	inTasks
	inEnded
)

// decode fills a row from its past and its record, and gives storage.ErrDamaged for a row that no step
// has written. The row keeps memory of the record alone.
func (r *row) decode(pastBytes, record []byte) (err error) {
	if r.Past, err = unpackPast(pastBytes, r.Version); err != nil {
		return err
	}
	if r.Spec, r.rest, err = unpack(record, r.Kind); err != nil {
		return err
	}
	sp := &r.Spec
	in := storage.Insert{
		Ref: r.Ref, Kind: sp.Kind, Encoding: sp.Encoding, Payload: sp.Payload, Headers: sp.Headers,
		Priority: int(r.Priority), MaxRetries: sp.MaxRetries, CrashLimit: sp.CrashLimit, Timeout: sp.Timeout,
		Keep: sp.Keep, Unique: sp.Unique, Cursor: sp.Cursor,
	}
	// The limit at its insert may have been higher than that of today.
	limits := storage.Limits{MaxPayload: storage.MaxPayloadCap}
	if err = storage.CheckInsert(limits, &in); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	if (r.State == engine.Cursor) != (sp.Cursor != nil) || r.Version <= 0 || !isMoment(r.Version) {
		return storage.ErrDamaged
	}
	return nil
}

// sane reports whether the columns of a row agree with its table and its state.
func (r *row) sane(ended bool) bool {
	s := r.State
	switch {
	case s.Public() == "", s.HasEnded() != ended:
		return false
	case s == engine.Declined: // the turn is a moment
		return isMoment(r.Turn)
	case s <= engine.Suspect || s == engine.Cursor: // the sort is a place, or never comes
		return true
	}
	return isMoment(r.Sort) && isMoment(r.Ended)
}

// setLease fills in the lease of a row, and reports whether it is one.
func (r *row) setLease(lease []byte) bool {
	if !r.State.IsPending() {
		return true
	}
	if len(lease) < tokenSize {
		return false
	}
	r.Token, r.Runner = storage.Token(lease), string(lease[tokenSize:])
	return true
}

// lease packs the lease of a row: empty where it is not pending.
func (r *row) lease() []byte {
	if !r.State.IsPending() {
		return []byte{}
	}
	return append(r.Token[:tokenSize:tokenSize], r.Runner...)
}

// task gives the task as a listing shows it.
func (r *row) task() (t storage.Task) {
	r.CopyTo(&t)
	return t
}

// numbersOfState gives the states of the tables that callers know as one.
func numbersOfState(state storage.State) []int16 {
	states := engine.StatesOf(state)
	numbers := make([]int16, len(states))
	for i, s := range states {
		numbers[i] = int16(s)
	}
	return numbers
}

func packAttempts(attempts []storage.Attempt) []byte {
	b, _ := json.Marshal(attempts) //nolint:errchkjson // cannot fail: times of this century, and texts
	return b
}

func unpackAttempts(b []byte) ([]storage.Attempt, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var attempts []storage.Attempt
	if err := json.Unmarshal(b, &attempts); err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	return attempts, nil
}
