package sqlite

import (
	"context"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// Configure changes the settings of a queue, or removes it. It returns storage.ErrNotEmpty for a
// queue that is to be removed and holds a record.
func (s *Storage) Configure(
	ctx context.Context, id storage.Call, queue string, settings storage.Settings,
) error {
	if err := storage.CheckCall(id); err != nil {
		return err
	}
	if err := storage.CheckSettings(queue, &settings); err != nil {
		return err
	}
	c := &call{Call: combine.Call{Identity: id}, lasting: true}
	c.run = func(w *work) error {
		outcome, repeated, err := w.admit(id, engine.VerbConfigure)
		if err != nil {
			return err
		}
		if !repeated {
			if err := w.step.Configure(queue, &settings); err != nil {
				outcome = []byte("not empty")
			}
			w.remember(id, engine.VerbConfigure, outcome)
		}
		if len(outcome) > 0 {
			return storage.ErrNotEmpty
		}
		return nil
	}
	return wrap("configure "+queue, s.do(ctx, c))
}

// IsEmpty reports whether a queue has no records but those that are set apart, whatever its counts are.
func (w *work) IsEmpty(q *engine.Queue) bool {
	sizes := q.Sizes
	sizes[engine.Damaged] = 0
	return sizes == [engine.States]int64{} && !w.hasTasks(ours(q), ours(q).line(engine.Damaged))
}

// Configured writes the settings of a queue.
func (w *work) Configured(eq *engine.Queue, alert bool) {
	q := ours(eq)
	w.exec("UPDATE {p}queues SET paused = ?, paused_until = ?, touched = ? WHERE queue = ?",
		q.Paused, q.PausedUntil, q.Touched, q.number)
	if q.Limit != q.limit { // else a part that could not be read stays
		operator, declared, starts := q.Limit.Texts()
		w.exec("UPDATE {p}queues SET operator = ?, declared = ?, starts = ? WHERE queue = ?",
			operator, declared, append([]byte{}, starts...), q.number) // appended to: nil would be NULL
		q.limit = q.Limit
	}
	if alert {
		w.ring(q, wakeup.Alert)
	}
}
