package storagetest

import (
	"context"
	"errors"

	"github.com/midgehq/midge/storage"
)

// anyVersion makes an apply that takes each change and delete at the version that
// the task has.
func anyVersion(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			version := func(ref storage.Ref, given int64) int64 {
				if t, err := m.Task(ctx, ref); err == nil && given != 0 {
					return t.Version
				}
				return given
			}
			return editing(func(tx *storage.Tx) {
				for i := range tx.Changes {
					tx.Changes[i].Version = version(tx.Changes[i].Ref, tx.Changes[i].Version)
				}
				for i := range tx.Deletes {
					tx.Deletes[i].Version = version(tx.Deletes[i].Ref, tx.Deletes[i].Version)
				}
			})(next)(ctx, call, txs...)
		}
	}
}

// changes makes an apply that alters each change.
func changes(edit func(*storage.Change)) func(applyFunc) applyFunc {
	return editing(func(tx *storage.Tx) {
		for i := range tx.Changes {
			edit(&tx.Changes[i])
		}
	})
}

// done makes an apply that calls a change done where it was refused for a reason.
func done(refused func(*storage.DependencyError) bool) func(applyFunc) applyFunc {
	return answering(func(tx storage.Tx, a *storage.Applied) {
		var dep *storage.DependencyError
		if errors.As(a.Err, &dep) && refused(dep) && len(tx.Inserts)+len(tx.Settles) == 0 {
			*a = storage.Applied{Changed: make([]storage.Placed, len(tx.Changes))}
		}
	})
}

func changeMutants() []mutant {
	return []mutant{
		{name: "changes at any version", rules: []string{"change/at its version", "cursor/stale tick", "cancel/any version"},
			wrap: func(m *mind) *fault { return &fault{apply: anyVersion(m)} }},
		{name: "pending tasks change without a fence", rules: []string{"change/not pending"}, wrap: func(m *mind) *fault {
			return &fault{claim: remembering(m), apply: snatching(m)}
		}},
		{name: "barred changes pass", rules: []string{"change/table of states", "cancel/ended already"}, wrap: func(*mind) *fault {
			return &fault{apply: done(func(d *storage.DependencyError) bool { return len(d.Barred) > 0 })}
		}},
		{name: "missing tasks change", rules: []string{"change/missing", "cancel/missing"}, wrap: func(*mind) *fault {
			return &fault{apply: done(func(d *storage.DependencyError) bool { return len(d.Missing) > 0 })}
		}},
		{name: "a move leaves the task", rules: []string{"change/move", "unique/moves along"}, wrap: func(*mind) *fault {
			return &fault{apply: changes(func(c *storage.Change) { c.Queue = "" })}
		}},
		{name: "a payload keeps its encoding", rules: []string{"change/fields"}, wrap: func(*mind) *fault {
			return &fault{apply: changes(func(c *storage.Change) {
				if c.Encoding != "" {
					c.Encoding = "raw"
				}
			})}
		}},
		{name: "no dependencies", rules: []string{"change/at its version", "change/missing"}, wrap: func(*mind) *fault {
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					for i := range txs {
						if txs[i].Ops() == len(txs[i].Depends) {
							return make([]storage.Applied, len(txs)), nil
						}
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "a requeue keeps its counters", rules: []string{"change/requeue"}, wrap: func(m *mind) *fault {
			return &fault{task: shown(func(t *storage.Task) {
				m.locked(func() { m.count = max(m.count, t.Retries); t.Retries = m.count })
			})}
		}},
		{name: "deleted tasks stay", rules: []string{"change/delete", "cursor/deleted"}, wrap: func(*mind) *fault {
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					if len(txs) == 1 && txs[0].Ops() == len(txs[0].Deletes) {
						return make([]storage.Applied, 1), nil
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "cancels of running tasks are lost", rules: []string{
			"cancel/marks a pending task", "extend/cancel asked", "recover/cancelled", "settle/cancel beats the rest",
		}, wrap: func(m *mind) *fault { return &fault{apply: deaf(m)} }},
		{name: "cancels are not told to claimers", rules: []string{"cancel/told to claimers"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.Cancels = false })}
		}},
		{name: "cancels are told for ever", rules: []string{"cancel/told to claimers", "cancel/races a settle"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.Cancels = true })}
		}},
		{name: "cancels are not told to holders", rules: []string{"extend/cancel asked"}, wrap: func(*mind) *fault {
			return &fault{extend: extended(func(x *storage.Extended) { x.CancelAsked = nil })}
		}},
		{name: "cancelled tasks are not kept", rules: []string{"cancel/kept"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.Keep.For = 0 })}
		}},
	}
}

