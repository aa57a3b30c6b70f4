package postgres

import (
	"cmp"
	"encoding/binary"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// row is a task as the tables hold it.
type row struct {
	engine.Record

	was   origin
	queue int32  // the number of its queue, set before it is saved
	rest  []byte // the parts of its record that only newer versions know
	size  int    // of its record, if nothing else is known of that
}

// origin is where a row was when it was loaded.
type origin struct {
	standing

	table table
	flags engine.Flags
}

// standing is a line: a queue and a state, and the name of the line if it has one.
type standing struct {
	queue int32
	state engine.State
	sub   string
}

// compare orders lines as all steps lock them.
func (at standing) compare(other standing) int {
	return cmp.Or(cmp.Compare(at.queue, other.queue), cmp.Compare(at.state, other.state),
		cmp.Compare(at.sub, other.sub))
}

// sub returns the name of the line in which a row stands, "" for a line without a name.
func (r *row) sub() string {
	if r.State.HasSubs() {
		return r.Sub(r.State)
	}
	return ""
}

// table is the table in which a row is.
type table int

const (
	nowhere table = iota
	inTasks
	inEnded
)

// decode fills a row from its past and its record. It returns storage.ErrDamaged if no step has
// written them. The row shares memory with the record only.
func (r *row) decode(past, spec []byte) (err error) {
	if r.Past, err = unpackPast(past, r.Version); err != nil {
		return err
	}
	if r.Spec, r.rest, err = record.Spec(spec, r.Kind); err != nil {
		return err
	}
	return record.Check(&r.Record)
}

// packPast packs a past behind its beginning, which takes eight bytes, as claim writes it. The past
// of a new task is empty: its version shows when it was created.
func packPast(r *row) []byte {
	if r.was.table == nowhere && r.Past == (engine.Past{Created: r.Version}) {
		return []byte{}
	}
	return record.AppendPast(binary.BigEndian.AppendUint64(make([]byte, 0, 24), uint64(r.Created)), &r.Past)
}

// unpackPast reads a past. An empty past is that of a task created at its version.
func unpackPast(b []byte, version int64) (engine.Past, error) {
	if len(b) == 0 {
		return record.Past(nil, version)
	}
	if len(b) < 8 {
		return engine.Past{}, storage.ErrDamaged
	}
	return record.Past(b[8:], int64(binary.BigEndian.Uint64(b)))
}

// task returns the task as a listing shows it.
func (r *row) task() (t storage.Task) {
	r.CopyTo(&t)
	return t
}

// numbersOfState returns the states of the tables that are one state to callers.
func numbersOfState(state storage.State) []int16 {
	states := engine.StatesOf(state)
	numbers := make([]int16, len(states))
	for i, s := range states {
		numbers[i] = int16(s)
	}
	return numbers
}
