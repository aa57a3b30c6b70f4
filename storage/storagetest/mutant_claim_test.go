package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func orderMutants() []mutant {
	return []mutant{
		{name: "priorities ignored", rules: []string{"order/priority"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.Priority = 0 })}
		}},
		{name: "low priorities first", rules: []string{"order/priority"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.Priority = -j.Priority })}
		}},
		{name: "last in first out", rules: []string{"order/first in first out", "insert/many"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				slices.Reverse(c.Tasks)
				slices.Reverse(c.Fences)
			})}
		}},
		{name: "release to the tail", rules: []string{"order/released to the head"}, wrap: func(m *mind) *fault {
			return &fault{claim: tailing(m, func(t storage.Task) bool { return t.Crashes == 0 })}
		}},
		{name: "recovery to the tail", rules: []string{"order/recovered to the head"}, wrap: func(m *mind) *fault {
			return &fault{claim: tailing(m, func(t storage.Task) bool { return t.Crashes > 0 })}
		}},
		{name: "new priority keeps its place", rules: []string{"order/re-prioritised to the tail"}, wrap: func(*mind) *fault {
			return &fault{apply: editing(func(tx *storage.Tx) {
				for i := range tx.Changes {
					tx.Changes[i].Priority = nil
				}
			})}
		}},
		{name: "second queue first", rules: []string{"order/queues in turn"}, wrap: func(*mind) *fault {
			return &fault{claim: asked(func(c *storage.ClaimRequest) { slices.Reverse(c.Queues) })}
		}},
	}
}

// tailing makes a claim that first sends to the tail what stands at the head and
// was claimed before.
func tailing(m *mind, which func(storage.Task) bool) func(claimFunc) claimFunc {
	return func(next claimFunc) claimFunc {
		return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
			for _, q := range req.Queues {
				page, err := m.Tasks(ctx, storage.TasksQuery{Queue: q.Name, State: storage.Waiting})
				if err != nil {
					return storage.Claimed{}, err
				}
				for _, t := range page.Tasks {
					var before bool
					m.locked(func() { _, before = m.fences[t.Ref] })
					if before && which(t) {
						p := t.Priority
						tx := storage.Tx{Changes: []storage.Change{{Ref: t.Ref, Version: t.Version, Priority: &p}}}
						if _, err := m.Apply(ctx, storage.Call{}, tx); err != nil {
							return storage.Claimed{}, err
						}
					}
				}
			}
			c, err := next(ctx, req)
			m.remember(c)
			return c, err
		}
	}
}

