package midge_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestTheNextTickIsInTheZoneOfTheMoment(t *testing.T) {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	after := time.Date(2026, 3, 28, 12, 0, 0, 0, paris)
	for _, c := range []struct {
		schedule midge.Schedule
		want     time.Time
	}{
		{midge.Cron("0 9 * * *"), time.Date(2026, 3, 29, 9, 0, 0, 0, paris)}, // after the clock leapt forward
		{midge.Every(24 * time.Hour), time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)},
		{midge.Cron("0 0 30 2 *"), time.Time{}},
		{midge.Cron("nonsense"), time.Time{}},
		{midge.Every(-1), time.Time{}},
		{midge.Schedule{}, time.Time{}},
	} {
		if got := c.schedule.Next(after); !got.Equal(c.want) || !got.IsZero() && got.Location() != paris {
			t.Errorf("%v: got %v, want %v", c.schedule, got, c.want)
		}
	}
}

func TestOneTaskPerTickHoweverManyRunners(t *testing.T) {
	bubble(t, func(b *bench) {
		var ticks []time.Time
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 5)
		for range 5 {
			r := b.newRunner(b.store, midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
				info, _ := midge.Current(ctx)
				ticks = append(ticks, info.Tick)
				return nil
			})
			if err := r.Periodic(midge.Every(time.Minute), work{"tick"}); err != nil {
				t.Fatal(err)
			}
			go func() { done <- r.Run(ctx) }()
		}
		b.after(60*time.Minute + time.Second)
		cancel()
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if len(ticks) != 60 {
			t.Fatalf("%d ticks in an hour, want 60", len(ticks))
		}
		slices.SortFunc(ticks, time.Time.Compare)
		for i, at := range ticks {
			if at.Second() != 0 || i > 0 && at.Sub(ticks[i-1]) != time.Minute {
				t.Errorf("tick %d at %v, want whole minutes apart", i, at)
			}
		}
	})
}

func (b *bench) cursors(queue string) []storage.Task {
	b.Helper()
	page, err := b.store.Tasks(b.Context(), storage.TasksQuery{Queue: queue, State: storage.Cursors})
	if err != nil {
		b.Fatal(err)
	}
	return page.Tasks
}

// declare runs a runner that declares a schedule, for a while, and returns how often the job ran.
func (b *bench) declare(s midge.Schedule, during time.Duration, opts ...midge.PeriodicOption) int {
	b.Helper()
	var runs atomic.Int64
	r := b.newRunner(b.store, midge.RunnerConfig{}, func(context.Context, work) error { runs.Add(1); return nil })
	if err := r.Periodic(s, work{"tick"}, opts...); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	b.after(during)
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
	return int(runs.Load())
}

// TestTicksThatAreLeftOutAreLogged lets ticks pass while no runner lives, and leaves out all of them, or all but
// the last one. A tick in time has no line in the log.
func TestTicksThatAreLeftOutAreLogged(t *testing.T) {
	for away, ticks := range map[time.Duration]int{10 * time.Minute: 0, 9*time.Minute + 31*time.Second: 1} {
		bubble(t, func(b *bench) {
			const about = "schedule ticks/work: ticks since"
			b.declare(midge.Every(time.Minute), 90*time.Second, midge.To("ticks"), midge.SkipMissed())
			b.after(away)
			logger, lines := logged()
			b.runner = b.newRunner(b.store, midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { return nil })
			if err := b.runner.Periodic(midge.Every(time.Minute), work{"tick"}, midge.To("ticks"), midge.SkipMissed()); err != nil {
				t.Fatal(err)
			}
			go func() { b.done <- b.runner.Run(b.ctx) }()
			b.after(2 * time.Second)
			if n := b.stats("ticks").Totals.Enqueued; n != int64(1+ticks) || len(lines(about)) != 1 {
				t.Errorf("after %v: %d ticks and the lines %q, want %d and a line %q", away, n, lines(""), 1+ticks, about)
			}
			b.after(2 * time.Minute)
			if got := lines(about); len(got) != 1 || !strings.HasSuffix(got[0], ":02:00Z are left out: they are too late") {
				t.Errorf("after %v: got the lines %q, want no other for ticks in time", away, got)
			}
		})
	}
}

