package sqlite

import "github.com/midgehq/midge/storage/internal/engine"

// Partition returns a partition, nil if it neither has waiting tasks nor is paused.
func (w *work) Partition(q *engine.Queue, key string) *engine.Line {
	return w.Line(q, engine.Keyed, key)
}

// Turns returns up to n partitions from a place of the ring on. It reads nothing in a queue without
// partitions.
func (w *work) Turns(eq *engine.Queue, from engine.Place, n int) []*engine.Line {
	q := ours(eq)
	ready := from.Sort <= 0 && q.Sizes[engine.Keyed] > 0
	if !ready && q.resting <= 0 {
		return nil
	}
	w.saveLines(q)
	found := w.readLines(eq, engine.Keyed, n, inRing, from.Sort, from.Turn)
	if ready && len(found) == 0 && !w.readOnly { // the size is wrong, or lines are missing
		w.save()
		w.recount(q)
		w.saveLines(q)
		found = w.readLines(eq, engine.Keyed, n, inRing, from.Sort, from.Turn)
	}
	return found
}

// SetTurn counts the partitions that are paused. The place of a line is written with its other changes.
func (w *work) SetTurn(l *engine.Line, to engine.Place) {
	q := ours(l.Queue)
	if !l.IsReady() {
		q.resting--
	}
	if to.Sort != 0 {
		q.resting++
	}
}

const (
	// restingOf counts the paused partitions of a queue. Its arguments are the number of the queue and Keyed.
	restingOf = "SELECT count(*) FROM {p}lines WHERE queue = ? AND state = ? AND sort > 0"
	// addedMost is how many lines areLinesWrong adds up.
	addedMost = 1000
	// rejoinedMost is how many tasks without a line one step puts into lines.
	rejoinedMost = 1000
)

// areLinesWrong reports whether the lines of a queue do not fit its counts: their sizes, if there are at
// most addedMost, or how many partitions are paused. It puts partitions whose place no step has written at
// the beginning of the ring. All changes must have been saved.
func (w *work) areLinesWrong(q *queue) bool {
	const declined, keyed = int(engine.Declined), int(engine.Keyed)
	w.exec("UPDATE {p}lines SET sort = 0, turn = 0 WHERE line IN ("+
		"SELECT line FROM {p}lines WHERE queue = ?1 AND state = ?2 AND (sort, turn) < (0, 0) UNION ALL "+
		"SELECT line FROM {p}lines WHERE queue = ?1 AND state = ?2 AND sort = 0 AND turn > ?3 UNION ALL "+
		"SELECT line FROM {p}lines WHERE queue = ?1 AND state = ?2 AND sort > ?4)", // a text
		q.number, keyed, w.step.Turn, int64(engine.Never))
	var lines, tasks, resting int64
	w.one(restingOf, []any{q.number, keyed}, &resting)
	w.one("SELECT count(*), CAST(total(tasks) AS INTEGER) FROM "+
		"(SELECT tasks FROM {p}lines WHERE queue = ? AND state IN (?, ?) LIMIT ?)",
		[]any{q.number, declined, keyed, addedMost + 1}, &lines, &tasks)
	return resting != q.resting || lines <= addedMost && tasks != q.Sizes[engine.Declined]+q.Sizes[engine.Keyed]
}

// mendLines counts the tasks of the named lines of a queue, and the partitions that are paused. It deletes
// lines without tasks, and puts tasks whose line is missing into a line again. All changes of tasks must
// have been saved.
func (w *work) mendLines(q *queue) {
	w.one(restingOf, []any{q.number, int(engine.Keyed)}, &q.resting)
	if w.readOnly {
		return
	}
	w.exec("UPDATE {p}lines AS l SET tasks = "+
		"(SELECT count(*) FROM {p}tasks WHERE line = l.line * 16 + l.state) WHERE queue = ?", q.number)
	w.exec("DELETE FROM {p}lines WHERE queue = ? AND tasks = 0 AND (state <> ? OR sort = 0)",
		q.number, int(engine.Keyed))
	for _, l := range q.named {
		if l != nil && !l.gone && l.number > 0 {
			w.countLine(l)
		}
	}
	astray := "SELECT " + columns + " FROM {p}tasks t WHERE t.queue = ? AND t.line & 15 IN (?, ?) " +
		"AND NOT EXISTS (SELECT 1 FROM {p}lines l WHERE l.line = t.line >> 4 AND l.state = t.line & 15 " +
		"AND l.queue = t.queue) " + readable + "LIMIT ?"
	args := []any{q.number, int(engine.Declined), int(engine.Keyed), rejoinedMost}
	for _, r := range w.read(q, astray, args, 0) {
		if r.State == engine.Damaged {
			w.setApart(q, r, "")
			continue
		}
		w.step.Join(&q.Queue, r.State, r.Sub(r.State))
		r.Touched |= engine.PartRest
	}
}
