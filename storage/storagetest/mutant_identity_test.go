package storagetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// forgetful sends an apply again with no identity where redo says so.
func forgetful(redo func([]storage.Applied, error) bool) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			applied, err := next(ctx, call, txs...)
			if redo(applied, err) {
				return next(ctx, storage.Call{}, txs...)
			}
			return applied, err
		}
	}
}

func identityMutants() []mutant {
	return []mutant{
		{name: "apply forgets lanes", rules: []string{"identity/insert", "identity/settle", "identity/several Txs"},
			wrap: func(*mind) *fault {
				return &fault{apply: func(next applyFunc) applyFunc {
					return func(ctx context.Context, _ storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
						return next(ctx, storage.Call{}, txs...)
					}
				}}
			}},
		{name: "claim forgets lanes", rules: []string{"identity/claim", "identity/claim of nothing", "identity/at once"},
			wrap: func(*mind) *fault {
				return &fault{claim: asked(func(c *storage.ClaimRequest) { c.Call = storage.Call{} })}
			}},
		{name: "extend forgets lanes", rules: []string{"identity/extend"}, wrap: func(*mind) *fault {
			return &fault{extend: func(next extendFunc) extendFunc {
				return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
					req.Call = storage.Call{}
					return next(ctx, req)
				}
			}}
		}},
		{name: "configure forgets lanes", rules: []string{"identity/configure"}, wrap: func(*mind) *fault {
			return &fault{configure: func(next configureFunc) configureFunc {
				return func(ctx context.Context, _ storage.Call, queue string, s storage.Settings) error {
					return next(ctx, storage.Call{}, queue, s)
				}
			}}
		}},
		{name: "refusals are not remembered", rules: []string{"identity/refusal"}, wrap: func(*mind) *fault {
			return &fault{apply: forgetful(func(a []storage.Applied, err error) bool {
				return err == nil && len(a) > 0 && a[0].Err != nil
			})}
		}},
		{name: "smaller numbers are executed", rules: []string{"identity/smaller number"}, wrap: func(*mind) *fault {
			return &fault{apply: forgetful(func(_ []storage.Applied, err error) bool {
				return errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrLaneExpired)
			})}
		}},
		{name: "expired lanes are good", rules: []string{"identity/lane expired", "identity/end of a lane"},
			wrap: func(*mind) *fault {
				return &fault{apply: forgetful(func(_ []storage.Applied, err error) bool {
					return errors.Is(err, storage.ErrLaneExpired)
				})}
			}},
		{name: "expired lanes of claims are good", rules: []string{"identity/lane expired"}, wrap: func(*mind) *fault {
			return &fault{claim: asked(func(c *storage.ClaimRequest) {
				if time.Since(c.Call.Lane.Opened) > storage.LaneLife {
					c.Call = storage.Call{}
				}
			})}
		}},
		{name: "no identity is an identity", rules: []string{"identity/none"}, wrap: func(*mind) *fault {
			lane := storage.Lane{ID: storage.NewToken(), Opened: time.Now()}
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					if call.IsZero() {
						call = storage.Call{Lane: lane, Seq: 1}
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "one lane for all", rules: []string{"identity/lanes apart"}, wrap: func(*mind) *fault {
			lane := storage.Lane{ID: storage.NewToken(), Opened: time.Now()}
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					call.Lane = lane
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "numbers must not leave gaps", rules: []string{"identity/numbers with gaps"}, wrap: func(m *mind) *fault {
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					if call.Seq > 500 {
						return nil, fmt.Errorf("gap: %w", storage.ErrUnknown)
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "each handle remembers for itself", rules: []string{"identity/another handle"}, wrap: func(*mind) *fault {
			var own [16]byte = storage.NewToken()
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					for i := range own {
						call.Lane.ID[i] ^= own[i]
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
	}
}

func insertMutants() []mutant {
	return []mutant{
		{name: "repeated insert is refused", rules: []string{"insert/repeated", "insert/repeated in any state"},
			wrap: func(*mind) *fault {
				return &fault{apply: answering(func(tx storage.Tx, a *storage.Applied) {
					for _, p := range a.Inserted {
						if p.Existing && tx.Inserts[0].Unique.Key == "" {
							*a = storage.Applied{Err: &storage.DependencyError{
								Colliding: []storage.Collision{{Ref: p.Ref, Holder: p.Ref}},
							}}
							return
						}
					}
				})}
			}},
		{name: "any insert of an id is a repeat", rules: []string{"insert/collision", "apply/lists everything"},
			wrap: func(*mind) *fault {
				return &fault{apply: inserts(func(j *storage.Insert) {
					j.Kind, j.Encoding, j.Payload = "job", "raw", nil
				})}
			}},
		{name: "an id is guarded for ever", rules: []string{"insert/id free after the record"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.Keep.For = time.Hour })}
		}},
		{name: "an insert forgets its delay", rules: []string{"insert/delay", "claim/never early", "claim/next due"},
			wrap: func(*mind) *fault {
				return &fault{apply: inserts(func(j *storage.Insert) { j.Delay = 0 })}
			}},
		{name: "an insert is a little early", rules: []string{"insert/delay", "claim/never early"},
			wrap: func(*mind) *fault {
				return &fault{apply: inserts(func(j *storage.Insert) { j.Delay = j.Delay * 3 / 5 })}
			}},
		{name: "moments in milliseconds", rules: []string{"insert/at"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.At = j.At.Truncate(time.Millisecond) })}
		}},
		{name: "payload as text", rules: []string{"insert/payload of any bytes"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) {
				j.Payload = []byte(storage.CleanText(string(j.Payload), len(j.Payload)))
			})}
		}},
		{name: "headers lose what is empty", rules: []string{"insert/headers of any text"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) {
				own := map[string]string{}
				for k, v := range j.Headers {
					if v != "" {
						own[k] = v
					}
				}
				j.Headers = own
			})}
		}},
		{name: "unique forgotten", rules: []string{"unique/held for life", "unique/skipped", "unique/among many at once"},
			wrap: func(*mind) *fault {
				return &fault{apply: inserts(func(j *storage.Insert) { j.Unique = storage.Unique{} })}
			}},
		{name: "unique not released when dead", rules: []string{
			"unique/released at the end", "unique/released by a crash loop", "unique/requeue takes the key",
		}, wrap: clinging},
		{name: "unique for all queues", rules: []string{"unique/per queue"}, wrap: func(m *mind) *fault {
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
		}},
		{name: "window ends with its task", rules: []string{"unique/window outlasts the task"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) {
				if j.Unique.Mode == storage.UniqueWindow {
					j.Unique.Mode, j.Unique.For = storage.UniqueLife, 0
				}
			})}
		}},
		{name: "window too long", rules: []string{"unique/window outlasts the task"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.Unique.For *= 2 })}
		}},
		{name: "window too short", rules: []string{"unique/window outlasts the task"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.Unique.For /= 2 })}
		}},
		{name: "skip refuses", rules: []string{"unique/skipped"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.OnConflict = storage.Refuse })}
		}},
		{name: "refuse skips", rules: []string{"unique/held for life"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.OnConflict = storage.Skip })}
		}},
		{name: "requeue ignores the key", rules: []string{"unique/requeue collides"}, wrap: func(*mind) *fault {
			return &fault{apply: answering(func(tx storage.Tx, a *storage.Applied) {
				var dep *storage.DependencyError
				if errors.As(a.Err, &dep) && len(tx.Changes) == 1 && len(dep.Colliding) == 1 && dep.Colliding[0].Unique {
					*a = storage.Applied{Changed: []storage.Placed{{Ref: tx.Changes[0].Ref, State: storage.Waiting}}}
				}
			})}
		}},
	}
}

// clinging keeps the unique keys of dead tasks.
func clinging(m *mind) *fault {
	return &fault{apply: func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			for _, tx := range txs {
				for _, j := range tx.Inserts {
					var holder storage.Ref
					m.locked(func() { holder = m.keys[j.Unique.Key] })
					if t, err := m.Task(ctx, holder); err == nil && t.State == storage.Dead && j.Unique.Key != "" {
						dep := &storage.DependencyError{Colliding: []storage.Collision{{Ref: j.Ref, Holder: holder, Unique: true}}}
						return []storage.Applied{{Err: dep}}, nil
					}
				}
			}
			return answering(func(tx storage.Tx, a *storage.Applied) {
				for i := range a.Inserted {
					m.locked(func() { m.keys[tx.Inserts[i].Unique.Key] = a.Inserted[i].Ref })
				}
			})(next)(ctx, call, txs...)
		}
	}}
}
