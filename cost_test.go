package midge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// letters is a job whose start costs as many as it has letters. BeforeEnqueue fills in the number.
type letters struct{ N int }

func (l *letters) BeforeEnqueue(context.Context) error {
	if l.N == 0 {
		l.N = 9
	}
	return nil
}

// Cost fails for some numbers.
func (l *letters) Cost() int {
	switch l.N {
	case 13:
		panic("bad luck")
	case -1:
		return 0
	}
	return l.N
}

// flat is a job whose type declares a cost for all tasks, although it has a method, too.
type flat struct{ Name string }

func (flat) Options() midge.Options { return midge.Options{Cost: 4} }
func (flat) Cost() int              { return 99 }

// free is a job whose type declares that it costs nothing.
type free struct{ Name string }

func (free) Options() midge.Options { return midge.Options{Cost: midge.None} }

// single is a job whose type declares the default.
type single struct{ Name string }

func (single) Options() midge.Options { return midge.Options{Cost: 1} }

// steep has a cost that is out of bounds.
type steep struct{ Name string }

func (steep) Options() midge.Options { return midge.Options{Cost: -2} }

// priced has a method Cost with another signature.
type priced struct{ Name string }

func (priced) Cost() float64 { return 1.5 }

// costs fails the test if a task has another cost.
func (b *bench) costs(what string, task midge.Task, want int) {
	b.Helper()
	if stored := b.task(task.Ref); task.Cost.N() != want || stored.Cost.N() != want {
		b.Errorf("%s: returned with the cost %d, and stored with %d, want %d",
			what, task.Cost.N(), stored.Cost.N(), want)
	}
}

