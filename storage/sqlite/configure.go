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
		outcome, repeated, err := w.admit(id, verbConfigure)
		if err != nil {
			return err
		}
		if !repeated {
			if !w.configure(queue, &settings) {
				outcome = []byte("not empty")
			}
			w.remember(id, verbConfigure, outcome)
		}
		if len(outcome) > 0 {
			return storage.ErrNotEmpty
		}
		return nil
	}
	return wrap("configure "+queue, s.do(ctx, c))
}

// configure changes the settings of a queue. It reports false where a queue to be removed is not
// empty.
func (w *work) configure(name string, settings *storage.Settings) bool {
	q := w.lookup(name)
	switch {
	case settings.Remove && q != nil && (q.Sizes != [engine.States]int64{} || w.hasTasks(q)):
		return false
	case settings.Remove:
		if q != nil {
			w.removeQueue(q)
		}
		return true
	case settings.Create:
		w.Queue(name)
		return true
	case q == nil && !settings.Pause.On:
		return true // there is no queue to resume
	}
	q = ours(w.Queue(name))
	q.Paused, q.PausedUntil = settings.Pause.On, 0
	if settings.Pause.For > 0 {
		q.PausedUntil = w.step.Now + settings.Pause.For.Microseconds()
	}
	w.exec("UPDATE {p}queues SET paused = ?, paused_until = ? WHERE queue = ?",
		q.Paused, q.PausedUntil, q.number)
	w.ring(q, wakeup.Alert)
	return true
}
