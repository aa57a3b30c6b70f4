package storagetest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// never is a Wait that returns only when its context ends.
func never(ctx context.Context, _ waitFunc, _ storage.WaitRequest) error {
	<-ctx.Done()
	return ctx.Err()
}

func waitMutants() []mutant {
	return []mutant{
		knowing("wake-ups lost between claim and wait", func(m *mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, next waitFunc, req storage.WaitRequest) error {
				c, err := m.Claim(ctx, storage.ClaimRequest{
					Runner: runner, Queues: []storage.ClaimQueue{{Name: req.Queues[0]}},
				})
				req.Since = c.Since
				return errors.Join(err, next(ctx, req))
			})}
		}, "wait/nothing lost since the claim", "wait/new work"),
		breaks("nobody is woken", fault{wait: waits(never)},
			"wait/new work", "wait/beside what waits", "wait/earlier due", "bulk/wakes",
			"bulk/wakes for what is due by then", "wait/cancel", "wait/settings",
			"wait/many waiters", "wait/another handle", "wait/ends with the storage", "wait/nothing lost under load"),
		breaks("only cancels wake", fault{wait: waits(func(
			ctx context.Context, next waitFunc, req storage.WaitRequest,
		) error {
			req.CancelsOnly = true
			return next(ctx, req)
		})}, "wait/new work", "wait/earlier due", "wait/cancels only"),
		breaks("cancels wake nobody", fault{wait: waits(func(
			ctx context.Context, next waitFunc, req storage.WaitRequest,
		) error {
			if req.CancelsOnly {
				return never(ctx, next, req)
			}
			return next(ctx, req)
		})}, "wait/cancels only"),
		breaks("the first queue wakes", fault{wait: waits(func(
			ctx context.Context, next waitFunc, req storage.WaitRequest,
		) error {
			req.Queues = req.Queues[:1]
			return next(ctx, req)
		})}, "wait/any of the queues"),
		knowing("a queue that was made anew wakes nobody", func(m *mind) *fault {
			return &fault{
				configure: configured(func(_ *storage.Call, s *storage.Settings) {
					if s.Remove {
						m.locked(func() { m.count++ })
					}
				}),
				wait: waits(func(ctx context.Context, next waitFunc, req storage.WaitRequest) error {
					anew := false
					m.locked(func() { anew = m.count > 0 })
					if anew {
						return never(ctx, next, req)
					}
					return next(ctx, req)
				}),
			}
		}, "wait/a queue made anew"),
		knowing("new work wakes every waiter", func(m *mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, _ waitFunc, req storage.WaitRequest) error {
				for ctx.Err() == nil {
					stats, err := m.Stats(ctx, req.Queues...)
					if err != nil || stats[0].Waiting > 0 {
						return err
					}
					select {
					case <-time.After(time.Millisecond):
					case <-ctx.Done():
					}
				}
				return ctx.Err()
			})}
		}, "wait/one waiter"),
		knowing("one waiter of three is woken", func(m *mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, next waitFunc, req storage.WaitRequest) error {
				m.locked(func() {
					req.CancelsOnly = req.CancelsOnly || m.count%3 > 0
					m.count++
				})
				return next(ctx, req)
			})}
		}, "wait/many waiters", "wait/passed on", "wait/all waiters"),
		breaks("whoever maintains a queue waits for its tasks", fault{wait: waits(func(
			ctx context.Context, next waitFunc, req storage.WaitRequest,
		) error {
			req.Queues, req.Maintained = req.Names(), nil
			return next(ctx, req)
		})}, "wait/maintained"),
		breaks("never at rest", fault{wait: waits(func(ctx context.Context, _ waitFunc, _ storage.WaitRequest) error {
			return ctx.Err()
		})}, "wait/rests"),
		breaks("the context's end is another error", fault{wait: waits(func(
			ctx context.Context, next waitFunc, req storage.WaitRequest,
		) error {
			if err := next(ctx, req); ctx.Err() == nil {
				return err
			}
			return errors.New("over")
		})}, "wait/ends with its context"),
	}
}

