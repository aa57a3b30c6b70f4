package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// waits makes a wait of a function that is also given the mind.
func waits(wait func(ctx context.Context, next waitFunc, req storage.WaitRequest) error) func(waitFunc) waitFunc {
	return func(next waitFunc) waitFunc {
		return func(ctx context.Context, req storage.WaitRequest) error { return wait(ctx, next, req) }
	}
}

func waitMutants() []mutant {
	return []mutant{
		{name: "wake-ups lost between claim and wait", rules: []string{"wait/nothing lost since the claim", "wait/new work"},
			wrap: func(m *mind) *fault {
				return &fault{wait: waits(func(ctx context.Context, next waitFunc, req storage.WaitRequest) error {
					claim := storage.ClaimRequest{Runner: runner}
					for _, q := range req.Queues {
						claim.Queues = append(claim.Queues, storage.ClaimQueue{Name: q})
					}
					c, err := m.Claim(ctx, claim)
					if err != nil {
						return err
					}
					req.Since = c.Since
					return next(ctx, req)
				})}
			}},
		{name: "nobody is woken", rules: []string{
			"wait/new work", "wait/earlier due", "wait/cancel", "wait/settings", "wait/many waiters", "wait/another handle",
		}, wrap: func(*mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, _ waitFunc, _ storage.WaitRequest) error {
				<-ctx.Done()
				return ctx.Err()
			})}
		}},
		{name: "only cancels wake", rules: []string{"wait/new work", "wait/earlier due", "wait/cancels only"}, wrap: func(*mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, next waitFunc, req storage.WaitRequest) error {
				req.CancelsOnly = true
				return next(ctx, req)
			})}
		}},
		{name: "cancels wake nobody", rules: []string{"wait/cancels only"}, wrap: func(*mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, next waitFunc, req storage.WaitRequest) error {
				if req.CancelsOnly {
					<-ctx.Done()
					return ctx.Err()
				}
				return next(ctx, req)
			})}
		}},
		{name: "the first queue wakes", rules: []string{"wait/any of the queues"}, wrap: func(*mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, next waitFunc, req storage.WaitRequest) error {
				req.Queues = req.Queues[:1]
				return next(ctx, req)
			})}
		}},
		{name: "never at rest", rules: []string{"wait/rests"}, wrap: func(*mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, _ waitFunc, _ storage.WaitRequest) error { return ctx.Err() })}
		}},
		{name: "the context's end is no error", rules: []string{"wait/ends with its context"}, wrap: func(*mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, next waitFunc, req storage.WaitRequest) error {
				if err := next(ctx, req); ctx.Err() == nil {
					return err
				}
				return errors.New("over")
			})}
		}},
		{name: "close leaves waiters alone", rules: []string{"wait/ends with the storage"}, wrap: func(*mind) *fault {
			return &fault{wait: waits(func(ctx context.Context, _ waitFunc, _ storage.WaitRequest) error {
				<-ctx.Done()
				return ctx.Err()
			})}
		}},
	}
}

