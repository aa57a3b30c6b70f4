package sqlite

import (
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// line is the beginning of a line of tasks, as it was read.
type line struct {
	rows []*row
	size int // how many were asked for
}

// First gives the first record in a line. Tasks whose cancel was asked are found with the pending
// ones.
func (w *work) First(eq *engine.Queue, state engine.State) *engine.Record {
	q := ours(eq)
	l := q.lines[state]
	for w.err == nil && q.Sizes[state]+q.asked(state) > 0 {
		for l != nil && len(l.rows) > 0 {
			if r := l.rows[0]; !r.gone && r.Queue == eq && r.State.Line() == state {
				return &r.Record
			}
			l.rows = l.rows[1:]
		}
		size := 1
		if l != nil {
			size = min(max(8*l.size, 8), storage.MaxClaim)
		}
		all := q.Sizes[state]
		l = w.load(q, state, size)
		if len(l.rows) == 0 && q.Sizes[state] == all { // the size is wrong
			break
		}
	}
	return nil
}

// Size gives the bytes of a record's payload.
func (w *work) Size(r *engine.Record) int { return len(r.Payload) }

// asked gives how many tasks of another state are found in the line of a state.
func (q *queue) asked(state engine.State) int64 {
	if state == engine.Pending {
		return q.Sizes[engine.Asked]
	}
	return 0
}

// load reads the beginning of a line.
func (w *work) load(q *queue, state engine.State, size int) *line {
	w.save()
	q.lines[state] = &line{size: size, rows: w.firstOf(q, state, engine.Never, size)}
	return q.lines[state]
}

// firstOf gives the first tasks of a line whose moments have come, up to most of them or some
// megabytes. It sets apart tasks that cannot be read. All changes must have been saved.
func (w *work) firstOf(q *queue, state engine.State, come int64, most int) (all []*row) {
	states := []engine.State{state}
	if q.asked(state) > 0 {
		states = append(states, engine.Asked)
	}
	for _, st := range states {
		text, args := "SELECT "+columns+" FROM {p}tasks t WHERE t.line = ? ", []any{q.line(st)}
		if come < engine.Never { // without it a sort that is no number is found too, behind all others
			text, args = text+"AND t.sort <= ? ", append(args, come)
		}
		all = append(all, w.read(q, text+readable+"ORDER BY t.sort, t.turn LIMIT ?", append(args, most),
			storage.MaxClaimBytes)...)
	}
	if len(states) > 1 {
		slices.SortStableFunc(all, func(a, b *row) int { return markOf(a).Compare(markOf(b)) })
		all = all[:min(len(all), most)]
	}
	return slices.DeleteFunc(all, func(r *row) bool {
		if r.State == engine.Damaged {
			w.setApart(q, r)
			return true
		}
		return false
	})
}

// Due gives the first records of a line whose moments have come.
func (w *work) Due(eq *engine.Queue, state engine.State, at int64, n int) (found []*engine.Record) {
	if first := w.First(eq, state); first == nil || first.Sort > at {
		return nil
	}
	w.save()
	for _, r := range w.firstOf(ours(eq), state, at, n) {
		found = append(found, &r.Record)
	}
	return found
}

// SortAfter gives the first sort in a line that is greater than another, 0 where there is none.
func (w *work) SortAfter(q *engine.Queue, state engine.State, sort int64) (found int64) {
	w.one("SELECT sort FROM {p}tasks WHERE line = ? AND sort > ? AND typeof(sort) = 'integer' "+
		"ORDER BY sort LIMIT 1", []any{ours(q).line(state), sort}, &found)
	return found
}

// setApart moves a task that cannot be read to where it stops nobody, and counts it.
func (w *work) setApart(q *queue, r *row) {
	q.Sizes[r.was]--
	q.Sizes[engine.Damaged]++
	if r.was != engine.Cursor {
		q.Totals.Deleted++
	}
	w.step.Leave(&q.Queue, r.was, r.Kind)
	w.exec("UPDATE {p}tasks SET line = ?, sort = ? WHERE task = ?",
		q.line(engine.Damaged), w.step.Now, r.task)
	r.was = engine.Damaged
}

// kindLine is the line of the declined tasks of a kind, with its row.
type kindLine struct {
	engine.Line

	w      *work
	number int64
	bad    bool // the column tasks held no number
}

// line gives the number of the line, for the table tasks.
func (l *kindLine) line() int64 { return l.number<<4 + int64(l.State) }

// kindOf gives a line with its row.
func kindOf(l *engine.Line) *kindLine {
	own, _ := l.Tasks.(*kindLine)
	return own
}

// note keeps a line for this transaction.
func (w *work) note(l kindLine) *engine.Line {
	l.w, l.Tasks = w, &l
	if from, begun := w.store.looks.Load(l.number); begun {
		l.From, _ = from.(engine.Place)
	}
	ours(l.Queue).kinds[l.Sub] = &l
	return &l.Line
}

// kindLines gives the first lines of a queue that meet a condition, with the changes of this
// transaction.
func (w *work) kindLines(eq *engine.Queue, most int, where string, args ...any) (found []*engine.Line) {
	q := ours(eq)
	w.saveKinds(q)
	l := kindLine{Line: engine.Line{Queue: eq, State: engine.Declined, From: engine.FirstLook}}
	w.each("SELECT line, kind, named, look, tasks FROM {p}kinds WHERE queue = ? AND "+where+" LIMIT ?",
		slices.Concat([]any{q.number}, args, []any{most}), func() bool {
			if q.kinds[l.Sub] == nil {
				w.note(l)
			}
			l.bad = false
			found = append(found, &q.kinds[l.Sub].Line)
			return true
		}, &l.number, &l.Sub, number{to: &l.Named, or: w.step.Now, most: record.LastMoment}, moment(&l.Look),
		number{to: &l.Size, bad: &l.bad})
	for _, l := range found {
		if kindOf(l).bad || l.Size < 0 {
			w.one("SELECT count(*) FROM {p}tasks WHERE line = ?", []any{kindOf(l).line()}, &l.Size)
			kindOf(l).bad, l.Changed = false, true
		}
	}
	return found
}

// The conditions of kindLines.
const (
	fromKind = "kind >= ? ORDER BY kind"
	ofKind   = "kind = ?"
	toLookAt = "look <= ? ORDER BY look"
	isAhead  = "look > ? ORDER BY look"
)

var ofKinds = "kind IN (?" + strings.Repeat(", ?", fetched-1) + ")"

// Line gives the line of a kind, or nil.
func (w *work) Line(eq *engine.Queue, _ engine.State, kind string) *engine.Line {
	q := ours(eq)
	l, known := q.kinds[kind]
	if !known {
		w.kindLines(eq, 1, ofKind, kind)
		l = q.kinds[kind]
		q.kinds[kind] = l // notes also that there is none
	}
	if l == nil {
		return nil
	}
	return &l.Line
}

// InsertLine makes a line.
func (w *work) InsertLine(l engine.Line) *engine.Line {
	return w.note(kindLine{Line: l, number: w.exec(
		"INSERT INTO {p}kinds (queue, kind, named, look, tasks) VALUES (?, ?, ?, ?, 0)",
		ours(l.Queue).number, l.Sub, l.Named, l.Look,
	)})
}

// DeleteLine deletes a line.
func (w *work) DeleteLine(l *engine.Line) {
	w.exec("DELETE FROM {p}kinds WHERE line = ?", kindOf(l).number)
	w.store.looks.Delete(kindOf(l).number)
	ours(l.Queue).kinds[l.Sub] = nil
}

// saveKinds writes the lines that changed.
func (w *work) saveKinds(q *queue) {
	for _, l := range q.kinds {
		if l == nil || !l.Changed {
			continue
		}
		w.exec("UPDATE {p}kinds SET named = ?, look = ?, tasks = ? WHERE line = ?",
			l.Named, l.Look, l.Size, l.number)
		if l.From == engine.FirstLook {
			w.store.looks.Delete(l.number)
		} else {
			w.store.looks.Store(l.number, l.From)
		}
		l.Changed = false
	}
}

// LinesFrom gives up to n lines from a kind on.
func (w *work) LinesFrom(q *engine.Queue, _ engine.State, kind string, n int) []*engine.Line {
	return w.kindLines(q, n, fromKind, kind)
}

// LinesNamed gives the lines of kinds. It reads no other line.
func (w *work) LinesNamed(eq *engine.Queue, kinds []string) (found []*engine.Line) {
	q := ours(eq)
	unread := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool {
		_, known := q.kinds[kind]
		return known
	})
	for some := range slices.Chunk(unread, fetched) {
		args := make([]any, fetched)
		for i := range args { // the last kind fills the places of the condition
			args[i] = some[min(i, len(some)-1)]
		}
		w.kindLines(eq, fetched, ofKinds, args...)
		for _, kind := range some {
			if q.kinds[kind] == nil {
				q.kinds[kind] = nil // notes also that there is none
			}
		}
	}
	for _, kind := range kinds {
		if l := w.Line(eq, engine.Declined, kind); l != nil {
			found = append(found, l)
		}
	}
	return found
}

// LinesByLook gives the first lines by their moments Look, of the moments until or after another.
func (w *work) LinesByLook(q *engine.Queue, after bool, at int64, n int) []*engine.Line {
	if after {
		return w.kindLines(q, n, isAhead, at)
	}
	return w.kindLines(q, n, toLookAt, at)
}

var inKind = "SELECT " + columns + " FROM {p}tasks t " +
	"WHERE t.line = ? AND (t.sort, t.turn) >= (?, ?) " + readable +
	"AND t.flags & ? = 0 ORDER BY t.sort, t.turn LIMIT ?"

// Range gives up to n tasks of the line, from a place on, without any of some flags.
func (l *kindLine) Range(from engine.Place, without engine.Flags, n int) (found []*engine.Record) {
	l.w.save()
	for damaged := true; damaged && len(found) == 0 && l.w.err == nil; {
		damaged = false
		args := []any{l.line(), from.Sort, from.Turn, int(without), n}
		for _, r := range l.w.read(ours(l.Queue), inKind, args, 0) {
			if r.State == engine.Damaged { // its place may be damaged too
				l.w.setApart(ours(l.Queue), r)
				damaged = true
				continue
			}
			found = append(found, &r.Record)
		}
	}
	return found
}
