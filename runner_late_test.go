package midge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// sluggish is a storage whose Claims answer late, after they took effect, and whose settles need a
// tenth of a second to arrive.
type sluggish struct {
	storage.Storage
	claims atomic.Int64 // delay in nanoseconds; Claims that only maintain answer at once
}

func (s *sluggish) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	claimed, err := s.Storage.Claim(ctx, req)
	if len(claimed.Tasks) > 0 {
		time.Sleep(time.Duration(s.claims.Load())) // virtual
	}
	return claimed, err
}

func (s *sluggish) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	select {
	case <-time.After(100 * time.Millisecond):
		return s.Storage.Apply(ctx, call, txs...)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", storage.ErrUnknown, ctx.Err())
	}
}

// TestWhatAClaimBroughtTooLateIsGivenBackBeforeRunReturns checks this because leases of a late
// claim are old, and would expire as crashes of tasks that never ran.
func TestWhatAClaimBroughtTooLateIsGivenBackBeforeRunReturns(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &sluggish{Storage: b.store}
		s.claims.Store(int64(2 * time.Second))
		b.runner = b.newRunner(s, midge.RunnerConfig{Lease: 3 * time.Second}, func(context.Context, work) error { return nil })
		task := b.enqueue("a")
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(1900 * time.Millisecond)
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		if got := b.task(task.Ref); got.State != storage.Waiting {
			t.Errorf("got %s, want it waiting", got.State)
		}
	})
}

// TestWhatWaitsAheadOfASlowJobIsGivenBackSoon checks that another runner can then take these tasks.
func TestWhatWaitsAheadOfASlowJobIsGivenBackSoon(t *testing.T) {
	bubble(t, func(b *bench) {
		slow := time.Duration(0)
		b.run(midge.RunnerConfig{Concurrency: 1}, func(context.Context, work) error {
			time.Sleep(slow)
			return nil
		})
		for range 50 {
			b.enqueue("short")
		}
		b.after(100 * time.Millisecond)
		slow = 20 * time.Second
		items := make([]midge.Item, 20)
		for i := range items {
			items[i] = midge.New(work{fmt.Sprint(i)})
		}
		if _, err := b.client.EnqueueMany(b.Context(), items); err != nil {
			t.Fatal(err)
		}
		b.after(300 * time.Millisecond)
		if got := b.stats(midge.DefaultQueue).Pending; got > 2 {
			t.Errorf("%d tasks are held behind a slow job, want them given back", got-1)
		}
	})
}

// counting counts heartbeats.
type counting struct {
	storage.Storage
	extends atomic.Int64
}

func (c *counting) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	c.extends.Add(1)
	return c.Storage.Extend(ctx, req)
}