func readMutants() []mutant {
	return []mutant{
		breaks("nothing is found", fault{task: func(next taskFunc) taskFunc {
			return func(ctx context.Context, ref storage.Ref) (storage.Task, error) {
				t, err := next(ctx, ref)
				if errors.Is(err, storage.ErrNotFound) {
					return storage.Task{}, nil
				}
				return t, err
			}
		}}, "read/not found"),
		knowing("reads show the token", func(m *mind) *fault {
			return &fault{claim: remembering(m), task: shown(func(t *storage.Task) {
				token := m.fence(storage.Fence{Ref: t.Ref}).Token
				t.Reason = hex.EncodeToString(token[:])
			})}
		}, "read/no token"),
		breaks("claims show the token", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			for i, f := range c.Fences {
				c.Tasks[i].Checkpoint = f.Token[:]
			}
		})}, "read/no token"),
		knowing("callers share slices", func(*mind) *fault {
			shared := map[storage.Ref][]byte{}
			return &fault{task: shown(func(t *storage.Task) {
				if _, ok := shared[t.Ref]; !ok {
					shared[t.Ref] = t.Payload
				}
				t.Payload = shared[t.Ref]
			})}
		}, "read/caller's own slices"),
		breaks("two states in one", fault{tasks: listed(func(q *storage.TasksQuery) {
			if q.State == storage.Retry {
				q.State = storage.Scheduled
			}
		}, func(*storage.TasksPage) {})}, "list/each state", "stats/model"),
		knowing("listings hold everything", func(m *mind) *fault {
			return &fault{tasks: listed(func(*storage.TasksQuery) {}, func(p *storage.TasksPage) {
				for i, t := range p.Tasks {
					p.Tasks[i], _ = m.Task(context.Background(), t.Ref)
				}
			})}
		}, "list/lean"),
		knowing("pages are counted", func(m *mind) *fault { return &fault{tasks: offsets(m)} }, "list/stable"),
		breaks("one page is all", fault{tasks: listed(
			func(q *storage.TasksQuery) { q.Limit = min(q.Limit, 20) },
			func(p *storage.TasksPage) { p.Next = "" },
		)}, "list/pages", "stats/model"),
		breaks("prefixes ignored", fault{queues: named(
			func(q *storage.QueuesQuery) { q.Prefix = strings.TrimSuffix(q.Prefix, ".") },
			func(*storage.QueuesPage) {},
		)}, "queues/prefix and pages"),
		breaks("settings make no queue", fault{queues: named(
			func(*storage.QueuesQuery) {},
			func(p *storage.QueuesPage) {
				p.Names = slices.DeleteFunc(p.Names, func(name string) bool { return name == "alone" })
			},
		)}, "queues/listed"),
	}
}

// offsets makes a Tasks whose After is a count of tasks, not a place.
func offsets(m *mind) func(tasksFunc) tasksFunc {
	return func(tasksFunc) tasksFunc {
		return func(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
			var all []storage.Task
			for t, err := range storage.Each(ctx, m.Storage, q.Queue, q.State) {
				if err != nil {
					return storage.TasksPage{}, err
				}
				all = append(all, t)
			}
			from, _ := strconv.Atoi(q.After)
			from = min(from, len(all))
			to := min(from+max(q.Limit, 1), len(all))
			p := storage.TasksPage{Tasks: all[from:to]}
			if to < len(all) {
				p.Next = strconv.Itoa(to)
			}
			return p, nil
		}
	}
}

