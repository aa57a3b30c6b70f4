package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func orderMutants() []mutant {
	one := 1
	return []mutant{
		breaks("priorities ignored", fault{apply: inserts(func(j *storage.Insert) { j.Priority = 0 })},
			"order/priority"),
		breaks("low priorities first", fault{apply: inserts(func(j *storage.Insert) { j.Priority = -j.Priority })},
			"order/priority"),
		breaks("last in first out", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			slices.Reverse(c.Tasks)
			slices.Reverse(c.Fences)
		})}, "order/first in first out", "insert/many", "stats/model", "order/due together",
			"order/recovered together"),
		knowing("release to the tail", func(m *mind) *fault {
			return &fault{claim: tailing(m, func(t storage.Task) bool { return t.Crashes == 0 })}
		}, "order/released to the head"),
		knowing("recovery to the tail", func(m *mind) *fault {
			return &fault{claim: tailing(m, func(t storage.Task) bool { return t.Crashes > 0 })}
		}, "order/recovered to the head"),
		breaks("promotion to the head", fault{apply: inserts(func(j *storage.Insert) {
			if j.Delay > 0 {
				j.Priority = one
			}
		})}, "order/promoted to the tail"),
		breaks("requeue to the head", fault{apply: changes(func(c *storage.Change) {
			if c.Requeue || c.Now {
				c.Priority = &one
			}
		})}, "order/requeued to the tail"),
		breaks("new priority keeps its place", fault{apply: changes(func(c *storage.Change) { c.Priority = nil })},
			"order/re-prioritised to the tail"),
		breaks("any change goes to the tail", fault{apply: changes(func(c *storage.Change) {
			if !c.Now && !c.Cancel {
				c.Priority = new(int)
			}
		})}, "order/kept by other changes"),
		breaks("later due first", fault{apply: inserts(func(j *storage.Insert) {
			second := j.At.Truncate(time.Second)
			if late := j.At.Sub(second); !j.At.IsZero() && late < 40*time.Millisecond {
				j.At = second.Add(40*time.Millisecond - late)
			}
		})}, "order/earlier due first"),
		breaks("second queue first", fault{claim: asked(func(c *storage.ClaimRequest) { slices.Reverse(c.Queues) })},
			"order/queues in turn"),
	}
}

// tailing makes a Claim that first sends to the tail those waiting tasks that were claimed before and that
// which chooses.
func tailing(m *mind, which func(storage.Task) bool) func(claimFunc) claimFunc {
	return func(next claimFunc) claimFunc {
		return remembering(m)(func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
			for t, err := range storage.Each(ctx, m.Storage, req.Queues[0].Name, storage.Waiting) {
				if err != nil {
					return storage.Claimed{}, err
				}
				if m.fence(storage.Fence{Ref: t.Ref}).Version == 0 || !which(t) {
					continue
				}
				p := t.Priority
				tx := storage.Tx{Changes: []storage.Change{{Ref: t.Ref, Version: t.Version, Priority: &p}}}
				if _, err := m.Apply(ctx, storage.Call{}, tx); err != nil {
					return storage.Claimed{}, err
				}
			}
			return next(ctx, req)
		})
	}
}

func claimMutants() []mutant {
	return []mutant{
		breaks("claims go without headers", fault{claim: giving(func(t *storage.Task) { t.Headers = nil })},
			"claim/whole task"),
		breaks("no tasks is an error", fault{claim: func(next claimFunc) claimFunc {
			return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
				c, err := next(ctx, req)
				if err == nil && len(c.Tasks) == 0 {
					err = storage.ErrNotFound
				}
				return c, err
			}
		}}, "claim/nothing"),
		breaks("max ignored", fault{claim: asked(func(c *storage.ClaimRequest) {
			for i := range c.Queues {
				c.Queues[i].Max = 0
			}
		})}, "claim/max"),
		breaks("a claim of none does nothing", fault{claim: func(next claimFunc) claimFunc {
			return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
				if req.Most() == 0 {
					return storage.Claimed{Now: time.Now()}, nil
				}
				return next(ctx, req)
			}
		}}, "claim/none maintains"),
		breaks("queues beside are claimed too", fault{claim: asked(func(c *storage.ClaimRequest) {
			if len(c.Queues) == 1 && c.Queues[0].Name == mainQueue {
				c.Queues = append(c.Queues, storage.ClaimQueue{Name: sideQueue})
			}
		})}, "claim/other queues untouched"),
		breaks("more is never said",
			fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.More = false })},
			"claim/more", "claim/more of another queue", "claim/4 MiB", "cursor/4 MiB", "claim/many due at once",
			"recover/many at once"),
		breaks("more is always said",
			fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.More = true })},
			"claim/more", "suspect/no work at once", "pause/stops claims", "share/gone with its last task"),
		breaks("next due is missing",
			fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.NextDue = time.Time{} })},
			"claim/next due"),
		knowing("next due is stale", func(*mind) *fault {
			var first time.Time
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				if first.IsZero() {
					first = c.NextDue
				}
				c.NextDue = first
			})}
		}, "claim/next due"),
		breaks("claims tell another time", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			c.Now = c.Now.Add(-time.Hour)
		})}, "claim/time", "describe/time goes on"),
		breaks("claims beyond 4 MiB", fault{claim: twice}, "claim/4 MiB"),
		knowing("tasks are claimed twice", func(m *mind) *fault {
			return &fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				m.locked(func() {
					if len(c.Tasks) > 1 && m.count == 0 {
						m.count++
						c.Tasks[0], c.Fences[0] = c.Tasks[1], c.Fences[1]
					}
				})
			})}
		}, "claim/no task twice", "sharing/everything at once"),
	}
}

