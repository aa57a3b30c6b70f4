package midge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// set keeps a schedule in the default queue.
func (b *bench) set(name string, s midge.Schedule, opts ...midge.PeriodicOption) {
	b.Helper()
	if err := b.client.Queue(midge.DefaultQueue).SetSchedule(b.Context(), name, s, work{name}, opts...); err != nil {
		b.Fatal(err)
	}
}

// scheduled returns a schedule of the default queue.
func (b *bench) scheduled(name string) midge.ScheduleInfo {
	b.Helper()
	list := b.schedules(b.client.Queue(midge.DefaultQueue))
	i := slices.IndexFunc(list, func(s midge.ScheduleInfo) bool { return s.Name == name })
	if i < 0 {
		b.Fatalf("there is no schedule %s", name)
	}
	return list[i]
}

// ticks counts the runs of ticks by the name of their job.
type ticks struct {
	mu   sync.Mutex
	at   map[string][]time.Time
	late time.Duration // the longest time from a tick to its run
}

func (ts *ticks) run(ctx context.Context, w work) error {
	info, _ := midge.Current(ctx)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.at == nil {
		ts.at = make(map[string][]time.Time)
	}
	ts.at[w.Name] = append(ts.at[w.Name], info.Tick)
	ts.late = max(ts.late, time.Since(info.Tick))
	return nil
}

func (ts *ticks) of(name string) []time.Time {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Clone(ts.at[name])
}

func TestAKeptScheduleTicksWithoutADeclaration(t *testing.T) {
	bubble(t, func(b *bench) {
		b.set("ann", midge.Every(time.Minute), midge.Jitter(time.Minute))
		if s := b.scheduled("ann"); !s.Orphaned || !s.Declared.Kept || s.Due.IsZero() {
			t.Errorf("before any runner: %+v, want it kept, due and orphaned", s)
		}
		var ran ticks
		b.run(midge.RunnerConfig{}, ran.run)
		b.after(10 * time.Minute)
		got := ran.of("ann")
		if s := b.scheduled("ann"); s.Orphaned || len(got) != 10 || !got[9].Equal(s.Cursor.Last) {
			t.Errorf("%d ticks in ten minutes, then %+v; want ten, and no orphan", len(got), s)
		}
		for i, at := range got {
			if i > 0 && at.Sub(got[i-1]) != time.Minute {
				t.Errorf("ticks at %v and %v, want a minute between them", got[i-1], at)
			}
		}
		v, err := storage.Why(b.Context(), b.store, b.scheduled("ann").Ref)
		if err != nil || v.Cause != storage.CauseTicks || !v.Until.Equal(b.scheduled("ann").Due) {
			t.Errorf("got %+v, %v; want that it ticks", v, err)
		}
		if offset := got[0].Sub(got[0].Truncate(time.Minute)); offset == 0 {
			t.Error("ticks on the minute, want them later by the jitter")
		}
		if err := b.client.Queue(midge.DefaultQueue).RemoveSchedule(b.Context(), "ann"); err != nil {
			t.Error(err)
		}
		b.after(10 * time.Minute)
		if got := ran.of("ann"); len(got) != 10 {
			t.Errorf("%d ticks after the removal", len(got)-10)
		}
	})
}

func TestToSetTheSameScheduleWritesNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran ticks
		b.run(midge.RunnerConfig{}, ran.run)
		b.set("ann", midge.Every(time.Minute))
		b.after(90 * time.Second)
		before := b.scheduled("ann")
		b.set("ann", midge.Every(time.Minute))
		if after := b.scheduled("ann"); after.Version != before.Version {
			t.Errorf("version %d, want %d: nothing was changed", after.Version, before.Version)
		}
		b.set("ann", midge.Every(time.Minute), midge.Priority(1))
		after := b.scheduled("ann")
		if after.Priority != 1 || !after.Due.Equal(before.Due) || !after.Cursor.Last.Equal(before.Cursor.Last) {
			t.Errorf("%+v, want the last and the next tick of %+v", after, before)
		}
		b.set("ann", midge.Every(time.Hour))
		if after = b.scheduled("ann"); after.Due.Minute() != 0 || !after.Cursor.Last.Equal(before.Cursor.Last) {
			t.Errorf("%+v, want the last tick of %+v and the next on the hour", after, before)
		}
	})
}

