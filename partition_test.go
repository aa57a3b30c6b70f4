package midge_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// rent is a job whose tenant is its partition. BeforeEnqueue fills in the tenant.
type rent struct{ Tenant, Month string }

func (r *rent) BeforeEnqueue(context.Context) error {
	if r.Tenant == "" {
		r.Tenant = "nobody"
	}
	return nil
}

// Partition fails for some tenants.
func (r *rent) Partition() string {
	switch r.Tenant {
	case "panics":
		panic("no tenant")
	case "long":
		return strings.Repeat("x", storage.MaxPartition+1)
	case "none":
		return ""
	}
	return r.Tenant
}

// bundled is a job whose type declares a partition for all tasks, although it has a method, too.
type bundled struct{ Name string }

func (bundled) Options() midge.Options { return midge.Options{Partition: "bundles"} }
func (bundled) Partition() string      { return "of the method" }

// spaced has a method Partition with another signature.
type spaced struct{ Name string }

func (spaced) Partition() (string, error) { return "", nil }

// in fails the test if a task has another partition.
func (b *bench) in(what string, task midge.Task, want string) {
	b.Helper()
	if stored := b.task(task.Ref); task.Partition != want || stored.Partition != want {
		b.Errorf("%s: returned with the partition %q, and stored with %q, want %q",
			what, task.Partition, stored.Partition, want)
	}
}

