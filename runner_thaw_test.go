package midge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// sentAt is a storage that records when the last claim or extension of each task was sent, by a
// clock that goes on while the machine is suspended.
type sentAt struct {
	storage.Storage
	asleep atomic.Int64 // in nanoseconds, in all

	mu   sync.Mutex // guards the fields below
	sent map[storage.Ref]time.Time
}

func (s *sentAt) suspended() time.Duration { return time.Duration(s.asleep.Load()) }

func (s *sentAt) now() time.Time { return time.Now().Add(s.suspended()) }

func (s *sentAt) note(sent time.Time, fences ...storage.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range fences {
		s.sent[f.Ref] = sent
	}
}

func (s *sentAt) age(ref storage.Ref) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Sub(s.sent[ref])
}

func (s *sentAt) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	sent := s.now()
	claimed, err := s.Storage.Claim(ctx, req)
	s.note(sent, claimed.Fences...)
	return claimed, err
}

func (s *sentAt) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	sent := s.now()
	extended, err := s.Storage.Extend(ctx, req)
	for _, l := range req.Leases {
		s.note(sent, l.Fence)
	}
	return extended, err
}

// TestWhatWaitedThroughASuspensionDoesNotStart has the machine sleep for longer than the lease,
// which stops the monotonic clock. No job may start under an old lease.
func TestWhatWaitedThroughASuspensionDoesNotStart(t *testing.T) {
	bubble(t, func(b *bench) {
		const lease = time.Second
		s := &sentAt{Storage: b.store, sent: make(map[storage.Ref]time.Time)}
		var ran []string
		b.runner = b.newRunner(s, midge.RunnerConfig{Concurrency: 1, Lease: lease}, func(ctx context.Context, w work) error {
			task, _ := midge.Current(ctx)
			if age := s.age(task.Ref); age >= lease {
				t.Errorf("job %s starts %v after its lease was last extended, want less than %v", w.Name, age, lease)
			}
			if ran = append(ran, w.Name); len(ran)%100 == 50 {
				s.asleep.Add(int64(5 * lease / 2))
			}
			return nil
		})
		b.runner.SkewWallClock(s.suspended)
		for i := range 1000 {
			b.enqueue(fmt.Sprint(i))
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Minute)
		if len(ran) != 1000 {
			t.Fatalf("%d jobs ran, want 1000", len(ran))
		}
		if got := b.stats(midge.DefaultQueue).Totals.Crashed; got != 0 {
			t.Errorf("crashes: got %d, want 0", got)
		}
	})
}

// TestAJobThatASuspensionOvertookEnds checks that it ends as soon as the machine is back.
func TestAJobThatASuspensionOvertookEnds(t *testing.T) {
	bubble(t, func(b *bench) {
		var asleep atomic.Int64
		var cause error
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Lease: 30 * time.Second}, func(ctx context.Context, _ work) error {
			if cause == nil {
				<-ctx.Done()
				cause = context.Cause(ctx)
			}
			return ctx.Err()
		})
		b.runner.SkewWallClock(func() time.Duration { return time.Duration(asleep.Load()) })
		b.enqueue("a")
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		if cause != nil {
			t.Fatalf("the context ended by %v before the suspension", cause)
		}
		asleep.Store(int64(time.Minute))
		b.after(2 * time.Second)
		if !errors.Is(cause, storage.ErrLeaseLost) {
			t.Errorf("after a minute of suspension the context ended by %v, want %v", cause, storage.ErrLeaseLost)
		}
	})
}

func TestAWallClockThatIsSetBackChangesNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		var skew atomic.Int64
		var runs atomic.Int32
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Lease: time.Second}, func(ctx context.Context, _ work) error {
			runs.Add(1)
			skew.Add(-int64(time.Hour))
			<-time.After(5 * time.Second) // virtual
			return ctx.Err()
		})
		b.runner.SkewWallClock(func() time.Duration { return time.Duration(skew.Load()) })
		first, second := b.enqueue("a"), b.enqueue("b")
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Minute)
		b.gone(first.Ref)
		b.gone(second.Ref)
		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
}

// TestAWallClockThatIsSetForwardBuriesNothing checks that the storage's clock decides how long a
// task was put off.
func TestAWallClockThatIsSetForwardBuriesNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		var skew atomic.Int64
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		r.SkewWallClock(func() time.Duration { return time.Duration(skew.Load()) })
		task := b.enqueue("a")
		b.runRenamed(r)
		b.after(500 * time.Millisecond)
		if got := b.task(task.Ref); got.Snoozes != 1 {
			t.Fatalf("got %+v, want it put off once", got)
		}
		skew.Store(int64(25 * time.Hour))
		b.after(4 * time.Second)
		if got := b.task(task.Ref); got.State == storage.Dead || got.Snoozes < 2 {
			t.Errorf("the task is %s, put off %d times; want it put off again", got.State, got.Snoozes)
		}
	})
}
