package storagetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/midgehq/midge/storage"
)

// fault is a storage of which some methods are replaced, each by a function that is
// given the one it replaces.
type fault struct {
	storage.Storage

	apply func(next applyFunc) applyFunc
	claim func(next claimFunc) claimFunc

	extend    func(next extendFunc) extendFunc
	configure func(next configureFunc) configureFunc
	wait      func(next waitFunc) waitFunc
	task      func(next taskFunc) taskFunc
	tasks     func(next tasksFunc) tasksFunc
	stats     func(next statsFunc) statsFunc
	queues    func(next queuesFunc) queuesFunc
	describe  func(next describeFunc) describeFunc
	runners   func(next runnersFunc) runnersFunc
}

type (
	applyFunc     func(context.Context, storage.Call, ...storage.Tx) ([]storage.Applied, error)
	claimFunc     func(context.Context, storage.ClaimRequest) (storage.Claimed, error)
	extendFunc    func(context.Context, storage.ExtendRequest) (storage.Extended, error)
	configureFunc func(context.Context, storage.Call, string, storage.Settings) error
	waitFunc      func(context.Context, storage.WaitRequest) error
	taskFunc      func(context.Context, storage.Ref) (storage.Task, error)
	tasksFunc     func(context.Context, storage.TasksQuery) (storage.TasksPage, error)
	statsFunc     func(context.Context, ...string) ([]storage.Stats, error)
	queuesFunc    func(context.Context, storage.QueuesQuery) (storage.QueuesPage, error)
	describeFunc  func(context.Context) (storage.Description, error)
	runnersFunc   func(context.Context) ([]storage.RunnerInfo, error)
)

// through gives next, or what replaces it.
func through[F any](replace func(F) F, next F) F {
	if replace == nil {
		return next
	}
	return replace(next)
}

func (f *fault) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	return through(f.apply, f.Storage.Apply)(ctx, call, txs...)
}

func (f *fault) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	return through(f.claim, f.Storage.Claim)(ctx, req)
}

func (f *fault) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	return through(f.extend, f.Storage.Extend)(ctx, req)
}

func (f *fault) Configure(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
	return through(f.configure, f.Storage.Configure)(ctx, call, queue, s)
}

func (f *fault) Wait(ctx context.Context, req storage.WaitRequest) error {
	return through(f.wait, f.Storage.Wait)(ctx, req)
}

func (f *fault) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	return through(f.task, f.Storage.Task)(ctx, ref)
}

func (f *fault) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	return through(f.tasks, f.Storage.Tasks)(ctx, q)
}

func (f *fault) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	return through(f.stats, f.Storage.Stats)(ctx, queues...)
}

func (f *fault) Queues(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
	return through(f.queues, f.Storage.Queues)(ctx, q)
}

func (f *fault) Describe(ctx context.Context) (storage.Description, error) {
	return through(f.describe, f.Storage.Describe)(ctx)
}

func (f *fault) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	return through(f.runners, f.Storage.Runners)(ctx)
}

// mutant is a storage that breaks a rule, and the rules that must find it.
type mutant struct {
	name  string
	rules []string
	limit func(storage.Limits) storage.Limits
	wrap  func(m *mind) *fault
}

// mind is what a mutant knows of the storage that it spoils.
type mind struct {
	storage.Storage

	mu     sync.Mutex // guards what follows
	fences map[storage.Ref]storage.Fence
	keys   map[string]storage.Ref
	count  int
	texts  map[storage.Ref]string
	last   storage.ClaimRequest
}

// locked runs f under the mind's lock.
func (m *mind) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// remember notes the fences that a claim gave.
func (m *mind) remember(c storage.Claimed) {
	m.locked(func() {
		for _, f := range c.Fences {
			m.fences[f.Ref] = f
		}
	})
}

// fence gives the last fence of a task, or the one given where there is none.
func (m *mind) fence(f storage.Fence) storage.Fence {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.fences[f.Ref]; ok {
		return known
	}
	return f
}

// open opens a memory storage spoiled by the mutant.
func (mu mutant) open(t testing.TB, limits storage.Limits) Opened {
	if mu.limit != nil {
		limits = mu.limit(limits)
	}
	opened := openMemory(t, limits)
	wrap := func(s storage.Storage) storage.Storage {
		m := &mind{
			Storage: s, fences: map[storage.Ref]storage.Fence{}, keys: map[string]storage.Ref{},
			texts: map[storage.Ref]string{},
		}
		f := mu.wrap(m)
		f.Storage = s
		return f
	}
	opened.Storage = wrap(opened.Storage)
	again := opened.Again
	opened.Again = func(t testing.TB) storage.Storage { return wrap(again(t)) }
	return opened
}

// editing makes an apply that alters a copy of each Tx.
func editing(edit func(*storage.Tx)) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			own := slices.Clone(txs)
			for i := range own {
				tx := &own[i]
				tx.Inserts, tx.Changes = slices.Clone(tx.Inserts), slices.Clone(tx.Changes)
				tx.Deletes, tx.Settles = slices.Clone(tx.Deletes), slices.Clone(tx.Settles)
				edit(tx)
			}
			return next(ctx, call, own...)
		}
	}
}

// inserts makes an apply that alters each insert.
func inserts(edit func(*storage.Insert)) func(applyFunc) applyFunc {
	return editing(func(tx *storage.Tx) {
		for i := range tx.Inserts {
			edit(&tx.Inserts[i])
		}
	})
}

// settles makes an apply that alters each settle.
func settles(edit func(*storage.Settle)) func(applyFunc) applyFunc {
	return editing(func(tx *storage.Tx) {
		for i := range tx.Settles {
			edit(&tx.Settles[i])
		}
	})
}

// answering makes an apply that alters each answer.
func answering(edit func(tx storage.Tx, a *storage.Applied)) func(applyFunc) applyFunc {
	return func(next applyFunc) applyFunc {
		return func(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
			applied, err := next(ctx, call, txs...)
			for i := range applied {
				edit(txs[i], &applied[i])
			}
			return applied, err
		}
	}
}

// asked makes a claim that alters what is asked.
func asked(edit func(*storage.ClaimRequest)) func(claimFunc) claimFunc {
	return func(next claimFunc) claimFunc {
		return func(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
			req.Queues = slices.Clone(req.Queues)
			edit(&req)
			return next(ctx, req)
		}
	}
}

// given makes a claim that alters what it gave.
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

// shown makes a read of one task that alters it.
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