// TestToSetTheSameScheduleUndoesAnEdit of each part of the task that a tick enqueues, and of the declaration, and
// writes nothing then.
func TestToSetTheSameScheduleUndoesAnEdit(t *testing.T) {
	bubble(t, func(b *bench) {
		set := func() {
			b.set("ann", midge.Every(time.Minute), midge.Priority(1), midge.Partition("a"), midge.Cost(1),
				midge.Header("h", "1"), midge.Timeout(time.Second+time.Nanosecond), midge.KeepFor(time.Hour+time.Nanosecond))
		}
		set()
		session, was := storage.NewSession(b.store, 0), b.scheduled("ann")
		priority, partition, cost := 2, "b", storage.NoCost
		d := was.Declared
		d.Spec = "every 1h0m0s"
		for i, edit := range []storage.Change{
			{Encoding: was.Encoding, Payload: []byte("{}")},
			{Encoding: "raw", Payload: was.Payload},
			{Headers: map[string]string{"h": "2"}},
			{Priority: &priority},
			{Partition: &partition},
			{Cost: &cost},
			{Cursor: &storage.Cursor{Next: was.Cursor.Next, Declaration: d.Encode()}},
		} {
			err := session.ChangeTask(b.Context(), was.Ref, func(storage.Task) (storage.Change, error) { return edit, nil })
			if err != nil {
				t.Fatal(i, err)
			}
			set()
			is := b.scheduled("ann")
			if got, want := is.TickInsert("", &is.Declared), was.TickInsert("", &was.Declared); !reflect.DeepEqual(got, want) {
				t.Errorf("edit %d: a tick enqueues %+v, want %+v", i, got, want)
			}
			if is.Declared.Spec != was.Declared.Spec {
				t.Errorf("edit %d: it ticks %s", i, is.Declared.Spec)
			}
			if set(); b.scheduled("ann").Version != is.Version {
				t.Errorf("edit %d: to set it once more has changed it", i)
			}
		}
	})
}

// TestAPausedScheduleDoesNotTick pauses a kept schedule and a schedule that a program declares, through a
// change of both.
func TestAPausedScheduleDoesNotTick(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran ticks
		q := b.client.Queue(midge.DefaultQueue)
		start := func(s midge.Schedule) *midge.Runner {
			r := b.newRunner(b.store, midge.RunnerConfig{}, ran.run)
			must(r.Periodic(s, work{"code"}, midge.Named("code")))
			must(r.Start(b.Context()))
			return r
		}
		first := start(midge.Every(time.Minute))
		b.set("kept", midge.Every(time.Minute))
		b.after(90 * time.Second)
		for _, name := range []string{"code", "kept"} {
			must(q.PauseSchedule(b.ctx, name))
			paused := b.scheduled(name)
			must(q.PauseSchedule(b.ctx, name)) // again changes nothing
			if s := b.scheduled(name); s.Version != paused.Version || !s.Declared.Paused || s.Orphaned || !s.Due.IsZero() {
				t.Errorf("%+v, want it paused, without a next tick", s)
			}
		}
		b.after(10 * time.Minute)
		must(first.Shutdown(b.Context()))
		second := start(midge.Every(2 * time.Minute))
		b.set("kept", midge.Every(2*time.Minute))
		b.after(9*time.Minute + 30*time.Second)
		for _, name := range []string{"code", "kept"} {
			s := b.scheduled(name)
			if got := ran.of(name); len(got) != 1 || !s.Declared.Paused || s.Declared.Spec != "every 2m0s" {
				t.Errorf("%d ticks and %+v, want one before the pause, and the new schedule paused", len(got), s)
			}
			must(q.ResumeSchedule(b.ctx, name))
			must(q.ResumeSchedule(b.ctx, name)) // again changes nothing
			if s = b.scheduled(name); s.Declared.Paused || !s.Due.After(time.Now()) || time.Until(s.Due) > 2*time.Minute {
				t.Errorf("resumed at %v: %+v, want the first tick after now", time.Now(), s)
			}
		}
		b.after(5 * time.Minute)
		for _, name := range []string{"code", "kept"} {
			if got := ran.of(name); len(got) < 3 || len(got) > 4 {
				t.Errorf("%s: %d ticks, want two or three after the pause", name, len(got)-1)
			}
		}
		must(second.Shutdown(b.Context()))
	})
}

