package storagetest

import (
	"context"
	"sync"
	"testing"

	"github.com/midgehq/midge/storage"
)

// fault is a storage with some methods replaced. The function for a method gets the original
// method, and returns its replacement.
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
	parts     func(next partsFunc) partsFunc
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
	partsFunc     func(context.Context, storage.PartitionsQuery) (storage.PartitionsPage, error)
	describeFunc  func(context.Context) (storage.Description, error)
	runnersFunc   func(context.Context) ([]storage.RunnerInfo, error)
)

// through returns the replacement of next, or next itself if replace is nil.
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

func (f *fault) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	return through(f.parts, f.Storage.Partitions)(ctx, q)
}

func (f *fault) Describe(ctx context.Context) (storage.Description, error) {
	return through(f.describe, f.Storage.Describe)(ctx)
}

func (f *fault) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	return through(f.runners, f.Storage.Runners)(ctx)
}

// mutant is a storage that breaks the contract, with the rules that must find that out.
type mutant struct {
	name   string
	rules  []string
	wrap   func(m *mind) *fault                // nil spoils nothing
	limits func(storage.Limits) storage.Limits // of the storage beneath
	opened func(testing.TB, storage.Limits, *Opened)
}

// mind is the memory of a mutant of the calls to the storage that it spoils.
type mind struct {
	storage.Storage

	mu     sync.Mutex // guards the fields below
	fences map[storage.Ref]storage.Fence
	keys   map[string]storage.Ref
	count  int
	texts  map[storage.Ref]string
}

// locked runs f under the mind's lock.
func (m *mind) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// remember notes the fences in the answer of a claim.
func (m *mind) remember(c storage.Claimed) {
	m.locked(func() {
		for _, f := range c.Fences {
			m.fences[f.Ref] = f
		}
	})
}

// fence returns the last fence that it remembers of the task of f, or f if it remembers none.
func (m *mind) fence(f storage.Fence) storage.Fence {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.fences[f.Ref]; ok {
		return known
	}
	return f
}

// breaks makes a mutant of replaced methods.
func breaks(name string, f fault, rules ...string) mutant {
	return mutant{name: name, rules: rules, wrap: func(*mind) *fault {
		own := f
		return &own
	}}
}

// knowing makes a mutant of replaced methods that use a mind.
func knowing(name string, wrap func(m *mind) *fault, rules ...string) mutant {
	return mutant{name: name, rules: rules, wrap: wrap}
}

// open opens a memory storage spoiled by the mutant.
func (mu mutant) open(t testing.TB, limits storage.Limits) Opened {
	if mu.limits != nil {
		limits = mu.limits(limits)
	}
	opened := openMemory(t, limits)
	if mu.opened != nil {
		mu.opened(t, limits, &opened)
	}
	if mu.wrap == nil {
		return opened
	}
	again := opened.Again
	opened.Storage = mu.spoil(opened.Storage)
	opened.Again = func(t testing.TB) storage.Storage { return mu.spoil(again(t)) }
	return opened
}

// spoil wraps one handle of the storage.
func (mu mutant) spoil(s storage.Storage) *fault {
	f := mu.wrap(&mind{
		Storage: s, fences: map[storage.Ref]storage.Fence{}, keys: map[string]storage.Ref{},
		texts: map[storage.Ref]string{},
	})
	f.Storage = s
	return f
}
