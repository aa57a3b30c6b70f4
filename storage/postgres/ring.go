package postgres

import (
	"cmp"
	"maps"
	"slices"

	"github.com/midgehq/midge/storage/internal/engine"
)

// The ring of a queue consists of the places that the rows of its partitions have in the table lines. A
// claim reads the first ready partitions that have a task for it (the function turned), and writes the
// places of those that it has served, or that have to rest because of their rate, the remainder of their
// turns, and their starts. The server ends pauses and rests (resume), and a step removes a partition of
// which nothing is left, or puts it out of the way if its last task has been taken and runs (vacate).
//
// No row counts the running tasks of a partition: a claim counts the tasks with the flag Counted in the
// partitions that it reads, once it has locked the limit of the queue.

// beginRing fills the lines of the partitions that have candidates.
func (w *work) beginRing() {
	for _, l := range w.parts {
		all := w.lines[line{l.Queue.Name, l.State, l.Sub}]
		l.Size, l.Tasks = int64(len(all)), inLine(all)
	}
}

// Turns returns the first partitions of a ring that have candidates. The server knows those that rested
// before the step.
func (w *work) Turns(q *engine.Queue, from engine.Place, n int) (ready []*engine.Line) {
	for _, l := range w.parts {
		if l.Queue == q && !l.Ring.Before(from) {
			ready = append(ready, l)
		}
	}
	slices.SortFunc(ready, func(a, b *engine.Line) int {
		return cmp.Or(cmp.Compare(a.Ring.Sort, b.Ring.Sort), cmp.Compare(a.Ring.Turn, b.Ring.Turn))
	})
	return ready[:min(n, len(ready))]
}

// Partition returns a partition of which a claim has candidates. Declined tasks whose partition is paused or
// rests are no candidates.
func (w *work) Partition(q *engine.Queue, key string) *engine.Line {
	at := line{q.Name, engine.Keyed, key}
	if w.shares[at] == nil && !q.Limit.InForce().Partition.IsZero() {
		w.share(q, &candidate{partition: key}, nil)
	}
	return w.shares[at]
}

// SetTurn does nothing: turning sends the place that each partition has.
func (w *work) SetTurn(*engine.Line, engine.Place) {}

// beginning is how a partition may have begun in a step: where its last task left it, the next one
// that joined it put it at the end of the ring. A work does not know the sizes of partitions.
type beginning struct {
	tasks int32 // more than before the step
	least int32 // the least of these, 0 or less
	turn  int64 // of the first task that joined the partition when it had the least
}

// beginningOf returns the beginning of the partition of a task.
func (w *work) beginningOf(r *engine.Record) *beginning {
	at := line{r.Ref.Queue, engine.Keyed, r.Partition}
	b := w.begun[at]
	if b == nil {
		b = new(beginning)
		w.begun[at] = b
	}
	return b
}

// leave notes that a task leaves its partition, if it stands in the line of one.
func (w *work) leave(r *engine.Record) {
	if r.State != engine.Keyed {
		return
	}
	b := w.beginningOf(r)
	if b.tasks--; b.tasks <= b.least {
		b.least, b.turn = b.tasks, 0
	}
}

// join notes that a task joins its partition at a place.
func (w *work) join(r *engine.Record, at engine.Place) {
	b := w.beginningOf(r)
	b.tasks++
	if b.turn == 0 {
		turn := at.Sort - engine.Band(r.Priority)
		b.turn = max(turn, -turn) // below 0 at the head
	}
}

// beginningAgain moves the partitions that had so few tasks that all of them left, before others joined,
// to their new turns.
func (w *work) beginningAgain() (query, bool) {
	var queues, tasks []int32
	var names []string
	var turns []int64
	for at, b := range w.begun {
		if b.least < 0 && b.turn != 0 {
			queues, names = append(queues, w.ids(at.queue)), append(names, at.sub)
			tasks, turns = append(tasks, b.tasks-b.least), append(turns, b.turn)
		}
	}
	return query{
		text: "SELECT {schema}.begun($1, $2, $3, $4)", args: []any{queues, names, tasks, turns},
	}, len(queues) > 0
}

