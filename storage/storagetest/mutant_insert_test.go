package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func insertMutants() []mutant {
	return []mutant{
		breaks("a timeout is lost", fault{apply: inserts(func(j *storage.Insert) { j.Timeout = 0 })},
			"insert/fields"),
		breaks("repeated insert is refused", fault{apply: answering(refuseExisting)},
			"insert/repeated", "insert/repeated in any state"),
		breaks("a repeated insert is new", fault{apply: answering(func(_ storage.Tx, a *storage.Applied) {
			for i := range a.Inserted {
				a.Inserted[i].Existing = false
			}
		})}, "insert/repeated", "sharing/same insert at once", "unique/skipped"),
		breaks("any insert of an id is a repeat", fault{apply: inserts(func(j *storage.Insert) {
			j.Kind, j.Encoding, j.Payload = "job", "raw", nil
		})}, "insert/collision", "apply/lists everything"),
		breaks("every record is kept", fault{apply: inserts(func(j *storage.Insert) { j.Keep.For = time.Hour })},
			"insert/id free after the record", "settle/complete", "cancel/at once"),
		breaks("a delay is forgotten", fault{apply: inserts(func(j *storage.Insert) { j.Delay = 0 })},
			"insert/delay", "claim/never early", "claim/next due"),
		breaks("a delay is too short", fault{apply: inserts(func(j *storage.Insert) { j.Delay = j.Delay * 3 / 5 })},
			"insert/delay", "claim/never early"),
		breaks("moments in milliseconds",
			fault{apply: inserts(func(j *storage.Insert) { j.At = j.At.Truncate(time.Millisecond) })},
			"insert/at"),
		breaks("the past is refused", fault{apply: refusing(func(txs []storage.Tx) error {
			if len(txs[0].Inserts) > 0 && !txs[0].Inserts[0].At.IsZero() && txs[0].Inserts[0].At.Before(time.Now()) {
				return storage.Invalid("Insert.At", txs[0].Inserts[0].At, "a moment to come")
			}
			return nil
		})}, "insert/past"),
		breaks("the century ends", fault{apply: inserts(func(j *storage.Insert) {
			if century := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC); j.At.After(century) {
				j.At = century
			}
		})}, "insert/far future"),
		breaks("at most 999 inserts", fault{apply: editing(func(tx *storage.Tx) {
			tx.Inserts = tx.Inserts[:min(len(tx.Inserts), 999)]
		})}, "insert/many"),
		breaks("late inserts of a call lose their headers", fault{apply: late(func(j *storage.Insert) {
			j.Headers = nil
		})}, "bulk/fields"),
		breaks("late inserts of a call have no priority", fault{apply: late(func(j *storage.Insert) {
			j.Priority = 0
		})}, "bulk/fields"),
		breaks("late inserts of a call are due now", fault{apply: late(func(j *storage.Insert) {
			j.Delay, j.At = 0, time.Time{}
		})}, "bulk/fields"),
		breaks("late inserts of a call are always new", fault{apply: late(func(j *storage.Insert) {
			j.Ref.ID = storage.NewID()
		})}, "bulk/fields", "bulk/what is there"),
		breaks("large calls are carried out again", fault{apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			if len(txs) > 100 {
				call = storage.Call{}
			}
			return next(ctx, call, txs...)
		})}, "bulk/repeated"),
		breaks("hundreds of inserts happen without what is beside them", fault{apply: editing(func(tx *storage.Tx) {
			if len(tx.Inserts) > 100 {
				tx.Changes = nil
			}
		})}, "bulk/in one Tx"),
		breaks("names of 64 bytes", fault{apply: refusing(func(txs []storage.Tx) error {
			if len(txs[0].Inserts) > 0 && len(txs[0].Inserts[0].Ref.Queue) > 64 {
				return storage.Invalid("queue name", txs[0].Inserts[0].Ref.Queue, "at most 64 bytes")
			}
			return nil
		})}, "insert/longest names"),
		breaks("payload as text", fault{apply: inserts(func(j *storage.Insert) {
			j.Payload = []byte(storage.CleanText(string(j.Payload), len(j.Payload)))
		})}, "insert/payload of any bytes"),
		breaks("headers lose what is empty", fault{apply: inserts(loseEmpty)}, "insert/headers of any text"),
		breaks("declarations are not compared", fault{apply: inserts(func(j *storage.Insert) {
			if j.Cursor != nil {
				c := *j.Cursor
				c.Declaration, j.Cursor = "same", &c
			}
		})}, "insert/cursor repeated"),
	}
}

// late makes an Apply that alters all inserts of a call after the first hundred.
func late(edit func(*storage.Insert)) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		txs = slices.Clone(txs)
		for i := range txs {
			if i < 100 || len(txs[i].Inserts) == 0 {
				continue
			}
			txs[i].Inserts = slices.Clone(txs[i].Inserts)
			edit(&txs[i].Inserts[0])
		}
		return next(ctx, call, txs...)
	})
}

