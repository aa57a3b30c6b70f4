package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func togetherMutants() []mutant {
	return []mutant{
		breaks("the last of a Tx released first", fault{apply: editing(func(tx *storage.Tx) {
			slices.Reverse(tx.Settles)
		})}, "order/released together"),
		breaks("inserts before changes", fault{apply: applies(insertsFirst)}, "order/within a Tx"),
		breaks("whatever is to wait goes to the tail", fault{apply: changes(func(c *storage.Change) {
			if c.Now && c.Priority == nil {
				c.Priority = new(int)
			}
		})}, "order/kept by its own state"),
		breaks("lists backwards", fault{tasks: listed(func(*storage.TasksQuery) {}, func(p *storage.TasksPage) {
			slices.Reverse(p.Tasks)
		})}, "list/in order"),
		breaks("newest only on the first page", fault{tasks: listed(func(q *storage.TasksQuery) {
			q.Newest = q.Newest && q.After == ""
		}, func(*storage.TasksPage) {})}, "list/newest first", "list/newest stable", "list/newest beside damage"),
		breaks("newest not refused", fault{tasks: listed(func(q *storage.TasksQuery) {
			q.Newest = q.Newest && q.State.Ended()
		}, func(*storage.TasksPage) {})}, "list/newest first"),
		breaks("any page after another", fault{tasks: listed(func(q *storage.TasksQuery) {
			if q.After != "" {
				q.State = storage.Waiting
			}
		}, func(*storage.TasksPage) {})}, "list/another page"),
		breaks("long places refused", fault{tasks: func(next tasksFunc) tasksFunc {
			return func(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
				if len(q.After) > storage.MaxName {
					return storage.TasksPage{}, storage.Invalid("TasksQuery.After", q.After, "a short place")
				}
				return next(ctx, q)
			}
		}}, "list/longest names"),
	}
}

func toldMutants() []mutant {
	return []mutant{
		breaks("skips invent a version", fault{apply: answering(func(_ storage.Tx, a *storage.Applied) {
			for i := range a.Inserted {
				if p := &a.Inserted[i]; p.Existing {
					p.Version = max(p.Version, 1)
				}
			}
		})}, "unique/skipped for one that is gone", "unique/skipped for one that ends"),
		breaks("a recovery clears snoozes", fault{task: shown(func(t *storage.Task) {
			if n := len(t.Attempts); n > 0 && t.Attempts[n-1].Outcome == storage.AttemptLeaseLost {
				t.Snoozes, t.SnoozedSince = 0, time.Time{}
			}
		})}, "recover/keeps snoozes"),
		breaks("hosts are kept as they are", fault{runners: func(next runnersFunc) runnersFunc {
			return func(ctx context.Context) ([]storage.RunnerInfo, error) {
				all, err := next(ctx)
				for i := range all {
					all[i].Host = odd
				}
				return all, err
			}
		}}, "texts/of a runner"),
		breaks("snoozes give no reason", fault{apply: settles(func(s *storage.Settle) {
			if s.Outcome == storage.Snooze {
				s.Reason = ""
			}
		})}, "settle/reason of a snooze"),
		breaks("no delay is a long one", fault{apply: settles(func(s *storage.Settle) {
			if s.Delay == 0 && (s.Outcome == storage.Fail || s.Outcome == storage.Snooze) {
				s.Delay = time.Hour
			}
		})}, "settle/no delay"),
		breaks("nothing is claimed ahead", fault{claim: given(func(req storage.ClaimRequest, c *storage.Claimed) {
			if req.Start == 0 {
				c.Tasks, c.Fences = nil, nil
			}
		})}, "change/requeue may be ahead"),
		breaks("refused queues are listed", fault{queues: named(func(*storage.QueuesQuery) {}, func(p *storage.QueuesPage) {
			p.Names = append(p.Names, "new")
		})}, "apply/no trace"),
		breaks("one collision at most", fault{apply: answering(func(_ storage.Tx, a *storage.Applied) {
			var dep *storage.DependencyError
			if errors.As(a.Err, &dep) && len(dep.Colliding) > 1 {
				a.Err = &storage.DependencyError{Colliding: dep.Colliding[:1]}
			}
		})}, "change/move collides twice"),
		breaks("a call of several Txs has no identity", fault{apply: applies(func(
			ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
		) ([]storage.Applied, error) {
			if len(txs) > 1 {
				call = storage.Call{}
			}
			return next(ctx, call, txs...)
		})}, "identity/other content"),
	}
}

// insertsFirst carries out the inserts of a Tx before the rest of it.
func insertsFirst(
	ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
) ([]storage.Applied, error) {
	if len(txs) != 1 || len(txs[0].Inserts) == 0 || len(txs[0].Changes) == 0 {
		return next(ctx, call, txs...)
	}
	tx := txs[0]
	first, err := next(ctx, storage.Call{}, storage.Tx{Inserts: tx.Inserts})
	if err != nil {
		return nil, err
	}
	tx.Inserts = nil
	applied, err := next(ctx, call, tx)
	applied[0].Inserted = first[0].Inserted
	return applied, err
}
