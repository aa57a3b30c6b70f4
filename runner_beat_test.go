package midge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// narrow is a storage with two connections for extensions, on which a large value takes a while.
type narrow struct {
	storage.Storage
	connections chan struct{}
	large       time.Duration
}

func (n *narrow) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	select {
	case n.connections <- struct{}{}:
		defer func() { <-n.connections }()
	case <-ctx.Done():
		return storage.Extended{}, storage.ErrUnknown
	}
	if len(req.Leases) == 1 && len(req.Leases[0].Checkpoint) > 100_000 {
		<-time.After(n.large) // virtual
	}
	return n.Storage.Extend(ctx, req)
}

// TestLargeCheckpointsCostNobodyTheLease checks that large values go out one at a time, so that
// heartbeats find a connection.
func TestLargeCheckpointsCostNobodyTheLease(t *testing.T) {
	bubble(t, func(b *bench) {
		n := &narrow{b.store, make(chan struct{}, 2), 200 * time.Millisecond}
		var lost, written atomic.Int32
		b.runner = b.newRunner(n, midge.RunnerConfig{Concurrency: 20, Lease: 2 * time.Second}, func(ctx context.Context, w work) error {
			if w.Name == "large" {
				for range 5 {
					if err := midge.Checkpoint(ctx, make([]byte, 1_000_000)); err == nil {
						written.Add(1)
					}
				}
			}
			select {
			case <-ctx.Done():
				lost.Add(1)
			case <-time.After(30 * time.Second):
			}
			return nil
		})
		for i := range 20 {
			b.enqueue([]string{"large", "small"}[i%2])
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Minute)
		if lost.Load() > 0 || written.Load() != 50 {
			t.Errorf("%d jobs lost their lease, %d checkpoints were written; want 0 and 50", lost.Load(), written.Load())
		}
	})
}

// late is a storage that answers extensions late.
type late struct {
	storage.Storage
	by time.Duration
}

func (l *late) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	extended, err := l.Storage.Extend(ctx, req)
	select {
	case <-time.After(l.by):
		return extended, err
	case <-ctx.Done():
		return storage.Extended{}, storage.ErrUnknown
	}
}

// TestAShortLeaseLivesThroughSlowAnswers has a busy machine that needs 450 ms for each extension of
// a one-second lease.
func TestAShortLeaseLivesThroughSlowAnswers(t *testing.T) {
	bubble(t, func(b *bench) {
		var lost atomic.Int32
		l := &late{b.store, 450 * time.Millisecond}
		b.runner = b.newRunner(l, midge.RunnerConfig{Lease: time.Second}, func(ctx context.Context, _ work) error {
			select {
			case <-ctx.Done():
				lost.Add(1)
			case <-time.After(30 * time.Second):
			}
			return nil
		})
		task := b.enqueue("a")
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Minute)
		b.gone(task.Ref)
		if lost.Load() > 0 {
			t.Errorf("the context ended %d times, want it to live on", lost.Load())
		}
	})
}

// unopened is a storage to which the first connection takes long. A call that has begun to make the connection
// and gives up leaves nothing behind, so that the next call begins anew.
type unopened struct {
	storage.Storage
	by     time.Duration
	opened atomic.Bool
}

func (u *unopened) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if !u.opened.Load() {
		select {
		case <-time.After(u.by):
			u.opened.Store(true)
		case <-ctx.Done():
			return storage.Extended{}, storage.ErrUnavailable
		}
	}
	return u.Storage.Extend(ctx, req)
}

// TestAShortLeaseMayStartSlowly has a storage to which a connection takes longer than a lease. No job runs yet
// when a runner starts, so no lease can be lost meanwhile.
func TestAShortLeaseMayStartSlowly(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(&unopened{Storage: b.store, by: 4 * time.Second}, midge.RunnerConfig{Lease: time.Second},
			func(context.Context, work) error { return nil })
		task := b.enqueue("a")
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Minute)
		b.gone(task.Ref)
	})
}

// picky is a storage that refuses extensions of one task as invalid.
type picky struct {
	storage.Storage
	ref     storage.Ref
	refused atomic.Int64 // calls
}

func (p *picky) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	for _, l := range req.Leases {
		if l.Fence.Ref == p.ref {
			p.refused.Add(1)
			return storage.Extended{}, storage.Invalid("ref", l.Fence.ID, "another one")
		}
	}
	return p.Storage.Extend(ctx, req)
}

func TestALeaseThatIsRefusedCostsNoOther(t *testing.T) {
	bubble(t, func(b *bench) {
		p := &picky{Storage: b.store}
		var lost, ended atomic.Int32
		b.runner = b.newRunner(p, midge.RunnerConfig{Concurrency: 200, Lease: 2 * time.Second}, func(ctx context.Context, _ work) error {
			select {
			case <-ctx.Done():
				lost.Add(1)
			case <-time.After(30 * time.Second):
				ended.Add(1)
			}
			return midge.Discard(ctx.Err())
		})
		for i := range 100 {
			task := b.enqueue("a")
			if i == 50 {
				p.ref = task.Ref
			}
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Minute)
		if lost.Load() != 1 || ended.Load() != 99 {
			t.Errorf("%d jobs lost their lease and %d ended, want 1 and 99", lost.Load(), ended.Load())
		}
		if n := p.refused.Load(); n > 100 {
			t.Errorf("%d calls were refused, want a few for each heartbeat", n)
		}
	})
}

// TestACheckpointMayTakeLongerThanHalfTheLease checks this because nothing replaces a failed
// checkpoint, while the next heartbeat replaces a failed one.
func TestACheckpointMayTakeLongerThanHalfTheLease(t *testing.T) {
	bubble(t, func(b *bench) {
		n := &narrow{b.store, make(chan struct{}, 3), 700 * time.Millisecond}
		var err error
		b.runner = b.newRunner(n, midge.RunnerConfig{Lease: time.Second}, func(ctx context.Context, _ work) error {
			err = midge.Checkpoint(ctx, make([]byte, 1_000_000))
			return nil
		})
		task := b.enqueue("a")
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(10 * time.Second)
		b.gone(task.Ref)
		if err != nil {
			t.Errorf("got %v, want it written", err)
		}
	})
}
