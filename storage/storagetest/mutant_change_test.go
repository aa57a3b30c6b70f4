package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// anyVersion makes an Apply that carries out each change and delete at the present version of
// the task.
func anyVersion(m *mind) func(applyFunc) applyFunc {
	version := func(ref storage.Ref, given int64) int64 {
		if t, err := m.Task(context.Background(), ref); err == nil && given != 0 {
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
	})
}

func changeMutants() []mutant {
	return []mutant{
		knowing("changes at any version", func(m *mind) *fault { return &fault{apply: anyVersion(m)} },
			"change/at its version", "cancel/any version", "cursor/replaced", "cursor/stale tick",
			"cursor/once among many"),
		knowing("pending tasks change without a fence", func(m *mind) *fault {
			return &fault{claim: remembering(m), apply: snatching(m)}
		}, "change/not pending"),
		breaks("barred changes pass",
			fault{apply: done(func(d *storage.DependencyError) bool { return len(d.Barred) > 0 })},
			"change/table of states", "cancel/ended already", "change/ended refuses", "change/requeue of what lives"),
		breaks("missing tasks change",
			fault{apply: done(func(d *storage.DependencyError) bool { return len(d.Missing) > 0 })},
			"change/missing", "cancel/missing"),
		breaks("a move replaces", fault{apply: done(func(d *storage.DependencyError) bool {
			return len(d.Colliding) > 0 && !d.Colliding[0].Unique
		})}, "change/move collides"),
		breaks("a move leaves the task", fault{apply: changes(func(c *storage.Change) { c.Queue = "" })},
			"change/move", "unique/moves along"),
		breaks("a move is due now", fault{apply: changes(func(c *storage.Change) {
			if c.Queue != "" {
				c.Queue, c.Now = "", true // due now in the queue where it is
			}
		})}, "change/move keeps the rest"),
		breaks("a move has no headers", fault{apply: changes(func(c *storage.Change) {
			if c.Queue != "" {
				c.Headers = nil
			}
		})}, "change/move edits"),
		breaks("a payload keeps its encoding", fault{apply: changes(func(c *storage.Change) {
			if c.Encoding != "" {
				c.Encoding = "raw"
			}
		})}, "change/fields", "change/dead is edited"),
		breaks("a new moment is late", fault{apply: changes(func(c *storage.Change) {
			if !c.At.IsZero() {
				c.At = c.At.Add(time.Hour)
			}
		})}, "change/due"),
		breaks("what runs now runs later", fault{apply: changes(func(c *storage.Change) {
			if c.Now {
				c.Now, c.Delay = false, time.Hour
			}
		})}, "change/run now"),
		breaks("a requeue has no delay", fault{apply: changes(func(c *storage.Change) {
			if c.Delay > 0 {
				c.Delay = 0
			}
		})}, "change/requeue with a delay"),
		breaks("a requeue changes nothing else", fault{apply: changes(func(c *storage.Change) {
			if c.Requeue {
				c.Priority = nil
			}
		})}, "change/requeue edits"),
		breaks("a requeue leaves no trace", fault{task: shown(func(t *storage.Task) {
			t.Attempts = slices.DeleteFunc(t.Attempts, func(a storage.Attempt) bool {
				return a.Outcome == storage.AttemptRequeued
			})
		})}, "change/requeue keeps the history"),
		breaks("no task forgets", fault{apply: changes(func(c *storage.Change) { c.FromStart = false })},
			"change/from the start"),
		knowing("a completed task does not forget", func(m *mind) *fault {
			return &fault{task: shown(func(t *storage.Task) {
				m.locked(func() {
					if len(t.Checkpoint) > 0 {
						m.texts[t.Ref] = string(t.Checkpoint)
					}
					t.Checkpoint = []byte(m.texts[t.Ref])
				})
			})}
		}, "change/requeue of a completed task", "change/from the start"),
		breaks("a delay of nanoseconds is none", fault{apply: changes(func(c *storage.Change) {
			c.Delay = c.Delay.Truncate(time.Microsecond)
		})}, "change/at once"),
		knowing("a requeue keeps its counters", func(m *mind) *fault {
			return &fault{task: shown(func(t *storage.Task) {
				m.locked(func() {
					m.count = max(m.count, t.Retries)
					t.Retries = m.count
				})
			})}
		}, "change/requeue"),
		breaks("no dependencies", fault{apply: ignoring(func(tx storage.Tx) bool { return tx.Ops() == len(tx.Depends) })},
			"change/at its version", "change/missing"),
		knowing("dependencies on what has ended are refused", func(m *mind) *fault { return &fault{apply: lively(m)} },
			"change/depend"),
		breaks("deleted tasks stay",
			fault{apply: ignoring(func(tx storage.Tx) bool { return tx.Ops() == len(tx.Deletes) })},
			"change/delete", "cursor/deleted"),
		knowing("what was requeued is trimmed", trimming,
			"keep/requeued is not trimmed"),
	}
}

// ignoring makes an Apply that reports some Txs as done without carrying them out.
func ignoring(which func(storage.Tx) bool) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		if len(txs) == 1 && which(txs[0]) {
			return make([]storage.Applied, 1), nil
		}
		return next(ctx, call, txs...)
	})
}

// lively makes an Apply that refuses dependencies on tasks that have ended.
func lively(m *mind) func(applyFunc) applyFunc {
	return answering(func(tx storage.Tx, a *storage.Applied) {
		for _, d := range tx.Depends {
			if t, err := m.Task(context.Background(), d.Ref); err == nil && t.State.Ended() {
				*a = storage.Applied{Err: &storage.DependencyError{Missing: []storage.Ref{d.Ref}}}
			}
		}
	})
}