func claimMutants() []mutant {
	return []mutant{
		{name: "max ignored", rules: []string{"claim/max"}, wrap: func(*mind) *fault {
			return &fault{claim: asked(func(c *storage.ClaimRequest) {
				for i := range c.Queues {
					c.Queues[i].Max = 0
				}
			})}
		}},
		{name: "max 0 does nothing", rules: []string{"claim/max 0 maintains"}, wrap: func(*mind) *fault {
			return &fault{claim: func(next claimFunc) claimFunc {
				return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
					if req.Max == 0 {
						return storage.Claimed{Now: time.Now()}, nil
					}
					return next(ctx, req)
				}
			}}
		}},
		{name: "all tasks start", rules: []string{
			"claim/start", "recover/ahead is not charged", "recover/never ahead again",
		}, wrap: func(*mind) *fault {
			return &fault{claim: asked(func(c *storage.ClaimRequest) { c.Start = c.Max })}
		}},
		{name: "tasks claimed ahead are charged", rules: []string{"recover/ahead is not charged", "recover/never ahead again"},
			wrap: func(*mind) *fault {
				return &fault{
					claim: func(next claimFunc) claimFunc {
						return given(func(req storage.ClaimRequest, c *storage.Claimed) {
							for i := range c.Tasks {
								c.Tasks[i].Started = false
							}
						})(asked(func(c *storage.ClaimRequest) { c.Start = c.Max })(next))
					},
				}
			}},
		{name: "tasks claimed ahead never start", rules: []string{"recover/started by extend"}, wrap: func(*mind) *fault {
			return &fault{extend: extending(func(e *storage.Extension) { e.Started = false })}
		}},
		{name: "suspects are nobody", rules: []string{"suspect/passed over"}, wrap: func(*mind) *fault {
			return &fault{claim: asked(func(c *storage.ClaimRequest) { c.Suspect = c.Start > 0 })}
		}},
		{name: "suspects are never taken", rules: []string{"suspect/passed over", "suspect/one at a time"},
			wrap: func(*mind) *fault {
				return &fault{claim: asked(func(c *storage.ClaimRequest) { c.Suspect = false })}
			}},
		{name: "suspects together", rules: []string{"suspect/one at a time"}, wrap: func(*mind) *fault {
			return &fault{claim: twice}
		}},
		{name: "suspects last", rules: []string{"suspect/keeps its place"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				slices.SortStableFunc(c.Tasks, func(a, b storage.Task) int { return a.Crashes - b.Crashes })
			})}
		}},
		{name: "suspects not counted", rules: []string{"suspect/counted as waiting"}, wrap: func(m *mind) *fault {
			return &fault{stats: func(next statsFunc) statsFunc {
				return func(ctx context.Context, queues ...string) ([]storage.Stats, error) {
					all, err := next(ctx, queues...)
					for i := range all {
						for t := range storage.Each(ctx, m.Storage, queues[i], storage.Waiting) {
							if storage.Suspect(t.Crashes, t.CrashLimit) {
								all[i].Waiting--
							}
						}
					}
					return all, err
				}
			}}
		}},
		{name: "more is never said", rules: []string{"claim/more", "claim/4 MiB"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.More = false })}
		}},
		{name: "more is always said", rules: []string{"claim/more", "suspect/no work at once", "pause/stops claims"},
			wrap: func(*mind) *fault {
				return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.More = true })}
			}},
		{name: "next due is missing", rules: []string{"claim/next due"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.NextDue = time.Time{} })}
		}},
		{name: "next due is stale", rules: []string{"claim/next due"}, wrap: func(m *mind) *fault {
			var first time.Time
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				if first.IsZero() {
					first = c.NextDue
				}
				c.NextDue = first
			})}
		}},
		{name: "claims beyond 4 MiB", rules: []string{"claim/4 MiB"}, wrap: func(*mind) *fault { return &fault{claim: twice} }},
		{name: "kinds are the opposite", rules: []string{"claim/kinds are a hint"}, wrap: func(*mind) *fault {
			return &fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
				c.Tasks = slices.DeleteFunc(c.Tasks, func(t storage.Task) bool { return slices.Contains(req.Kinds, t.Kind) })
				c.Fences = c.Fences[:len(c.Tasks)]
			})}
		}},
		{name: "tasks are claimed twice", rules: []string{"claim/no task twice"}, wrap: func(m *mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				m.locked(func() {
					if m.count++; m.count == 5 && len(c.Tasks) > 1 {
						c.Tasks[0], c.Fences[0] = c.Tasks[1], c.Fences[1]
					}
				})
			})}
		}},
		{name: "crashes go on for ever", rules: []string{"recover/crash loop"}, wrap: func(*mind) *fault {
			return &fault{apply: inserts(func(j *storage.Insert) { j.CrashLimit++ })}
		}},
		{name: "leases too long", rules: []string{"claim/takes under a lease"}, wrap: func(*mind) *fault {
			return &fault{claim: asked(func(c *storage.ClaimRequest) { c.Lease *= 3 })}
		}},
		{name: "extensions do not last", rules: []string{"recover/lease holds", "extend/new deadline"}, wrap: func(*mind) *fault {
			return &fault{extend: extending(func(e *storage.Extension) { e.For = 0 })}
		}},
	}
}

// extending makes an extend that alters each extension.
func extending(edit func(*storage.Extension)) func(extendFunc) extendFunc {
	return func(next extendFunc) extendFunc {
		return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
			req.Leases = slices.Clone(req.Leases)
			for i := range req.Leases {
				edit(&req.Leases[i])
			}
			return next(ctx, req)
		}
	}
}

// twice makes one claim of two.
func twice(next claimFunc) claimFunc {
	return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
		c, err := next(ctx, req)
		if err != nil || len(c.Tasks) == 0 {
			return c, err
		}
		req.Call, req.Max = storage.Call{}, req.Max-len(c.Tasks)
		req.Start = min(req.Start, req.Max)
		more, err := next(ctx, req)
		c.Tasks, c.Fences, c.More = append(c.Tasks, more.Tasks...), append(c.Fences, more.Fences...), more.More
		return c, err
	}
}
