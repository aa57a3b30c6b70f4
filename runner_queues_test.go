package midge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
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
				b.runner.Stop()
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
