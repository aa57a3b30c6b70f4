package difftest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// A sequence of evictions has so many steps, and its queues keep so many dead tasks.
const (
	evictionSteps = 150
	fewDead       = 3
)

// evictions runs a sequence in which queues keep few dead tasks, and fails the test if none was evicted.
func evictions(t *testing.T, open opener) {
	t.Helper()
	defer func(was storage.Limits) { limits = was }(limits)
	limits.DeadMax = fewDead
	var evicted int64 // in the last try
	sequence(t, 1, evictionSteps, func(t testing.TB) ([]*side, func(time.Time)) {
		sides, move := open(t)
		t.Cleanup(func() {
			stats, err := sides[0].store.Stats(context.WithoutCancel(t.Context()), together...)
			if err != nil {
				t.Error(err)
			}
			evicted = 0
			for i := range stats {
				evicted += stats[i].Totals.Evicted
			}
		})
		return sides, move
	})
	if least := int64(evictionSteps / 15); evicted < least {
		t.Errorf("%d dead tasks were evicted, want %d and more", evicted, least)
	}
}

// death returns a step of a sequence in which queues keep few dead tasks. One task dies at most: of several that
// die at once, each storage may take another one for the oldest.
func (g *generator) death() step {
	pending, dead := g.w.in(together, storage.Pending), g.w.in(together, storage.Dead)
	a := &apply{spanning: -1}
	switch n := g.IntN(10); {
	case n < 2 && len(dead) > 0:
		t, to := pick(g, dead...), pick(g, together...)
		if slices.ContainsFunc(g.w.in([]string{to}, storage.Dead), func(other storage.Task) bool {
			return other.Ended.After(t.Ended)
		}) {
			to = t.Ref.Queue // Redis would evict the oldest of the tasks that were there before
		}
		a.txs = []tx{{{change: &storage.Change{Ref: t.Ref, Queue: to}}}}
	case n < 3 && len(dead) > 0:
		a.txs = []tx{{{change: &storage.Change{Ref: pick(g, dead...).Ref, Requeue: true}}}}
	case n < 4 && len(dead) > 0:
		a.txs = []tx{{{delete: &storage.Delete{Ref: pick(g, dead...).Ref}}}}
	case len(pending) > 0:
		fence := storage.Fence{Ref: pick(g, pending...).Ref}
		a.txs = []tx{{{settle: &storage.Settle{Fence: fence, Outcome: storage.Bury, Error: "e"}}}}
	case len(g.w.in(together, storage.Waiting)) > 0:
		req := storage.ClaimRequest{
			Call: g.call("claim", together), Runner: "r", Token: storage.Token(g.id()), Start: 5, Lease: 2 * evictionSteps * grid,
		}
		for _, name := range together {
			req.Queues = append(req.Queues, storage.ClaimQueue{Name: name})
		}
		return &claim{req}
	default:
		var x tx
		for range 5 {
			g.bulk++
			x = append(x, op{insert: &storage.Insert{
				Ref: storage.Ref{Queue: pick(g, together...), ID: fmt.Sprint("mortal", g.bulk)}, Kind: "k0", Encoding: "e", CrashLimit: 3,
			}})
		}
		a.txs = []tx{x}
	}
	return g.sealed(a)
}

// crowded returns the queues with as many dead tasks as they keep. Some sides evict with the next claim.
func (w *world) crowded() (names []string) {
	for _, name := range queues {
		if limits.DeadMax > 0 && len(w.in([]string{name}, storage.Dead)) >= limits.DeadMax {
			names = append(names, name)
		}
	}
	return names
}
