package midge_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// sliced is a storage like a Cluster: queues share an atomic step if their names begin with the
// same letter. A slice can be silent: then no call on it is answered before its context ends. The
// storage reports calls that name queues of several slices, because one silent slice would block
// them.
type sliced struct {
	storage.Storage
	t *testing.T

	mu       sync.Mutex // guards the fields below
	silent   map[byte]chan struct{}
	released atomic.Int64
}

func (s *sliced) Spans(queues ...string) bool {
	for _, q := range queues {
		if q[0] != queues[0][0] {
			return false
		}
	}
	return true
}

func (s *sliced) silence(slice byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = map[byte]chan struct{}{slice: make(chan struct{})}
}

func (s *sliced) speak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.silent {
		close(c)
	}
	s.silent = nil
}

// pass waits until the slice of the queues answers.
func (s *sliced) pass(ctx context.Context, action string, queues ...string) error {
	if len(queues) == 0 {
		return nil
	}
	if !s.Spans(queues...) {
		s.t.Errorf("one %s on queues of several slices: %v", action, queues)
	}
	s.mu.Lock()
	silent := s.silent[queues[0][0]]
	s.mu.Unlock()
	if silent == nil {
		return nil
	}
	select {
	case <-silent:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", storage.ErrUnknown, ctx.Err())
	}
}

func (s *sliced) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	var queues []string
	for _, tx := range txs {
		for _, se := range tx.Settles {
			queues = append(queues, se.Fence.Queue)
			if se.Outcome == storage.Release {
				s.released.Add(1)
			}
		}
		for _, ch := range tx.Changes {
			queues = append(queues, ch.Ref.Queue)
		}
	}
	if err := s.pass(ctx, "Apply", queues...); err != nil {
		return nil, err
	}
	return s.Storage.Apply(ctx, call, txs...)
}

func (s *sliced) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	var queues []string
	for _, q := range req.Queues {
		queues = append(queues, q.Name)
	}
	if err := s.pass(ctx, "Claim", queues...); err != nil {
		return storage.Claimed{}, err
	}
	return s.Storage.Claim(ctx, req)
}

func (s *sliced) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	var queues []string
	for _, l := range req.Leases {
		queues = append(queues, l.Fence.Queue)
	}
	if req.Runner.ID != "" && len(queues) > 0 {
		s.t.Error("a heartbeat of the runner together with leases")
	}
	if err := s.pass(ctx, "Extend", queues...); err != nil {
		return storage.Extended{}, err
	}
	return s.Storage.Extend(ctx, req)
}

// describing is a sliced storage whose Describe asks all slices.
type describing struct{ *sliced }

func (s describing) Describe(ctx context.Context) (storage.Description, error) {
	for _, slice := range []string{"a", "b"} {
		if err := s.pass(ctx, "Describe", slice); err != nil {
			return storage.Description{}, err
		}
	}
	return s.Storage.Describe(ctx)
}

// TestASilentSliceHoldsUpNoOther checks that jobs of the other slice start, keep their leases,
// settle and tick while one slice does not answer for a minute. Then the jobs of that slice run
// too, and no task is charged a crash.
func TestASilentSliceHoldsUpNoOther(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &sliced{Storage: b.store, t: t}
		long := make(chan struct{})
		var cause error
		var ran sync.Map
		b.runner = b.newRunner(s, midge.RunnerConfig{
			Queues: []string{"b1", "a1", "a2"}, Weights: map[string]int{"a1": 2}, Concurrency: 10, Lease: 3 * time.Second,
		}, func(ctx context.Context, w work) error {
			if w.Name == "long" {
				select {
				case <-long:
				case <-ctx.Done():
					cause = context.Cause(ctx)
				}
			}
			ran.Store(w.Name, true)
			return nil
		})
		if err := b.runner.Periodic(midge.Every(10*time.Second), work{"tick"}, midge.To("a3")); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.enqueue("long", midge.To("a1"))
		b.enqueue("before", midge.To("b1"))
		b.after(time.Second)
		s.silence('b')
		var healthy, stuck []midge.Task
		for i := range 40 {
			healthy = append(healthy, b.enqueue(fmt.Sprint("a", i), midge.To("a1")), b.enqueue(fmt.Sprint("A", i), midge.To("a2")))
			stuck = append(stuck, b.enqueue(fmt.Sprint("b", i), midge.To("b1")))
		}
		b.after(5 * time.Second)
		for _, task := range healthy {
			b.gone(task.Ref)
		}
		b.after(time.Minute)
		if got := b.stats("a3").Totals.Enqueued; got < 6 {
			t.Errorf("ticks in a minute beside a silent slice: got %d, want 6", got)
		}
		if cause != nil {
			t.Errorf("the context of a job elsewhere ended by %v", cause)
		}
		s.speak()
		close(long)
		b.after(time.Minute)
		for _, task := range stuck {
			b.gone(task.Ref)
		}
		for _, q := range []string{"a1", "a2", "a3", "b1"} {
			if got := b.stats(q).Totals.Crashed; got != 0 {
				t.Errorf("crashes charged in %s: got %d, want 0", q, got)
			}
		}
	})
}

