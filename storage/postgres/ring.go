package postgres

import (
	"cmp"
	"slices"

	"github.com/midgehq/midge/storage/internal/engine"
)

// The ring of a queue consists of the places that the rows of its partitions have in the table lines. A
// claim reads the first ready partitions that have a task for it (the function turned), and writes the
// turns of those that it has served. The server ends pauses (resume), and a step removes a partition
// whose last task it has taken (vacate).

// beginRing fills the lines of the partitions that have candidates.
func (w *work) beginRing() {
	for _, l := range w.parts {
		all := w.lines[line{l.Queue.Name, l.State, l.Sub}]
		l.Size, l.Tasks = int64(len(all)), inLine(all)
	}
}

// Turns returns the first ready partitions of a ring that have candidates. The server knows the paused ones.
func (w *work) Turns(q *engine.Queue, from engine.Place, n int) (ready []*engine.Line) {
	for _, l := range w.parts {
		if l.Queue == q && !l.Ring.Before(from) {
			ready = append(ready, l)
		}
	}
	slices.SortFunc(ready, func(a, b *engine.Line) int { return cmp.Compare(a.Ring.Turn, b.Ring.Turn) })
	return ready[:min(n, len(ready))]
}

// Partition returns nil: declined tasks whose partition is paused are no candidates.
func (w *work) Partition(*engine.Queue, string) *engine.Line { return nil }

// SetTurn does nothing: each partition tells the server its turn.
func (w *work) SetTurn(*engine.Line, engine.Place) {}

// beginning says how a partition may have begun in a step: where its last task left it, the next one
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

// turning writes the turns of the partitions that a claim has served. It locks them before any other line, in
// one order.
func (w *work) turning() []query {
	var queues []int32
	var names []string
	var turns []int64
	for _, l := range w.parts {
		if l.Changed {
			queues, names = append(queues, w.ids(l.Queue.Name)), append(names, l.Sub)
			turns = append(turns, l.Ring.Turn)
		}
	}
	if len(queues) == 0 {
		return nil
	}
	return []query{{text: "SELECT {schema}.served($1, $2, $3)", args: []any{queues, names, turns}}}
}
