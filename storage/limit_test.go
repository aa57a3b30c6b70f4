package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// limit returns the limit of the queue q.
func (d *desk) limit() storage.QueueLimit {
	d.t.Helper()
	stats := must(d.store.Stats(d.t.Context(), "q"))(d.t)
	if stats[0].Limit == nil {
		return storage.QueueLimit{}
	}
	return *stats[0].Limit
}

func TestAnOperatorsLimitStandsAboveTheDeclaredOne(t *testing.T) {
	d, ctx := openDesk(t), t.Context()
	declared, own := storage.Limit{Concurrency: 50}, storage.Limit{Concurrency: 2}
	d.insert(job("a"))
	succeed(t, d.Configure(ctx, "q", storage.Settings{Declared: &storage.DeclaredLimit{Limit: declared}}))
	for _, l := range []storage.Limit{own, {}} {
		succeed(t, d.SetLimit(ctx, "q", l))
		if got := d.limit(); got.InForce() != l {
			t.Errorf("after SetLimit: got %v in force, want %v", got.InForce(), l)
		}
	}
	runner := storage.RunnerInfo{
		ID: storage.NewRunnerID("host", 1), Concurrency: 1, For: time.Minute,
		Limits: []storage.RunnerLimit{{Queue: "q", Limit: own}},
	}
	must(d.Extend(ctx, storage.ExtendRequest{Runner: runner}))(t)
	succeed(t, d.ClearLimit(ctx, "q"))
	if got := d.limit(); got.Operator != nil || got.InForce() != declared {
		t.Errorf("after ClearLimit beside a runner that declares a limit: got %+v, want the declared one", got)
	}
	succeed(t, d.ClearLimit(ctx, "q"))
	if got := d.limit(); got.InForce() != declared {
		t.Errorf("after another ClearLimit beside that runner: got %+v, want the declared one", got)
	}
	succeed(t, d.SetLimit(ctx, "q", own))
	runner.Limits[0].Queue = "other"
	must(d.Extend(ctx, storage.ExtendRequest{Runner: runner}))(t)
	succeed(t, d.ClearLimit(ctx, "q"))
	if got := d.limit(); got.InForce() != declared {
		t.Errorf("after ClearLimit of an operator's limit: got %+v, want the declared one", got)
	}
	succeed(t, d.ClearLimit(ctx, "q"))
	if got := d.limit(); got.Declared != nil {
		t.Errorf("after ClearLimit beside no runner that declares a limit: got %v, want none", got.Declared)
	}
}

func TestALimitIsOfAQueueThatExists(t *testing.T) {
	d, ctx := openDesk(t), t.Context()
	if err := d.SetLimit(ctx, "q", storage.Limit{Concurrency: 1}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("SetLimit without the queue: got %v, want ErrNotFound", err)
	}
	if err := d.ClearLimit(ctx, "q"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("ClearLimit without the queue: got %v, want ErrNotFound", err)
	}
	var invalid *storage.InvalidError
	if err := d.SetLimit(ctx, "q", storage.Limit{Concurrency: -1}); !errors.As(err, &invalid) {
		t.Errorf("SetLimit with a Concurrency of -1: got %v, want an *InvalidError", err)
	}
}

func TestThePartitionsAtTheirLimit(t *testing.T) {
	soon := time.Unix(1, 0)
	for _, c := range []struct {
		stats       storage.PartitionStats
		limit       storage.PartitionLimit
		full, spent bool
	}{
		{storage.PartitionStats{Running: 3}, storage.PartitionLimit{}, false, false},
		{storage.PartitionStats{Running: 1}, storage.PartitionLimit{Concurrency: 2}, false, false},
		{storage.PartitionStats{Running: 2}, storage.PartitionLimit{Concurrency: 2}, true, false},
		{storage.PartitionStats{Running: 3, Next: soon}, storage.PartitionLimit{Concurrency: 2, Rate: storage.Rate{N: 1, Per: time.Minute}}, true, true},
		{storage.PartitionStats{Next: soon}, storage.PartitionLimit{Concurrency: 2}, false, false},
		{storage.PartitionStats{Rests: soon, Paused: true}, storage.PartitionLimit{Concurrency: 1}, false, false},
	} {
		if full, spent := c.stats.AtLimit(c.limit); full != c.full || spent != c.spent {
			t.Errorf("%+v under %+v: got %v and %v, want %v and %v", c.stats, c.limit, full, spent, c.full, c.spent)
		}
	}
}
