package sqlite

import (
	"math"
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

// First returns the first record in a line. Tasks whose cancel was asked are found with the
// pending tasks.
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

// Size returns the bytes of a record's payload.
func (w *work) Size(r *engine.Record) int { return len(r.Payload) + w.rows[r.Ref].cut }

// asked returns how many tasks of another state are found in the line of a state.
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

// firstOf returns the first tasks of a line whose moments have come, up to most of them or
// some megabytes. It sets apart tasks that cannot be read. All changes must have been saved.
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
	whole := len(all)
	all = slices.DeleteFunc(all, func(r *row) bool {
		if r.State == engine.Damaged {
			w.setApart(q, r, "")
			return true
		}
		return false
	})
	if len(all) < whole && state == engine.Pending {
		w.mendPartitions(q)
	}
	return all
}

// Due returns the first records of a line whose moments have come.
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

// SortAfter returns the first sort in a line that is greater than another, 0 if there is none.
func (w *work) SortAfter(q *engine.Queue, state engine.State, sort int64) (found int64) {
	w.one("SELECT sort FROM {p}tasks WHERE line = ? AND sort > ? AND typeof(sort) = 'integer' "+
		"ORDER BY sort LIMIT 1", []any{ours(q).line(state), sort}, &found)
	return found
}

// setApart moves a task that cannot be read to where it stops nobody, and counts it. sub is the name of
// the line in which it stands if its state has several lines. If it was pending, mendPartitions frees its
// slot.
func (w *work) setApart(q *queue, r *row, sub string) {
	q.Sizes[r.was]--
	q.Sizes[engine.Damaged]++
	if r.was != engine.Cursor && !r.was.HasEnded() {
		q.Totals.Deleted++
	}
	w.step.Leave(&q.Queue, r.was, sub)
	w.exec("UPDATE {p}tasks SET line = ?, sort = ? WHERE task = ?",
		q.line(engine.Damaged), w.step.Now, r.task)
	r.was = engine.Damaged
}

// namedLine is the line of the declined tasks of a kind, or of a partition, with its row.
type namedLine struct {
	engine.Line

	w      *work
	number int64 // 0 if the line is not written yet
	gone   bool  // it was deleted
	bad    bool  // the column tasks held no number
	astray bool  // its place in the ring, or the data that it keeps, was nothing that a step has written
}

// lineName is the state and the name of a line.
type lineName struct {
	state engine.State
	sub   string
}

// line returns the number of the line, for the table tasks.
func (l *namedLine) line() int64 { return l.number<<4 + int64(l.State) }

// place returns the columns sort and turn: the place of a partition in the ring, and the moments Look
// and Named of the line of a kind.
func (l *namedLine) place() engine.Place {
	if l.State == engine.Keyed {
		return l.Ring
	}
	return engine.Place{Sort: l.Look, Turn: l.Named}
}

// kept returns the column kept. It is never nil, which would be NULL.
func (l *namedLine) kept() []byte { return append([]byte{}, l.Pack()...) }

// namedOf returns a line with its row.
func namedOf(l *engine.Line) *namedLine {
	own, _ := l.Tasks.(*namedLine)
	return own
}

// note keeps a line for this transaction.
func (w *work) note(l namedLine) *engine.Line {
	l.w, l.Tasks = w, &l
	if l.State == engine.Declined {
		if from, begun := w.store.looks.Load(l.number); begun {
			l.From, _ = from.(engine.Place)
		}
	}
	ours(l.Queue).named[lineName{l.State, l.Sub}] = &l
	return &l.Line
}