func TestAReplacedScheduleKeepsItsLastTick(t *testing.T) {
	bubble(t, func(b *bench) {
		b.declare(midge.Every(time.Minute), 10*time.Minute+time.Second)
		before := b.cursors(midge.DefaultQueue)[0].Cursor
		if n := b.declare(midge.Every(time.Hour), time.Second); n != 0 {
			t.Errorf("%d runs at once, want none", n)
		}
		after := b.cursors(midge.DefaultQueue)
		if len(after) != 1 || !after[0].Cursor.Last.Equal(before.Last) || !after[0].Cursor.Next.After(before.Last) {
			t.Errorf("cursors %+v, want one that kept last %v", after, before.Last)
		}
	})
}

func TestAScheduleNobodyDeclaresStandsStill(t *testing.T) {
	bubble(t, func(b *bench) {
		b.declare(midge.Every(time.Minute), 5*time.Minute+time.Second)
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { return nil })
		before := b.stats(midge.DefaultQueue).Totals.Enqueued
		b.after(time.Hour)
		if got := b.stats(midge.DefaultQueue).Totals.Enqueued; got != before {
			t.Errorf("%d tasks enqueued by an orphaned schedule", got-before)
		}
	})
}

func TestANewDeclarationDropsNoTick(t *testing.T) {
	bubble(t, func(b *bench) {
		b.declare(midge.Every(time.Hour), time.Second)
		b.after(3 * time.Hour)
		run := storage.JumpWait + time.Second // after hours without a call, the clock is believed only then
		if n := b.declare(midge.Every(time.Hour), run, midge.Priority(1)); n != 1 {
			t.Errorf("%d runs for the ticks missed, want 1", n)
		}
	})
}

// TestADamagedDeclarationStopsNothingElse has a declaration that no runner has written. The log
// names the damaged cursor, which ticks no more. The other cursor goes on, and a new declaration
// repairs the damaged one.
func TestADamagedDeclarationStopsNothingElse(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		b.declare(midge.Every(time.Minute), time.Second, midge.Named("damaged"))
		c := b.cursors(midge.DefaultQueue)[0]
		damaged := *c.Cursor
		damaged.Declaration = "\x01{"
		spoil := storage.Tx{Changes: []storage.Change{{Ref: c.Ref, Version: c.Version, Cursor: &damaged}}}
		if _, err := storage.NewSession(b.store, 0).ApplyOne(b.Context(), spoil); err != nil {
			t.Fatal(err)
		}
		var ticks atomic.Int64
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Logger: logger}, func(context.Context, work) error {
			ticks.Add(1)
			return nil
		})
		if err := b.runner.Periodic(midge.Every(time.Minute), work{"tick"}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(10 * time.Minute)
		if got := lines("default/damaged is damaged"); ticks.Load() != 10 || len(got) != 1 {
			t.Errorf("%d ticks beside a damaged schedule and the log %q, want 10 and one line", ticks.Load(), got)
		}
		for _, s := range b.schedules(b.client.Queue(midge.DefaultQueue)) {
			if is := s.Name == "damaged"; s.Damaged != is || s.Orphaned != is || is != s.Due.IsZero() {
				t.Errorf("got %+v, want the damaged one alone told so, and still", s)
			}
		}
		b.declare(midge.Every(time.Minute), 2*time.Minute, midge.Named("damaged"))
		for _, s := range b.schedules(b.client.Queue(midge.DefaultQueue)) {
			if s.Damaged || s.Cursor.Last.IsZero() {
				t.Errorf("got %+v, want each sound, and ticking", s)
			}
		}
	})
}

// A job that reports on the day before its tick must not report on the year 0 if somebody runs
// its schedule by hand.
func TestATaskRunByHandHasTheMomentOfItsRun(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran []midge.RunInfo
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			info, _ := midge.Current(ctx)
			ran = append(ran, info)
			return nil
		})
		if err := b.runner.Periodic(midge.Every(time.Hour), work{"tick"}, midge.Header("own", "1")); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(90 * time.Minute)
		asked := time.Now()
		if _, err := b.client.Queue("default").RunSchedule(b.ctx, "work"); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		if len(ran) < 2 {
			t.Fatalf("got %d runs, want a tick and the run by hand", len(ran))
		}
		got := ran[len(ran)-1]
		if !got.Tick.Equal(asked) || !got.Due.Equal(asked) || got.Headers["own"] != "1" {
			t.Errorf("got the tick %v, due %v and the headers %v; want the moment of the run, %v", got.Tick, got.Due, got.Headers, asked)
		}
		if last := b.schedules(b.client.Queue("default"))[0].Cursor.Last; last.Equal(asked) {
			t.Errorf("the run moved the last tick to %v", last)
		}
	})
}
