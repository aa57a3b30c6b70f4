package postgres

import (
	"maps"
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// The engine decides what the limit of a queue admits, and whose turn it is in a queue with partitions.
// A claim from such a queue locks its row of the table limits for as long as its transaction lasts, so
// that each claim counts the tasks that the claims before it took, and serves the partitions behind
// those that they served. Claims from all other queues pay nothing for it: the function claim learns
// from the row of a queue, which it reads anyway, whether there is a limit, and by one search whether
// there are lines with a name. A claim that began before the queue had a limit takes no notice of it.
// Partitions that began meanwhile wait for the next claim.

// limits are the limits of the queues of a claim, which has locked them.
type limits struct {
	queues map[string]*engine.Limit // those that have one, by name
	turns  map[string]int64         // of the tasks without a partition, in the queues that have partitions
	wait   bool                     // nothing that depends on the time may happen now
	held   bool                     // others have locked some for too long
}

// of returns a copy of the limit of a queue, nil for none.
func (l *limits) of(queue string) *engine.Limit {
	found := l.queues[queue]
	if found == nil {
		return nil
	}
	own := *found
	return &own
}

// limiting locks and reads the limits of the queues from which the claim takes tasks. A queue whose limit
// others have locked for too long counts as one without a free slot, so that the claim goes on with the
// other queues.
func (ch *choice) limiting() query {
	ch.limits = limits{queues: make(map[string]*engine.Limit), turns: make(map[string]int64)}
	var place int32
	var wait, held bool
	var operator, declared string
	var starts []byte
	var running, turn int64
	return query{
		text: "SELECT * FROM {schema}.limits($1)", args: []any{ch.open()},
		scan: each(func() error {
			l := engine.LimitOf(operator, declared, starts)
			if held {
				l, running = &engine.Limit{Operator: &storage.Limit{Concurrency: 1}}, 1
				ch.limits.held = true
			} else if turn >= 0 {
				ch.limits.turns[ch.req.Queues[place-1].Name] = turn
			}
			if l != nil {
				l.Running = running
				ch.limits.queues[ch.req.Queues[place-1].Name] = l
			}
			ch.limits.wait = wait
			return nil
		}, &place, &wait, &held, &operator, &declared, &starts, &running, &turn),
	}
}

// starting writes the starts that a claim has counted, and the turns of the tasks without a partition.
func (ch *choice) starting(w *work) []query {
	var queues []int32
	var starts [][]byte
	var turns []int64
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		q := w.queues[name]
		var packed []byte // nil for starts that stay
		if q.Limit != nil && q.Limit.Changed {
			_, _, packed = q.Limit.Texts()
			packed = append([]byte{}, packed...)
		}
		_, keyed := ch.limits.turns[name]
		if packed != nil || keyed && q.TurnChanged {
			queues, starts, turns = append(queues, w.ids(name)), append(starts, packed), append(turns, q.Turn)
		}
	}
	if len(queues) == 0 {
		return nil
	}
	return []query{{text: "SELECT {schema}.started($1, $2, $3)", args: []any{queues, starts, turns}}}
}

// bounding changes the limit of a queue, whose parts are those that the function configure returned.
func bounding(number int32, settings *storage.Settings, operator, declared string, starts []byte) []query {
	if settings.Partition != "" || settings.Limit == nil && settings.Declared == nil {
		return nil
	}
	q := engine.Queue{Limit: engine.LimitOf(operator, declared, starts)}
	before := q.Limit.InForce().Partition
	q.Set(settings, 0)
	loosens := q.Limit.InForce().Partition != before
	operator, declared, starts = q.Limit.Texts()
	return []query{{
		text: "SELECT {schema}.bound($1, $2, $3, $4, $5)",
		// The starts are appended to a slice: nil would be null.
		args: []any{number, operator, declared, append([]byte{}, starts...), loosens},
	}}
}
