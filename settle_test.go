package midge_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// slowApply is a storage whose Apply takes a while.
type slowApply struct {
	storage.Storage
	by time.Duration
}

func (s slowApply) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	t := time.NewTimer(s.by)
	defer t.Stop()
	select {
	case <-t.C:
		return s.Storage.Apply(ctx, call, txs...)
	case <-ctx.Done():
		return nil, storage.ErrUnknown
	}
}

// TestAJobReturnsWhileItsTaskIsGivenBack has a job that outlives the grace period and one more
// second. The runner must wait for the release, because a shutdown charges nothing.
func TestAJobReturnsWhileItsTaskIsGivenBack(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(slowApply{b.store, 200 * time.Millisecond}, midge.RunnerConfig{Grace: 5 * time.Second},
			func(context.Context, work) error {
				time.Sleep(7*time.Second + 100*time.Millisecond) // 1 s before the drain, the grace, 1 s more
				return nil
			})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		task := b.enqueue("deaf")
		b.after(time.Second)
		_ = b.drain() // returns that a job outlived it
		b.after(time.Second)
		if got := b.task(task.Ref); got.State != storage.Waiting {
			t.Errorf("after the drain the task is %s, want it waiting", got.State)
		}
	})
}

// choosy is a storage that refuses to settle one task, for good.
type choosy struct {
	storage.Storage
	id string
}

func (s choosy) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	for _, tx := range txs {
		if len(tx.Settles) > 0 && tx.Settles[0].Fence.ID == s.id {
			return nil, errors.New("a broken index")
		}
	}
	return s.Storage.Apply(ctx, call, txs...)
}

// TestASettleThatIsRefusedHoldsUpNoOther has the storage refuse it alone, or together with others.
func TestASettleThatIsRefusedHoldsUpNoOther(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(choosy{b.store, "bad"}, midge.RunnerConfig{},
			func(context.Context, work) error { return nil })
		var refs []storage.Ref
		for _, id := range []string{"first", "bad", "second"} { // they are claimed together, and end together
			refs = append(refs, b.enqueue(id, midge.ID(id)).Ref)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		b.after(3 * time.Second)
		b.gone(refs[0])
		b.gone(refs[2])
		if got := b.task(refs[1]); got.State != storage.Pending {
			t.Errorf("what is refused is %s, want it kept pending", got.State)
		}
		alone := b.enqueue("alone")
		b.after(time.Second)
		b.gone(alone.Ref)
	})
}

// unreachable is a storage that cannot be reached while it is away.
type unreachable struct {
	storage.Storage
	away atomic.Bool
}

func (u *unreachable) err() error {
	if u.away.Load() {
		return fmt.Errorf("dial: refused: %w", storage.ErrUnavailable)
	}
	return nil
}

func (u *unreachable) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if err := u.err(); err != nil {
		return nil, err
	}
	return u.Storage.Apply(ctx, call, txs...)
}

func (u *unreachable) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := u.err(); err != nil {
		return storage.Claimed{}, err
	}
	return u.Storage.Claim(ctx, req)
}

func (u *unreachable) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := u.err(); err != nil {
		return storage.Extended{}, err
	}
	return u.Storage.Extend(ctx, req)
}

func (u *unreachable) Describe(ctx context.Context) (storage.Description, error) {
	if err := u.err(); err != nil {
		return storage.Description{}, err
	}
	return u.Storage.Describe(ctx)
}

// TestASettleOutlivesAStorageThatCannotBeReached checks this for a long outage, which is logged
// once.
func TestASettleOutlivesAStorageThatCannotBeReached(t *testing.T) {
	bubble(t, func(b *bench) {
		u := &unreachable{Storage: b.store}
		b.store = u
		logger, lines := logged()
		b.run(midge.RunnerConfig{Logger: logger}, func(context.Context, work) error {
			time.Sleep(time.Second) // virtual
			return nil
		})
		task := b.enqueue("a")
		b.after(time.Second / 2)
		u.away.Store(true)
		b.after(25 * time.Minute)
		u.away.Store(false)
		b.after(time.Minute)
		b.gone(task.Ref)
		if got := lines("does not answer"); len(got) != 1 {
			t.Errorf("got %q, want one line that it is away", got)
		}
		if got := append(lines("settle"), append(lines("extend"), lines("claim:")...)...); len(got) != 0 {
			t.Errorf("got %q, want no line for each call", got)
		}
	})
}
