package sqlite

import (
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// row is a task as the tables hold it.
type row struct {
	engine.Record

	task   int64        // its number, 0 if it is not written yet
	gone   bool         // it was removed
	bad    bool         // a column held no number, or an impossible one
	was    engine.State // its state when it was read or saved
	place  engine.Place
	sub    string // the name of the line in which it was listed, if its state has several lines
	cut    int    // the bytes of its payload if that was not read, see inLine
	hadAny bool   // it had a row in sides
	rest   []byte // the parts of its record that only newer versions know
}

// Find returns the record of a ref, or nil.
func (w *work) Find(ref storage.Ref) *engine.Record {
	r, known := w.rows[ref]
	if !known {
		w.prefetch(ref.Queue, []string{ref.ID})
		r = w.rows[ref]
	}
	if r == nil {
		return nil
	}
	w.fill(r)
	if r.Flags&engine.HasSide != 0 && r.Side == nil {
		w.readAttempts(r)
	}
	return &r.Record
}

// columns of a task.
const columns = leading + "t.record, 0"

const leading = "t.task, t.queue, t.id, t.kind, t.line, t.sort, t.turn, t.version, t.flags, t.priority, " +
	"t.created, t.ended, t.lease, t.past, "

// headBytes is how much is read of a large record in headColumns.
const headBytes = 4 << 10

// headColumns are the columns of a task with the head of its record if that is large, and then its length.
// The payload is the last part of a record.
var headColumns = fmt.Sprintf(leading+"CASE WHEN %[1]s THEN substr(t.record, 1, %[2]d) ELSE t.record END, "+
	"CASE WHEN %[1]s THEN length(t.record) ELSE 0 END",
	fmt.Sprintf("typeof(t.record) = 'blob' AND length(t.record) > %d", headBytes), headBytes)

// readable leaves out tasks of newer versions: a Claim sets apart the tasks that it cannot read. No
// version has flags beyond 16 bits.
var readable = fmt.Sprintf("AND (t.flags & %d = 0 OR t.flags NOT BETWEEN 0 AND %d) ",
	record.Newer, math.MaxInt16)

// fetched is how many tasks one statement reads by their ids.
const fetched = 32

var fetching = [...]string{
	"SELECT " + columns + " FROM {p}tasks t WHERE t.queue = ? AND t.id = ?",
	"SELECT " + columns + " FROM {p}tasks t WHERE t.queue = ? AND t.id IN (?" +
		strings.Repeat(", ?", fetched-1) + ")",
}

// prefetch reads the tasks of those ids that were not read yet.
func (w *work) prefetch(name string, ids []string) {
	q := w.lookup(name)
	for len(ids) > 0 && w.err == nil {
		n, text := min(len(ids), fetched), fetching[1]
		if n == 1 {
			text = fetching[0]
		}
		args := make([]any, 1, fetched+1)
		for _, id := range ids[:n] {
			ref := storage.Ref{Queue: name, ID: id}
			if _, known := w.rows[ref]; !known {
				w.rows[ref] = nil
				args = append(args, id)
			}
		}
		for ids = ids[n:]; n > 1 && len(args) > 1 && len(args) < cap(args); {
			args = append(args, args[len(args)-1]) // fills the places of the statement
		}
		if q != nil && len(args) > 1 {
			args[0] = q.number
			w.read(q, text, args, 0)
		}
	}
}

// read reads tasks of a queue, in the order of the statement, until their records have most bytes; 0
// is no limit. A row that was read before is returned as it is now, and left out if it was removed.
func (w *work) read(q *queue, text string, args []any, most int) (all []*row) {
	var r row
	var queue, line, flags, priority, size, length int64
	var lease, past, record sql.RawBytes
	var bad bool
	var long []*row // the heads of their records do not have all
	lax := func(to *int64) number { return number{to: to, bad: &bad} }
	w.each(text, args, func() bool {
		r.Queue, r.Ref.Queue, r.State = &q.Queue, q.Name, engine.State(line&15)
		r.Flags, r.Priority = engine.Flags(flags), int16(priority)
		if r.State.IsPending() && r.At == 0 {
			r.At = r.Version
		}
		r.bad = bad || flags != int64(r.Flags) || priority != int64(r.Priority) || queue != q.number
		bad = false
		got := w.rows[r.Ref]
		if got == nil {
			var whole bool
			if got, whole = w.take(r, lease, past, record, length); !whole {
				long = append(long, got)
			}
		}
		if !got.gone {
			all = append(all, got)
		}
		size += int64(len(record))
		return most == 0 || size <= int64(most)
	}, &r.task, lax(&queue), &r.ID, &r.Kind, lax(&line), lax(&r.Sort), lax(&r.Turn), lax(&r.Version),
		lax(&flags), lax(&priority), lax(&r.Created), lax(&r.At), &lease, &past, &record, &length)
	for _, r := range long {
		w.takeWhole(r)
	}
	return all
}

// take adds a row that was read. A task that cannot be read gets the state Damaged. If length is not 0, it is
// that of the record, of which only the head was read. Then take does not keep the payload, and reports false
// for a task that cannot be read from the head alone.
func (w *work) take(read row, lease, past, record []byte, length int64) (r *row, whole bool) {
	r = &read
	r.was, r.place, r.hadAny = r.State, r.Place, r.Flags&engine.HasSide != 0
	w.rows[r.Ref] = r
	w.all = append(w.all, r)
	if r.bad {
		r.State = engine.Damaged
		return r, true
	}
	kind := r.Kind
	rest, err := decode(&r.Record, lease, past, slices.Clone(record))
	switch {
	case err != nil && length > 0:
		r.Kind = kind
		return r, false
	case err != nil:
		r.State = engine.Damaged
	case length > 0:
		r.cut, r.Payload = int(length)-len(record)+len(r.Payload), nil
	}
	if r.rest = rest; r.cut > storage.MaxPayloadCap {
		r.State = engine.Damaged
	}
	return r, true
}

// takeWhole reads a row again, by the whole of its record. It does not keep the payload.
func (w *work) takeWhole(r *row) {
	err := storage.ErrDamaged
	var lease, past, record sql.RawBytes
	w.each("SELECT lease, past, record FROM {p}tasks WHERE task = ?", []any{r.task}, func() bool {
		r.rest, err = decode(&r.Record, lease, past, slices.Clone(record))
		return false
	}, &lease, &past, &record)
	r.cut, r.Payload, r.rest = len(r.Payload), nil, slices.Clone(r.rest)
	if err != nil {
		r.State, r.cut = engine.Damaged, 0
	}
}

// fill reads the payload of a task if that was not read.
func (w *work) fill(r *row) {
	if r.cut == 0 {
		return
	}
	err := storage.ErrDamaged
	var spec sql.RawBytes
	w.each("SELECT record FROM {p}tasks WHERE task = ?", []any{r.task}, func() bool {
		r.Payload, err = payloadOf(slices.Clone(spec))
		return false
	}, &spec)
	w.fail(err)
	r.cut = 0
}

// readAttempts reads the history of a task.
func (w *work) readAttempts(r *row) {
	r.Side = new(engine.Side)
	var text sql.RawBytes
	var err error
	w.each("SELECT attempts FROM {p}sides WHERE task = ?", []any{r.task}, func() bool {
		r.Side.Attempts, err = record.Attempts(text)
		return false
	}, &text)
	if err != nil {
		r.Side.Attempts = nil // a history that cannot be read is dropped
	}
}