func statsMutants() []mutant {
	return []mutant{
		breaks("requeues not counted", fault{stats: counted(func(s *storage.Stats) { s.Totals.Requeued = 0 })},
			"stats/model", "change/requeue"),
		breaks("sizes drift", fault{stats: counted(func(s *storage.Stats) { s.Retry, s.Scheduled = s.Scheduled, s.Retry })},
			"stats/model"),
		breaks("durations in nanoseconds", fault{task: shown(func(t *storage.Task) { t.Timeout++ })},
			"time/whole microseconds"),
		knowing("versions are a count", func(m *mind) *fault {
			return &fault{apply: answering(func(_ storage.Tx, a *storage.Applied) {
				for i := range a.Inserted {
					m.count++
					a.Inserted[i].Version = int64(m.count)
				}
			})}
		}, "time/versions", "time/each step"),
		breaks("ages not told", fault{stats: counted(func(s *storage.Stats) { s.Oldest = 0 })},
			"stats/oldest", "stats/oldest joins the tail"),
		breaks("ages in milliseconds", fault{stats: counted(func(s *storage.Stats) { s.Oldest /= 1000 })},
			"stats/oldest", "stats/oldest joins the tail"),
		breaks("stats sorted", fault{stats: func(next statsFunc) statsFunc {
			return func(ctx context.Context, queues ...string) ([]storage.Stats, error) {
				own := slices.Clone(queues)
				slices.Sort(own)
				return next(ctx, own...)
			}
		}}, "stats/sizes"),
		knowing("time goes back", func(m *mind) *fault {
			return &fault{describe: described(func(d *storage.Description) {
				if m.count++; m.count > 20 {
					d.Now = d.Now.Add(-time.Hour)
				}
			})}
		}, "describe/time goes on"),
		breaks("limits not told", fault{describe: described(func(d *storage.Description) { d.Limits = storage.Limits{} })},
			"describe/limits"),
		breaks("durability not told", fault{describe: described(func(d *storage.Description) { d.Durability = "" })},
			"describe/tells"),
		breaks("closed ignored", fault{stats: func(next statsFunc) statsFunc {
			return func(ctx context.Context, queues ...string) ([]storage.Stats, error) {
				all, err := next(ctx, queues...)
				if errors.Is(err, storage.ErrClosed) {
					return make([]storage.Stats, len(queues)), nil
				}
				return all, err
			}
		}}, "sharing/closed"),
		knowing("damage stops a queue", func(m *mind) *fault {
			return &fault{claim: func(next claimFunc) claimFunc {
				return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
					s, err := m.Stats(ctx, req.Queues[0].Name)
					if err != nil || s[0].Damaged > 0 {
						return storage.Claimed{}, fmt.Errorf("damaged: %w", errors.Join(err))
					}
					return next(ctx, req)
				}
			}}
		}, "sharing/damaged record"),
		breaks("damage goes unseen", fault{stats: counted(func(s *storage.Stats) { s.Damaged = 0 })},
			"sharing/damaged record"),
		breaks("damage ends a task twice", fault{stats: counted(func(s *storage.Stats) {
			s.Totals.Deleted += min(s.Damaged, s.Totals.Completed)
		})}, "sharing/damaged ended"),
		knowing("cancelled contexts spoil others", func(m *mind) *fault {
			return &fault{apply: applies(func(
				ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
			) ([]storage.Applied, error) {
				if m.spoiled(ctx) {
					return nil, context.Canceled
				}
				return next(ctx, call, txs...)
			})}
		}, "sharing/cancelled context"),
	}
}

// spoiled reports whether the context of an earlier call had ended.
func (m *mind) spoiled(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	spoiled := m.count > 0
	if ctx.Err() != nil {
		m.count++
	}
	return spoiled
}

// keepingDamage removes no queue with records that are set apart.
func keepingDamage(m *mind) *fault {
	return &fault{configure: func(next configureFunc) configureFunc {
		return func(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
			if stats, err := m.Stats(ctx, queue); s.Remove && (err != nil || stats[0].Damaged > 0) {
				return storage.ErrNotEmpty
			}
			return next(ctx, call, queue, s)
		}
	}}
}