func TestRefusedSchedules(t *testing.T) {
	bubble(t, func(b *bench) {
		b.declare(midge.Every(time.Hour), time.Second, midge.Named("code"))
		q := b.client.Queue(midge.DefaultQueue)
		set := func(name string, s midge.Schedule, opts ...midge.PeriodicOption) error {
			return q.SetSchedule(b.ctx, name, s, work{"x"}, opts...)
		}
		hour := midge.Every(time.Hour)
		for what, err := range map[string]error{
			"Named": set("a", hour, midge.Named("b")), "To": set("a", hour, midge.To("b")), "ID": set("a", hour, midge.ID("b")),
			"no name": set("", hour), "a bad name": set("a b", hour), "a long name": set(strings.Repeat("a", 128), hour),
			"no schedule": set("a", midge.Schedule{}), "too often": set("a", midge.Every(time.Millisecond)),
			"jitter 0": set("a", hour, midge.Jitter(0)), "jitter -1": set("a", hour, midge.Jitter(-time.Second)),
			"jitter of 25 h": set("a", hour, midge.Jitter(25*time.Hour)),
			"no job":         q.SetSchedule(b.ctx, "a", hour, nil), "a large job": q.SetSchedule(b.ctx, "a", hour, work{strings.Repeat("a", 2<<20)}),
			"midge's queue": b.client.Queue("midge.audit").SetSchedule(b.ctx, "a", hour, work{"x"}),
			"pause":         q.PauseSchedule(b.ctx, "a b"), "resume": q.ResumeSchedule(b.ctx, ""),
			"Periodic": b.newRunner(b.store, midge.RunnerConfig{}, nil).Periodic(hour, work{}, midge.Jitter(25*time.Hour)),
		} {
			if invalid := (*midge.InvalidError)(nil); !errors.As(err, &invalid) {
				t.Errorf("%s: got %v, want an *InvalidError", what, err)
			}
		}
		for what, err := range map[string]error{
			"pause": q.PauseSchedule(b.ctx, "nobody"), "resume": q.ResumeSchedule(b.ctx, "nobody"),
		} {
			if !errors.Is(err, midge.ErrNotFound) || !strings.Contains(err.Error(), "no schedule is named nobody") {
				t.Errorf("%s: got %v, want ErrNotFound", what, err)
			}
		}
		err := set("code", hour)
		if !errors.Is(err, midge.ErrExists) ||
			!strings.Contains(err.Error(), "set schedule code in queue default: a program has declared") {
			t.Errorf("over a declared schedule: got %v, want ErrExists", err)
		}
		must(q.RemoveSchedule(b.ctx, "code"))
		must(set("code", hour))
		c, err := b.store.Task(b.ctx, b.scheduled("code").Ref)
		must(err)
		damaged := *c.Cursor
		damaged.Declaration = "{"
		_, err = storage.NewSession(b.store, 0).ApplyOne(b.ctx, storage.Tx{
			Changes: []storage.Change{{Ref: c.Ref, Version: c.Version, Cursor: &damaged}},
		})
		must(err)
		if err := set("code", hour); !errors.Is(err, midge.ErrExists) || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("over a damaged schedule: got %v, want ErrExists", err)
		}
	})
}

