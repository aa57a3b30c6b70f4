package sqlite

import (
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// kindLine is the line in which the declined tasks of a kind wait.
type kindLine struct {
	kind   string
	number int64
	named  int64 // when a claim last named the kind, or the line began, to a twenty-fourth of DeclinedFor
	look   int64 // when to look next for tasks that waited too long
	tasks  int64

	changed bool
	bad     bool // the column tasks held no number
}

// kindLines gives the first lines of a queue that meet a condition, with the changes of this
// transaction.
func (w *work) kindLines(q *queue, most int, where string, args ...any) (found []*kindLine) {
	w.saveKinds(q)
	if q.kinds == nil {
		q.kinds = make(map[string]*kindLine)
	}
	var l kindLine
	w.each("SELECT line, kind, named, look, tasks FROM {p}kinds WHERE queue = ? AND "+where+" LIMIT ?",
		slices.Concat([]any{q.number}, args, []any{most}), func() bool {
			if q.kinds[l.kind] == nil {
				read := l
				q.kinds[l.kind] = &read
			}
			l.bad = false
			found = append(found, q.kinds[l.kind])
			return true
		}, &l.number, &l.kind, number{to: &l.named, or: w.step.Now, most: record.LastMoment}, moment(&l.look),
		number{to: &l.tasks, bad: &l.bad})
	for _, l := range found {
		if l.bad || l.tasks < 0 {
			w.one("SELECT count(*) FROM {p}tasks WHERE line = ?", []any{l.line()}, &l.tasks)
			l.bad, l.changed = false, true
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

// kindLine gives the line of a kind, or nil.
func (w *work) kindLine(q *queue, kind string) *kindLine {
	l, known := q.kinds[kind]
	if !known {
		w.kindLines(q, 1, ofKind, kind)
		l = q.kinds[kind]
		q.kinds[kind] = l // notes also that there is none
	}
	return l
}

// joinKind counts a task that joins the line of its kind.
func (w *work) joinKind(q *queue, kind string) {
	l := w.kindLine(q, kind)
	if l == nil {
		l = &kindLine{kind: kind, named: w.step.Now, look: w.step.Now + w.store.limits.DeclinedFor.Microseconds()}
		l.number = w.exec("INSERT INTO {p}kinds (queue, kind, named, look, tasks) VALUES (?, ?, ?, ?, 0)",
			q.number, kind, l.named, l.look)
		q.kinds[kind] = l
	}
	l.tasks++
	l.changed = true
}

// leaveKind counts a task that leaves the line of its kind.
func (w *work) leaveKind(q *queue, kind string) {
	if l := w.kindLine(q, kind); l != nil {
		l.tasks--
		l.changed = true
	}
}

// saveKinds writes the lines that changed, and deletes those without tasks.
func (w *work) saveKinds(q *queue) {
	for kind, l := range q.kinds {
		switch {
		case l == nil || !l.changed:
			continue
		case l.tasks <= 0:
			w.exec("DELETE FROM {p}kinds WHERE line = ?", l.number)
			w.store.looks.Delete(l.number)
			q.kinds[kind] = nil
		default:
			w.exec("UPDATE {p}kinds SET named = ?, look = ?, tasks = ? WHERE line = ?",
				l.named, l.look, l.tasks, l.number)
		}
		l.changed = false
	}
}

// among gives the lines of the named kinds that have tasks, or the first lines of all where no kind
// is named. It reads no other line.
func (w *work) among(q *queue, kinds []string) (found []*kindLine) {
	if q.Sizes[engine.Declined] == 0 {
		return nil
	}
	if len(kinds) == 0 {
		return w.kindLines(q, storage.MaxKinds, fromKind, "")
	}
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	unread := make([]any, 0, len(kinds))
	for _, kind := range kinds {
		if _, known := q.kinds[kind]; !known {
			unread = append(unread, kind)
		}
	}
	for len(unread) > 1 {
		some := slices.Clone(unread[:min(len(unread), fetched)])
		for unread = unread[len(some):]; len(some) < fetched; { // fills the places of the condition
			some = append(some, some[0])
		}
		w.kindLines(q, fetched, ofKinds, some...)
		for _, kind := range some {
			name, _ := kind.(string)
			if q.kinds[name] == nil {
				q.kinds[name] = nil // notes also that there is none
			}
		}
	}
	for _, kind := range kinds {
		if l := w.kindLine(q, kind); l != nil && l.tasks > 0 {
			found = append(found, l)
		}
	}
	return found
}

// KindLines gives those of the named kinds that have declined tasks.
func (w *work) KindLines(q *engine.Queue, kinds []string) (found []string) {
	for _, l := range w.among(ours(q), kinds) {
		found = append(found, l.kind)
	}
	return found
}

var declinedFrom = "SELECT " + columns + " FROM {p}tasks t " +
	"WHERE t.line = ? AND (t.sort, t.turn) >= (?, ?) " + readable

// FirstDeclined gives the first task in the line of a kind, at a place or behind it, without any of
// some flags.
func (w *work) FirstDeclined(
	eq *engine.Queue, kind string, from engine.Place, without engine.Flags,
) *engine.Record {
	q := ours(eq)
	for w.err == nil {
		l := w.kindLine(q, kind)
		if l == nil || l.tasks <= 0 {
			break
		}
		w.save()
		all := w.read(q, declinedFrom+"AND t.flags & ? = 0 ORDER BY t.sort, t.turn LIMIT 1",
			[]any{l.line(), from.Sort, from.Turn, int(without)}, 0)
		if len(all) == 0 {
			break
		}
		if r := all[0]; r.State != engine.Damaged {
			return &r.Record
		}
		w.setApart(q, all[0])
	}
	return nil
}

// line gives the number of the line, for the table tasks.
func (l *kindLine) line() int64 { return l.number<<4 + int64(engine.Declined) }

// nameKinds notes that a claim names kinds.
func (w *work) nameKinds(q *queue, kinds []string) {
	long := w.store.limits.DeclinedFor.Microseconds()
	for _, l := range w.among(q, kinds) {
		if w.step.Now-l.named >= long/24 {
			l.named, l.changed = w.step.Now, true
		}
	}
}

// abandon ends declined tasks whose kind no claim has named for DeclinedFor, and reports whether some
// of this work is left.
func (w *work) abandon(q *queue, most int) (ended []storage.Ended, left bool) {
	long := w.store.limits.DeclinedFor.Microseconds()
	if w.step.Come == 0 || q.Sizes[engine.Declined] == 0 || q.IsPaused(w.step.Now) {
		return nil, false
	}
	// A clock that was ahead has stamped these lines.
	for _, l := range w.kindLines(q, most, isAhead, w.step.Come+long) {
		l.named, l.look, l.changed = w.step.Come, w.step.Come+long, true
	}
	look := engine.Look{Step: &w.step, Moment: w.step.Come - long, Room: most}
	for _, l := range w.kindLines(q, most, toLookAt, w.step.Come) {
		if l.named+long <= w.step.Come && !w.lookAlong(q, l, &look) {
			left = true // the next claim looks at it again
			break
		}
		l.look, l.changed = max(l.named+long, w.step.Come+long/24), true
	}
	for i, r := range look.Found {
		look.Found[i] = w.Find(r.Ref) // with its history
	}
	return w.step.Abandon(look.Found), left
}

// lookAlong looks along the line of a kind for tasks that waited too long, and reports whether it
// came to the end of the line.
func (w *work) lookAlong(q *queue, l *kindLine, look *engine.Look) (over bool) {
	from := engine.FirstLook()
	if on, begun := w.store.looks.Load(l.number); begun {
		from, _ = on.(engine.Place)
	}
	w.save()
	on, over := look.Along(from, func(from engine.Place, n int) []*engine.Record {
		return w.declinedFrom(q, l, from, n)
	})
	if over {
		w.store.looks.Delete(l.number)
	} else {
		w.store.looks.Store(l.number, on)
	}
	return over
}

// declinedFrom gives up to n tasks in the line of a kind at or behind a place.
func (w *work) declinedFrom(q *queue, l *kindLine, from engine.Place, n int) (found []*engine.Record) {
	for damaged := true; damaged && len(found) == 0 && w.err == nil; {
		damaged = false
		all := w.read(q, declinedFrom+"ORDER BY t.sort, t.turn LIMIT ?",
			[]any{l.line(), from.Sort, from.Turn, n}, 0)
		for _, r := range all {
			if r.State == engine.Damaged { // its place may be damaged too
				w.setApart(q, r)
				damaged = true
				continue
			}
			found = append(found, &r.Record)
		}
	}
	return found
}

// declinedSizes gives the first kinds that have declined tasks, with the number of tasks of each.
func (w *work) declinedSizes(q *queue) (all []storage.KindSize) {
	if q.Sizes[engine.Declined] == 0 {
		return nil
	}
	for _, l := range w.kindLines(q, storage.MaxStatsKinds, fromKind, "") {
		all = append(all, storage.KindSize{Kind: l.kind, Tasks: l.tasks})
	}
	return all
}
