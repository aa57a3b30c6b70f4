package storagetest

import (
	"context"
	"slices"

	"github.com/midgehq/midge/storage"
)

// unlisted leaves the costs out of the tasks that a mutant shows.
func unlisted(t *storage.Task) { t.Cost = 0 }

// pricing makes an Apply that replaces each cost of an insert, and leaves the costs of changes as they are.
func pricing(edit func(storage.Cost) storage.Cost) func(applyFunc) applyFunc {
	return inserts(func(j *storage.Insert) { j.Cost = edit(j.Cost) })
}

// cheapening makes an Apply after which each settled task that which chooses costs 1.
func cheapening(m *mind, which func(storage.Outcome) bool) func(applyFunc) applyFunc {
	return answering(func(tx storage.Tx, a *storage.Applied) {
		for i := range a.Settled {
			if which(tx.Settles[i].Outcome) {
				_ = storage.NewSession(m.Storage, 0).ChangeTask(context.Background(), tx.Settles[i].Fence.Ref,
					func(storage.Task) (storage.Change, error) { return repriced(0), nil })
			}
		}
	})
}

// pricingChanges makes an Apply in which each change of the cost that which chooses is another one.
func pricingChanges(edit func(*storage.Change)) func(applyFunc) applyFunc {
	return changes(func(c *storage.Change) {
		if c.Cost != nil {
			edit(c)
		}
	})
}

func costMutants() []mutant {
	return []mutant{
		breaks("costs ignored", fault{apply: pricing(func(storage.Cost) storage.Cost { return 0 })},
			"bounded/cost stored", "bounded/cost kept", "bounded/cost charged", "bounded/cost while a rate is spent",
			"bounded/cost repeated", "bounded/cost without refund", "bounded/cost without room",
			"bounded/cost of a lowered rate", "bounded/cost of a raised rate", "bounded/cost of many claimers",
			"bounded/cost told", "bounded/cost and the next start", "bounded/cost while the clock is ahead",
			"bounded/cost after the clock was set back", "bounded/cost model", "bounded/cost holds the line back",
			"bounded/cost and partitions", "bounded/cost and kinds", "bounded/cost and suspects",
			"bounded/cost and suspects of two queues", "bounded/cost and suspects of partitions",
			"bounded/cost and other queues", "bounded/cost and more", "bounded/cost of a damaged task",
			"bounded/cost of the same task", "bounded/cost of a schedule", "bounded/cost moved"),
		breaks("no cost is 1", fault{apply: pricing(func(c storage.Cost) storage.Cost {
			if c == storage.NoCost {
				return 0
			}
			return c
		})}, "bounded/cost stored", "bounded/cost charged", "bounded/cost while a rate is spent", "bounded/cost repeated"),
		breaks("costs over 100 are 100", fault{apply: pricing(func(c storage.Cost) storage.Cost { return min(c, 100) })},
			"bounded/cost stored", "bounded/cost charged", "bounded/cost of a raised rate"),
		breaks("costs out of bounds are mended", fault{apply: pricing(func(c storage.Cost) storage.Cost {
			return max(min(c, storage.MaxCost), storage.NoCost)
		})}, "limits/insert"),
		breaks("new costs out of bounds are mended", fault{apply: pricingChanges(func(c *storage.Change) {
			c.Cost = repriced(max(min(*c.Cost, storage.MaxCost), storage.NoCost)).Cost
		})}, "limits/change"),
		breaks("cheaper tasks come first", fault{apply: inserts(func(j *storage.Insert) {
			if j.Cost > 1 {
				j.Priority--
			}
		})}, "bounded/cost holds the line back", "bounded/cost and partitions", "bounded/cost of many claimers",
			"bounded/cost model"),
		breaks("one cost too much", fault{configure: limits(func(l *storage.Limit) {
			if l.Rate.N > 1 {
				l.Rate.N++
			}
		})}, "bounded/cost holds the line back", "bounded/cost and more", "bounded/cost while a rate is spent",
			"bounded/cost model", "bounded/cost of many claimers", "bounded/cost and the next start"),
		breaks("costs last too long", fault{configure: limits(func(l *storage.Limit) { l.Rate.Per += l.Rate.Per / 4 })},
			"bounded/cost and the next start", "bounded/cost after the clock was set back", "bounded/cost model",
			"bounded/cost told"),
		breaks("repeats are charged", fault{claim: asked(func(c *storage.ClaimRequest) { c.Call = storage.Call{} })},
			"bounded/cost repeated"),
		breaks("queues of which something is left are unnamed", fault{claim: given(
			func(_ storage.ClaimRequest, c *storage.Claimed) { c.Bounded = nil },
		)}, "bounded/cost and more", "bounded/cost and kinds", "bounded/cost and other queues",
			"bounded/cost and suspects of two queues", "bounded/cost and suspects of partitions"),
		breaks("NextDue is that of a cost of 1", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			if len(c.Bounded) > 0 {
				c.NextDue = c.Now
			}
		})}, "bounded/cost and the next start", "bounded/cost model"),
		breaks("counts untold", fault{stats: counted(func(s *storage.Stats) {
			if s.Limit != nil {
				s.Limit.Counts = nil
			}
		})}, "bounded/cost told", "bounded/cost model"),
		knowing("what is settled costs 1", func(m *mind) *fault {
			return &fault{apply: cheapening(m, func(o storage.Outcome) bool { return o != storage.Release })}
		}, "bounded/cost kept"),
		knowing("what is released costs 1", func(m *mind) *fault {
			return &fault{apply: cheapening(m, func(o storage.Outcome) bool { return o == storage.Release })}
		}, "bounded/cost kept"),
	}
}

