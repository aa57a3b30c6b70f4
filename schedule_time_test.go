package midge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// eachOnce checks that a schedule has ticked at least so often, and never twice for the same moment.
func (ts *ticks) eachOnce(t *testing.T, name string, least int) {
	t.Helper()
	times := make(map[time.Time]int)
	for _, at := range ts.of(name) {
		if times[at]++; times[at] == 2 {
			t.Errorf("%s has ticked twice for %v", name, at)
		}
	}
	if len(times) < least {
		t.Errorf("%s has ticked %d times, want %d at least", name, len(times), least)
	}
}

// tardy is a storage that reads its time when it is asked, and returns it seconds later.
type tardy struct {
	storage.Storage
	by     atomic.Int64
	before atomic.Pointer[func()] // called once, before the schedule b is read
}

func (s *tardy) wait(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(s.by.Load())): // virtual
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", storage.ErrUnknown, ctx.Err())
	}
}

func (s *tardy) Describe(ctx context.Context) (storage.Description, error) {
	d, err := s.Storage.Describe(ctx)
	if late := s.wait(ctx); late != nil {
		return d, late
	}
	return d, err
}

func (s *tardy) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	extended, err := s.Storage.Extend(ctx, req)
	if req.Runner.ID != "" {
		return extended, err
	}
	if late := s.wait(ctx); late != nil {
		return extended, late
	}
	return extended, err
}

func (s *tardy) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if ref.ID == "cursor.b" {
		if before := s.before.Swap(nil); before != nil {
			(*before)()
		}
	}
	return s.Storage.Task(ctx, ref)
}

// TestASlowAnswerRepeatsNoTick removes the schedule a, and the schedule b when its runner has waited for eight
// seconds to store a again. Meanwhile b has ticked.
func TestASlowAnswerRepeatsNoTick(t *testing.T) {
	for _, missed := range [][]midge.PeriodicOption{nil, {midge.AllMissed(0)}} {
		bubble(t, func(b *bench) {
			s := &tardy{Storage: b.store}
			var ran ticks
			b.runner = b.newRunner(s, midge.RunnerConfig{}, ran.run) // it reads its schedules every 10 s
			for _, name := range []string{"a", "b"} {
				must(b.runner.Periodic(midge.Every(time.Second), work{name}, append(missed, midge.Named(name))...))
			}
			remove := func(name string) { must(b.client.Queue(midge.DefaultQueue).RemoveSchedule(b.ctx, name)) }
			b.after(500 * time.Millisecond)
			go func() { b.done <- b.runner.Run(b.ctx) }()
			b.after(9 * time.Second)
			removeB := func() { remove("b") }
			s.by.Store(int64(8 * time.Second))
			s.before.Store(&removeB)
			remove("a")
			b.after(20 * time.Second)
			if s.before.Load() != nil {
				t.Error("b was not read")
			}
			s.by.Store(0)
			b.after(20 * time.Second)
			ran.eachOnce(t, "a", 20)
			ran.eachOnce(t, "b", 20)
		})
	}
}

// clocks is a storage of two parts with clocks of their own, like a Cluster: queues whose names begin with b are
// kept by ahead, and all others, the heartbeats and the time that Describe returns by the other part.
type clocks struct {
	storage.Storage
	ahead storage.Storage
}

func (c *clocks) part(queue string) storage.Storage {
	if queue[0] == 'b' {
		return c.ahead
	}
	return c.Storage
}

func (c *clocks) Spans(queues ...string) bool {
	for _, q := range queues {
		if c.part(q) != c.part(queues[0]) {
			return false
		}
	}
	return true
}

func (c *clocks) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	queue := ""
	for _, tx := range txs {
		for _, in := range tx.Inserts {
			queue = in.Ref.Queue
		}
		for _, se := range tx.Settles {
			queue = se.Fence.Queue
		}
		for _, ch := range tx.Changes {
			queue = ch.Ref.Queue
		}
		for _, del := range tx.Deletes {
			queue = del.Ref.Queue
		}
	}
	return c.part(queue).Apply(ctx, call, txs...)
}

func (c *clocks) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	return c.part(req.Queues[0].Name).Claim(ctx, req)
}

func (c *clocks) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if len(req.Leases) == 0 {
		return c.Storage.Extend(ctx, req)
	}
	return c.part(req.Leases[0].Fence.Queue).Extend(ctx, req)
}

func (c *clocks) Wait(ctx context.Context, req storage.WaitRequest) error {
	return c.part(req.Names()[0]).Wait(ctx, req)
}

func (c *clocks) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	return c.part(ref.Queue).Task(ctx, ref)
}

// TestAScheduleIsStoredByTheClockOfItsQueue removes a schedule of a part whose clock is ahead.
func TestAScheduleIsStoredByTheClockOfItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(ahead time.Duration) storage.Storage {
			store, err := memory.Open(memory.Config{Now: func() time.Time { return time.Now().Add(ahead) }})
			must(err)
			return store
		}
		s := &clocks{open(0), open(3 * time.Minute)}
		b := &bench{T: t, store: s, done: make(chan error, 1)}
		b.ctx, b.stop = context.WithCancel(t.Context())
		var err error
		b.client, err = midge.NewClient(s, midge.ClientConfig{})
		must(err)
		var ran ticks
		b.runner = b.newRunner(s, midge.RunnerConfig{Queues: []string{"a", "b"}}, ran.run)
		must(b.runner.Periodic(midge.Every(time.Minute), work{"b"}, midge.To("b")))
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(90 * time.Second)
		must(b.client.Queue("b").RemoveSchedule(b.ctx, "work"))
		b.after(5 * time.Minute)
		ran.eachOnce(t, "b", 5)
		_ = b.drain()
		must(s.Storage.Close())
		must(s.ahead.Close())
	})
}