func TestEachWayToEnqueueAsksForTheCost(t *testing.T) {
	bubble(t, func(b *bench) {
		put := func(what string, want int, job any, opts ...midge.Option) {
			b.Helper()
			task, err := b.client.Enqueue(b.ctx, job, opts...)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			b.costs(what, task, want)
		}
		put("a value", 7, letters{7})
		put("a pointer", 7, &letters{7})
		put("a field of BeforeEnqueue", 9, letters{})
		put("one", 1, letters{1})
		put("nothing", 0, letters{-1})
		put("the highest", 1_000_000, letters{1_000_000})
		put("the option", 3, letters{7}, midge.Cost(3))
		put("the option for one", 1, letters{7}, midge.Cost(1))
		put("the option for nothing", 0, letters{7}, midge.Cost(0))
		put("the options of the type", 4, flat{})
		put("the option over the type", 5, flat{}, midge.Cost(5))
		put("a type that costs nothing", 0, free{})
		put("a type that costs one", 1, single{})
		put("a type without", 1, work{})
		later, err := b.client.EnqueueIn(b.ctx, time.Hour, letters{7})
		if err != nil {
			t.Fatal(err)
		}
		b.costs("later", later, 7)
		within, err := b.client.With(b.store).Enqueue(b.ctx, letters{7})
		if err != nil {
			t.Fatal(err)
		}
		b.costs("within a transaction", within, 7)
		results, err := b.client.EnqueueMany(b.ctx, []midge.Item{
			midge.New(letters{7}), midge.New(&letters{8}), midge.New(letters{8}, midge.Cost(0)),
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{7, 8, 0} {
			b.costs("many", results[i].Task, want)
		}
	})
}

func TestACostThatIsInvalidIsRefused(t *testing.T) {
	bubble(t, func(b *bench) {
		for name, c := range map[string]struct {
			job  any
			opts []midge.Option
			says string
		}{
			"a panic": {letters{13}, nil, "midge: enqueue letters: invalid job \"midge_test.letters\": " +
				"want a method Cost that returns, not a panic: bad luck"},
			"a negative answer": {letters{-5}, nil, "midge: enqueue letters: " +
				`invalid answer of Cost of midge_test.letters -5: want 0 to 1000000`},
			"a high answer": {letters{1_000_001}, nil, "midge: enqueue letters: " +
				`invalid answer of Cost of midge_test.letters 1000001: want 0 to 1000000`},
			"a negative option": {
				work{},
				[]midge.Option{midge.Cost(-1)},
				`midge: enqueue work: invalid Cost -1: want 0 to 1000000`,
			},
			"a high option": {
				work{},
				[]midge.Option{midge.Cost(1_000_001)},
				`midge: enqueue work: invalid Cost 1000001: want 0 to 1000000`,
			},
			"the options of a type": {steep{}, nil, `midge: enqueue: midge_test.steep: ` +
				`invalid Options.Cost -2: want 0 to 1000000, or None for 0; 0 means the default, 1`},
			"another signature": {priced{}, nil, `midge: enqueue: invalid job type "midge_test.priced": ` +
				"want no method Cost, or one that is Cost() int"},
		} {
			_, err := b.client.Enqueue(b.ctx, c.job, c.opts...)
			if !errors.As(err, new(*midge.InvalidError)) || err.Error() != c.says {
				t.Errorf("%s: got %v, want an *InvalidError: %s", name, err, c.says)
			}
		}
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		err := midge.Handle(r, func(context.Context, priced) error { return nil })
		if !errors.As(err, new(*midge.InvalidError)) || !strings.Contains(err.Error(), "one that is Cost() int") {
			t.Errorf("register with another signature: got %v", err)
		}
		if err := r.Periodic(midge.Every(time.Hour), letters{13}); !errors.As(err, new(*midge.InvalidError)) {
			t.Errorf("declare a schedule with a panic: got %v", err)
		}
		task, err := b.client.Enqueue(b.ctx, letters{7})
		if err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"a change with a panic":      b.client.ChangeJob(b.ctx, task.Ref, letters{13}),
			"a change with a high cost":  b.client.Change(b.ctx, task.Ref, midge.Cost(1_000_001)),
			"a change to a costly job":   b.client.ChangeJob(b.ctx, task.Ref, letters{1_000_001}),
			"a change of another's type": b.client.ChangeJob(b.ctx, task.Ref, priced{}),
		} {
			if !errors.As(err, new(*midge.InvalidError)) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		b.costs("after changes that were refused", task, 7)
	})
}

// TestAChangeOfTheJobChangesTheCost: the task keeps its place in the line.
func TestAChangeOfTheJobChangesTheCost(t *testing.T) {
	bubble(t, func(b *bench) {
		first, err := b.client.Enqueue(b.ctx, letters{7}, midge.ID("first"))
		if err != nil {
			t.Fatal(err)
		}
		b.enqueue("w", midge.ID("w"), midge.Cost(6)) // its type has no method
		want := func(what string, id string, err error, cost int) {
			b.Helper()
			if got := b.task(ref("default", id)).Cost.N(); err != nil || got != cost {
				t.Errorf("%s: cost %d, %v; want %d", what, got, err, cost)
			}
		}
		want("another job", "first", b.client.ChangeJob(b.ctx, first.Ref, letters{8}), 8)
		want("the option", "first", b.client.ChangeJob(b.ctx, first.Ref, letters{8}, midge.Cost(0)), 0)
		want("a change", "first", b.client.Change(b.ctx, first.Ref, midge.Cost(1)), 1)
		want("the same again", "first", b.client.Change(b.ctx, first.Ref, midge.Cost(1)), 1)
		want("a job without the method", "w", b.client.ChangeJob(b.ctx, ref("default", "w"), work{"x"}), 6)
		var ids []string
		for task, err := range b.client.Queue("default").Tasks(b.ctx, midge.Waiting) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, task.ID)
		}
		if !slices.Equal(ids, []string{"first", "w"}) {
			t.Errorf("the line is %v", ids)
		}
		err = b.client.ChangeJob(b.ctx, first.Ref, letters{5}, midge.To("other"), midge.Priority(2))
		if got := b.task(ref("other", "first")).Cost.N(); err != nil || got != 5 {
			t.Errorf("after a move with another job: cost %d, %v", got, err)
		}
	})
}