// readLines returns the first lines of a state in a queue that meet a condition, as this transaction has
// left them.
func (w *work) readLines(
	eq *engine.Queue, state engine.State, most int, where string, args ...any,
) (found []*engine.Line) {
	q := ours(eq)
	l := namedLine{Line: engine.Line{Queue: eq, State: state}}
	sort := number{to: &l.Ring.Sort, bad: &l.astray}
	turn := number{to: &l.Ring.Turn, most: w.step.Turn, bad: &l.astray}
	if state == engine.Declined {
		l.From = engine.FirstLook
		sort, turn = moment(&l.Look), number{to: &l.Named, or: w.step.Now, most: record.LastMoment}
	}
	text := "SELECT line, name, tasks, sort, turn, kept FROM {p}lines WHERE queue = ? AND state = ? AND " +
		where + " LIMIT ?"
	var kept written
	var unread []*namedLine
	w.each(text, slices.Concat([]any{q.number, int(state)}, args, []any{most}),
		func() bool {
			own := q.named[lineName{state, l.Sub}]
			if own == nil {
				l.astray = !l.Unpack([]byte(kept)) || l.astray
				own = namedOf(w.note(l))
				unread = append(unread, own)
			}
			l.bad, l.astray = false, false
			found = append(found, &own.Line)
			return true
		}, &l.number, &l.Sub, number{to: &l.Size, bad: &l.bad}, sort, turn, &kept)
	for _, l := range unread {
		if l.bad || l.IsSpare() {
			w.countLine(l)
		}
		if w.mendPlace(l); l.Changed {
			w.mended = true
		}
	}
	return found
}

// countLine counts the tasks of a line in the table. All changes of its tasks must have been saved.
func (w *work) countLine(l *namedLine) {
	w.one("SELECT count(*) FROM {p}tasks WHERE line = ?", []any{l.line()}, &l.Size)
	l.bad, l.Changed = false, true
	if l.IsSpare() && !w.readOnly {
		w.DeleteLine(&l.Line)
	}
}

// mendPlace puts a partition that is astray at the beginning of the ring, unless it belongs elsewhere.
func (w *work) mendPlace(l *namedLine) {
	if l.State != engine.Keyed || l.gone || w.readOnly {
		return
	}
	if l.astray || l.Ring.Sort < 0 {
		l.Ring.Sort = max(l.Ring.Sort, 0)
		w.SetTurn(&l.Line, engine.Place{})
		l.Ring, l.Changed, l.astray = engine.Place{}, true, false
	}
	if l.IsMisplaced() {
		w.step.Arrange(&l.Line)
	}
}

// The conditions of readLines.
const (
	fromName = "name >= ? ORDER BY name"
	ofName   = "name = ?"
	toLookAt = "sort <= ? ORDER BY sort"
	isAhead  = "sort > ? ORDER BY sort"
	inRing   = "(sort, turn) >= (?, ?) ORDER BY sort, turn"
)

var ofNames = "name IN (?" + strings.Repeat(", ?", fetched-1) + ")"

// Line returns the line of a state and name, or nil.
func (w *work) Line(eq *engine.Queue, state engine.State, sub string) *engine.Line {
	named, name := ours(eq).named, lineName{state, sub}
	l, known := named[name]
	if !known {
		w.readLines(eq, state, 1, ofName, sub)
		l = named[name]
		named[name] = l // notes also that there is none
	}
	if l == nil || l.gone {
		return nil
	}
	return &l.Line
}

// InsertLine makes a line. It is written with the first of its tasks.
func (w *work) InsertLine(of engine.Line) *engine.Line {
	l := namedLine{Line: of}
	if old := ours(of.Queue).named[lineName{of.State, of.Sub}]; old != nil {
		l.number = old.number // the line was deleted in this transaction, and its row is still there
	}
	l.Changed = true
	return w.note(l)
}

// DeleteLine deletes a line. Its row goes when the changes are saved.
func (w *work) DeleteLine(l *engine.Line) {
	own, q := namedOf(l), ours(l.Queue)
	if !l.IsReady() {
		q.resting--
	}
	own.gone, l.Changed = true, true
	w.store.looks.Delete(own.number)
}

// saveLines writes the lines of a queue that changed, and the changes of its tasks before.
func (w *work) saveLines(q *queue) {
	if len(q.named) == 0 || w.readOnly {
		return
	}
	w.save()
	for name, l := range q.named {
		switch {
		case l == nil || !l.Changed:
			continue
		case l.gone && w.removeLine(l):
			q.named[name] = nil
			continue
		case l.number == 0:
			w.writeLine(l)
		default:
			at := l.place()
			w.exec("UPDATE {p}lines SET tasks = ?, sort = ?, turn = ?, kept = ? WHERE line = ?",
				l.Size, at.Sort, at.Turn, l.kept(), l.number)
		}
		if l.State == engine.Declined && l.From != engine.FirstLook {
			w.store.looks.Store(l.number, l.From)
		} else {
			w.store.looks.Delete(l.number)
		}
		l.Changed = false
	}
}

