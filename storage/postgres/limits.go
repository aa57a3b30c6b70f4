package postgres

import (
	"maps"
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// The engine decides what the limit of a queue admits. A claim from such a queue locks the row of the limit
// for as long as its transaction lasts, so that each claim counts the tasks that the claims before it took.
// Claims from all other queues pay nothing for it: the function claim learns from the row of a queue, which
// it reads anyway, whether there is a limit. A claim that began before the queue had a limit takes no
// notice of it.

// limits are the limits of the queues of a claim, which has locked them.
type limits struct {
	queues map[string]*engine.Limit // those that have one, by name
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
	ch.limits = limits{queues: make(map[string]*engine.Limit)}
	var place int32
	var wait, held bool
	var operator, declared string
	var starts []byte
	var running int64
	return query{
		text: "SELECT * FROM {schema}.limits($1)", args: []any{ch.open()},
		scan: each(func() error {
			l := engine.LimitOf(operator, declared, starts)
			if held {
				l, running = &engine.Limit{Operator: &storage.Limit{Concurrency: 1}}, 1
				ch.limits.held = true
			}
			if l != nil {
				l.Running = running
				ch.limits.queues[ch.req.Queues[place-1].Name] = l
			}
			ch.limits.wait = wait
			return nil
		}, &place, &wait, &held, &operator, &declared, &starts, &running),
	}
}

// starting writes the starts that a claim has counted.
func (w *work) starting() []query {
	var queues []int32
	var starts [][]byte
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		if l := w.queues[name].Limit; l != nil && l.Changed {
			_, _, packed := l.Texts()
			queues, starts = append(queues, w.ids(name)), append(starts, packed)
		}
	}
	if len(queues) == 0 {
		return nil
	}
	return []query{{text: "SELECT {schema}.started($1, $2)", args: []any{queues, starts}}}
}

// bounding changes the limit of a queue, whose parts are those that the function configure gave.
func bounding(number int32, settings *storage.Settings, operator, declared string, starts []byte) []query {
	if settings.Limit == nil && settings.Declared == nil {
		return nil
	}
	q := engine.Queue{Limit: engine.LimitOf(operator, declared, starts)}
	q.Set(settings, 0)
	operator, declared, starts = q.Limit.Texts()
	return []query{{
		text: "SELECT {schema}.bound($1, $2, $3, $4)",
		args: []any{number, operator, declared, append([]byte{}, starts...)}, // appended to: nil would be null
	}}
}
