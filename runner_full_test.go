package midge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// crowded is a storage that describes itself as full while full is set.
type crowded struct {
	storage.Storage

	full    atomic.Bool
	refuses bool // it refuses heartbeats too
}

func (c *crowded) Describe(ctx context.Context) (storage.Description, error) {
	d, err := c.Storage.Describe(ctx)
	if c.full.Load() {
		d.Full = "the disk has no room"
	}
	return d, err
}

// Extend refuses heartbeats while the storage is full, as a full disk does.
func (c *crowded) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if c.refuses && c.full.Load() && req.Runner.ID != "" {
		return storage.Extended{}, fmt.Errorf("%w: no room for a heartbeat", storage.ErrFull)
	}
	return c.Storage.Extend(ctx, req)
}

// TestARunnerOfAFullStorageIsNotReady fills a storage under a runner, and makes room again.
func TestARunnerOfAFullStorageIsNotReady(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { fillUnderARunner(t, refuses) })
	}
}

func fillUnderARunner(t *testing.T, refuses bool) {
	t.Helper()
	inner, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := &crowded{Storage: inner, refuses: refuses}
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Slog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	for _, full := range []bool{false, true, false} {
		store.full.Store(full)
		time.Sleep(time.Minute) // virtual: more than three heartbeats
		if err := runner.Ready(); errors.Is(err, midge.ErrFull) != full || !full && err != nil {
			t.Errorf("with the storage full, %t, and refused heartbeats, %t, Ready returns %v", full, refuses, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// fullDisk is a storage that refuses calls that have to write while full is set. A claim that finds nothing
// to do writes nothing.
type fullDisk struct {
	storage.Storage

	full atomic.Bool
}

var errNoRoom = fmt.Errorf("%w: no room on the disk", storage.ErrFull)

func (d *fullDisk) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if d.full.Load() {
		return storage.Extended{}, errNoRoom
	}
	return d.Storage.Extend(ctx, req)
}

func (d *fullDisk) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if d.full.Load() {
		for t, err := range storage.Each(ctx, d.Storage, midge.DefaultQueue, storage.Pending) {
			if err != nil || t.LeaseUntil.Before(req.RecoverBefore) {
				return storage.Claimed{}, cmp.Or(err, errNoRoom)
			}
		}
	}
	return d.Storage.Claim(ctx, req)
}

// TestAFullStorageChargesNoCrash has two runners that run jobs and have slots for the jobs of the other, and
// a storage that is full for one to four leases. Its claims are answered until the leases are over, but
// nobody can extend one.
func TestAFullStorageChargesNoCrash(t *testing.T) {
	bubble(t, func(b *bench) {
		const lease, jobs, times = 2 * time.Second, 8, 20
		s := &fullDisk{Storage: b.store}
		logger, lines := logged()
		var all sync.WaitGroup
		for range 2 {
			r := b.newRunner(s, midge.RunnerConfig{Concurrency: jobs, Lease: lease, Logger: logger}, func(context.Context, work) error {
				time.Sleep(12 * time.Second) // virtual: longer than the storage is full
				return nil
			})
			all.Go(func() { _ = r.Run(b.ctx) })
		}
		for i := range times {
			for j := range jobs {
				b.enqueue("long", midge.ID(fmt.Sprint(i, "-", j)))
			}
			b.after(time.Second + time.Duration(i)*30*time.Millisecond)
			s.full.Store(true)
			b.after(lease + lease*3*time.Duration(i)/times)
			s.full.Store(false)
			b.after(30 * time.Second)
		}
		got := b.stats(midge.DefaultQueue).Totals
		if got.Crashed != 0 || got.Dead != 0 || got.Completed != jobs*times {
			t.Errorf("%d crashes, %d dead and %d completed, want none, none and %d", got.Crashed, got.Dead, got.Completed,
				jobs*times)
		}
		if len(lines("no room on the disk; enlarge the storage, or delete tasks")) == 0 {
			t.Error("no line of the log says what to do")
		}
		b.stop()
		all.Wait()
	})
}

// TestAFullStorageChargesNoCrashToShorterLeases has a runner with short leases run jobs, while a runner with long
// leases, whose heartbeats are rare, searches for leases that have ended. The storage is full until it has
// refused one of these claims, or longer.
func TestAFullStorageChargesNoCrashToShorterLeases(t *testing.T) {
	const lease, jobs, times = 12 * time.Second, 4, 30
	for i := range times {
		bubble(t, func(b *bench) {
			s := &fullDisk{Storage: b.store}
			var all sync.WaitGroup
			for _, lease := range []time.Duration{lease, 10 * time.Minute} {
				r := b.newRunner(s, midge.RunnerConfig{
					Concurrency: jobs, Lease: lease, Slog: slog.New(slog.DiscardHandler),
				}, func(context.Context, work) error {
					time.Sleep(time.Minute) // virtual: longer than the storage is full
					return nil
				})
				all.Go(func() { _ = r.Run(b.ctx) })
				for j := range jobs {
					if lease < time.Minute {
						b.enqueue("long", midge.ID(fmt.Sprint(j)))
					}
				}
				b.after(5 * time.Second)
			}
			s.full.Store(true)
			// Within four seconds of the end of the leases a claim of the other runner is refused.
			b.after(lease + 4*time.Second + lease*2*time.Duration(i)/times)
			s.full.Store(false)
			b.after(time.Minute)
			got := b.stats(midge.DefaultQueue).Totals
			if got.Crashed != 0 || got.Dead != 0 || got.Completed != jobs {
				t.Errorf("%d: %d crashes, %d dead and %d completed, want none, none and %d", i, got.Crashed, got.Dead,
					got.Completed, jobs)
			}
			b.stop()
			all.Wait()
		})
	}
}

// fullForSettles is a full disk that refuses settles too.
type fullForSettles struct{ fullDisk }

func (d *fullForSettles) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if d.full.Load() {
		return nil, errNoRoom
	}
	return d.fullDisk.Apply(ctx, call, txs...) //nolint:wrapcheck // as the storage has it
}

// TestASettleOutlastsAStorageThatIsFullForLongerThanTheLease has a job that returns with its context, and a job that
// succeeds, while the storage takes no extension and no settle.
func TestASettleOutlastsAStorageThatIsFullForLongerThanTheLease(t *testing.T) {
	bubble(t, func(b *bench) {
		const lease = 2 * time.Second
		s := &fullForSettles{fullDisk{Storage: b.store}}
		b.store = s
		var runs sync.Map
		b.run(midge.RunnerConfig{Lease: lease, Slog: slog.New(slog.DiscardHandler)}, func(ctx context.Context, w work) error {
			n, _ := runs.LoadOrStore(w.Name, new(atomic.Int32))
			switch first := n.(*atomic.Int32).Add(1) == 1; {
			case w.Name == "short":
				time.Sleep(3 * time.Second / 2) // virtual
			case first:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		b.enqueue("short")
		b.enqueue("long")
		b.after(time.Second)
		s.full.Store(true)
		b.after(5 * lease / 2)
		s.full.Store(false)
		b.after(30 * time.Second)
		got := b.stats(midge.DefaultQueue).Totals
		short, _ := runs.Load("short")
		if n := short.(*atomic.Int32).Load(); got.Crashed != 0 || got.Completed != 2 || n != 1 {
			t.Errorf("%d crashes, %d completed, %d runs of the successful job; want none, 2 and 1",
				got.Crashed, got.Completed, n)
		}
	})
}

// unsound is a storage that refuses the settles of a queue, and keeps its leases locked, as Redis does with a queue
// whose keys are damaged.
type unsound struct {
	storage.Storage

	damaged atomic.Bool
}

func (u *unsound) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if u.damaged.Load() && len(txs) > 0 && len(txs[0].Settles) > 0 {
		applied := make([]storage.Applied, len(txs))
		for i := range applied {
			applied[i].Err = errors.New("a key has another type")
		}
		return applied, nil
	}
	return u.Storage.Apply(ctx, call, txs...)
}

// Claim takes no tasks of the queue.
func (u *unsound) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if u.damaged.Load() {
		req.Start, req.Ahead = 0, 0
	}
	return u.Storage.Claim(ctx, req)
}

func (u *unsound) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if !u.damaged.Load() {
		return u.Storage.Extend(ctx, req)
	}
	var locked []storage.Ref
	for _, l := range req.Leases {
		locked = append(locked, l.Fence.Ref)
	}
	req.Leases = nil
	extended, err := u.Storage.Extend(ctx, req)
	extended.Locked = append(extended.Locked, locked...)
	return extended, err
}

// TestASettleOfADamagedQueueIsGivenUp checks that an attempt whose settle the storage refuses because of damage stays
// with the runner for no longer than its lease, so that a shutdown does not wait for it.
func TestASettleOfADamagedQueueIsGivenUp(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &unsound{Storage: b.store}
		b.store = s
		b.run(midge.RunnerConfig{Lease: 2 * time.Second, Slog: slog.New(slog.DiscardHandler)}, func(context.Context, work) error {
			s.damaged.Store(true)
			return nil
		})
		b.enqueue("a")
		b.after(10 * time.Second)
		begun := time.Now()
		if err := b.drain(); err != nil || time.Since(begun) > time.Second {
			t.Errorf("the shutdown took %v and returned %v, want none at once", time.Since(begun), err)
		}
		s.damaged.Store(false)
	})
}