func readMutants() []mutant {
	return []mutant{
		{name: "reads show the token", rules: []string{"read/no token"}, wrap: func(m *mind) *fault {
			return &fault{claim: remembering(m), task: shown(func(t *storage.Task) {
				t.Reason = m.fence(storage.Fence{Ref: t.Ref}).Token.Reveal()
			})}
		}},
		{name: "claims show the token", rules: []string{"read/no token"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				for i, f := range c.Fences {
					c.Tasks[i].Checkpoint = f.Token[:]
				}
			})}
		}},
		{name: "callers share slices", rules: []string{"read/caller's own slices"}, wrap: func(m *mind) *fault {
			shared := map[storage.Ref][]byte{}
			return &fault{task: shown(func(t *storage.Task) {
				if _, ok := shared[t.Ref]; !ok {
					shared[t.Ref] = t.Payload
				}
				t.Payload = shared[t.Ref]
			})}
		}},
		{name: "listings hold everything", rules: []string{"list/lean"}, wrap: func(m *mind) *fault {
			return &fault{tasks: func(next tasksFunc) tasksFunc {
				return func(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
					p, err := next(ctx, q)
					for i, t := range p.Tasks {
						if p.Tasks[i], err = m.Task(ctx, t.Ref); err != nil {
							return p, err
						}
					}
					return p, err
				}
			}}
		}},
		{name: "pages are counted", rules: []string{"list/stable"}, wrap: func(m *mind) *fault { return &fault{tasks: offsets(m)} }},
		{name: "one page is all", rules: []string{"list/pages", "stats/model"}, wrap: func(*mind) *fault {
			return &fault{tasks: func(next tasksFunc) tasksFunc {
				return func(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
					q.Limit = min(q.Limit, 20)
					p, err := next(ctx, q)
					p.Next = ""
					return p, err
				}
			}}
		}},
		{name: "prefixes ignored", rules: []string{"queues/prefix and pages"}, wrap: func(*mind) *fault {
			return &fault{queues: func(next queuesFunc) queuesFunc {
				return func(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
					q.Prefix = strings.TrimSuffix(q.Prefix, ".")
					return next(ctx, q)
				}
			}}
		}},
		{name: "settings make no queue", rules: []string{"queues/listed"}, wrap: func(*mind) *fault {
			return &fault{queues: func(next queuesFunc) queuesFunc {
				return func(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
					p, err := next(ctx, q)
					p.Names = slices.DeleteFunc(p.Names, func(name string) bool { return name == "alone" })
					return p, err
				}
			}}
		}},
		{name: "requeues not counted", rules: []string{"stats/model", "change/requeue"}, wrap: func(*mind) *fault {
			return &fault{stats: counted(func(s *storage.Stats) { s.Totals.Requeued = 0 })}
		}},
		{name: "sizes drift", rules: []string{"stats/model"}, wrap: func(*mind) *fault {
			return &fault{stats: counted(func(s *storage.Stats) { s.Retry, s.Scheduled = s.Scheduled, s.Retry })}
		}},
		{name: "stats sorted", rules: []string{"stats/sizes"}, wrap: func(*mind) *fault {
			return &fault{stats: func(next statsFunc) statsFunc {
				return func(ctx context.Context, queues ...string) ([]storage.Stats, error) {
					own := slices.Clone(queues)
					slices.Sort(own)
					return next(ctx, own...)
				}
			}}
		}},
		{name: "time goes back", rules: []string{"describe/time goes on"}, wrap: func(m *mind) *fault {
			return &fault{describe: described(func(d *storage.Description) {
				if m.count++; m.count > 20 {
					d.Now = d.Now.Add(-time.Hour)
				}
			})}
		}},
		{name: "limits not told", rules: []string{"describe/limits"}, wrap: func(*mind) *fault {
			return &fault{describe: described(func(d *storage.Description) { d.Limits = storage.Limits{} })}
		}},
		{name: "runners live for ever", rules: []string{"runners/heartbeat"}, wrap: func(*mind) *fault {
			return &fault{extend: func(next extendFunc) extendFunc {
				return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
					req.Runner.For = time.Hour
					return next(ctx, req)
				}
			}}
		}},
		{name: "runners cannot leave", rules: []string{"runners/leaving"}, wrap: func(*mind) *fault {
			return &fault{extend: func(next extendFunc) extendFunc {
				return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
					if req.Runner.Leaving {
						req.Runner.Leaving, req.Runner.For = false, time.Hour
					}
					return next(ctx, req)
				}
			}}
		}},
	}
}

// offsets makes a listing whose cursor is a count.
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
				p.Next = fmt.Sprint(to)
			}
			return p, nil
		}
	}
}

// described makes a description that is altered.
func described(edit func(*storage.Description)) func(describeFunc) describeFunc {
	return func(next describeFunc) describeFunc {
		return func(ctx context.Context) (storage.Description, error) {
			d, err := next(ctx)
			edit(&d)
			return d, err
		}
	}
}