// TestAKeptScheduleStaysWhereAProgramDeclaresIt has a program whose schedule has the name of a kept one. The
// log reports that once. Once the kept one is removed, the program's is stored.
func TestAKeptScheduleStaysWhereAProgramDeclaresIt(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		var ran ticks
		b.set("kept", midge.Every(time.Minute))
		r := b.newRunner(b.store, midge.RunnerConfig{Logger: logger}, ran.run)
		must(r.Periodic(midge.Every(time.Minute), work{"code"}, midge.Named("kept")))
		must(r.Start(b.Context()))
		b.after(10*time.Minute + time.Second)
		if kept, code := ran.of("kept"), ran.of("code"); len(kept) != 10 || len(code) != 0 {
			t.Errorf("%d ticks of the kept schedule and %d of the program's, want ten and none", len(kept), len(code))
		}
		if got := lines("it is kept in the storage, and a program declares it too"); len(got) != 1 {
			t.Errorf("the log %q, want one line", got)
		}
		must(b.client.Queue(midge.DefaultQueue).RemoveSchedule(b.ctx, "kept"))
		b.after(2 * time.Minute)
		if s := b.scheduled("kept"); s.Declared.Kept || len(ran.of("code")) == 0 {
			t.Errorf("after the removal: %+v and %d ticks, want the program's", s, len(ran.of("code")))
		}
		must(r.Shutdown(b.Context()))
	})
}

// TestARunnerOfOtherKindsDelaysNoTick has a runner of other kinds on the same queue. It makes the ticks of kept
// schedules that it is handed, as long as a runner lives that runs them.
func TestARunnerOfOtherKindsDelaysNoTick(t *testing.T) {
	bubble(t, func(b *bench) {
		other, err := midge.NewRunner(b.store, midge.RunnerConfig{})
		must(err)
		must(midge.Handle(other, func(context.Context, otherWork) error { return nil }))
		must(other.Start(b.Context()))
		for n := range 50 {
			b.set(fmt.Sprint("s", n), midge.Every(10*time.Second), midge.Jitter(10*time.Second))
		}
		b.after(time.Minute)
		if got := b.stats(midge.DefaultQueue).Totals.Enqueued; got != 0 || !b.scheduled("s0").Orphaned {
			t.Errorf("%d ticks of a kind that no runner knows", got)
		}
		var ran ticks
		b.run(midge.RunnerConfig{}, ran.run)
		b.after(20 * time.Second)
		ran.mu.Lock()
		ran.late = 0 // the later ticks had a runner from the beginning
		ran.mu.Unlock()
		b.after(2 * time.Minute)
		if ran.late > time.Second/10 {
			t.Errorf("a tick ran %v late", ran.late)
		}
		must(b.drain())
		before := b.stats(midge.DefaultQueue).Totals.Enqueued
		b.after(storage.TickHide + time.Second) // the other runner may know of the runner that has gone
		after := b.stats(midge.DefaultQueue).Totals.Enqueued
		b.after(time.Minute)
		if got := b.stats(midge.DefaultQueue).Totals.Enqueued; got != after {
			t.Errorf("%d ticks are made without a runner that knows the kind, after %d", got-after, after-before)
		}
		must(other.Shutdown(b.Context()))
	})
}

// otherWork is a job of another kind.
type otherWork struct{}

// forgetful is a storage that can lose its data.
type forgetful struct {
	storage.Storage
	now atomic.Pointer[memory.Storage]
}

func (f *forgetful) store() storage.Storage { return f.now.Load() }

func (f *forgetful) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	return f.store().Apply(ctx, call, txs...) //nolint:wrapcheck // as the storage has it
}

func (f *forgetful) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	return f.store().Claim(ctx, req) //nolint:wrapcheck // as the storage has it
}

func (f *forgetful) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	return f.store().Extend(ctx, req) //nolint:wrapcheck // as the storage has it
}

func (f *forgetful) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	return f.store().Task(ctx, ref) //nolint:wrapcheck // as the storage has it
}

func (f *forgetful) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	return f.store().Runners(ctx) //nolint:wrapcheck // as the storage has it
}

// Wait has no wake-ups, as the storage allows.
func (f *forgetful) Wait(ctx context.Context, _ storage.WaitRequest) error {
	<-ctx.Done()
	return ctx.Err() //nolint:wrapcheck // as the storage has it
}

