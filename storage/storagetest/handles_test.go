package storagetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// openMemory opens the memory storage behind handles, so that the rules of several handles
// and of damage are tested too.
func openMemory(t testing.TB, limits storage.Limits) Opened {
	t.Helper()
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	base, err := memory.Open(memory.Config{Limits: limits, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = base.Close() })
	d := &damages{Storage: base, counts: map[string]int64{}}
	return Opened{
		Storage: newHandle(d),
		Again:   func(testing.TB) storage.Storage { return newHandle(d) },
		Durable: true,
		Jump:    func(d time.Duration) { ahead.Add(int64(d)) },
		Damage:  d.damage,
	}
}

// damages is a storage whose records can be damaged. It sets a damaged record apart at once, and that of a
// pending task once its lease has ended.
type damages struct {
	storage.Storage

	mu     sync.Mutex // guards counts
	counts map[string]int64
}

func (d *damages) damage(t testing.TB, ref storage.Ref) {
	t.Helper()
	session := storage.NewSession(d.Storage, 0)
	task, err := d.Task(t.Context(), ref)
	switch {
	case err != nil:
	case task.State == storage.Pending:
		_, err = session.ApplyOne(t.Context(), cancelOf(ref))
	default:
		err = session.DeleteTask(t.Context(), ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.counts[ref.Queue]++
	d.mu.Unlock()
}

func (d *damages) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	all, err := d.Storage.Stats(ctx, queues...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range all {
		all[i].Damaged += d.counts[all[i].Queue]
	}
	return all, err
}

// handle is one of several handles on the same storage. Closing it leaves the others open.
type handle struct {
	storage.Storage

	closed context.Context
	close  context.CancelFunc
}

func newHandle(s storage.Storage) *handle {
	h := &handle{Storage: s}
	h.closed, h.close = context.WithCancel(context.Background())
	return h
}

func (h *handle) open() error {
	if h.closed.Err() != nil {
		return fmt.Errorf("handle: %w", storage.ErrClosed)
	}
	return nil
}

func (h *handle) Close() error {
	h.close()
	return nil
}

func (h *handle) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if err := h.open(); err != nil {
		return nil, err
	}
	return h.Storage.Apply(ctx, call, txs...)
}

func (h *handle) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := h.open(); err != nil {
		return storage.Claimed{}, err
	}
	return h.Storage.Claim(ctx, req)
}

func (h *handle) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := h.open(); err != nil {
		return storage.Extended{}, err
	}
	return h.Storage.Extend(ctx, req)
}

func (h *handle) Wait(ctx context.Context, req storage.WaitRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.closed, cancel)() //nolint:contextcheck // the handle ends by itself
	err := h.Storage.Wait(ctx, req)
	if closed := h.open(); closed != nil {
		return closed
	}
	return err
}

func (h *handle) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if err := h.open(); err != nil {
		return storage.Task{}, err
	}
	return h.Storage.Task(ctx, ref)
}

func (h *handle) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	if err := h.open(); err != nil {
		return storage.TasksPage{}, err
	}
	return h.Storage.Tasks(ctx, q)
}

func (h *handle) Queues(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
	if err := h.open(); err != nil {
		return storage.QueuesPage{}, err
	}
	return h.Storage.Queues(ctx, q)
}

func (h *handle) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	if err := h.open(); err != nil {
		return nil, err
	}
	return h.Storage.Stats(ctx, queues...)
}

func (h *handle) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	if err := h.open(); err != nil {
		return storage.PartitionsPage{}, err
	}
	return h.Storage.Partitions(ctx, q)
}

func (h *handle) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	if err := h.open(); err != nil {
		return nil, err
	}
	return h.Storage.Runners(ctx)
}

func (h *handle) Configure(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
	if err := h.open(); err != nil {
		return err
	}
	return h.Storage.Configure(ctx, call, queue, s)
}

func (h *handle) Describe(ctx context.Context) (storage.Description, error) {
	if err := h.open(); err != nil {
		return storage.Description{}, err
	}
	return h.Storage.Describe(ctx)
}

// split is a storage in which every queue is an atomic domain of its own.
type split struct {
	storage.Storage
	limits storage.Limits
}

// Spans reports whether all names are equal.
func (split) Spans(queues ...string) bool {
	for _, q := range queues {
		if q != queues[0] {
			return false
		}
	}
	return true
}

func (s split) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if err := storage.CheckTxs(s.limits, txs); err != nil {
		return nil, err
	}
	applied, spanning := make([]storage.Applied, len(txs)), []storage.Tx(nil)
	var at []int
	for i := range txs {
		if !s.Spans(txs[i].Queues()...) {
			applied[i].Err = fmt.Errorf("split: apply: %w", storage.ErrSpan)
			continue
		}
		spanning, at = append(spanning, txs[i]), append(at, i)
	}
	some, err := s.Storage.Apply(ctx, call, spanning...)
	for i := range at[:min(len(at), len(some))] {
		applied[at[i]] = some[i]
	}
	return applied, err
}
