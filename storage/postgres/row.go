package postgres

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/midgehq/midge/storage"
)

// The states as the tables know them; schema/001_tables.sql says what each means.
const (
	waiting int16 = iota + 1
	prompt
	suspect
	pending
	asked
	scheduled
	retry
	cursor
	damaged
	completed
	cancelled
	dead
)

// stateOf gives the state that callers know.
func stateOf(state int16) storage.State {
	switch state {
	case waiting, prompt, suspect:
		return storage.Waiting
	case pending, asked:
		return storage.Pending
	case scheduled:
		return storage.Scheduled
	case retry:
		return storage.Retry
	case cursor:
		return storage.Cursors
	case completed:
		return storage.Completed
	case cancelled:
		return storage.Cancelled
	case dead:
		return storage.Dead
	}
	return ""
}

// numbersOfState gives the states of the tables that make up one that callers know.
func numbersOfState(state storage.State) []int16 {
	var all []int16
	for n := waiting; n <= dead; n++ {
		if stateOf(n) == state {
			all = append(all, n)
		}
	}
	return all
}

// The flags of a task.
const (
	special   int16 = 1 << iota // its end needs more than a delete
	started                     // its claim was not ahead
	startOnly                   // it expired while claimed ahead once
	isSuspect                   // it is one crash short of its limit
	hasSide                     // it has a row in sides
)

// never is the place of a cursor that is never due.
const never = 1<<63 - 1

// band begins the places of a priority in the order of what waits: half of them before
// it, for what goes to the head, half behind.
func band(priority int16) int64 { return int64(storage.MaxPriority-priority) << 56 }

const tokenSize = len(storage.Token{})

// row is a task as it is kept. The fields stand for columns.
type row struct {
	ref      storage.Ref
	queue    int32
	sort     int64
	turn     int64
	version  int64
	state    int16
	flags    int16
	priority int16
	lease    []byte
	at       int64 // when it ended
	past     past
	spec     spec
	attempts []storage.Attempt

	was  origin
	side side
	// recorded says that the spec differs from the record that is kept.
	recorded bool
	// held says that this step has locked it.
	held bool
	// dirty says that it is no longer as it was loaded.
	dirty bool
}

// origin is where a row was when it was loaded.
type origin struct {
	table table
	queue int32
	flags int16
}

// table is where a row stands.
type table int

const (
	nowhere table = iota
	inTasks
	inEnded
)

// side is what is to be written beside a task.
type side struct {
	mask                                          int16
	attempts, stack, result, progress, checkpoint []byte
}

const (
	sideAttempts int16 = 1 << iota
	sideStack
	sideResult
	sideProgress
	sideCheckpoint
)

// decode fills what a row's past and record say, and gives errDamaged for a row that no step
// has written. The row keeps memory of the record alone.
func (r *row) decode(pastBytes, record []byte) (err error) {
	if r.past, err = unpackPast(pastBytes, r.version); err != nil {
		return err
	}
	if r.spec, err = unpack(record, r.spec.Kind); err != nil {
		return err
	}
	sp := &r.spec
	in := storage.Insert{
		Ref: r.ref, Kind: sp.Kind, Encoding: sp.Encoding, Payload: sp.Payload, Headers: sp.Headers,
		Priority: int(r.priority), MaxRetries: sp.MaxRetries, CrashLimit: sp.CrashLimit, Timeout: sp.Timeout,
		Keep: sp.Keep, Unique: sp.Unique, Cursor: sp.Cursor,
	}
	// The limit at its insert may have been higher than that of today.
	limits := storage.Limits{MaxPayload: storage.MaxPayloadCap}
	if err = storage.CheckTxs(limits, []storage.Tx{{Inserts: []storage.Insert{in}}}); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if (r.state == cursor) != (sp.Cursor != nil) || r.version <= 0 || !isMoment(r.version) {
		return errDamaged
	}
	return nil
}