func otherMutants() []mutant {
	raised := func(l storage.Limits) storage.Limits {
		l.MaxPayload = storage.MaxPayloadCap
		return l
	}
	return []mutant{
		{name: "payloads unchecked", limit: raised, wrap: func(*mind) *fault { return &fault{} },
			rules: []string{"limits/insert", "limits/payload by default", "limits/change", "limits/extend"}},
		{name: "leases unchecked", rules: []string{"limits/claim"}, wrap: func(*mind) *fault {
			return &fault{claim: asked(func(c *storage.ClaimRequest) {
				c.Lease = min(max(c.Lease, storage.MinLease), storage.MaxDelay)
			})}
		}},
		{name: "priorities clamped", rules: []string{"limits/insert", "limits/whole call"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.Priority = min(max(j.Priority, -9), 9) })}
		}},
		{name: "transactions unchecked", rules: []string{"limits/transaction"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.Payload = j.Payload[:min(len(j.Payload), 100)] })}
		}},
		{name: "pages clamped", rules: []string{"limits/reads and settings"}, wrap: func(*mind) *fault {
			return &fault{tasks: func(next tasksFunc) tasksFunc {
				return func(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
					q.Limit = min(q.Limit, storage.MaxPage)
					return next(ctx, q)
				}
			}}
		}},
		{name: "valid Txs beside an invalid one", rules: []string{"limits/whole call"}, wrap: func(m *mind) *fault {
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					applied, err := next(ctx, call, txs...)
					var invalid *storage.InvalidError
					if errors.As(err, &invalid) && len(txs) > 1 {
						_, _ = next(ctx, storage.Call{}, txs[0])
					}
					return applied, err
				}
			}}
		}},
		{name: "results not kept", rules: []string{"keep/result by default", "keep/result of any bytes"}, wrap: func(*mind) *fault {
			return &fault{apply: settles(func(s *storage.Settle) { s.Result = nil })}
		}},
		{name: "unread for an hour", rules: []string{"keep/until read"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) {
				if j.Keep.UntilRead && j.Keep.For == 0 {
					j.Keep.For = time.Hour
				}
			})}
		}},
		{name: "kept for ever", rules: []string{"keep/as long as asked"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) {
				if j.Keep.For > 0 {
					j.Keep.For = storage.MaxDelay
				}
			})}
		}},
		{name: "dead not trimmed", rules: []string{"keep/dead for a time", "keep/dead at most so many", "keep/dead of a crash loop"},
			limit: func(storage.Limits) storage.Limits { return storage.Limits{} },
			wrap:  func(*mind) *fault { return &fault{} }},
		{name: "pauses ignored", rules: []string{"pause/stops claims", "pause/for a time", "pause/other queues", "pause/told"},
			wrap: func(*mind) *fault {
				return &fault{configure: func(next configureFunc) configureFunc {
					return func(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
						s.Paused, s.PauseFor = false, 0
						return next(ctx, call, queue, s)
					}
				}}
			}},
		{name: "pauses without end", rules: []string{"pause/for a time", "pause/told"}, wrap: func(*mind) *fault {
			return &fault{configure: func(next configureFunc) configureFunc {
				return func(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
					s.PauseFor = 0
					return next(ctx, call, queue, s)
				}
			}}
		}},
		{name: "spans that are not whole", rules: []string{
			"settle/across queues", "apply/refused in each queue", "change/move",
		}, wrap: func(m *mind) *fault { return &fault{apply: halved(m)} }},
		{name: "cancelled contexts spoil others", rules: []string{"sharing/cancelled context"}, wrap: func(m *mind) *fault {
			return &fault{apply: func(next applyFunc) applyFunc {
				return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
					var spoiled bool
					m.locked(func() {
						spoiled = m.count > 0
						if ctx.Err() != nil {
							m.count++
						}
					})
					if spoiled {
						return nil, context.Canceled
					}
					return next(ctx, call, txs...)
				}
			}}
		}},
		{name: "closed ignored", rules: []string{"sharing/closed"}, wrap: func(m *mind) *fault {
			return &fault{stats: func(next statsFunc) statsFunc {
				return func(ctx context.Context, queues ...string) ([]storage.Stats, error) {
					all, err := next(ctx, queues...)
					if errors.Is(err, storage.ErrClosed) {
						return make([]storage.Stats, len(queues)), nil
					}
					return all, err
				}
			}}
		}},
		{name: "damage stops a queue", rules: []string{"sharing/damaged record"}, wrap: func(m *mind) *fault {
			return &fault{claim: func(next claimFunc) claimFunc {
				return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
					s, err := m.Stats(ctx, req.Queues[0].Name)
					if err != nil || s[0].Damaged > 0 {
						return storage.Claimed{}, fmt.Errorf("damaged: %w", errors.Join(err))
					}
					return next(ctx, req)
				}
			}}
		}},
		{name: "damage goes unseen", rules: []string{"sharing/damaged record"}, wrap: func(*mind) *fault {
			return &fault{stats: counted(func(s *storage.Stats) { s.Damaged = 0 })}
		}},
	}
}

// halved makes an apply that does the operations of each queue by themselves.
func halved(m *mind) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			if len(txs) != 1 || len(txs[0].Queues()) < 2 {
				return next(ctx, call, txs...)
			}
			half := storage.Tx{Inserts: txs[0].Inserts[:min(1, len(txs[0].Inserts))]}
			if half.Ops() > 0 {
				if _, err := m.Apply(ctx, storage.Call{}, half); err != nil {
					return nil, err
				}
			}
			return nil, errors.New("half of it was done")
		}
	}
}
