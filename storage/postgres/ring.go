package postgres

import (
	"cmp"
	"slices"

	"github.com/midgehq/midge/storage/internal/engine"
)

// The ring of a queue consists of the places that the rows of its partitions have in the table lines. A claim reads
// the first ready partitions that have a task for it (the function turned), and writes the turns of those that it
// has served. The server ends pauses (resume), and a step removes a partition whose last task it has taken (vacate).

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
