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

// TestJobsRunWhateverTheClockOfTheStorageDoes has the clock jump ahead and back, for moments and
// for good. The runner reads the storage's time again where a call is refused because of a wrong
// time.
func TestJobsRunWhateverTheClockOfTheStorageDoes(t *testing.T) {
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
		_ = b.drain()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
