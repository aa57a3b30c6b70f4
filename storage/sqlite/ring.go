package sqlite

import (
	"database/sql"

	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// Partition returns a partition, nil if there is nothing of it.
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
	w.mended = false
	w.saveLines(q)
	found := w.readLines(eq, engine.Keyed, n, inRing, from.Sort, from.Turn)
	// Behind another place there may be none. If there is none at all, the size is wrong, or lines are missing.
	if ready && from == (engine.Place{}) && len(found) == 0 && !w.readOnly {
		w.save()
		w.recount(q)
		w.mended = true
	}
	if w.mended && !w.readOnly { // some have another place now
		w.saveLines(q)
		found = w.readLines(eq, engine.Keyed, n, inRing, from.Sort, from.Turn)
	}
	return found
}

// SetTurn counts the partitions that are not ready. The place of a line is written with its other changes.
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
	// restingOf counts the partitions of a queue that are not ready. Its arguments are the number of the queue
	// and Keyed.
	restingOf = "SELECT count(*) FROM {p}lines WHERE queue = ? AND state = ? AND sort > 0"
	// addedMost is how many lines areLinesWrong adds up.
	addedMost = 1000
	// rejoinedMost is how many tasks without a line one step puts into lines.
	rejoinedMost = 1000
)

// areLinesWrong reports whether the lines of a queue do not fit its counts or their tasks: their sizes, and
// the data that partitions keep, if there are at most addedMost, or how many partitions are not ready. It
// puts partitions whose place no step has written at the beginning of the ring. All changes must have been
// saved.
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
	if resting != q.resting || lines > addedMost {
		return resting != q.resting
	}
	return tasks != q.Sizes[engine.Declined]+q.Sizes[engine.Keyed] || w.arePartitionsWrong(q)
}

// counted finds the tasks that count for the Concurrency of their partitions.
const counted = "FROM {p}tasks WHERE line IN (?, ?) AND flags & ? <> 0"

func (q *queue) countedArgs() []any {
	return []any{q.line(engine.Pending), q.line(engine.Asked), int(engine.Counted)}
}

// arePartitionsWrong reports whether partitions of a queue do not count the tasks that run, or have a place
// from which nothing takes them.
func (w *work) arePartitionsWrong(q *queue) (wrong bool) {
	var running, pending int64
	bounded := q.Limit.InForce().Partition.Concurrency > 0
	w.eachPartition(q, func(l *engine.Line, sound bool) {
		wrong, running = wrong || !sound, running+l.Running
		bounded = bounded || l.Limit().Concurrency > 0
	})
	if wrong || running == 0 && !bounded {
		return wrong
	}
	w.one("SELECT count(*) "+counted, q.countedArgs(), &pending)
	return running != pending
}

// eachPartition reads the partitions of a queue that have more than waiting tasks. sound is false for a
// partition that is not where it belongs, or that keeps data which no step has written.
func (w *work) eachPartition(q *queue, got func(l *engine.Line, sound bool)) {
	l := engine.Line{Queue: &q.Queue, State: engine.Keyed}
	var kept written
	var bad bool
	w.each("SELECT name, tasks, sort, turn, kept FROM {p}lines WHERE queue = ? AND state = ? "+
		"AND (sort <> 0 OR kept <> x'')", []any{q.number, int(engine.Keyed)},
		func() bool {
			sound := l.Unpack([]byte(kept)) && !bad
			got(&l, sound && !l.IsSpare() && !l.IsMisplaced())
			bad = false
			return true
		}, &l.Sub, number{to: &l.Size, bad: &bad}, number{to: &l.Ring.Sort, bad: &bad},
		number{to: &l.Ring.Turn, most: w.step.Turn, bad: &bad}, &kept)
}

// mendPartitions counts the tasks that run in each partition of a queue, and arranges partitions that are not
// where they belong.
func (w *work) mendPartitions(q *queue) {
	w.saveLines(q)
	running, wrong := make(map[string]int64), make(map[string]int64)
	var spec sql.RawBytes
	w.each("SELECT record "+counted, q.countedArgs(), func() bool {
		if sp, _, err := record.Spec(spec, ""); err == nil && sp.Partition != "" {
			running[sp.Partition]++
			wrong[sp.Partition] = running[sp.Partition]
		}
		return true
	}, &spec)
	w.eachPartition(q, func(l *engine.Line, sound bool) {
		if sound && l.Running == running[l.Sub] {
			delete(wrong, l.Sub)
		} else {
			wrong[l.Sub] = running[l.Sub]
		}
	})
	for key, n := range wrong {
		l := w.Line(&q.Queue, engine.Keyed, key)
		if l == nil && n > 0 {
			l = w.InsertLine(engine.Line{Queue: &q.Queue, State: engine.Keyed, Sub: key})
		}
		if l != nil {
			l.Running, l.Changed = n, true
			w.step.Arrange(l)
		}
	}
}

// mendLines counts the tasks of the named lines of a queue, and the partitions that are not ready. It deletes
// lines of which nothing is left, mends partitions, and puts tasks whose line is missing into a line again.
// All changes of tasks must have been saved.
func (w *work) mendLines(q *queue) {
	w.one(restingOf, []any{q.number, int(engine.Keyed)}, &q.resting)
	if w.readOnly {
		return
	}
	w.exec("UPDATE {p}lines AS l SET tasks = "+
		"(SELECT count(*) FROM {p}tasks WHERE line = l.line * 16 + l.state) WHERE queue = ?", q.number)
	w.exec("DELETE FROM {p}lines WHERE queue = ? AND tasks = 0 AND (state <> ? OR sort = 0 AND kept = x'')",
		q.number, int(engine.Keyed))
	for _, l := range q.named {
		if l != nil && !l.gone && l.number > 0 {
			w.countLine(l)
			w.mendPlace(l)
		}
	}
	w.mendPartitions(q)
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