// withdraw removes tasks from the answer of a claim.
func withdraw(c *storage.Claimed, which func(storage.Task) bool) {
	tasks, fences := c.Tasks, c.Fences
	c.Tasks, c.Fences = nil, nil
	for i, t := range tasks {
		if !which(t) {
			c.Tasks, c.Fences = append(c.Tasks, t), append(c.Fences, fences[i])
		}
	}
}

// twice makes a Claim that claims twice and joins the answers.
func twice(next claimFunc) claimFunc {
	return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
		c, err := next(ctx, req)
		if err != nil || len(c.Tasks) == 0 {
			return c, err
		}
		left := req.Most() - len(c.Tasks)
		req.Call, req.Start = storage.Call{}, min(req.Start, left)
		req.Ahead = left - req.Start
		more, err := next(ctx, req)
		c.Tasks, c.Fences, c.More = append(c.Tasks, more.Tasks...), append(c.Fences, more.Fences...), more.More
		return c, err
	}
}

func recoverMutants() []mutant {
	return []mutant{
		breaks("leases too long", fault{claim: asked(func(c *storage.ClaimRequest) { c.Lease *= 3 })},
			"claim/takes under a lease"),
		breaks("extensions do not last", fault{extend: extending(func(e *storage.Extension) { e.For = 0 })},
			"recover/lease holds", "extend/new deadline"),
		breaks("all tasks start", fault{claim: asked(func(c *storage.ClaimRequest) { c.Start, c.Ahead = c.Most(), 0 })},
			"claim/start", "recover/ahead is not charged", "recover/never ahead again", "recover/passed over"),
		breaks("tasks claimed ahead are charged", fault{claim: func(next claimFunc) claimFunc {
			started := asked(func(c *storage.ClaimRequest) { c.Start, c.Ahead = c.Most(), 0 })
			return giving(func(t *storage.Task) { t.Started = false })(started(next))
		}}, "recover/ahead is not charged", "recover/never ahead again"),
		breaks("tasks claimed ahead never start",
			fault{extend: extending(func(e *storage.Extension) { e.Started = false })},
			"recover/started by extend"),
		breaks("crashes are not shown", fault{task: shown(func(t *storage.Task) { t.Crashes = 0 })},
			"recover/crash is charged"),
		breaks("crashes go on for ever", fault{apply: inserts(func(j *storage.Insert) { j.CrashLimit++ })},
			"recover/crash loop", "unique/released by a crash loop"),
		breaks("crash loops are kept secret",
			fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) { c.Ended = nil })},
			"recover/ends told"),
		breaks("ends of cancelled tasks are kept secret",
			fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				c.Ended = slices.DeleteFunc(c.Ended, func(e storage.Ended) bool { return e.State != storage.Dead })
			})}, "recover/ends told"),
		breaks("ends are told without a kind",
			fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
				for i := range c.Ended {
					c.Ended[i].Kind = ""
				}
			})}, "recover/ends told"),
		knowing("an expired lease cannot settle", func(m *mind) *fault { return &fault{apply: punctual(m)} },
			"recover/late settle"),
		breaks("no recovery is put off",
			fault{claim: asked(func(c *storage.ClaimRequest) { c.RecoverBefore = time.Time{} })}, "recover/put off"),
		breaks("all recoveries are put off", fault{claim: asked(func(c *storage.ClaimRequest) {
			if !c.RecoverBefore.IsZero() {
				c.RecoverBefore = time.UnixMicro(1)
			}
		})}, "recover/put off"),
		breaks("recoveries that are put off are work at once",
			fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
				c.More = c.More || !req.RecoverBefore.IsZero()
			})}, "recover/put off"),
		breaks("nobody hears why a task waits on",
			fault{task: shown(func(t *storage.Task) { t.PassedOver = "" })}, "suspect/told"),
		breaks("suspects are nobody", fault{claim: asked(func(c *storage.ClaimRequest) { c.Suspect = c.Start > 0 })},
			"suspect/passed over"),
		breaks("suspects are never taken", fault{claim: asked(func(c *storage.ClaimRequest) { c.Suspect = false })},
			"suspect/passed over", "suspect/one at a time"),
		breaks("suspects together", fault{claim: twice}, "suspect/one at a time"),
		breaks("suspects are claimed ahead", fault{claim: asked(func(c *storage.ClaimRequest) {
			if c.Suspect {
				c.Start, c.Ahead = c.Most(), 0
			}
		})}, "suspect/starts at once"),
		breaks("suspects last", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			slices.SortStableFunc(c.Tasks, func(a, b storage.Task) int { return a.Crashes - b.Crashes })
		})}, "suspect/keeps its place", "suspect/joins the tail"),
		knowing("suspects not counted", func(m *mind) *fault {
			return &fault{stats: counted(func(s *storage.Stats) {
				for t := range storage.Each(context.Background(), m.Storage, s.Queue, storage.Waiting) { //nolint:errcheck // a lie
					if storage.Suspect(t.Crashes, t.CrashLimit) {
						s.Waiting--
					}
				}
			})}
		}, "suspect/counted as waiting"),
		breaks("one crash short is suspect", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			withdraw(c, func(t storage.Task) bool { return t.Crashes == t.CrashLimit-1 })
		})}, "suspect/a limit of one"),
	}
}

// punctual makes an Apply that refuses to settle a task whose lease has expired.
func punctual(m *mind) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		for _, s := range txs[0].Settles {
			if t, err := m.Task(ctx, s.Fence.Ref); err == nil && t.LeaseUntil.Before(time.Now()) {
				lost := &storage.DependencyError{Lost: []storage.Ref{s.Fence.Ref}}
				return []storage.Applied{{Err: lost}}, nil
			}
		}
		return next(ctx, call, txs...)
	})
}