// writeLine writes the row of a new line.
func (w *work) writeLine(l *namedLine) {
	at := l.place()
	l.number = w.exec("INSERT INTO {p}lines (queue, state, name, tasks, sort, turn, kept) "+
		"VALUES (?, ?, ?, ?, ?, ?, ?)",
		ours(l.Queue).number, int(l.State), l.Sub, l.Size, at.Sort, at.Turn, l.kept())
	l.Changed = false
}

// removeLine deletes the row of a line. It reports false if the line has tasks, since its size was too
// small: then it counts them.
func (w *work) removeLine(l *namedLine) bool {
	if l.number == 0 {
		return true
	}
	w.exec("DELETE FROM {p}lines WHERE line = ? AND NOT EXISTS (SELECT 1 FROM {p}tasks WHERE line = ?)",
		l.number, l.line())
	if w.affected > 0 || w.err != nil {
		return true
	}
	l.gone, l.Ring.Sort = false, 0
	w.countLine(l)
	return false
}

// LinesFrom returns up to n lines of a state from a name on.
func (w *work) LinesFrom(q *engine.Queue, state engine.State, sub string, n int) []*engine.Line {
	w.saveLines(ours(q))
	return w.readLines(q, state, n, fromName, sub)
}

// LinesNamed returns the lines of kinds. It reads no other line.
func (w *work) LinesNamed(eq *engine.Queue, kinds []string) (found []*engine.Line) {
	named := ours(eq).named
	unread := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool {
		_, known := named[lineName{engine.Declined, kind}]
		return known
	})
	for some := range slices.Chunk(unread, fetched) {
		args := make([]any, fetched)
		for i := range args { // the last kind fills the places of the condition
			args[i] = some[min(i, len(some)-1)]
		}
		w.readLines(eq, engine.Declined, fetched, ofNames, args...)
		for _, kind := range some {
			if name := (lineName{engine.Declined, kind}); named[name] == nil {
				named[name] = nil // notes also that there is none
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

// LinesByLook returns the first lines of kinds by their moments Look, of the moments until or after another.
func (w *work) LinesByLook(q *engine.Queue, after bool, at int64, n int) []*engine.Line {
	w.saveLines(ours(q))
	if after {
		return w.readLines(q, engine.Declined, n, isAhead, at)
	}
	return w.readLines(q, engine.Declined, n, toLookAt, at)
}

// inLine finds tasks of a line. A claim may read many of them and take few: not all their payloads may be
// in memory. See fill.
var inLine = "SELECT " + headColumns + " FROM {p}tasks t " +
	"WHERE t.line = ? AND (t.sort, t.turn) >= (?, ?) " + readable +
	"AND t.flags & ? = 0 ORDER BY t.sort, t.turn LIMIT ?"

// Range returns up to n tasks of the line, from a place on, without any of some flags. If there is none at
// all, the size was too large: it deletes the line then, or arranges the rest of a partition.
func (l *namedLine) Range(from engine.Place, without engine.Flags, n int) (found []*engine.Record) {
	w := l.w
	w.save()
	for damaged := true; damaged && w.err == nil; {
		damaged, found = false, found[:0]
		args := []any{l.line(), from.Sort, from.Turn, int(without), n}
		for _, r := range w.read(ours(l.Queue), inLine, args, 0) {
			if r.State != engine.Damaged {
				found = append(found, &r.Record)
			} else if !w.readOnly { // its place may be damaged too
				w.setApart(ours(l.Queue), r, l.Sub)
				damaged = true
			}
		}
	}
	whole := from.Sort == math.MinInt64 && without == 0
	if whole && len(found) == 0 && l.IsReady() && !l.gone && !w.readOnly {
		if l.Size = 0; l.IsSpare() {
			w.DeleteLine(&l.Line)
		} else {
			w.step.Arrange(&l.Line)
		}
	}
	return found
}
