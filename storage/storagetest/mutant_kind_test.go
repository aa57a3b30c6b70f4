package storagetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func kindMutants() []mutant {
	return []mutant{
		breaks("a decline releases", fault{apply: turning(storage.Decline, storage.Release)},
			"kind/declined", "kind/named alone", "kind/no work for others", "kind/unknown dies"),
		breaks("a decline is charged", fault{apply: turning(storage.Decline, storage.Fail)}, "kind/declined"),
		breaks("a decline completes", fault{apply: turning(storage.Decline, storage.Complete)},
			"kind/cancelled and deleted"),
		breaks("every claim takes declined tasks", fault{claim: asked(func(c *storage.ClaimRequest) { c.Kinds = nil })},
			"kind/named alone", "kind/no work for others"),
		breaks("one kind a claim", fault{claim: asked(func(c *storage.ClaimRequest) {
			c.Kinds = c.Kinds[:min(len(c.Kinds), 1)]
		})}, "kind/many kinds"),
		breaks("declined tasks in any order", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			slices.Reverse(c.Tasks)
			slices.Reverse(c.Fences)
		})}, "kind/order", "kind/many kinds"),
		breaks("declined suspects unasked", fault{claim: asked(func(c *storage.ClaimRequest) {
			c.Suspect = c.Suspect || len(c.Kinds) > 0
		})}, "kind/start-only and suspects"),
		breaks("declined for good", fault{apply: changes(func(c *storage.Change) {
			if c.Priority != nil {
				c.Priority, c.Headers = nil, map[string]string{}
			}
		})}, "kind/once for each joining"),
		breaks("nobody hears of a decline", fault{wait: waits(never)}, "kind/wakes"),
		breaks("declined tasks among the others", fault{tasks: listed(func(q *storage.TasksQuery) { q.Limit = 0 },
			func(p *storage.TasksPage) {
				slices.SortStableFunc(p.Tasks, func(a, b storage.Task) int { return cmp.Compare(b.Priority, a.Priority) })
			})}, "kind/listed last"),
		breaks("kinds not counted", fault{stats: counted(func(s *storage.Stats) { s.Declined = nil })},
			"kind/counted"),
		breaks("unknown kinds die untold", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			c.Ended = nil
		})}, "kind/unknown dies", "kind/many die"),
		{
			name: "declined tasks die early", rules: []string{"kind/unknown dies"},
			limits: func(l storage.Limits) storage.Limits {
				l.DeclinedFor = min(l.DeclinedFor, 50*time.Millisecond)
				return l
			},
		},
		breaks("whoever maintains names all kinds", fault{claim: asked(func(c *storage.ClaimRequest) {
			for i := range c.Queues {
				c.Queues[i].Max = max(c.Queues[i].Max, 0)
			}
		})}, "kind/maintained alone", "kind/no work for others"),
		breaks("a full queue names no kinds", fault{claim: asked(func(c *storage.ClaimRequest) {
			for i := range c.Queues {
				c.Queues[i].Max = max(c.Queues[i].Max, storage.MaxNone)
			}
		})}, "kind/full queue"),
		breaks("a full queue is claimed", fault{claim: asked(func(c *storage.ClaimRequest) {
			for i := range c.Queues {
				if c.Queues[i].Max == storage.MaxFull {
					c.Queues[i].Max = 1
				}
			}
		})}, "kind/full queue"),
		{
			name: "more dead are kept", rules: []string{"kind/dead are bounded"},
			limits: func(l storage.Limits) storage.Limits {
				l.DeadMax = max(l.DeadMax, 5)
				return l
			},
		},
		breaks("only a claim of tasks names kinds", fault{claim: asked(func(c *storage.ClaimRequest) {
			if c.Most() == 0 {
				c.Kinds = []string{"none"}
			}
		})}, "kind/known lives"),
		breaks("a claim without identity", fault{claim: asked(func(c *storage.ClaimRequest) { c.Call = storage.Call{} })},
			"kind/repeated"),
		breaks("runners keep their kinds to themselves", fault{extend: heartbeats(func(x *storage.ExtendRequest) {
			x.Runner.Kinds = nil
		})}, "kind/runners tell", "kind/valid"),
	}
}
