package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// work is one transaction of the database, and the engine's Store. It reads records when they are
// asked for, and keeps them until save writes those that have changed. After the first error of the
// driver it reads and writes nothing, and the transaction is rolled back.
type work struct {
	step  engine.Step
	store *Storage
	err   error

	ctx   context.Context //nolint:containedctx // of the transaction; nothing outlives it
	link  link
	stmts map[string]*sql.Stmt // prepared on link; nil if link is not the storage's own

	meta    meta
	rows    map[storage.Ref]*row // nil if there is no task
	all     []*row               // the rows that were read or made, in order
	queues  map[string]*queue    // nil if there is no queue
	changed bool                 // the transaction has written something
	moved   bool                 // a task left its queue
	mended  bool                 // the place of a line was wrong, or its size

	affected int64 // how many rows the last statement wrote
	readOnly bool  // the transaction must write nothing
}

// link is a connection or a transaction of database/sql.
type link interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// meta is the row of the table meta, apart from the wait after a jump of the clock.
type meta struct{ mark, clock int64 }

// queue is a queue with its row in the database.
type queue struct {
	engine.Queue

	number        int64
	rings, alerts int64
	rang          bool          // in this transaction
	event         wakeup.Event  // the highest kind of event for which it rang
	was           string        // its counts as they were read
	limit         *engine.Limit // as it was read or written
	lines         [engine.States]*line
	named         map[lineName]*namedLine // the lines that were read, nil if there is none
	resting       int64                   // how many of its partitions are not ready
	soon          [engine.States]int64    // the earliest moment in a line, 0 if it was not read
}

func newQueue(name string) *queue {
	q := &queue{Queue: engine.Queue{Name: name}, named: make(map[lineName]*namedLine)}
	q.Own = q
	return q
}

// line returns the number of the line of a state, for the table tasks.
func (q *queue) line(state engine.State) int64 { return q.number<<4 + int64(state) }

func ours(q *engine.Queue) *queue {
	own, _ := q.Own.(*queue)
	return own
}

func (s *Storage) newWork(ctx context.Context, l link, stmts map[string]*sql.Stmt) *work {
	w := &work{
		store: s, ctx: ctx, link: l, stmts: stmts,
		rows: make(map[storage.Ref]*row), queues: make(map[string]*queue),
	}
	w.step = engine.Step{Store: w, Lines: w, Local: w, Limits: s.limits}
	return w
}

var (
	_ engine.Store = (*work)(nil)
	_ engine.Lines = (*work)(nil)
	_ engine.Local = (*work)(nil)
)

// fail keeps the first error.
func (w *work) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// prepared returns a statement that stays prepared.
func (w *work) prepared(text string) *sql.Stmt {
	st := w.stmts[text]
	if st == nil && w.err == nil {
		var err error
		if st, err = w.link.PrepareContext(w.ctx, w.store.in(text)); err != nil {
			w.fail(err)
			return nil
		}
		w.stmts[text] = st
	}
	return st
}

// exec carries out a statement that writes. It returns the number of the last row that was inserted.
func (w *work) exec(text string, args ...any) (last int64) {
	if w.err != nil {
		return 0
	}
	var done sql.Result
	var err error
	if w.stmts == nil || len(args) == 0 { // statements without arguments are rare
		done, err = w.link.ExecContext(w.ctx, w.store.in(text), args...)
	} else if st := w.prepared(text); st != nil { //nolint:sqlclosecheck // it stays prepared
		done, err = st.ExecContext(w.ctx, args...)
	}
	if err != nil || done == nil {
		w.fail(err)
		return 0
	}
	n, err := done.RowsAffected()
	w.fail(err)
	w.changed, w.affected = w.changed || n > 0, n
	last, err = done.LastInsertId()
	w.fail(err)
	return last
}

// each reads rows into the places, and calls got after each, until that reports false.
func (w *work) each(text string, args []any, got func() bool, places ...any) {
	if w.err != nil {
		return
	}
	var rows *sql.Rows
	var err error
	if w.stmts == nil {
		rows, err = w.link.QueryContext(w.ctx, w.store.in(text), args...)
	} else if st := w.prepared(text); st != nil { //nolint:sqlclosecheck // it stays prepared
		rows, err = st.QueryContext(w.ctx, args...)
	}
	if err != nil || rows == nil {
		w.fail(err)
		return
	}
	for rows.Next() {
		if err = rows.Scan(places...); err != nil || !got() {
			break
		}
	}
	w.fail(errors.Join(err, rows.Err(), rows.Close()))
}