func TestEachWayToEnqueueAsksForThePartition(t *testing.T) {
	bubble(t, func(b *bench) {
		put := func(what, want string, job any, opts ...midge.Option) {
			b.Helper()
			task, err := b.client.Enqueue(b.ctx, job, opts...)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			b.in(what, task, want)
		}
		put("a value", "ann", rent{Tenant: "ann"})
		put("a pointer", "ann", &rent{Tenant: "ann"})
		put("a field of BeforeEnqueue", "nobody", rent{})
		put("no key", "", rent{Tenant: "none"})
		put("the option", "Ännchen & Co", rent{Tenant: "ann"}, midge.Partition("Ännchen & Co"))
		put("the option for none", "", rent{Tenant: "ann"}, midge.Partition(""))
		put("the options of the type", "bundles", bundled{})
		put("the option over the type", "x", bundled{}, midge.Partition("x"))
		put("a type without", "", work{})
		later, err := b.client.EnqueueIn(b.ctx, time.Hour, rent{Tenant: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		b.in("later", later, "ann")
		within, err := b.client.With(b.store).Enqueue(b.ctx, rent{Tenant: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		b.in("within a transaction", within, "ann")
		results, err := b.client.EnqueueMany(b.ctx, []midge.Item{
			midge.New(rent{Tenant: "ann"}), midge.New(&rent{Tenant: "bob"}), midge.New(rent{Tenant: "bob"}, midge.Partition("c")),
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"ann", "bob", "c"} {
			b.in("many", results[i].Task, want)
		}
	})
}

func TestAPartitionThatIsInvalidIsRefused(t *testing.T) {
	bubble(t, func(b *bench) {
		for name, c := range map[string]struct {
			job  any
			opts []midge.Option
			says string
		}{
			"a panic": {rent{Tenant: "panics"}, nil, "midge: enqueue rent: invalid job \"midge_test.rent\": " +
				"want a method Partition that returns, not a panic: no tenant"},
			"a long answer": {rent{Tenant: "long"}, nil, "midge: enqueue rent: " +
				`invalid answer of Partition of midge_test.rent "of 129 bytes": want 1 to 128 bytes`},
			"a long option": {
				work{},
				[]midge.Option{midge.Partition(strings.Repeat("x", 129))},
				`midge: enqueue work: invalid Partition "of 129 bytes": want 1 to 128 bytes`,
			},
			"a control character": {
				work{},
				[]midge.Option{midge.Partition("a\nb")},
				`midge: enqueue work: invalid Partition "a\nb": want printable UTF-8`,
			},
			"another signature": {spaced{}, nil, `midge: enqueue: invalid job type "midge_test.spaced": ` +
				"want no method Partition, or one that is Partition() string"},
		} {
			_, err := b.client.Enqueue(b.ctx, c.job, c.opts...)
			if !errors.As(err, new(*midge.InvalidError)) || err.Error() != c.says {
				t.Errorf("%s: got %v, want an *InvalidError: %s", name, err, c.says)
			}
		}
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		err := midge.Handle(r, func(context.Context, spaced) error { return nil })
		if !errors.As(err, new(*midge.InvalidError)) || !strings.Contains(err.Error(), "one that is Partition() string") {
			t.Errorf("register with another signature: got %v", err)
		}
		if err := r.Periodic(midge.Every(time.Hour), rent{Tenant: "panics"}); !errors.As(err, new(*midge.InvalidError)) {
			t.Errorf("declare a schedule with a panic: got %v", err)
		}
		task, err := b.client.Enqueue(b.ctx, rent{Tenant: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.client.ChangeJob(b.ctx, task.Ref, rent{Tenant: "panics"}); !errors.As(err, new(*midge.InvalidError)) {
			t.Errorf("change with a panic: got %v", err)
		}
	})
}

// TestAChangeOfTheJobChangesThePartition: a task with another partition joins the end of its line, and a task whose
// partition stays keeps its place.
func TestAChangeOfTheJobChangesThePartition(t *testing.T) {
	bubble(t, func(b *bench) {
		line := func(key string) (ids []string) {
			b.Helper()
			for task, err := range b.client.Queue("default").Partition(key).Tasks(b.ctx) {
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, task.ID)
			}
			return ids
		}
		put := func(id, tenant string) midge.Ref {
			b.Helper()
			task, err := b.client.Enqueue(b.ctx, rent{Tenant: tenant}, midge.ID(id))
			if err != nil {
				t.Fatal(err)
			}
			return task.Ref
		}
		ann1, _, bob := put("ann1", "ann"), put("ann2", "ann"), put("bob", "bob")
		must := func(err error) {
			b.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		want := func(key string, ids ...string) {
			b.Helper()
			if got := line(key); !slices.Equal(got, ids) {
				t.Errorf("in partition %s: %v, want %v", key, got, ids)
			}
		}
		must(b.client.ChangeJob(b.ctx, ann1, rent{Tenant: "ann", Month: "May"}))
		want("ann", "ann1", "ann2")
		must(b.client.ChangeJob(b.ctx, bob, rent{Tenant: "ann"}))
		want("ann", "ann1", "ann2", "bob")
		want("bob")
		must(b.client.Change(b.ctx, ann1, midge.Partition("bob"), midge.Priority(3)))
		want("bob", "ann1")
		must(b.client.ChangeJob(b.ctx, ann1, rent{Tenant: "ann"}, midge.Partition("carl")))
		want("carl", "ann1")
		must(b.client.Change(b.ctx, ann1, midge.Partition("")))
		if got := b.task(ann1).Partition; got != "" {
			t.Errorf("the partition %q is left", got)
		}
		must(b.client.ChangeJob(b.ctx, ann1, rent{Tenant: "ann"}, midge.To("other")))
		if got := b.task(ref("other", "ann1")).Partition; got != "ann" {
			t.Errorf("after a move with another job: partition %q, want ann", got)
		}
		b.enqueue("w", midge.ID("w"), midge.Partition("ann")) // its type has no method
		must(b.client.ChangeJob(b.ctx, ref("default", "w"), work{"x"}))
		if got := b.task(ref("default", "w")).Partition; got != "ann" {
			t.Errorf("after a change of a job without the method: partition %q, want ann", got)
		}
	})
}

// TestThePartitionStays: follow-ups, retries, snoozes and requeues have their partition, and RunInfo has it.
func TestThePartitionStays(t *testing.T) {
	bubble(t, func(b *bench) {
		var seen []string
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		err := midge.Handle(r, func(ctx context.Context, job rent) error {
			info, _ := midge.Current(ctx)
			seen = append(seen, job.Month+" "+info.Partition)
			switch {
			case job.Month == "follow":
				return nil
			case info.Snoozes == 0 && info.Retries == 0:
				return midge.Snooze(time.Second)
			case info.Retries == 0:
				return errBroken
			}
			return errors.Join(midge.FollowUp(ctx, rent{Tenant: "bob", Month: "follow"}), midge.SetResult(ctx, 1))
		})
		if err != nil {
			t.Fatal(err)
		}
		b.runner = r
		go func() { b.done <- r.Run(b.ctx) }()
		task, err := b.client.Enqueue(b.ctx, rent{Tenant: "ann", Month: "May"})
		if err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if want := []string{"May ann", "May ann", "May ann", "follow bob"}; !slices.Equal(seen, want) {
			t.Errorf("got %v, want %v", seen, want)
		}
		if err := b.client.Requeue(b.ctx, task.Ref); err != nil {
			t.Fatal(err)
		}
		if got := b.task(task.Ref).Partition; got != "ann" {
			t.Errorf("after a requeue: partition %q", got)
		}
	})
}

// TestAScheduleStoresThePartition: its ticks and runs have the partition, and another one is another declaration.
func TestAScheduleStoresThePartition(t *testing.T) {
	bubble(t, func(b *bench) {
		var seen []string
		declare := func(opts ...midge.PeriodicOption) {
			b.Helper()
			r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
			err := errors.Join(
				midge.Handle(r, func(ctx context.Context, _ rent) error {
					info, _ := midge.Current(ctx)
					seen = append(seen, info.Partition)
					return nil
				}),
				r.Periodic(midge.Every(time.Minute), rent{Tenant: "ann"}, opts...))
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
		declare(midge.Partition("bob"))
		queue := b.client.Queue("default")
		for range 2 { // the second writes nothing
			if err := queue.SetSchedule(b.ctx, "kept", midge.Every(time.Hour), rent{Tenant: "carl"}); err != nil {
				t.Fatal(err)
			}
		}
		run, err := queue.RunSchedule(b.ctx, "kept")
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, b.task(run).Partition)
		if err := queue.SetSchedule(b.ctx, "kept", midge.Every(time.Hour), rent{Tenant: "carl"}, midge.Partition("dora")); err != nil {
			t.Fatal(err)
		}
		if run, err = queue.RunSchedule(b.ctx, "kept"); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, b.task(run).Partition)
		if want := []string{"ann", "bob", "carl", "dora"}; !slices.Equal(seen, want) {
			t.Errorf("got %v, want %v", seen, want)
		}
	})
}

// TestAPauseOfAPartitionHoldsItAlone pauses one partition, whose tasks Why explains, and resumes it.
func TestAPauseOfAPartitionHoldsItAlone(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCrowd("default")
		ann := b.client.Queue("default").Partition("ann")
		if err := ann.Pause(b.ctx); !errors.Is(err, midge.ErrNotFound) ||
			err.Error() != "midge: pause partition ann of queue default: there is no such queue" {
			t.Errorf("pause in no queue: got %v", err)
		}
		must := func(err error) {
			b.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		ran := func(want int64) {
			b.Helper()
			b.after(20 * time.Millisecond)
			if got := c.ran["default"].Load(); got != want {
				t.Errorf("%d jobs have run, want %d", got, want)
			}
		}
		must(b.client.Queue("default").Create(b.ctx))
		must(ann.Pause(b.ctx)) // before its first task
		b.run(midge.RunnerConfig{}, c.job(time.Millisecond))
		first := b.enqueue("1", midge.Partition("ann"))
		b.enqueue("2", midge.Partition("bob"))
		b.enqueue("3")
		ran(2)
		stats, err := ann.Stats(b.ctx)
		must(err)
		if want := (midge.PartitionStats{Key: "ann", Waiting: 1, Paused: true}); !reflect.DeepEqual(stats, want) {
			t.Errorf("got %+v", stats)
		}
		v, err := b.client.Why(b.ctx, first.Ref)
		must(err)
		if want := "partition ann of default is paused until it is resumed"; v.Cause != storage.CausePartitionPaused || v.String() != want {
			t.Errorf("got %s: %s, want %s", v.Cause, v, want)
		}
		must(ann.Resume(b.ctx))
		ran(3)
		must(ann.PauseFor(b.ctx, time.Minute))
		last := b.enqueue("4", midge.Partition("ann"))
		ran(3)
		if v, err = b.client.Why(b.ctx, last.Ref); err != nil || !v.Until.After(v.Now.Add(50*time.Second)) {
			t.Errorf("got %s until %v, %v", v, v.Until, err)
		}
		b.after(time.Minute)
		ran(4)
		for p, err := range b.client.Queue("default").Partitions(b.ctx) {
			t.Errorf("the partition %+v is left, %v", p, err)
		}
	})
}

func TestAQueuePartitionChecksItsKey(t *testing.T) {
	bubble(t, func(b *bench) {
		for _, p := range []*midge.QueuePartition{
			b.client.Queue("default").Partition(""), b.client.Queue("default").Partition("a\x00"), b.client.Queue("a/b").Partition("x"),
		} {
			_, statsErr := p.Stats(b.ctx)
			var listErr error
			for _, err := range p.Tasks(b.ctx) {
				listErr = err
			}
			for _, err := range []error{p.Pause(b.ctx), p.PauseFor(b.ctx, time.Minute), p.Resume(b.ctx), statsErr, listErr} {
				if !errors.As(err, new(*midge.InvalidError)) {
					t.Errorf("partition %q: got %v, want an *InvalidError", p.Key(), err)
				}
			}
		}
		for _, err := range b.client.Queue("a/b").Partitions(b.ctx) {
			if !errors.As(err, new(*midge.InvalidError)) {
				t.Errorf("got %v, want an *InvalidError", err)
			}
		}
		if err := b.client.Queue("default").Partition("a").PauseFor(b.ctx, 30); !errors.As(err, new(*midge.InvalidError)) {
			t.Errorf("got %v, want an *InvalidError", err)
		}
	})
}

func TestPartitionsAreListed(t *testing.T) {
	bubble(t, func(b *bench) {
		for i := range 1500 { // more than a page
			b.enqueue("", midge.Partition(fmt.Sprintf("tenant %04d", i)))
		}
		b.enqueue("", midge.Partition("tenant 0001"))
		n := 0
		for p, err := range b.client.Queue("default").Partitions(b.ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if want := (midge.PartitionStats{Key: fmt.Sprintf("tenant %04d", n), Waiting: 1 + map[int]int64{1: 1}[n]}); !reflect.DeepEqual(p, want) {
				t.Fatalf("got %+v, want %+v", p, want)
			}
			n++
		}
		if n != 1500 {
			t.Errorf("%d partitions, want 1500", n)
		}
		for _, err := range b.client.Queue("default").Partitions(b.ctx) {
			if err != nil {
				t.Error(err)
			}
			break // ends the listing
		}
	})
}

// waits records how long the tasks of partitions have waited, by partition.
type waits struct {
	mu sync.Mutex
	of map[string][]time.Duration
}

func (w *waits) job(take time.Duration) func(context.Context, work) error {
	return func(ctx context.Context, _ work) error {
		info, _ := midge.Current(ctx)
		w.mu.Lock()
		w.of[info.Partition] = append(w.of[info.Partition], time.Since(info.Created))
		w.mu.Unlock()
		select {
		case <-time.After(take):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// TestASmallTenantDoesNotWaitForABigOne: beside a backlog of 10,000 tasks of another tenant, the jobs of small
// tenants on two runners start within the time of one job and of the work that is claimed ahead.
func TestASmallTenantDoesNotWaitForABigOne(t *testing.T) {
	for name, c := range map[string]struct{ take, most time.Duration }{
		"short":  {500 * time.Microsecond, 6 * time.Millisecond},
		"longer": {10 * time.Millisecond, 15 * time.Millisecond},
		"long":   {time.Second, 1005 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				w := waits{of: make(map[string][]time.Duration)}
				cfg := midge.RunnerConfig{Concurrency: 10}
				b.run(cfg, w.job(c.take))
				defer b.second(cfg, w.job(c.take))()
				items := make([]midge.Item, 10_000)
				for i := range items {
					items[i] = midge.New(work{fmt.Sprint(i)}, midge.Partition("big"))
				}
				if _, err := b.client.EnqueueMany(b.ctx, items); err != nil {
					t.Fatal(err)
				}
				for range 20 {
					b.enqueue("", midge.Partition("small"))
					b.enqueue("")
					b.after(7 * c.take)
				}
				b.after(2 * c.most)
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, key := range []string{"small", ""} {
					of := w.of[key]
					if len(of) != 20 || slices.Max(of) > c.most {
						t.Errorf("%d tasks of %q have started, after %v; want 20, after at most %v", len(of), key, of, c.most)
					}
				}
				t.Logf("after %v at most, beside %d others", slices.Max(w.of["small"]), len(w.of["big"]))
			})
		})
	}
}

// TestTenantsShareTheSlots: two tenants with backlogs of different sizes, one of which has all the higher priorities,
// are served equally.
func TestTenantsShareTheSlots(t *testing.T) {
	bubble(t, func(b *bench) {
		w := waits{of: make(map[string][]time.Duration)}
		for i := range 2000 {
			b.enqueue(fmt.Sprint(i), midge.Partition("big"), midge.Priority(9))
			if i < 500 {
				b.enqueue(fmt.Sprint(i), midge.Partition("small"))
			}
		}
		b.run(midge.RunnerConfig{Concurrency: 4}, w.job(10*time.Millisecond))
		b.after(time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if big, small := len(w.of["big"]), len(w.of["small"]); big-small > 10 || small-big > 10 || small < 150 {
			t.Errorf("%d jobs of the big tenant have run, and %d of the small one", big, small)
		}
	})
}