// TestTheCostStays: follow-ups, retries, snoozes and requeues have their cost, and RunInfo has it.
func TestTheCostStays(t *testing.T) {
	bubble(t, func(b *bench) {
		var seen []int
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		err := midge.Handle(r, func(ctx context.Context, job letters) error {
			info, _ := midge.Current(ctx)
			seen = append(seen, info.Cost)
			switch {
			case job.N == -1:
				return nil
			case info.Snoozes == 0 && info.Retries == 0:
				return midge.Snooze(time.Second)
			case info.Retries == 0:
				return errBroken
			}
			return errors.Join(midge.FollowUp(ctx, letters{-1}), midge.SetResult(ctx, 1))
		})
		if err != nil {
			t.Fatal(err)
		}
		b.runner = r
		go func() { b.done <- r.Run(b.ctx) }()
		task, err := b.client.Enqueue(b.ctx, letters{7})
		if err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if want := []int{7, 7, 7, 0}; !slices.Equal(seen, want) {
			t.Errorf("got %v, want %v", seen, want)
		}
		if err := b.client.Requeue(b.ctx, task.Ref); err != nil {
			t.Fatal(err)
		}
		if got := b.task(task.Ref).Cost.N(); got != 7 {
			t.Errorf("after a requeue: cost %d", got)
		}
	})
}

// TestAScheduleStoresTheCost: its ticks and runs have the cost, and another one is another declaration.
func TestAScheduleStoresTheCost(t *testing.T) {
	bubble(t, func(b *bench) {
		var seen []int
		declare := func(opts ...midge.PeriodicOption) {
			b.Helper()
			r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
			err := errors.Join(
				midge.Handle(r, func(ctx context.Context, _ letters) error {
					info, _ := midge.Current(ctx)
					seen = append(seen, info.Cost)
					return nil
				}),
				r.Periodic(midge.Every(time.Minute), letters{7}, opts...))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			b.after(time.Minute + time.Second)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		declare()
		declare(midge.Cost(0))
		queue := b.client.Queue("default")
		for _, cost := range []int{5, 6} {
			if err := queue.SetSchedule(b.ctx, "kept", midge.Every(time.Hour), letters{cost}); err != nil {
				t.Fatal(err)
			}
			run, err := queue.RunSchedule(b.ctx, "kept")
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, b.task(run).Cost.N())
		}
		if want := []int{7, 0, 5, 6}; !slices.Equal(seen, want) {
			t.Errorf("got %v, want %v", seen, want)
		}
	})
}

// TestWhyNamesTheCost: the first task costs more than the rate has left, so that it waits, and the others wait
// for it.
func TestWhyNamesTheCost(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCrowd("default")
		b.run(midge.RunnerConfig{
			QueueLimits: map[string]midge.Limit{"default": {Rate: midge.Rate{N: 10, Per: time.Minute}}},
		}, c.job(time.Millisecond))
		b.enqueue("first", midge.Cost(6))
		b.after(20 * time.Second)
		first := b.enqueue("costs more than is left", midge.Cost(5))
		high := b.enqueue("costs more than N", midge.Cost(1000), midge.Priority(-1))
		cheap := b.enqueue("costs one", midge.Priority(-2))
		free := b.enqueue("costs nothing", midge.Cost(0), midge.Priority(-3))
		b.after(time.Second)
		for _, w := range []struct {
			task midge.Task
			text string
		}{
			{first, "rate of default, 10 in 1m: next start of cost 5 in 4"},
			{high, "rate of default, 10 in 1m: next start of cost 1000 in 4"},
			{cheap, "rate of default, 10 in 1m: next start of cost 5 in 4"},
			{free, "rate of default, 10 in 1m: next start of cost 5 in 4"},
		} {
			v, err := b.client.Why(b.ctx, w.task.Ref)
			if err != nil {
				t.Fatal(err)
			}
			if v.Cause != storage.CauseRate || !strings.HasPrefix(v.String(), w.text) || v.ETA < v.Until.Sub(v.Now) {
				t.Errorf("%s: %s, in %v, want %s: %s", v.Cause, v, v.ETA, storage.CauseRate, w.text)
			}
		}
		if got := c.ran["default"].Load(); got != 1 {
			t.Errorf("%d jobs have run, want 1: something overtook", got)
		}
		b.after(45 * time.Second)
		if got := c.ran["default"].Load(); got != 2 {
			t.Errorf("%d jobs have run a minute after the first, want 2", got)
		}
	})
}