// trimming deletes a requeued task at the moment at which its ended record would have expired.
func trimming(m *mind) *fault {
	return &fault{
		apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			for _, c := range txs[0].Changes {
				if t, err := m.Task(ctx, c.Ref); err == nil && t.State.Ended() {
					m.locked(func() { m.keys[t.Expires.Format(time.RFC3339Nano)] = c.Ref })
				}
			}
			return next(ctx, call, txs...)
		}),
		claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			for at, ref := range m.keys {
				if expires, err := time.Parse(time.RFC3339Nano, at); err == nil && expires.Before(c.Now) {
					_ = storage.NewSession(m.Storage, 0).DeleteTask(context.Background(), ref)
				}
			}
		}),
	}
}

// snatching makes an Apply that first ends the claim of each task that is to be changed.
func snatching(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		next = anyVersion(m)(next)
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			for _, c := range txs[0].Changes {
				f := m.fence(storage.Fence{Ref: c.Ref, Version: 1})
				release := storage.Settle{Fence: f, Outcome: storage.Release}
				if _, err := m.Apply(ctx, storage.Call{}, storage.Tx{Settles: []storage.Settle{release}}); err != nil {
					return nil, err
				}
			}
			return next(ctx, call, txs...)
		}
	}
}

func cancelMutants() []mutant {
	return []mutant{
		knowing("cancels of what waits are lost", func(m *mind) *fault {
			return &fault{apply: deaf(m, storage.Scheduled)}
		}, "cancel/at once"),
		knowing("cancels of running tasks are lost", func(m *mind) *fault {
			return &fault{apply: deaf(m, storage.Pending)}
		}, "cancel/marks a pending task", "extend/cancel asked", "recover/cancelled", "settle/cancel beats the rest"),
		breaks("cancels are not told to claimers",
			fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.Cancels = false })},
			"cancel/told to claimers"),
		breaks("cancels are told for ever",
			fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.Cancels = true })},
			"cancel/told to claimers", "cancel/races a settle"),
		breaks("cancelled tasks are not kept", fault{apply: inserts(func(j *storage.Insert) { j.Keep.For = 0 })},
			"cancel/kept"),
	}
}

// deaf makes an Apply that ignores the cancel of a task in a state.
func deaf(m *mind, state storage.State) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		if len(txs) == 1 && len(txs[0].Changes) == 1 && txs[0].Changes[0].Cancel {
			t, err := m.Task(ctx, txs[0].Changes[0].Ref)
			if err == nil && t.State == state {
				placed := []storage.Placed{{Ref: t.Ref, Version: t.Version, State: t.State}}
				return []storage.Applied{{Changed: placed}}, nil
			}
		}
		return next(ctx, call, txs...)
	})
}

func cursorMutants() []mutant {
	return []mutant{
		breaks("cursors tick early", fault{apply: inserts(func(j *storage.Insert) {
			if j.Cursor != nil && !j.Cursor.Next.IsZero() {
				c := *j.Cursor
				c.Next, j.Cursor = c.Next.Add(-time.Minute), &c
			}
		})}, "cursor/due"),
		breaks("the last tick is lost", fault{apply: changes(func(ch *storage.Change) {
			if ch.Cursor != nil {
				c := *ch.Cursor
				c.Last, ch.Cursor = time.Time{}, &c
			}
		})}, "cursor/tick"),
		knowing("ticks are not hidden", func(m *mind) *fault {
			return &fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
				c.Ticks = m.due(req.Queues[0].Name, c.Now)
			})}
		}, "cursor/hidden"),
		knowing("a cursor is handed out once", func(m *mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				if m.count += len(c.Ticks); m.count > 1 {
					c.Ticks = nil
				}
			})}
		}, "cursor/hidden", "cursor/next tick at once"),
		knowing("a pause stops cursors", func(m *mind) *fault {
			return &fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
				if m.paused(context.Background(), req.Queues[0].Name) {
					c.Ticks = nil
				}
			})}
		}, "cursor/not paused"),
		breaks("cursors count towards max", fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
			c.Ticks = c.Ticks[:min(len(c.Ticks), req.Most())]
		})}, "cursor/beside the tasks"),
		breaks("cursors beyond 4 MiB", fault{claim: tickingOn}, "cursor/4 MiB"),
		breaks("cursors are tasks", fault{stats: counted(func(s *storage.Stats) { s.Totals.Enqueued += s.Cursors })},
			"cursor/a state of its own"),
		breaks("queues are removed whatever they hold", fault{configure: func(next configureFunc) configureFunc {
			return func(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
				if err := next(ctx, call, queue, s); !errors.Is(err, storage.ErrNotEmpty) {
					return err
				}
				return nil
			}
		}}, "cursor/holds its queue", "remove/not empty"),
	}
}

// tickingOn makes a Claim that hands out all due cursors.
func tickingOn(next claimFunc) claimFunc {
	return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
		c, err := next(ctx, req)
		req.Call, req.Start, req.Ahead = storage.Call{}, 0, 0
		for more := c.More && len(c.Ticks) > 0; more && err == nil; {
			var also storage.Claimed
			also, err = next(ctx, req)
			c.Ticks, more = append(c.Ticks, also.Ticks...), also.More && len(also.Ticks) > 0
			c.More = also.More
		}
		return c, err
	}
}

// due lists the due cursors of a queue.
func (m *mind) due(queue string, now time.Time) []storage.Task {
	var due []storage.Task
	for t, err := range storage.Each(context.Background(), m.Storage, queue, storage.Cursors) {
		if err == nil && !t.Cursor.Next.IsZero() && !t.Cursor.Next.After(now) {
			due = append(due, t)
		}
	}
	return due
}

func (m *mind) paused(ctx context.Context, queue string) bool {
	s, err := m.Stats(ctx, queue)
	return err == nil && s[0].Paused
}