// nowhereInRing is the place of a partition that a claim knows by its declined tasks alone.
var nowhereInRing = engine.Place{Sort: -1}

// share returns the partition of a candidate. If the candidate stands in its line, the partition has a turn.
func (w *work) share(q *engine.Queue, cand *candidate, starts map[line]engine.Starts) {
	at := line{q.Name, engine.Keyed, cand.partition}
	l := w.shares[at]
	if l == nil {
		l = &engine.Line{
			Queue: q, State: engine.Keyed, Sub: at.sub, Ring: nowhereInRing, Running: cand.running, Starts: starts[at],
		}
		l.Own, _ = engine.OwnOf(cand.own) // a damaged one counts as none
		w.shares[at] = l
	}
	if cand.state == int16(engine.Keyed) && l.Ring == nowhereInRing {
		l.Ring, l.Left = engine.Place{Turn: cand.turn}, int64(cand.left)
		w.parts = append(w.parts, l)
	}
}

// isHeld reports whether the claim can take no more tasks of a partition now.
func (w *work) isHeld(at line) bool {
	l := w.shares[at]
	if l == nil {
		return false
	}
	most := int64(l.Limit().Concurrency)
	return l.Ring.Sort > 0 || most > 0 && l.Running >= most
}

// turning writes the places of the partitions that a claim has served or put to rest, and their starts. It
// also puts partitions that were passed over at the end of the ring. It locks all of them before any other
// line, in one order.
func (w *work) turning(passed []line) []query {
	var queues []int32
	var names []string
	var sorts []*int64 // nil for a partition that stays in its place
	var turns []int64
	var lefts []int32   // of the turns that go on
	var starts [][]byte // nil for starts that stay
	add := func(at line, sort *int64, turn, left int64, packed []byte) {
		queues, names = append(queues, w.ids(at.queue)), append(names, at.sub)
		sorts, turns, starts = append(sorts, sort), append(turns, turn), append(starts, packed)
		lefts = append(lefts, int32(left))
	}
	for at, l := range w.shares {
		if !l.Changed {
			continue
		}
		var sort *int64
		if l.Ring != nowhereInRing {
			sort = &l.Ring.Sort
		}
		add(at, sort, l.Ring.Turn, l.Left, append([]byte{}, l.Starts.Pack()...))
	}
	for _, at := range passed {
		w.step.Turn++
		add(at, new(int64), w.step.Turn, 0, nil)
	}
	if len(queues) == 0 {
		return nil
	}
	return []query{{
		text: "SELECT {schema}.served($1, $2, $3, $4, $5, $6)",
		args: []any{queues, names, sorts, turns, lefts, starts},
	}}
}

// resting puts the partitions of throttled tasks to rest, in the order in which turning locks partitions, so
// that a flush and a claim do not wait for each other in a circle.
func (w *work) resting() (query, bool) {
	untils := make(map[standing]int64)
	for _, r := range w.step.Rests {
		at := standing{w.ids(r.Queue.Name), engine.Keyed, r.Key}
		untils[at] = max(untils[at], r.Until)
	}
	n := len(untils)
	queues, names, moments := make([]int32, 0, n), make([]string, 0, n), make([]int64, 0, n)
	states := slices.Repeat([]int16{int16(engine.Keyed)}, n)
	for _, at := range slices.SortedFunc(maps.Keys(untils), standing.compare) { // the order of rows that are new
		queues, names, moments = append(queues, at.queue), append(names, at.sub), append(moments, untils[at])
	}
	return query{
		text: "SELECT {schema}.rest(r.queue, r.sub, $4, r.until) FROM (SELECT u.queue, u.sub, u.until " +
			"FROM unnest($1::int4[], $2::text[], $3::int8[], {schema}.numbers($1, $5::int2[], $2)) " +
			"AS u (queue, sub, until, line) ORDER BY u.line OFFSET 0) r",
		args: []any{queues, names, moments, w.step.Turn, states},
	}, len(queues) > 0
}