// TestAStorageThatLostItsDataIsToldTheSchedules has a runner whose storage loses everything. The heartbeat after
// the schedule was stored again carries the list of schedules, though only each thirtieth does otherwise.
func TestAStorageThatLostItsDataIsToldTheSchedules(t *testing.T) {
	bubble(t, func(b *bench) {
		lost, err := memory.Open(memory.Config{})
		must(err)
		f := &forgetful{Storage: b.store}
		kept, _ := b.store.(*memory.Storage)
		f.now.Store(kept)
		r := b.newRunner(f, midge.RunnerConfig{Lease: 30 * time.Second}, func(context.Context, work) error { return nil })
		must(r.Periodic(midge.Every(time.Hour), work{"tick"}))
		must(r.Start(b.Context()))
		b.after(time.Minute)
		f.now.Store(lost)
		b.after(20*time.Second + time.Second) // two rounds of the declarer and the heartbeat
		runners, err := lost.Runners(b.ctx)
		if err != nil || len(runners) != 1 || len(runners[0].Schedules) != 1 {
			t.Errorf("got %+v, %v; want the runner with its schedule", runners, err)
		}
		must(r.Shutdown(b.Context()))
		must(lost.Close())
	})
}

// callCounter is a storage that counts the calls of its runners.
type callCounter struct {
	storage.Storage
	calls atomic.Int64
}

func (c *callCounter) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	c.calls.Add(1)
	return c.Storage.Apply(ctx, call, txs...) //nolint:wrapcheck // as the storage has it
}

func (c *callCounter) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	c.calls.Add(1)
	return c.Storage.Claim(ctx, req) //nolint:wrapcheck // as the storage has it
}

func (c *callCounter) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	c.calls.Add(1)
	return c.Storage.Extend(ctx, req) //nolint:wrapcheck // as the storage has it
}

func (c *callCounter) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	c.calls.Add(1)
	return c.Storage.Task(ctx, ref) //nolint:wrapcheck // as the storage has it
}

func (c *callCounter) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	c.calls.Add(1)
	return c.Storage.Tasks(ctx, q) //nolint:wrapcheck // as the storage has it
}

func (c *callCounter) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	c.calls.Add(1)
	return c.Storage.Runners(ctx) //nolint:wrapcheck // as the storage has it
}

// keptMany is how many kept schedules the test of their cost has.
const keptMany = 5000

// TestKeptSchedulesCostNothingWhileTheyDoNotTick counts the calls of a runner in ten minutes: the same without
// schedules and with many that do not tick, and three calls a tick at most if they do.
func TestKeptSchedulesCostNothingWhileTheyDoNotTick(t *testing.T) {
	calls := func(schedules int, period time.Duration) (calls int64, ran int) {
		bubble(t, func(b *bench) {
			c := &callCounter{Storage: b.store}
			for n := range schedules {
				b.set(fmt.Sprint("s", n), midge.Every(period), midge.Jitter(min(period, 24*time.Hour)))
			}
			var all ticks
			r := b.newRunner(c, midge.RunnerConfig{}, all.run)
			must(r.Start(b.Context()))
			b.after(time.Minute)
			before := c.calls.Load()
			began := b.stats(midge.DefaultQueue).Totals.Enqueued
			b.after(10 * time.Minute)
			calls, ran = c.calls.Load()-before, int(b.stats(midge.DefaultQueue).Totals.Enqueued-began)
			if all.late > time.Second/10 {
				t.Errorf("a tick ran %v late", all.late)
			}
			must(r.Shutdown(b.Context()))
		})
		return calls, ran
	}
	none, _ := calls(0, time.Hour)
	still, ran := calls(keptMany, 20000*24*time.Hour) // about 2024 and 2079
	if ran != 0 || still > none*11/10 {
		t.Errorf("%d calls of a runner with %d schedules that do not tick, %d without schedules", still, keptMany, none)
	}
	ticking, ran := calls(keptMany, time.Hour)
	if want := keptMany / 6; ran < want*8/10 || ran > want*12/10 {
		t.Errorf("%d ticks in ten minutes, want about %d", ran, want)
	}
	t.Logf("a second: %.1f calls without schedules, %.1f with %d that do not tick, %.1f with %.1f ticks",
		float64(none)/600, float64(still)/600, keptMany, float64(ticking)/600, float64(ran)/600)
	if most := none + 5*int64(ran); ticking > most { // a claim and a change for the tick, a claim and a settle for the task
		t.Errorf("%d calls for %d ticks, want %d at most", ticking, ran, most)
	}
}