// TestAScheduleIsStoredBesideASilentSlice removes a schedule, which its runner stores again, while another slice
// does not answer.
func TestAScheduleIsStoredBesideASilentSlice(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &sliced{Storage: b.store, t: t}
		b.runner = b.newRunner(describing{s}, midge.RunnerConfig{Queues: []string{"a", "b"}, Lease: 3 * time.Second},
			func(context.Context, work) error { return nil })
		must(b.runner.Periodic(midge.Every(time.Minute), work{"tick"}, midge.To("a")))
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(1500 * time.Millisecond)
		s.silence('b')
		must(b.client.Queue("a").RemoveSchedule(b.ctx, "work"))
		b.after(1500 * time.Millisecond)
		if got := b.stats("a").Cursors; got != 1 {
			t.Errorf("%d schedules after half a lease, want the one that was removed", got)
		}
		s.speak()
	})
}

// TestSlicesShareSlots checks that in strict order the first slice is emptied before the second,
// that with weights each gets its share, and that every claimed task runs.
func TestSlicesShareSlots(t *testing.T) {
	for _, c := range []struct {
		name        string
		weights     map[string]int
		least, most int // bounds of the runs of queue a among the first 100
	}{
		{"strict", nil, 95, 100},
		{"3 to 1", map[string]int{"a": 3, "b": 1}, 51, 98},
		{"1 to 3", map[string]int{"a": 1, "b": 3}, 2, 49},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				s := &sliced{Storage: b.store, t: t}
				var begun, ofA atomic.Int64
				b.runner = b.newRunner(s, midge.RunnerConfig{
					Queues: []string{"a", "b"}, Weights: c.weights, Concurrency: 8,
				}, func(_ context.Context, w work) error {
					if begun.Add(1) <= 100 && w.Name == "a" {
						ofA.Add(1)
					}
					time.Sleep(time.Second) // virtual
					return nil
				})
				for range 200 {
					b.enqueue("a", midge.To("a"))
					b.enqueue("b", midge.To("b"))
				}
				go func() { b.done <- b.runner.Run(b.ctx) }()
				b.after(2 * time.Minute)
				if got := int(ofA.Load()); got < c.least || got > c.most {
					t.Errorf("of the first 100, queue a had %d, want %d to %d", got, c.least, c.most)
				}
				if got := begun.Load(); got != 400 {
					t.Errorf("ran: got %d, want 400", got)
				}
				if got := s.released.Load(); got != 0 {
					t.Errorf("given back: got %d, want 0", got)
				}
			})
		})
	}
}

// TestAQueueOfANewSliceIsServedFromThenOn also checks that a queue that is no longer served rests.
func TestAQueueOfANewSliceIsServedFromThenOn(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &sliced{Storage: b.store, t: t}
		b.runner = b.newRunner(s, midge.RunnerConfig{Queues: []string{"a"}}, func(context.Context, work) error { return nil })
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		first, second := b.enqueue("x", midge.To("a")), b.enqueue("x", midge.To("b"))
		b.after(time.Second)
		b.gone(first.Ref)
		if got := b.task(second.Ref).State; got != storage.Waiting {
			t.Errorf("a task of a queue not served: got %s, want waiting", got)
		}
		if err := b.runner.SetQueues([]string{"b"}, nil); err != nil {
			t.Fatal(err)
		}
		third := b.enqueue("x", midge.To("a"))
		b.after(2 * time.Second)
		b.gone(second.Ref)
		if got := b.task(third.Ref).State; got != storage.Waiting {
			t.Errorf("a task of a queue served no more: got %s, want waiting", got)
		}
	})
}

// TestALeaseIsKeptBesideASettleWithoutAnswer has a task that is in flight twice: it was released,
// and claimed again before the runner learned of that. The other tasks keep their leases.
func TestALeaseIsKeptBesideASettleWithoutAnswer(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &mute{Storage: b.store, held: make(chan struct{})}
		var runs, ended atomic.Int64
		b.runner = b.newRunner(s, midge.RunnerConfig{Concurrency: 4, Lease: 3 * time.Second},
			func(ctx context.Context, w work) error {
				if w.Name == "snoozes" && runs.Add(1) == 1 {
					return midge.Snooze(10 * time.Millisecond)
				}
				select {
				case <-ctx.Done():
					ended.Add(1)
				case <-time.After(20 * time.Second):
				}
				return nil
			})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.enqueue("long")
		b.enqueue("snoozes")
		b.after(15 * time.Second)
		if got := runs.Load(); got != 2 {
			t.Errorf("the snoozed task ran %d times, want 2", got)
		}
		close(s.held)
		b.after(time.Minute)
		if got := ended.Load(); got != 0 {
			t.Errorf("%d jobs lost their lease, want none", got)
		}
	})
}

// mute carries out the first snooze and does not answer until held is closed.
type mute struct {
	storage.Storage
	held chan struct{}
	once sync.Once
}

func (m *mute) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	applied, err := m.Storage.Apply(ctx, call, txs...)
	if len(txs[0].Settles) > 0 && txs[0].Settles[0].Outcome == storage.Snooze {
		m.once.Do(func() { <-m.held })
	}
	return applied, err
}
