package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestQueuesInStrictOrder(t *testing.T) {
	bubble(t, func(b *bench) {
		var order []string
		for i := range 3 {
			b.enqueue(fmt.Sprint("low", i), midge.To("low"))
			b.enqueue(fmt.Sprint("high", i), midge.To("high"))
		}
		b.run(midge.RunnerConfig{Queues: []string{"high", "low"}, Concurrency: 1}, func(_ context.Context, w work) error {
			order = append(order, w.Name)
			return nil
		})
		b.after(time.Second)
		if got := strings.Join(order, " "); got != "high0 high1 high2 low0 low1 low2" {
			t.Errorf("order %s", got)
		}
	})
}

func TestQueuesByWeight(t *testing.T) {
	bubble(t, func(b *bench) {
		var a, z int
		for i := range 1000 {
			b.enqueue(fmt.Sprint(i), midge.To("a"))
			b.enqueue(fmt.Sprint(i), midge.To("z"))
		}
		b.run(midge.RunnerConfig{
			Queues: []string{"a", "z"}, Weights: map[string]int{"a": 3, "z": 1}, Concurrency: 1, Ahead: midge.None,
		}, func(ctx context.Context, _ work) error {
			if a+z == 400 {
				halt(ctx, b.runner)
				return nil
			}
			if info, _ := midge.Current(ctx); info.Ref.Queue == "a" {
				a++
			} else {
				z++
			}
			return nil
		})
		if err := <-b.done; err != nil {
			t.Fatal(err)
		}
		b.done <- nil
		if a < 240 || a > 360 {
			t.Errorf("a %d, z %d of 400; want about 300 and 100", a, z)
		}
	})
}

// mailed is a job whose type names its queue.
type mailed struct{}

func (mailed) Options() midge.Options { return midge.Options{Queue: "mail"} }

func TestTheQueuesOfRegisteredJobsAreServed(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := 0
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := midge.Handle(b.runner, func(context.Context, mailed) error { ran++; return nil }); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		if _, err := b.client.Enqueue(b.Context(), mailed{}); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		if ran != 1 {
			t.Errorf("ran %d times, want 1", ran)
		}
	})
}

// TestWhatWaitsAheadOfADroppedQueueDoesNotBegin checks this once SetQueues has returned.
func TestWhatWaitsAheadOfADroppedQueueDoesNotBegin(t *testing.T) {
	bubble(t, func(b *bench) {
		var slow atomic.Bool
		var begun atomic.Int32
		b.run(midge.RunnerConfig{Queues: []string{"a"}, Concurrency: 1}, func(context.Context, work) error {
			begun.Add(1)
			if slow.Load() {
				time.Sleep(50 * time.Millisecond) // virtual
			}
			return nil
		})
		for range 500 {
			b.enqueue("x", midge.To("a"))
		}
		b.after(time.Second)
		slow.Store(true)
		items := make([]midge.Item, 20)
		for i := range items {
			items[i] = midge.New(work{}, midge.To("a"))
		}
		if _, err := b.client.EnqueueMany(b.ctx, items); err != nil {
			t.Fatal(err)
		}
		b.after(10 * time.Millisecond)
		if got := b.stats("a").Pending; got < 5 {
			t.Fatalf("%d tasks are pending, want one that runs and several ahead", got)
		}
		if err := b.runner.SetQueues([]string{"b"}, nil); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if n := begun.Load(); n != 501 {
			t.Errorf("%d jobs began, want the 501 from before the change", n)
		}
		if got := b.stats("a"); got.Waiting != 19 || got.Totals.Failed+got.Totals.Crashed > 0 {
			t.Errorf("got %+v, want 19 waiting and nothing charged", got)
		}
	})
}

// TestWhatAClaimBringsOfADroppedQueueDoesNotBegin has a claim under way when SetQueues returns.
func TestWhatAClaimBringsOfADroppedQueueDoesNotBegin(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &sluggish{Storage: b.store}
		s.claims.Store(int64(300 * time.Millisecond))
		task := b.enqueue("x", midge.To("a"))
		b.store = s
		b.run(midge.RunnerConfig{Queues: []string{"a"}}, func(context.Context, work) error {
			t.Error("the job begins")
			return nil
		})
		b.after(100 * time.Millisecond)
		if err := b.runner.SetQueues([]string{"b"}, nil); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if got := b.task(task.Ref).State; got != storage.Waiting {
			t.Errorf("got %s, want it waiting", got)
		}
	})
}

// TestARunnerIsListedBeforeItClaims also checks that the served queues are listed soon after a
// change.
func TestARunnerIsListedBeforeItClaims(t *testing.T) {
	bubble(t, func(b *bench) {
		b.store = &listed{b.store, t}
		b.enqueue("x", midge.To("a"))
		b.run(midge.RunnerConfig{Queues: []string{"a"}}, func(context.Context, work) error { return nil })
		b.after(time.Second)
		if err := b.runner.SetQueues([]string{"b"}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		runners, err := b.client.Runners(b.ctx)
		if err != nil || len(runners) != 1 || !slices.Equal(runners[0].Queues, []string{"b"}) {
			t.Errorf("got %+v, %v; want one that serves b", runners, err)
		}
	})
}

// listed is a storage that reports claims of runners that it does not list.
type listed struct {
	storage.Storage
	t *testing.T
}

func (l *listed) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	runners, err := l.Runners(ctx)
	if err != nil || !slices.ContainsFunc(runners, func(r storage.RunnerInfo) bool { return r.ID == req.Runner }) {
		l.t.Errorf("runner %s claims and is not listed: %+v, %v", req.Runner, runners, err)
	}
	return l.Storage.Claim(ctx, req)
}

// TestNoRunnerNamesTooManyQueues counts the queues of its schedules too, because no call could name
// them all.
func TestNoRunnerNamesTooManyQueues(t *testing.T) {
	bubble(t, func(b *bench) {
		many := make([]string, storage.MaxNames+1)
		for i := range many {
			many[i] = fmt.Sprint("q", i)
		}
		var invalid *midge.InvalidError
		if _, err := midge.NewRunner(b.store, midge.RunnerConfig{Queues: many}); !errors.As(err, &invalid) {
			t.Errorf("NewRunner with %d queues: got %v, want an *InvalidError", len(many), err)
		}
		r := b.newRunner(b.store, midge.RunnerConfig{Queues: many[1:]}, nil)
		if err := r.SetQueues(many, nil); !errors.As(err, &invalid) {
			t.Errorf("SetQueues with %d queues: got %v, want an *InvalidError", len(many), err)
		}
		if err := r.Periodic(midge.Every(time.Hour), work{}, midge.To(many[0])); err != nil {
			t.Fatal(err)
		}
		if err := r.SetQueues(many[1:], nil); !errors.As(err, &invalid) {
			t.Errorf("SetQueues beside a schedule: got %v, want an *InvalidError", err)
		}
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		if err := r.Run(ctx); !errors.As(err, &invalid) {
			t.Errorf("Run: got %v, want an *InvalidError", err)
		}
	})
}