// quiet is a time in which no tick of a version of a schedule may be made: from the acknowledgement of its end, or
// of its pause, to the call that resumes it.
type quiet struct{ from, to time.Time }

// changes changes kept schedules at random, and notes when none of their ticks may be made.
type changes struct {
	*bench

	random   *rand.Rand
	queue    *midge.Queue
	versions map[string]string // by name: the version that is set, as the name of its job
	paused   map[string]bool
	quiets   map[string][]quiet // by version
}

func (c *changes) ends(version string) {
	c.quiets[version] = append(c.quiets[version], quiet{from: time.Now()})
}

// change makes the n-th change.
func (c *changes) change(n int) {
	name := fmt.Sprint("s", c.random.IntN(4))
	version := c.versions[name]
	switch do := c.random.IntN(5); {
	case version == "" || do < 2:
		c.versions[name] = fmt.Sprint(name, " ", n)
		period := time.Duration(1+c.random.IntN(2)) * time.Second
		must(c.queue.SetSchedule(c.ctx, name, midge.Every(period), work{c.versions[name]}, midge.Jitter(time.Second),
			midge.KeepFor(24*time.Hour), midge.AllMissed(0)))
		if c.ends(version); c.paused[name] {
			c.ends(c.versions[name])
		}
	case do == 2 && c.random.IntN(3) == 0:
		must(c.queue.RemoveSchedule(c.ctx, name))
		c.ends(version)
		c.versions[name], c.paused[name] = "", false
	case c.paused[name]:
		c.quiets[version][len(c.quiets[version])-1].to = time.Now()
		must(c.queue.ResumeSchedule(c.ctx, name))
		c.paused[name] = false
	default:
		must(c.queue.PauseSchedule(c.ctx, name))
		c.ends(version)
		c.paused[name] = true
	}
}

// check checks each tick that was made, and returns how many there are.
func (c *changes) check() int {
	c.Helper()
	made := make(map[string]bool)
	for _, state := range []midge.State{midge.Completed, midge.Waiting} {
		for task, err := range c.client.Queue(midge.DefaultQueue).Tasks(c.Context(), state) {
			must(err)
			var w work
			must(midge.Decode(task, &w))
			tick := w.Name + " at " + task.Tick().String()
			if made[tick] {
				c.Errorf("%s was made twice", tick)
			}
			made[tick] = true
			for _, is := range c.quiets[w.Name] {
				if task.Created.After(is.from) && (is.to.IsZero() || task.Created.Before(is.to)) {
					c.Errorf("%s was made at %v, though none may be after %v", tick, task.Created, is.from)
				}
			}
		}
	}
	return len(made)
}

// TestNoTickFollowsAnAcknowledgedChange changes kept schedules at random while runners far from their storage tick
// them, and are replaced in the middle of their work.
func TestNoTickFollowsAnAcknowledgedChange(t *testing.T) {
	bubble(t, func(b *bench) {
		client, err := midge.NewClient(distant{b.store}, midge.ClientConfig{})
		must(err)
		c := changes{
			bench: b, random: rand.New(rand.NewPCG(32, 2)), queue: client.Queue(midge.DefaultQueue),
			versions: make(map[string]string), paused: make(map[string]bool), quiets: make(map[string][]quiet),
		}
		start := func() *midge.Runner {
			r := b.newRunner(distant{b.store}, midge.RunnerConfig{}, func(context.Context, work) error { return nil })
			must(r.Start(b.Context()))
			return r
		}
		runners := []*midge.Runner{start(), start(), start()}
		over, cancel := context.WithCancel(b.Context())
		cancel()
		for n := range 400 {
			c.change(n)
			if n%20 == 0 {
				i := c.random.IntN(len(runners))
				must(runners[i].Shutdown(over))
				runners[i] = start()
			}
			b.after(time.Duration(c.random.IntN(1500)) * time.Millisecond)
		}
		for _, r := range runners {
			must(r.Shutdown(b.Context()))
		}
		if n := c.check(); n < 200 {
			t.Errorf("%d ticks, want more", n)
		}
	})
}