func costKeptMutants() []mutant {
	return []mutant{
		breaks("costs unread", fault{task: shown(unlisted)}, "bounded/cost stored", "bounded/cost kept",
			"bounded/cost replaced", "bounded/cost of a schedule"),
		breaks("costs unlisted", fault{tasks: listed(func(*storage.TasksQuery) {}, func(p *storage.TasksPage) {
			for i := range p.Tasks {
				unlisted(&p.Tasks[i])
			}
		})}, "bounded/cost stored", "bounded/cost replaced"),
		breaks("costs not claimed", fault{claim: giving(unlisted)}, "bounded/cost stored", "bounded/cost replaced"),
		breaks("new costs ignored", fault{apply: pricingChanges(func(c *storage.Change) {
			c.Cost = nil
			if c.Headers == nil && !c.Requeue && !c.Now && c.Priority == nil {
				c.Headers = map[string]string{}
			}
		})}, "bounded/cost replaced", "bounded/cost replaced with others", "bounded/cost of a schedule"),
		breaks("a new cost leads to the tail", fault{apply: pricingChanges(func(c *storage.Change) {
			if c.Priority == nil {
				c.Priority = new(int)
			}
		})}, "bounded/cost replaced", "bounded/cost model"),
		breaks("any change makes a task cost 1", fault{apply: changes(func(c *storage.Change) {
			if c.Cost == nil && !c.Cancel {
				c.Cost = repriced(0).Cost
			}
		})}, "bounded/cost replaced with others", "bounded/cost kept", "bounded/cost moved", "bounded/cost of a schedule"),
		breaks("the same task gets a new cost", fault{apply: repricingSame},
			"bounded/cost of the same task"),
		breaks("what runs takes a new cost", fault{apply: applies(unpriced)},
			"bounded/cost of a task that runs", "bounded/cost replaced"),
	}
}

// repricingSame makes an Apply that replaces the cost of a task which an insert finds there.
func repricingSame(next applyFunc) applyFunc {
	return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
		applied, err := next(ctx, call, txs...)
		for i := range applied {
			for n, p := range applied[i].Inserted {
				if ch := repriced(txs[i].Inserts[n].Cost); p.Existing {
					ch.Ref, ch.Version = p.Ref, p.Version
					_, _ = next(ctx, storage.Call{}, storage.Tx{Changes: []storage.Change{ch}})
				}
			}
		}
		return applied, err
	}
}

// unpriced reports each change of a cost as done, and makes none.
func unpriced(
	ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
) ([]storage.Applied, error) {
	own := slices.Clone(txs)
	for i := range own {
		if ch := own[i].Changes; len(ch) == 1 && ch[0].Cost != nil {
			own[i] = storage.Tx{Depends: []storage.Depend{{Ref: ch[0].Ref, Version: ch[0].Version}}}
		}
	}
	applied, err := next(ctx, call, own...)
	for i := range applied {
		applied[i].Changed = make([]storage.Placed, len(txs[i].Changes))
	}
	return applied, err
}
