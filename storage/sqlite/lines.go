package sqlite

import (
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
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
			if r := l.rows[0]; !r.gone && r.Queue == eq && lineOf(r.State) == state {
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
		slices.SortStableFunc(all, func(a, b *row) int { return placeOf(a).compare(placeOf(b)) })
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

// setApart moves a task that cannot be read to where it stops nobody, and counts it.
func (w *work) setApart(q *queue, r *row) {
	q.Sizes[r.was]--
	q.Sizes[engine.Damaged]++
	if r.was != engine.Cursor {
		q.Totals.Deleted++
	}
	if r.was == engine.Declined {
		w.leaveKind(q, r.Kind)
	}
	w.exec("UPDATE {p}tasks SET line = ?, sort = ? WHERE task = ?",
		q.line(engine.Damaged), w.step.Now, r.task)
	r.was = engine.Damaged
}