// TestACancelThatIsIgnoredCostsFewHeartbeats has a job that ignores its cancel. The cancel stays in
// its queue, and every claim of every runner reports it.
func TestACancelThatIsIgnoredCostsFewHeartbeats(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &counting{Storage: b.store}
		b.runner = b.newRunner(s, midge.RunnerConfig{Concurrency: 2, Ahead: midge.None}, func(_ context.Context, w work) error {
			if w.Name == "stubborn" {
				time.Sleep(20 * time.Second)
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		task := b.enqueue("stubborn")
		b.after(time.Second)
		if _, err := b.client.Cancel(b.Context(), task.Ref); err != nil {
			t.Fatal(err)
		}
		items := make([]midge.Item, 10_000)
		for i := range items {
			items[i] = midge.New(work{"short"})
		}
		if _, err := b.client.EnqueueMany(b.Context(), items); err != nil {
			t.Fatal(err)
		}
		b.after(10 * time.Second)
		if n := s.extends.Load(); n > 60 {
			t.Errorf("%d heartbeats in ten seconds", n)
		}
	})
}

// TestAJobWhoseTaskRanAgainBesideItOutlivesTheGrace checks this for a job that lost its lease,
// while the same runner claimed its task again.
func TestAJobWhoseTaskRanAgainBesideItOutlivesTheGrace(t *testing.T) {
	bubble(t, func(b *bench) {
		f := &faulty{Storage: b.store}
		var runs atomic.Int64
		b.runner = b.newRunner(f, midge.RunnerConfig{Concurrency: 2, Lease: 3 * time.Second, Grace: time.Second},
			func(context.Context, work) error {
				if runs.Add(1) == 1 {
					time.Sleep(time.Minute)
				}
				return nil
			})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		f.extends.Store(true)
		task := b.enqueue("a")
		b.after(10 * time.Second)
		b.gone(task.Ref)
		if err := b.drain(); runs.Load() != 2 || !errors.Is(err, midge.ErrGraceExceeded) {
			t.Errorf("%d runs, Run returned %v; want 2 and ErrGraceExceeded", runs.Load(), err)
		}
		b.after(time.Minute)
	})
}

// TestAJobWithoutItsLeaseIsReportedAsRunning checks that the heartbeats still report the slot of a job
// that has lost its lease, and that the job ignores the end of its context.
func TestAJobWithoutItsLeaseIsReportedAsRunning(t *testing.T) {
	bubble(t, func(b *bench) {
		f := &faulty{Storage: b.store}
		release := make(chan struct{})
		var log bytes.Buffer
		b.runner = b.newRunner(f, midge.RunnerConfig{
			Concurrency: 1, Lease: 3 * time.Second, Grace: time.Second, Slog: slog.New(slog.NewTextHandler(&log, nil)),
		}, func(context.Context, work) error {
			<-release
			return nil
		})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		b.enqueue("a")
		b.after(time.Second)
		f.extends.Store(true)
		b.after(5 * time.Second)
		_, err := storage.NewSession(b.store, 0).Claim(b.ctx, storage.ClaimRequest{ // ends the lease
			Runner: "another", Queues: []storage.ClaimQueue{{Name: "default"}}, Kinds: []string{"work"}, Lease: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		f.extends.Store(false)
		b.after(time.Minute)
		runners, err := b.store.Runners(b.ctx)
		if err != nil || len(runners) != 1 {
			t.Fatalf("got %d runners, %v; want one", len(runners), err)
		}
		r := runners[0]
		if r.Busy != 1 || len(r.Running) != 1 || r.Running[0].Unstopped.IsZero() {
			t.Errorf("%d slots are busy, with %+v; want one, with a job that ignores the end of its context", r.Busy, r.Running)
		}
		if text := log.String(); !strings.Contains(text, "its lease is lost, its slot taken") {
			t.Errorf("the log does not say that the lease is lost:\n%s", text)
		}
		close(release)
		b.after(3 * time.Second)
	})
}

// TestARunningSuspectCostsNoClaims checks that a runner sends no claims while a suspect, beside
// which no other may run, is running.
func TestARunningSuspectCostsNoClaims(t *testing.T) {
	bubble(t, func(b *bench) {
		if _, err := b.client.Enqueue(b.ctx, fragile{}); err != nil {
			t.Fatal(err)
		}
		_, err := storage.NewSession(b.store, 0).Claim(b.ctx, storage.ClaimRequest{
			Runner: "another", Queues: []storage.ClaimQueue{{Name: "default"}}, Start: 1, Lease: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.after(2 * time.Second)
		s := &claimed{Storage: b.store}
		b.runner = b.newRunner(s, midge.RunnerConfig{Concurrency: 3}, nil)
		if err := midge.Handle(b.runner, func(context.Context, fragile) error {
			time.Sleep(10 * time.Second) // virtual
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(9 * time.Second)
		if got := s.claims.Load(); got > 20 {
			t.Errorf("claims in nine seconds beside a suspect: got %d, want at most 20", got)
		}
		if got := b.stats("default").Pending; got != 1 {
			t.Errorf("pending: got %d, want the suspect", got)
		}
	})
}

// fragile is a job whose task is a suspect after its first crash.
type fragile struct{}

func (fragile) Options() midge.Options { return midge.Options{CrashLimit: 2} }

// claimed counts claims, and slows a runner down that sends far too many.
type claimed struct {
	storage.Storage
	claims atomic.Int64
}

func (c *claimed) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if c.claims.Add(1) > 1000 {
		time.Sleep(time.Minute) // virtual
	}
	return c.Storage.Claim(ctx, req)
}

// lockedRows is a storage in which other calls lock every task until a certain moment.
type lockedRows struct {
	storage.Storage
	until atomic.Int64 // in Unix nanoseconds
}

func (l *lockedRows) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if len(req.Leases) == 0 || time.Now().UnixNano() >= l.until.Load() {
		return l.Storage.Extend(ctx, req)
	}
	var extended storage.Extended
	for i := range req.Leases {
		extended.Locked = append(extended.Locked, req.Leases[i].Fence.Ref)
	}
	return extended, nil
}

// TestALeaseLivesThroughAMomentOfLocks has a heartbeat skip tasks that are locked, for example by a
// report of progress. The next heartbeats come soon, before the lease is given up.
func TestALeaseLivesThroughAMomentOfLocks(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &lockedRows{Storage: b.store}
		b.store = s
		const lease = 2 * time.Second
		b.run(midge.RunnerConfig{Lease: lease}, func(ctx context.Context, _ work) error {
			s.until.Store(time.Now().Add(lease * 9 / 20).UnixNano()) // two heartbeats, a third of a lease apart
			b.after(4 * lease)
			if ctx.Err() != nil {
				t.Errorf("the context ended by %v, want it to live on", context.Cause(ctx))
			}
			return nil
		})
		b.after(lease/3 - lease/10) // shortly before a heartbeat
		task := b.enqueue("a")
		b.after(time.Minute)
		if s := b.stats(task.Queue); s.Totals.Completed != 1 || s.Totals.Failed != 0 || s.Live() != 0 {
			t.Errorf("got %+v, want one completed", s)
		}
	})
}