// one reads the first row into the places, and reports whether there is one.
func (w *work) one(text string, args []any, places ...any) (found bool) {
	w.each(text, args, func() bool {
		found = true
		return false
	}, places...)
	return found
}

// begin reads the time of the step. It moves the mark on, which is written only if something else is.
func (w *work) begin() {
	m, st := &w.meta, &w.step
	w.one("SELECT mark, clock, jumped FROM {p}meta", nil, moment(&m.mark), moment(&m.clock), moment(&st.Jumped))
	jumped := st.Jumped
	st.Mark, st.Turn = m.mark, m.mark
	last := m.clock
	if w.readOnly { // nobody may have written for long: that is no jump, and a read could not note one
		last = 0
	}
	st.Begin(engine.Moment(w.store.cfg.Now()), last)
	ago := st.Now - m.clock
	w.changed = w.changed || st.Jumped != jumped || ago > clockKept || ago < 0
}

// clockKept is how old the kept clock of the last step may become if steps write nothing else: a
// minute.
const clockKept = 60_000_000

// Lookup returns the queue of a name, nil if there is none.
func (w *work) Lookup(name string) *engine.Queue {
	if q := w.lookup(name); q != nil {
		return &q.Queue
	}
	return nil
}

// lookup is Lookup, with the row.
func (w *work) lookup(name string) *queue {
	q, known := w.queues[name]
	if known {
		return q
	}
	q = newQueue(name)
	var paused int64
	var operator, declared, starts written
	if !w.one("SELECT queue, paused, paused_until, touched, operator, declared, starts, rest, rings, "+
		"alerts, counts FROM {p}queues WHERE name = ?",
		[]any{name}, &q.number, number{to: &paused}, moment(&q.PausedUntil), moment(&q.Touched),
		&operator, &declared, &starts, moment(&q.Rest), number{to: &q.rings}, number{to: &q.alerts}, &q.was) {
		q = nil
	} else {
		q.Paused = paused != 0
		q.Limit = engine.LimitOf(string(operator), string(declared), []byte(starts))
		q.limit = q.Limit
		if !unpackCounts(q.was, q) {
			w.recount(q)
		}
	}
	w.queues[name] = q
	return q
}

// standing finds the states of which a queue has tasks.
var standing = "SELECT column1 FROM (VALUES " + listed(", ", "(%[1]d)", hasLine) + ") " +
	"WHERE EXISTS (SELECT 1 FROM {p}tasks WHERE line = ? + column1) UNION ALL " +
	"SELECT column1 FROM (VALUES " + listed(", ", "(%[1]d)", engine.State.HasSubs) + ") " +
	"WHERE EXISTS (SELECT 1 FROM {p}lines WHERE queue = ? AND state = column1 AND tasks <> 0)"

// verify recounts the tasks of a queue if a line has tasks although its count is 0, if the sizes of its
// kinds and partitions do not add up, or if somebody has deleted the row of a task that was set apart.
func (w *work) verify(q *queue) {
	if !w.store.rings.isUnverified(q.Name, w.step.Now) {
		return
	}
	w.save()
	var state int64
	wrong := false
	w.each(standing, []any{q.line(0), q.number}, func() bool {
		wrong = q.Sizes[state] == 0
		return !wrong
	}, &state)
	if size := q.Sizes[engine.Damaged]; size > 0 {
		var rows int64
		w.one("SELECT count(*) FROM {p}tasks WHERE line = ?", []any{q.line(engine.Damaged)}, &rows)
		wrong = wrong || rows != size
	}
	if w.saveLines(q); wrong || w.areLinesWrong(q) {
		w.recount(q)
	}
}

// recount counts the tasks of a queue in the table, and mends its lines. All changes of its tasks must
// have been saved.
func (w *work) recount(q *queue) {
	q.Sizes = [engine.States]int64{}
	var state, tasks int64
	const count = "SELECT line & 15, count(*) FROM {p}tasks WHERE queue = ? GROUP BY line & 15"
	w.each(count, []any{q.number}, func() bool {
		if state < int64(engine.States) {
			q.Sizes[state] = tasks
		}
		return true
	}, &state, &tasks)
	w.mendLines(q)
}