func refuseExisting(tx storage.Tx, a *storage.Applied) {
	for _, p := range a.Inserted {
		if p.Existing && tx.Inserts[0].Unique.Key == "" {
			collision := storage.Collision{Ref: p.Ref, Holder: p.Ref}
			*a = storage.Applied{Err: &storage.DependencyError{Colliding: []storage.Collision{collision}}}
			return
		}
	}
}

func loseEmpty(j *storage.Insert) {
	own := map[string]string{}
	for k, v := range j.Headers {
		if v != "" {
			own[k] = v
		}
	}
	j.Headers = own
}

func uniqueMutants() []mutant {
	return []mutant{
		breaks("unique forgotten", fault{apply: inserts(func(j *storage.Insert) { j.Unique = storage.Unique{} })},
			"unique/held for life", "unique/skipped", "unique/among many at once"),
		knowing("unique not released when dead", clinging(func(t storage.Task, err error) bool {
			return err == nil && t.State == storage.Dead
		}), "unique/released at the end", "unique/released by a crash loop", "unique/requeue takes the key"),
		knowing("unique not released when damaged", clinging(func(_ storage.Task, err error) bool {
			return errors.Is(err, storage.ErrNotFound) // of a record that the rig has damaged too
		}), "sharing/damaged holder"),
		knowing("unique for all queues", everywhere, "unique/per queue"),
		breaks("unique against itself", fault{apply: answering(func(tx storage.Tx, a *storage.Applied) {
			if len(a.Inserted) > 0 && a.Inserted[0].Existing && tx.Inserts[0].Unique.Key != "" {
				*a = storage.Applied{Err: &storage.DependencyError{}}
			}
		})}, "unique/repeat of the holder"),
		breaks("unique once a Tx", fault{apply: editing(func(tx *storage.Tx) {
			for i := range tx.Inserts[min(1, len(tx.Inserts)):] {
				tx.Inserts[i+1].Unique = storage.Unique{}
			}
		})}, "unique/once in a Tx"),
		breaks("unique once a call", fault{apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			own := slices.Clone(txs)
			for i := range own[min(1, len(own)):] {
				own[i+1].Inserts = slices.Clone(own[i+1].Inserts)
				for j := range own[i+1].Inserts {
					own[i+1].Inserts[j].Unique = storage.Unique{}
				}
			}
			return next(ctx, call, own...)
		})}, "unique/once in a call"),
		breaks("window ends with its task", fault{apply: inserts(func(j *storage.Insert) {
			if j.Unique.Mode == storage.UniqueWindow {
				j.Unique.Mode, j.Unique.For = storage.UniqueLife, 0
			}
		})}, "unique/window outlasts the task"),
		breaks("window too long", fault{apply: inserts(func(j *storage.Insert) { j.Unique.For *= 2 })},
			"unique/window outlasts the task"),
		breaks("window too short", fault{apply: inserts(func(j *storage.Insert) { j.Unique.For /= 2 })},
			"unique/window outlasts the task"),
		breaks("skip refuses", fault{apply: inserts(func(j *storage.Insert) { j.OnConflict = storage.Refuse })},
			"unique/skipped", "unique/requeue before insert"),
		breaks("refuse skips", fault{apply: inserts(func(j *storage.Insert) { j.OnConflict = storage.Skip })},
			"unique/held for life"),
		breaks("requeue ignores the key", fault{apply: done(func(d *storage.DependencyError) bool {
			return len(d.Colliding) == 1 && d.Colliding[0].Unique
		})}, "unique/requeue collides"),
	}
}

// clinging keeps the unique keys of the tasks for whose reads is returns true.
func clinging(is func(storage.Task, error) bool) func(m *mind) *fault {
	return func(m *mind) *fault {
		return &fault{apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			for _, j := range txs[0].Inserts {
				var holder storage.Ref
				m.locked(func() { holder = m.keys[j.Unique.Key] })
				if j.Unique.Key != "" && is(m.Task(ctx, holder)) {
					collision := storage.Collision{Ref: j.Ref, Holder: holder, Unique: true}
					return []storage.Applied{{
						Err: &storage.DependencyError{Colliding: []storage.Collision{collision}},
					}}, nil
				}
			}
			return answering(func(tx storage.Tx, a *storage.Applied) {
				for i, p := range a.Inserted {
					m.locked(func() { m.keys[tx.Inserts[i].Unique.Key] = p.Ref })
				}
			})(next)(ctx, call, txs...)
		})}
	}
}

// everywhere keeps a unique key for all queues.
func everywhere(m *mind) *fault {
	return &fault{apply: answering(func(tx storage.Tx, a *storage.Applied) {
		m.locked(func() {
			for _, j := range tx.Inserts {
				if holder, ok := m.keys[j.Unique.Key]; ok && holder.Queue != j.Ref.Queue {
					*a = storage.Applied{Err: &storage.DependencyError{}}
				}
				m.keys[j.Unique.Key] = j.Ref
			}
		})
	})}
}
