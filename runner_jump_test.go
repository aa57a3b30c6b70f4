package midge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// jumpy runs a test in a bubble, on a storage whose clock is ahead.
func jumpy(t *testing.T, test func(b *bench, ahead *atomic.Int64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		store, err := memory.Open(memory.Config{Now: func() time.Time {
			return time.Now().Add(time.Duration(ahead.Load()))
		}})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{T: t, store: store, done: make(chan error, 1)}
		b.ctx, b.stop = context.WithCancel(t.Context())
		if b.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
			t.Fatal(err)
		}
		test(b, &ahead)
		_ = b.drain()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestJobsRunWhateverTheClockOfTheStorageDoes has the clock jump ahead and back, for moments and
// for good. The runner reads the storage's time again if a call is refused because of a wrong
// time.
func TestJobsRunWhateverTheClockOfTheStorageDoes(t *testing.T) {
	jumpy(t, func(b *bench, ahead *atomic.Int64) {
		var runs atomic.Int32
		logger, lines := logged()
		b.run(midge.RunnerConfig{Lease: 3 * time.Second, Logger: logger}, func(context.Context, work) error {
			runs.Add(1)
			time.Sleep(700 * time.Millisecond) // virtual
			return nil
		})
		b.enqueue("before")
		want, later := int32(1), int64(0)
		for _, jump := range []time.Duration{2 * time.Hour, 0, -2 * time.Hour, 0, 48 * time.Hour, 0} {
			b.after(100 * time.Millisecond) // a job runs
			ahead.Store(int64(jump))
			b.enqueue("at once")
			b.enqueue("soon", midge.In(2*time.Second))
			want += 2
			if jump > 0 { // this task keeps its moment
				later++
				want--
			}
			b.after(1500 * time.Millisecond)
		}
		b.after(20 * time.Second)
		if got := runs.Load(); got != want {
			t.Errorf("%d runs, want %d", got, want)
		}
		if got := b.stats(midge.DefaultQueue); got.Live() != later || got.Scheduled != later || got.Totals.Completed != int64(want) {
			t.Errorf("got %+v, want all completed but %d that were put off while the clock was ahead", got, later)
		}
		b.after(10 * time.Minute)
		if got := len(lines("clock")); got != 1 {
			t.Errorf("%d lines about the clock, want 1: %s", got, strings.Join(lines("clock"), "\n"))
		}
	})
}

// TestAScheduleThatIsStoredAgainRepeatsNoTick sets the clock of the storage forward, and then removes a schedule,
// which its runner stores again.
func TestAScheduleThatIsStoredAgainRepeatsNoTick(t *testing.T) {
	jumpy(t, func(b *bench, ahead *atomic.Int64) {
		times := make(map[time.Time]int)
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			info, _ := midge.Current(ctx)
			times[info.Tick]++
			return nil
		})
		if err := b.runner.Periodic(midge.Every(time.Minute), work{"tick"}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		ahead.Store(int64(5 * time.Minute))
		b.after(time.Minute + time.Second)
		if err := b.client.Queue(midge.DefaultQueue).RemoveSchedule(b.ctx, "work"); err != nil {
			t.Fatal(err)
		}
		b.after(3 * time.Minute)
		if len(times) < 4 {
			t.Errorf("got the ticks %v, want one each minute", times)
		}
		for tick, n := range times {
			if n != 1 {
				t.Errorf("%d tasks of the tick %v, want one", n, tick)
			}
		}
	})
}
