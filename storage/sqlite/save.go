package sqlite

import (
	"strings"

	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// inserted is how many tasks one statement inserts.
const inserted = 16

const (
	inserting = "INSERT INTO {p}tasks (queue, id, kind, line, sort, turn, version, flags, priority, retries, " +
		"created, ended, lease, past, record) VALUES "
	values = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

var insertingMany = inserting + values + strings.Repeat(", "+values, inserted-1)

// save writes the rows that changed. It deletes removed rows before it inserts rows with the same
// ids.
func (w *work) save() {
	for _, r := range w.all {
		if r.gone && r.task != 0 {
			w.drop(r)
		}
	}
	var fresh []*row
	kept := w.all[:0]
	for _, r := range w.all {
		switch {
		case r.gone:
			continue
		case r.Touched == 0:
		case r.task == 0:
			fresh = append(fresh, r)
		default:
			w.update(r)
		}
		kept = append(kept, r)
	}
	clear(w.all[len(kept):])
	w.all = kept
	for len(fresh) >= inserted {
		w.insert(insertingMany, fresh[:inserted])
		fresh = fresh[inserted:]
	}
	for i := range fresh {
		w.insert(inserting+values, fresh[i:i+1])
	}
	w.moved = false
}

// drop deletes a row.
func (w *work) drop(r *row) {
	w.exec("DELETE FROM {p}tasks WHERE task = ?", r.task)
	if r.hadAny {
		w.exec("DELETE FROM {p}sides WHERE task = ?", r.task)
	}
}

// lineNumber returns the number of the line in which a task stands. If that line is missing, the task
// begins it again.
func (w *work) lineNumber(r *row) int64 {
	if !r.State.HasSubs() {
		return ours(r.Queue).line(r.State)
	}
	l := w.Line(r.Queue, r.State, r.Sub(r.State))
	if l == nil {
		w.step.Join(r.Queue, r.State, r.Sub(r.State))
		l = w.Line(r.Queue, r.State, r.Sub(r.State))
	}
	own := namedOf(l)
	if own.number == 0 {
		w.writeLine(own)
	}
	return own.line()
}

// ended returns the column ended of a row: when the task ended or, while it is pending, when it was claimed
// if its version is not that moment.
func (r *row) ended() int64 {
	if r.State.IsPending() && r.At == r.Version {
		return 0
	}
	return r.At
}

// insert writes new rows, with one statement.
func (w *work) insert(text string, rows []*row) {
	args := make([]any, 0, 15*len(rows))
	for _, r := range rows {
		args = append(args, ours(r.Queue).number, r.ID, r.Kind, w.lineNumber(r), r.Sort, r.Turn,
			r.Version, int(r.Flags), int(r.Priority), r.Retries, r.Created, r.ended(),
			record.Lease(&r.Record), packPast(r), packSpec(r))
	}
	last := w.exec(text, args...)
	// A deleted number is used again, and its sides stay if a tool or an operator deleted the task.
	w.exec("DELETE FROM {p}sides WHERE task BETWEEN ? AND ?", last-int64(len(rows))+1, last)
	for i, r := range rows { // one statement assigns them consecutive numbers
		r.task = last - int64(len(rows)-1-i)
		w.saved(r)
	}
}

// update writes the changes of a row.
func (w *work) update(r *row) {
	const text = "UPDATE {p}tasks SET line = ?, sort = ?, turn = ?, version = ?, flags = ?, priority = ?, " +
		"retries = ?, ended = ?, lease = ?, past = ?"
	args := []any{
		w.lineNumber(r), r.Sort, r.Turn, r.Version,
		int(r.Flags), int(r.Priority), r.Retries, r.ended(), record.Lease(&r.Record), packPast(r),
	}
	switch queue := ours(r.Queue).number; {
	case r.Touched&engine.PartSpec != 0 || w.moved:
		w.fill(r)
		args = append(args, queue, packSpec(r), r.task)
		w.exec(text+", queue = ?, record = ? WHERE task = ?", args...)
	default:
		w.exec(text+" WHERE task = ?", append(args, r.task)...)
	}
	w.saved(r)
}

// saved writes the parts of a row in sides, and notes that all of the row is written.
func (w *work) saved(r *row) {
	sides := [...]struct {
		part  engine.Parts
		name  string
		value func() any
	}{
		{engine.PartAttempts, "attempts", func() any { return string(record.PackAttempts(r.Side.Attempts)) }},
		{engine.PartStack, "stack", func() any { return r.Side.Stack }},
		{engine.PartResult, "result", func() any { return r.Side.Result }},
		{engine.PartProgress, "progress", func() any { return r.Side.Progress }},
		{engine.PartCheckpoint, "checkpoint", func() any { return r.Side.Checkpoint }},
	}
	if r.Touched&engine.SideParts != 0 {
		for _, side := range sides {
			if r.Touched&side.part != 0 {
				w.exec("INSERT INTO {p}sides (task, "+side.name+") VALUES (?, ?) ON CONFLICT DO UPDATE SET "+
					side.name+" = excluded."+side.name, r.task, side.value())
			}
		}
		r.hadAny = true
	}
	r.Touched = 0
	r.was, r.place = r.State, r.Place
}

// finish writes all changes of the transaction.
func (w *work) finish() {
	w.save()
	for _, q := range w.queues {
		if q != nil {
			w.saveQueue(q)
		}
	}
	if !w.changed {
		return
	}
	st := &w.step
	w.meta.mark, w.meta.clock = max(st.Mark, st.Turn), st.Now
	w.exec("UPDATE {p}meta SET mark = ?, clock = ?, jumped = ?", w.meta.mark, st.Now, st.Jumped)
}

// saveQueue writes the sizes and totals of a queue, and whether it rang.
func (w *work) saveQueue(q *queue) {
	w.saveLines(q)
	if q.Limit != nil && q.Limit.Changed {
		_, _, starts := q.Limit.Texts()
		w.exec("UPDATE {p}queues SET starts = ? WHERE queue = ?", append([]byte{}, starts...), q.number)
		q.Limit.Changed = false
	}
	if q.RestChanged {
		w.exec("UPDATE {p}queues SET rest = ? WHERE queue = ?", q.Rest, q.number)
		q.RestChanged = false
	}
	counts := packCounts(q)
	if counts == q.was && !q.rang {
		return
	}
	if q.rang {
		q.rings++
	}
	if q.event != wakeup.Work {
		q.alerts++
	}
	w.exec("UPDATE {p}queues SET counts = ?, rings = ?, alerts = ?, touched = ? WHERE queue = ?",
		counts, q.rings, q.alerts, w.step.Now, q.number)
}
