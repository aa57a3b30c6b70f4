package midge_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// told counts the heartbeats of a storage, and the heartbeats with vitals.
type told struct {
	storage.Storage
	all, vitals atomic.Int32
}

func (c *told) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if req.Runner.ID != "" && !req.Runner.Leaving {
		c.all.Add(1)
		if req.Runner.Vitals != nil {
			c.vitals.Add(1)
		}
	}
	return c.Storage.Extend(ctx, req)
}

// TestHeartbeatsTellHowOftenJobsRan checks that every third heartbeat has the runs, failures and
// durations of each kind since the start of the runner, and the state of its process.
func TestHeartbeatsTellHowOftenJobsRan(t *testing.T) {
	bubble(t, func(b *bench) {
		store := &told{Storage: b.store}
		b.runner = b.newRunner(store, midge.RunnerConfig{Lease: 30 * time.Second, Version: "v7"}, func(_ context.Context, w work) error {
			switch w.Name {
			case "fails":
				return errors.New("no")
			case "panics":
				panic("no")
			case "discards":
				return midge.Discard(errors.New("no"))
			case "snoozes":
				return midge.Snooze(24 * time.Hour)
			}
			<-time.After(100 * time.Millisecond)
			return nil
		})
		for _, name := range []string{"fails", "panics", "discards", "snoozes"} {
			b.enqueue(name, midge.Retries(midge.None))
		}
		for range 6 {
			b.enqueue("")
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(65 * time.Second)
		runners, err := b.client.Runners(b.ctx)
		if err != nil || len(runners) != 1 || runners[0].Version != "v7" {
			t.Fatalf("runners %+v, %v; want one of v7", runners, err)
		}
		v, err := vitals.Decode(runners[0].Vitals)
		if err != nil || len(v.Kinds) != 1 {
			t.Fatalf("got %+v, %v", v, err)
		}
		k := v.Kinds[0]
		if k.Name != "work" || k.Runs.Count() != 10 || k.Failed != 3 {
			t.Errorf("%s: %d runs and %d failures, want work, 10 and 3", k.Name, k.Runs.Count(), k.Failed)
		}
		if d := k.Runs.Quantile(0.95); d < 80*time.Millisecond || d > 140*time.Millisecond {
			t.Errorf("the longest take %v, want about 100 ms", d)
		}
		if v.Memory < 1<<20 || v.Goroutines < 5 {
			t.Errorf("%d bytes, %d goroutines", v.Memory, v.Goroutines)
		}
		if all, with := store.all.Load(), store.vitals.Load(); all < 7 || with != (all+2)/3 {
			t.Errorf("%d heartbeats, of which %d have vitals, want every third", all, with)
		}
	})
}

// TestARunWhoseFollowUpIsRefusedIsCountedOnce checks that it is counted as a failure.
func TestARunWhoseFollowUpIsRefusedIsCountedOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		followed(b, work{"other"}, false, false)
		b.after(65 * time.Second)
		runners, err := b.client.Runners(b.ctx)
		if err != nil || len(runners) != 1 {
			t.Fatalf("runners %+v, %v; want one", runners, err)
		}
		v, err := vitals.Decode(runners[0].Vitals)
		if err != nil || len(v.Kinds) != 1 {
			t.Fatalf("got %+v, %v; want the vitals of one kind", v, err)
		}
		if k := v.Kinds[0]; k.Runs.Count() != 1 || k.Failed != 1 {
			t.Errorf("%d runs and %d failures, want one of each", k.Runs.Count(), k.Failed)
		}
	})
}

// declared is a storage that counts the heartbeats with schedules, and can be away for heartbeats.
type declared struct {
	storage.Storage
	away atomic.Bool
	full atomic.Int32
}

func (d *declared) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if d.away.Load() {
		return storage.Extended{}, storage.ErrUnknown
	}
	if req.Runner.Schedules != nil {
		d.full.Add(1)
	}
	return d.Storage.Extend(ctx, req)
}

// TestHeartbeatsRarelyCarrySchedules checks that the first heartbeat carries the schedules, the next ones do not,
// and that a runner which the storage has forgotten declares them again at once.
func TestHeartbeatsRarelyCarrySchedules(t *testing.T) {
	bubble(t, func(b *bench) {
		store := &declared{Storage: b.store}
		b.runner = b.newRunner(store, midge.RunnerConfig{Lease: 30 * time.Second}, func(context.Context, work) error { return nil })
		if err := b.runner.Periodic(midge.Every(time.Hour), work{"a"}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		want := func(when string, full int32) {
			t.Helper()
			runners, err := b.client.Runners(b.ctx)
			if err != nil || len(runners) != 1 || len(runners[0].Schedules) != 1 {
				t.Errorf("%s: runners %+v, %v; want one with one schedule", when, runners, err)
			}
			if got := store.full.Load(); got != full {
				t.Errorf("%s: %d heartbeats had schedules, want %d", when, got, full)
			}
		}
		b.after(4 * time.Minute)
		want("after four minutes", 1)
		b.after(2 * time.Minute)
		want("after six minutes", 2)
		store.away.Store(true)
		b.after(5 * time.Minute / 2)
		store.away.Store(false)
		b.after(30 * time.Second)
		want("after an outage", 3)
	})
}