func queueMutants() []mutant {
	return []mutant{
		breaks("pauses ignored", fault{configure: configured(func(_ *storage.Call, s *storage.Settings) {
			if s.Pause != nil {
				s.Pause = &storage.Pause{}
			}
		})}, "pause/stops claims", "pause/for a time", "pause/other queues", "pause/told"),
		breaks("pauses without end",
			fault{configure: configured(func(_ *storage.Call, s *storage.Settings) {
				if s.Pause != nil {
					s.Pause = &storage.Pause{On: s.Pause.On}
				}
			})},
			"pause/for a time", "pause/told"),
		knowing("pauses stop everything", func(m *mind) *fault {
			return &fault{claim: func(next claimFunc) claimFunc {
				return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
					if m.paused(ctx, req.Queues[0].Name) {
						return storage.Claimed{Now: time.Now()}, nil
					}
					return next(ctx, req)
				}
			}}
		}, "pause/stops nothing else", "cursor/not paused"),
		breaks("kinds without colons", fault{apply: inserts(func(j *storage.Insert) {
			j.Kind = strings.ReplaceAll(j.Kind, ":", ".")
		})}, "limits/names"),
		breaks("queues are not created", fault{configure: configured(func(_ *storage.Call, s *storage.Settings) {
			if s.Create {
				*s = resuming()
			}
		})}, "create/a queue without settings"),
		breaks("queues are never removed",
			fault{configure: configured(func(_ *storage.Call, s *storage.Settings) { s.Remove = false })},
			"remove/empty queue", "remove/not empty"),
		knowing("damage keeps its queue", keepingDamage, "remove/damaged"),
		breaks("unread for an hour", fault{apply: inserts(func(j *storage.Insert) {
			if j.Keep.UntilRead && j.Keep.For == 0 {
				j.Keep.For = time.Hour
			}
		})}, "keep/until read"),
		breaks("kept for ever", fault{apply: inserts(func(j *storage.Insert) {
			if j.Keep.For > 0 {
				j.Keep.For = storage.MaxDelay
			}
		})}, "keep/as long as asked"),
		breaks("leases unchecked", fault{claim: asked(func(c *storage.ClaimRequest) {
			c.Lease = min(max(c.Lease, storage.MinLease), storage.MaxDelay)
		})}, "limits/claim"),
		breaks("priorities clamped", fault{apply: inserts(func(j *storage.Insert) {
			j.Priority = min(max(j.Priority, -storage.MaxPriority), storage.MaxPriority)
		})}, "limits/insert", "limits/whole call"),
		breaks("transactions unchecked", fault{apply: inserts(func(j *storage.Insert) {
			j.Payload = j.Payload[:min(len(j.Payload), 100)]
		})}, "limits/transaction"),
		breaks("pages clamped", fault{tasks: listed(
			func(q *storage.TasksQuery) { q.Limit = min(q.Limit, storage.MaxPage) },
			func(*storage.TasksPage) {},
		)}, "limits/reads and settings"),
		breaks("texts of cursors cleaned", fault{apply: inserts(func(j *storage.Insert) {
			if j.Cursor != nil {
				c := *j.Cursor
				c.Declaration, j.Cursor = storage.CleanText(c.Declaration, storage.MaxHeaderBytes), &c
			}
		})}, "limits/cursor"),
		breaks("waits for nothing", fault{wait: waits(func(
			ctx context.Context, next waitFunc, req storage.WaitRequest,
		) error {
			if len(req.Queues) > 0 {
				return next(ctx, req)
			}
			return nil
		})}, "limits/wait"),
		breaks("calls unchecked", fault{apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			if storage.CheckCall(call) != nil {
				call = storage.Call{}
			}
			return next(ctx, call, txs...)
		})}, "limits/call"),
		breaks("valid Txs beside an invalid one", fault{apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			applied, err := next(ctx, call, txs...)
			var invalid *storage.InvalidError
			if errors.As(err, &invalid) && len(txs) > 1 {
				_, _ = next(ctx, storage.Call{}, txs[0])
			}
			return applied, err
		})}, "limits/whole call"),
	}
}
