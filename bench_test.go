package midge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

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

// BenchmarkSteps and BenchmarkCheckpoints run jobs that store 1, 10 or 100 values each, one as steps and one as
// checkpoints. The ratio of the two is the price of a step.
func BenchmarkSteps(b *testing.B) {
	values(b, func(ctx context.Context, i int, name string) error {
		_, err := midge.Step(ctx, name, func(context.Context) (int, error) { return i, nil })
		return err
	})
}

func BenchmarkCheckpoints(b *testing.B) {
	values(b, func(ctx context.Context, i int, _ string) error { return midge.Checkpoint(ctx, i) })
}

func values(b *testing.B, store func(ctx context.Context, i int, name string) error) {
	for _, n := range []int{1, 10, 100} {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("step ", i)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) { valuesOf(b, names, store) })
	}
}

// valuesOf runs jobs one after the other, each of which stores values under the names.
func valuesOf(b *testing.B, names []string, store func(ctx context.Context, i int, name string) error) {
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
	var took time.Duration
	if err := midge.Handle(runner, func(ctx context.Context, _ work) error {
		begun := time.Now()
		for i, name := range names {
			if err := store(ctx, i, name); err != nil {
				b.Error(err)
			}
		}
		took += time.Since(begun)
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
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*len(names)), "ns/value")
	if err := runner.Shutdown(context.WithoutCancel(b.Context())); err != nil {
		b.Fatal(err)
	}
}
