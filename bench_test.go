package midge_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// BenchmarkDrain drains waiting tasks of the memory storage, through a runner of concurrency 100
// with its codec, leases and settles.
func BenchmarkDrain(b *testing.B) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		b.Fatal(err)
	}
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		b.Fatal(err)
	}
	items := make([]midge.Item, 0, 1000)
	for left := b.N; left > 0; left -= len(items) {
		items = items[:0]
		for range min(left, 1000) {
			items = append(items, midge.New(work{"0123456789012345678901234567890123456789012345678901234567890123"}))
		}
		if _, err := client.EnqueueMany(b.Context(), items); err != nil {
			b.Fatal(err)
		}
	}
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Concurrency: 100})
	if err != nil {
		b.Fatal(err)
	}
	var ran atomic.Int64
	if err := midge.Handle(runner, func(ctx context.Context, _ work) error {
		if ran.Add(1) == int64(b.N) {
			halt(ctx, runner)
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	if err := runner.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkSteps and BenchmarkCheckpoints run jobs that store 20 values each, one as steps and one as
// checkpoints. The ratio of the two is the price of a step.
func BenchmarkSteps(b *testing.B) {
	values(b, func(ctx context.Context, i int) error {
		_, err := midge.Step(ctx, stored[i], func(context.Context) (int, error) { return i, nil })
		return err
	})
}

func BenchmarkCheckpoints(b *testing.B) {
	values(b, func(ctx context.Context, i int) error { return midge.Checkpoint(ctx, i) })
}

// stored are the names of the values that a job stores.
var stored = []string{
	"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t",
}

// values runs jobs one after the other, each of which stores values.
func values(b *testing.B, store func(ctx context.Context, i int) error) {
	kept, err := memory.Open(memory.Config{})
	if err != nil {
		b.Fatal(err)
	}
	client, err := midge.NewClient(kept, midge.ClientConfig{})
	if err != nil {
		b.Fatal(err)
	}
	runner, err := midge.NewRunner(kept, midge.RunnerConfig{Concurrency: 1})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	if err := midge.Handle(runner, func(ctx context.Context, _ work) error {
		for i := range stored {
			if err := store(ctx, i); err != nil {
				b.Error(err)
			}
		}
		done <- struct{}{}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	if err := runner.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := client.Enqueue(b.Context(), work{}); err != nil {
			b.Fatal(err)
		}
		<-done
	}
	if err := runner.Shutdown(context.WithoutCancel(b.Context())); err != nil {
		b.Fatal(err)
	}
}