// Queue returns the queue of a name, and makes it if there is none.
func (w *work) Queue(name string) *engine.Queue {
	q := w.lookup(name)
	if q == nil {
		// A queue that was made anew has no number of its former life, by which others know its last event.
		w.exec("INSERT INTO {p}queues (name, touched, rings, alerts, counts) VALUES (?, ?, ?, ?, ?)",
			name, w.step.Now, w.step.Mark, w.step.Mark, packCounts(new(queue)))
		delete(w.queues, name)
		if q = w.lookup(name); q == nil { // the transaction has failed
			q = newQueue(name)
			w.queues[name] = q
		}
	}
	return &q.Queue
}

// Holder returns the hold on a unique key. A task that was set apart, or whose row is gone, holds none for
// life. A hold whose column until is damaged counts as one for life.
func (w *work) Holder(name, key string) (h engine.Hold, held bool) {
	q := w.lookup(name)
	if q != nil {
		held = w.one("SELECT id, until FROM {p}keys WHERE queue = ? AND key = ?",
			[]any{q.number, key}, &h.ID, number{to: &h.Until})
	}
	if held && h.Until == 0 { // this step may have inserted the task, and not written it yet
		ref := storage.Ref{Queue: name, ID: h.ID}
		held = w.Find(ref) != nil && w.rows[ref].was != engine.Damaged
	}
	return h, held
}

// Hold replaces the hold on a unique key.
func (w *work) Hold(q *engine.Queue, key string, h engine.Hold) {
	w.exec("INSERT INTO {p}keys (queue, key, id, until) VALUES (?, ?, ?, ?) "+
		"ON CONFLICT DO UPDATE SET id = excluded.id, until = excluded.until", ours(q).number, key, h.ID, h.Until)
}

// Free ends the hold that a task has for its life.
func (w *work) Free(q *engine.Queue, key, id string) {
	w.exec("DELETE FROM {p}keys WHERE queue = ? AND key = ? AND id = ? AND until = 0", ours(q).number, key, id)
}

// Add makes the record of an insert.
func (w *work) Add(_ *engine.Queue, in *storage.Insert) *engine.Record {
	r := &row{Record: engine.Record{Spec: engine.SpecOf(in)}}
	r.Cursor = engine.CopyCursor(in.Cursor)
	w.rows[in.Ref] = r
	w.all = append(w.all, r)
	return &r.Record
}

// Move takes a record from its line to another. The beginning of that line is read anew when it is
// next needed.
func (w *work) Move(r *engine.Record, to engine.State, _ engine.Place) {
	ours(r.Queue).lines[to.Line()] = nil
}

// Transfer takes a record to another queue.
func (w *work) Transfer(r *engine.Record, to *engine.Queue) {
	own := w.rows[r.Ref]
	w.rows[r.Ref] = nil
	w.rows[storage.Ref{Queue: to.Name, ID: r.ID}] = own
	w.moved = true
	r.Queue.Touched = w.step.Now
}

// Remove takes a record out of the storage.
func (w *work) Remove(r *engine.Record) {
	if own := w.rows[r.Ref]; own != nil {
		own.gone = true
	}
	w.rows[r.Ref] = nil
	r.Queue.Touched = w.step.Now
}

// Ring notes an event of a record's queue. A due moment counts only if it is the first of its
// line.
func (w *work) Ring(r *engine.Record, alert bool) {
	if r.State.IsTimed() && !w.isFirst(r) {
		return
	}
	w.ring(ours(r.Queue), wakeup.Of(r.IsForAnyClaim(), alert))
}

func (w *work) ring(q *queue, event wakeup.Event) {
	q.rang, q.event = true, max(q.event, event)
}

// isFirst reports whether r is due before all other tasks of its line. A task that was due earlier
// and left the line in this transaction still counts: whoever waits for its moment claims then.
func (w *work) isFirst(r *engine.Record) bool {
	q := ours(r.Queue)
	if q.soon[r.State] == 0 {
		soon := int64(engine.Never)
		w.one("SELECT sort FROM {p}tasks WHERE line = ? AND typeof(sort) = 'integer' ORDER BY sort, turn LIMIT 1",
			[]any{q.line(r.State)}, &soon)
		q.soon[r.State] = soon
	}
	if r.Sort >= q.soon[r.State] {
		return false
	}
	q.soon[r.State] = r.Sort
	return true
}