// snatching makes an apply that ends the claim of a task which is to be changed.
func snatching(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			for _, tx := range txs {
				for _, c := range tx.Changes {
					if f := m.fence(storage.Fence{Ref: c.Ref, Version: 1}); c.State != storage.Cancelled {
						settle := storage.Settle{Fence: f, Outcome: storage.Release}
						if _, err := m.Apply(ctx, storage.Call{}, storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
							return nil, err
						}
					}
				}
			}
			return anyVersion(m)(next)(ctx, call, txs...)
		}
	}
}

// deaf makes an apply that does nothing with the cancel of a pending task.
func deaf(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			if len(txs) == 1 && len(txs[0].Changes) == 1 && txs[0].Changes[0].State == storage.Cancelled {
				ref := txs[0].Changes[0].Ref
				if t, err := m.Task(ctx, ref); err == nil && t.State == storage.Pending {
					placed := []storage.Placed{{Ref: ref, Version: t.Version, State: t.State}}
					return []storage.Applied{{Changed: placed}}, nil
				}
			}
			return next(ctx, call, txs...)
		}
	}
}

func cursorMutants() []mutant {
	return []mutant{
		{name: "ticks are not compared and set", rules: []string{"cursor/once among many", "cursor/stale tick"},
			wrap: func(m *mind) *fault { return &fault{apply: anyVersion(m)} }},
		{name: "ticks are not hidden", rules: []string{"cursor/hidden"}, wrap: func(m *mind) *fault {
			return &fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
				c.Ticks = nil
				for _, q := range req.Queues {
					page, err := m.Tasks(context.Background(), storage.TasksQuery{Queue: q.Name, State: storage.Cursors})
					if err != nil {
						return
					}
					for _, t := range page.Tasks {
						if !t.Cursor.Next.IsZero() && !t.Cursor.Next.After(c.Now) {
							c.Ticks = append(c.Ticks, t)
						}
					}
				}
			})}
		}},
		{name: "a cursor is handed out once", rules: []string{"cursor/hidden", "cursor/next tick at once"}, wrap: func(m *mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				if m.count += len(c.Ticks); m.count > 1 {
					c.Ticks = nil
				}
			})}
		}},
		{name: "a pause stops cursors", rules: []string{"cursor/not paused"}, wrap: func(m *mind) *fault {
			return &fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
				s, err := m.Stats(context.Background(), req.Queues[0].Name)
				if err == nil && s[0].Paused {
					c.Ticks = nil
				}
			})}
		}},
		{name: "cursors count towards max", rules: []string{"cursor/beside the tasks"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
				c.Ticks = c.Ticks[:min(len(c.Ticks), req.Max)]
			})}
		}},
		{name: "cursors are tasks", rules: []string{"cursor/a state of its own"}, wrap: func(*mind) *fault {
			return &fault{stats: counted(func(s *storage.Stats) { s.Totals.Enqueued += s.Cursors })}
		}},
		{name: "declarations are not compared", rules: []string{"insert/cursor repeated"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) {
				if j.Cursor != nil {
					c := *j.Cursor
					c.Declaration, j.Cursor = "same", &c
				}
			})}
		}},
		{name: "cursors do not hold their queue", rules: []string{"cursor/holds its queue", "remove/not empty"},
			wrap: func(*mind) *fault {
				return &fault{configure: func(next configureFunc) configureFunc {
					return func(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
						if err := next(ctx, call, queue, s); !errors.Is(err, storage.ErrNotEmpty) {
							return err
						}
						return nil
					}
				}}
			}},
	}
}

// counted makes stats that are altered.
func counted(edit func(*storage.Stats)) func(statsFunc) statsFunc {
	return func(next statsFunc) statsFunc {
		return func(ctx context.Context, queues ...string) ([]storage.Stats, error) {
			all, err := next(ctx, queues...)
			for i := range all {
				edit(&all[i])
			}
			return all, err
		}
	}
}
