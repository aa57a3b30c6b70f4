package storagetest

import (
	"context"
	"errors"
	"slices"

	"github.com/midgehq/midge/storage"
)

// The functions below make replacements for the methods of a fault.

// applies makes an Apply of a function that gets the Apply it replaces.
func applies(
	f func(ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx) ([]storage.Applied, error),
) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			return f(ctx, next, call, txs)
		}
	}
}

// editing makes an Apply that alters a copy of each Tx.
func editing(edit func(*storage.Tx)) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		own := slices.Clone(txs)
		for i := range own {
			tx := &own[i]
			tx.Inserts, tx.Changes = slices.Clone(tx.Inserts), slices.Clone(tx.Changes)
			tx.Deletes, tx.Settles = slices.Clone(tx.Deletes), slices.Clone(tx.Settles)
			edit(tx)
		}
		return next(ctx, call, own...)
	})
}

// inserts makes an Apply that alters each insert.
func inserts(edit func(*storage.Insert)) func(applyFunc) applyFunc {
	return editing(func(tx *storage.Tx) {
		for i := range tx.Inserts {
			edit(&tx.Inserts[i])
		}
	})
}

// changes makes an Apply that alters each change.
func changes(edit func(*storage.Change)) func(applyFunc) applyFunc {
	return editing(func(tx *storage.Tx) {
		for i := range tx.Changes {
			edit(&tx.Changes[i])
		}
	})
}

// settles makes an Apply that alters each settle.
func settles(edit func(*storage.Settle)) func(applyFunc) applyFunc {
	return editing(func(tx *storage.Tx) {
		for i := range tx.Settles {
			edit(&tx.Settles[i])
		}
	})
}

// turning makes an Apply that replaces one outcome by another.
func turning(from, to storage.Outcome) func(applyFunc) applyFunc {
	return settles(func(s *storage.Settle) {
		if s.Outcome == from {
			*s = storage.Settle{Fence: s.Fence, Outcome: to}
		}
	})
}

// answering makes an Apply that alters each answer.
func answering(edit func(tx storage.Tx, a *storage.Applied)) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		applied, err := next(ctx, call, txs...)
		for i := range applied {
			edit(txs[i], &applied[i])
		}
		return applied, err
	})
}

// done makes an Apply that reports changes as done if they were refused for a certain reason.
func done(refused func(*storage.DependencyError) bool) func(applyFunc) applyFunc {
	return answering(func(tx storage.Tx, a *storage.Applied) {
		var dep *storage.DependencyError
		if errors.As(a.Err, &dep) && refused(dep) && len(tx.Inserts)+len(tx.Settles) == 0 {
			*a = storage.Applied{Changed: make([]storage.Placed, len(tx.Changes))}
		}
	})
}

// refusing makes an Apply that refuses whole calls.
func refusing(refused func(txs []storage.Tx) error) func(applyFunc) applyFunc {
	return applies(func(
		ctx context.Context, next applyFunc, call storage.Call, txs []storage.Tx,
	) ([]storage.Applied, error) {
		if err := refused(txs); err != nil {
			return nil, err
		}
		return next(ctx, call, txs...)
	})
}

// asked makes a Claim that alters its request.
func asked(edit func(*storage.ClaimRequest)) func(claimFunc) claimFunc {
	return func(next claimFunc) claimFunc {
		return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
			req.Queues = slices.Clone(req.Queues)
			edit(&req)
			return next(ctx, req)
		}
	}
}

// given makes a Claim that alters its answer.
func given(edit func(req storage.ClaimRequest, c *storage.Claimed)) func(claimFunc) claimFunc {
	return func(next claimFunc) claimFunc {
		return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
			c, err := next(ctx, req)
			if err == nil {
				edit(req, &c)
			}
			return c, err
		}
	}
}

// giving makes a Claim that alters each task of its answer.
func giving(edit func(*storage.Task)) func(claimFunc) claimFunc {
	return given(func(_ storage.ClaimRequest, c *storage.Claimed) {
		for i := range c.Tasks {
			edit(&c.Tasks[i])
		}
	})
}

// remembering makes a Claim that notes its fences in a mind.
func remembering(m *mind) func(claimFunc) claimFunc {
	return given(func(_ storage.ClaimRequest, c *storage.Claimed) { m.remember(*c) })
}

// heartbeats makes an Extend that alters its request.
func heartbeats(edit func(*storage.ExtendRequest)) func(extendFunc) extendFunc {
	return func(next extendFunc) extendFunc {
		return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
			req.Leases = slices.Clone(req.Leases)
			edit(&req)
			return next(ctx, req)
		}
	}
}

// extending makes an Extend that alters each extension.
func extending(edit func(*storage.Extension)) func(extendFunc) extendFunc {
	return heartbeats(func(req *storage.ExtendRequest) {
		for i := range req.Leases {
			edit(&req.Leases[i])
		}
	})
}

// extended makes an Extend that alters its answer.
func extended(edit func(*storage.Extended)) func(extendFunc) extendFunc {
	return func(next extendFunc) extendFunc {
		return func(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
			x, err := next(ctx, req)
			edit(&x)
			return x, err
		}
	}
}

// configured makes a Configure that alters its arguments.
func configured(edit func(*storage.Call, *storage.Settings)) func(configureFunc) configureFunc {
	return func(next configureFunc) configureFunc {
		return func(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
			edit(&call, &s)
			return next(ctx, call, queue, s)
		}
	}
}

// shown makes a Task that alters the task it returns.
func shown(edit func(*storage.Task)) func(taskFunc) taskFunc {
	return func(next taskFunc) taskFunc {
		return func(ctx context.Context, ref storage.Ref) (storage.Task, error) {
			t, err := next(ctx, ref)
			if err == nil {
				edit(&t)
			}
			return t, err
		}
	}
}

// listed makes a Tasks that alters its query and its page.
func listed(ask func(*storage.TasksQuery), give func(*storage.TasksPage)) func(tasksFunc) tasksFunc {
	return func(next tasksFunc) tasksFunc {
		return func(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
			ask(&q)
			p, err := next(ctx, q)
			give(&p)
			return p, err
		}
	}
}

// counted makes a Stats that alters its answer.
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

// named makes a Queues that alters its query and its page.
func named(ask func(*storage.QueuesQuery), give func(*storage.QueuesPage)) func(queuesFunc) queuesFunc {
	return func(next queuesFunc) queuesFunc {
		return func(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
			ask(&q)
			p, err := next(ctx, q)
			give(&p)
			return p, err
		}
	}
}

// divided makes a Partitions that alters its query and its page.
func divided(ask func(*storage.PartitionsQuery), give func(*storage.PartitionsPage)) func(partsFunc) partsFunc {
	return func(next partsFunc) partsFunc {
		return func(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
			ask(&q)
			p, err := next(ctx, q)
			give(&p)
			return p, err
		}
	}
}

// described makes a Describe that alters its answer.
func described(edit func(*storage.Description)) func(describeFunc) describeFunc {
	return func(next describeFunc) describeFunc {
		return func(ctx context.Context) (storage.Description, error) {
			d, err := next(ctx)
			edit(&d)
			return d, err
		}
	}
}

// waits makes a Wait of a function that gets the Wait it replaces.
func waits(f func(ctx context.Context, next waitFunc, req storage.WaitRequest) error) func(waitFunc) waitFunc {
	return func(next waitFunc) waitFunc {
		return func(ctx context.Context, req storage.WaitRequest) error { return f(ctx, next, req) }
	}
}