// sane reports whether the columns of a row agree with its table and its state.
func (r *row) sane(kept bool) bool {
	switch {
	case r.state < waiting || r.state == damaged || r.state > dead, r.ended() != kept:
		return false
	case r.state <= suspect || r.state == cursor: // the sort is a place, or never comes
		return true
	case r.isPending() && len(r.lease) < tokenSize:
		return false
	}
	return isMoment(r.sort) && isMoment(r.at)
}

func (r *row) ended() bool { return r.state >= completed }

// isPending reports whether a lease is on the task.
func (r *row) isPending() bool { return r.state == pending || r.state == asked }

// proves reports whether a fence proves the task's lease.
func (r *row) proves(f *storage.Fence) bool {
	return r.isPending() && r.version == f.Version && len(r.lease) >= tokenSize &&
		bytes.Equal(r.lease[:tokenSize], f.Token[:])
}

// runner gives the id of the runner that has the lease.
func (r *row) runner() string { return string(r.lease[min(tokenSize, len(r.lease)):]) }

// placed says where the task is.
func (r *row) placed() storage.Placed {
	return storage.Placed{Ref: r.ref, Version: r.version, State: stateOf(r.state)}
}

// task gives the task as callers know it, without what stands beside it.
func (r *row) task() storage.Task {
	t := storage.Task{
		Ref: r.ref, Kind: r.spec.Kind, Encoding: r.spec.Encoding, Payload: r.spec.Payload,
		Headers: maps.Clone(r.spec.Headers), State: stateOf(r.state), Version: r.version,
		Priority: int(r.priority), MaxRetries: r.spec.MaxRetries, Retries: r.past.Retries,
		CrashLimit: r.spec.CrashLimit, Crashes: r.past.Crashes, Snoozes: r.past.Snoozes,
		SnoozedSince: moment(r.past.SnoozedSince), Timeout: r.spec.Timeout, Keep: r.spec.Keep,
		Unique: r.spec.Unique, Created: moment(r.past.Created), Reason: r.past.Reason,
		Attempts: r.attempts, Cursor: r.spec.Cursor,
	}
	switch {
	case r.state == scheduled || r.state == retry:
		t.Due = moment(r.sort)
	case r.isPending():
		t.LeaseUntil = moment(r.sort)
		t.Runner = r.runner()
		t.Started = r.flags&started != 0
		t.CancelAsked = r.state == asked
	case r.ended():
		t.Ended, t.Expires = moment(r.at), moment(r.sort)
	}
	return t
}

// due is when a scheduled or retried task is due, else 0.
func (r *row) due() int64 {
	if r.state == scheduled || r.state == retry {
		return r.sort
	}
	return 0
}

// attempt appends to the history of a pending task how its claim ended.
func (r *row) attempt(now int64, outcome, text, stack string) {
	r.addAttempt(storage.Attempt{
		At: moment(now), Version: r.version, Runner: r.runner(), Outcome: outcome,
		Error: storage.CleanText(text, storage.MaxAttemptError),
	})
	r.side.stack = []byte(fullText(text, stack))
	r.beside(sideStack)
}

// addAttempt appends to the history, of which the oldest go.
func (r *row) addAttempt(a storage.Attempt) {
	if n := len(r.attempts); n >= storage.MaxAttempts {
		r.attempts = slices.Delete(r.attempts, 0, n-storage.MaxAttempts+1)
	}
	r.attempts = append(r.attempts, a)
	r.side.attempts = packAttempts(r.attempts)
	r.beside(sideAttempts)
}

// beside notes that something stands beside the task from now on.
func (r *row) beside(mask int16) {
	r.side.mask |= mask
	r.flags |= hasSide | special
}

// fullText joins the stack with what the history cuts off of the error.
func fullText(text, stack string) string {
	stack = storage.CleanText(stack, storage.MaxText)
	if len(text) <= storage.MaxAttemptError {
		return stack
	}
	text = storage.CleanText(text, storage.MaxText)
	if stack == "" {
		return text
	}
	return text + "\n\n" + stack
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
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return attempts, nil
}
