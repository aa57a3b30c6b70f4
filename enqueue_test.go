package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// passing returns a middleware that passes on the inserts that choose returns.
func passing(choose func([]*storage.Insert) []*storage.Insert) midge.EnqueueMiddleware {
	return func(next func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
		return func(ctx context.Context, inserts []*storage.Insert) error { return next(ctx, choose(inserts)) }
	}
}

// failing returns a middleware that returns err.
func failing(err error) midge.EnqueueMiddleware {
	return func(func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
		return func(context.Context, []*storage.Insert) error { return err }
	}
}

// marking adds its name to a header of each insert.
func marking(name string) midge.EnqueueMiddleware {
	return passing(func(inserts []*storage.Insert) []*storage.Insert {
		for _, in := range inserts {
			in.Headers = map[string]string{"through": in.Headers["through"] + name}
		}
		return inserts
	})
}

// odd leaves out the tasks with a certain header.
func odd(inserts []*storage.Insert) (passed []*storage.Insert) {
	for _, in := range inserts {
		if in.Headers["out"] == "" {
			passed = append(passed, in)
		}
	}
	return passed
}

// A caller can recover from the panic of a middleware, whichever part of the call causes it.
func TestEnqueueMiddlewareRunsInTheGoroutineOfItsCaller(t *testing.T) {
	bubble(t, func(b *bench) {
		c, err := midge.NewClient(b.store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{
			passing(func([]*storage.Insert) []*storage.Insert { panic("it is broken") }),
		}})
		if err != nil {
			t.Fatal(err)
		}
		items := make([]midge.Item, 600) // in two parts
		for i := range items {
			items[i] = midge.New(work{})
		}
		defer func() {
			if got := recover(); got != "it is broken" {
				t.Errorf("got %v, want the panic", got)
			}
		}()
		_, err = c.EnqueueMany(b.ctx, items)
		t.Errorf("got %v, want a panic", err)
	})
}

func TestEnqueueMiddlewareAltersAndLeavesOut(t *testing.T) {
	bubble(t, func(b *bench) {
		c, err := midge.NewClient(b.store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{passing(odd), marking("a"), marking("b")}})
		if err != nil {
			t.Fatal(err)
		}
		task, err := c.Enqueue(b.ctx, work{"in"})
		if err != nil || task.Headers["through"] != "ab" || b.task(task.Ref).Headers["through"] != "ab" {
			t.Errorf("got %+v, %v; want it marked by both, the first outermost", task, err)
		}
		if task, err = c.Enqueue(b.ctx, work{"out"}, midge.Header("out", "1")); !errors.Is(err, midge.ErrSkipped) || task.ID != "" {
			t.Errorf("got %v, %v; want ErrSkipped and no task", task, err)
		}
		out := midge.New(work{"out"}, midge.Header("out", "1"))
		results, err := c.EnqueueMany(b.ctx, []midge.Item{midge.New(work{"1"}), out, midge.New(work{"2"})})
		if !errors.Is(err, midge.ErrSkipped) || results[0].Err != nil || !errors.Is(results[1].Err, midge.ErrSkipped) || results[2].Err != nil {
			t.Errorf("got %+v, %v; want the second left out", results, err)
		}
		if n := b.stats("default").Waiting; n != 3 {
			t.Errorf("%d wait, want 3", n)
		}
	})
}

func TestEnqueueMiddlewareIsCheckedBehind(t *testing.T) {
	boom := errors.New("boom")
	twice := func(next func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
		return func(ctx context.Context, inserts []*storage.Insert) error {
			return errors.Join(next(ctx, inserts[:0]), next(ctx, inserts))
		}
	}
	swallowing := func(next func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
		return func(ctx context.Context, inserts []*storage.Insert) error {
			inserts[0].Priority = 10
			_ = next(ctx, inserts)
			return nil
		}
	}
	edit := func(edit func(in *storage.Insert)) midge.EnqueueMiddleware {
		return passing(func(inserts []*storage.Insert) []*storage.Insert { edit(inserts[0]); return inserts })
	}
	for want, m := range map[string]midge.EnqueueMiddleware{
		"midge: enqueue work: boom":                         failing(boom),
		`midge: enqueue work: invalid next "called again"`:  twice,
		"midge: enqueue work: invalid priority 10":          swallowing,
		`midge: enqueue work: invalid queue name "a b"`:     edit(func(in *storage.Insert) { in.Ref.Queue = "a b" }),
		`midge: enqueue work: invalid queue name "midge.a"`: edit(func(in *storage.Insert) { in.Ref.Queue = "midge.a" }),
		`midge: enqueue work: invalid parameters "of `:      edit(func(in *storage.Insert) { in.Payload = make([]byte, 1<<20+1) }),
		`midge: enqueue work: invalid insert "passed on`: passing(func(ins []*storage.Insert) []*storage.Insert {
			return append(ins, &storage.Insert{Ref: ref("default", "more"), Kind: "work"})
		}),
	} {
		c, err := midge.NewClient(untouched{}, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{m}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Enqueue(t.Context(), work{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	var invalid *midge.InvalidError
	if _, err := midge.NewClient(untouched{}, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{nil}}); !errors.As(err, &invalid) {
		t.Errorf("a nil: got %v, want an *InvalidError", err)
	}
	if _, err := midge.NewRunner(untouched{}, midge.RunnerConfig{EnqueueMiddleware: []midge.EnqueueMiddleware{nil}}); !errors.As(err, &invalid) {
		t.Errorf("a nil of a runner: got %v, want an *InvalidError", err)
	}
}

func TestEnqueueMiddlewareOfARunner(t *testing.T) {
	bubble(t, func(b *bench) {
		skipped, refused := errBroken, error(nil)
		b.run(midge.RunnerConfig{EnqueueMiddleware: []midge.EnqueueMiddleware{passing(odd), marking("r")}},
			func(ctx context.Context, w work) error {
				if w.Name != "first" {
					return nil
				}
				skipped = midge.FollowUp(ctx, work{"out"}, midge.Header("out", "1"))
				refused = midge.FollowUp(ctx, shy{}, midge.In(time.Hour))
				return midge.FollowUp(ctx, work{"next"}, midge.ID("next"), midge.In(time.Hour))
			})
		b.enqueue("first")
		b.after(time.Second)
		if skipped != nil || !errors.Is(refused, errShy) {
			t.Errorf("got %v and %v, want none, and what the job says", skipped, refused)
		}
		if next := b.task(ref("default", "next")); next.Headers["through"] != "r" {
			t.Errorf("got %+v, want it marked", next)
		}
		if n := b.stats("default").Scheduled; n != 1 {
			t.Errorf("%d follow-ups, want 1", n)
		}
	})
}

// Ticks pass through the middleware of the runner; refused ticks are never made.
func TestEnqueueMiddlewareOfTicks(t *testing.T) {
	for name, c := range map[string]struct {
		middleware midge.EnqueueMiddleware
		want       int64
		line       string
	}{
		"passes": {marking("t"), 3, ""}, "refuses": {failing(errors.New("closed")), 0, "a tick is left out: closed"},
		"leaves out": {passing(func([]*storage.Insert) []*storage.Insert { return nil }), 0, "left out by a middleware"},
		"panics":     {passing(func([]*storage.Insert) []*storage.Insert { panic("oh") }), 0, "a tick is left out: panic: oh"},
		"collides": {passing(func(ins []*storage.Insert) []*storage.Insert {
			ins[0].Ref.ID, ins[0].Payload = "taken", []byte(ins[0].Headers[storage.TickHeader])
			return ins
		}), 1, "another task has this id"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				logger, lines := logged()
				b.runner = b.newRunner(b.store, midge.RunnerConfig{
					Logger: logger, EnqueueMiddleware: []midge.EnqueueMiddleware{c.middleware},
				}, nil)
				if err := b.runner.Periodic(midge.Every(time.Minute), work{"tick"}, midge.To("ticks")); err != nil {
					t.Fatal(err)
				}
				go func() { b.done <- b.runner.Run(b.ctx) }()
				b.after(time.Second)
				b.after(3 * time.Minute)
				if n := b.stats("ticks").Totals.Enqueued; n != c.want {
					t.Errorf("%d ticks, want %d", n, c.want)
				}
				if len(lines(c.line)) == 0 {
					t.Errorf("got %q, want a line with %q", lines(""), c.line)
				}
				if s := b.stats("ticks"); s.Cursors != 1 {
					t.Errorf("got %+v, want the schedule kept", s)
				}
			})
		})
	}
}

// TestATickThatAnotherRunnerMadeIsNotLeftOut checks that the log reports no tick as left out that
// another runner has made, whatever this runner's middleware does.
func TestATickThatAnotherRunnerMadeIsNotLeftOut(t *testing.T) {
	for name, middleware := range map[string]midge.EnqueueMiddleware{
		"refuses":    failing(errors.New("closed")),
		"leaves out": passing(func([]*storage.Insert) []*storage.Insert { return nil }),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				cursor, others := ref("ticks", storage.CursorPrefix+"work"), 0
				ticksFirst := func(next func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
					return func(ctx context.Context, ins []*storage.Insert) error {
						at := b.task(cursor) //nolint:contextcheck // the test's own
						moved := *at.Cursor
						moved.Next = moved.Next.Add(time.Hour)
						_, err := storage.NewSession(b.store, 0).ApplyOne(ctx, storage.Tx{
							Changes: []storage.Change{{Ref: cursor, Version: at.Version, Cursor: &moved}},
						})
						if err != nil {
							t.Error(err)
						}
						others++
						return next(ctx, ins)
					}
				}
				logger, lines := logged()
				b.runner = b.newRunner(b.store, midge.RunnerConfig{
					Logger: logger, EnqueueMiddleware: []midge.EnqueueMiddleware{ticksFirst, middleware},
				}, nil)
				if err := b.runner.Periodic(midge.Every(time.Minute), work{"tick"}, midge.To("ticks")); err != nil {
					t.Fatal(err)
				}
				go func() { b.done <- b.runner.Run(b.ctx) }()
				b.after(3*time.Minute + time.Second)
				if got := lines("left out"); others == 0 || len(got) > 0 {
					t.Errorf("another runner made %d ticks, and this one says %q", others, got)
				}
			})
		})
	}
}

func TestRunSchedulePassesTheMiddleware(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := b.runner.Periodic(midge.Every(time.Hour), work{"tick"}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		c, err := midge.NewClient(b.store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{marking("c")}})
		if err != nil {
			t.Fatal(err)
		}
		at, err := c.Queue("default").RunSchedule(b.ctx, "work")
		if err != nil || b.task(at).Headers["through"] != "c" {
			t.Errorf("got %v, %v; want it marked", at, err)
		}
		if c, err = midge.NewClient(b.store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{passing(odd), failing(midge.ErrSkipped)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Queue("default").RunSchedule(b.ctx, "work"); !errors.Is(err, midge.ErrSkipped) {
			t.Errorf("got %v, want ErrSkipped", err)
		}
	})
}

var errShy = errors.New("not today")

// shy is a job that refuses to be enqueued without a name. BeforeEnqueue adds a prefix to the name.
type shy struct{ Name string }

func (s *shy) BeforeEnqueue(context.Context) error {
	if s.Name == "" {
		return errShy
	}
	s.Name = "Ms " + s.Name
	return nil
}

// wrongly has a method BeforeEnqueue with another signature.
type wrongly struct{ Name string }

func (wrongly) BeforeEnqueue() error { return nil }

func TestBeforeEnqueueRefusesAndPrepares(t *testing.T) {
	bubble(t, func(b *bench) {
		if _, err := b.client.Enqueue(b.ctx, shy{}); !errors.Is(err, errShy) || err.Error() != "midge: enqueue shy: not today" {
			t.Errorf("got %v, want what the job says", err)
		}
		given := shy{"Grace"}
		task, err := b.client.Enqueue(b.ctx, given)
		var stored shy
		if err := errors.Join(err, midge.Decode(task, &stored)); err != nil || stored.Name != "Ms Grace" || given.Name != "Grace" {
			t.Errorf("got %+v, %v; want the prepared name, and the caller's value as it was", stored, err)
		}
		results, err := b.client.EnqueueMany(b.ctx, []midge.Item{midge.New(&shy{}), midge.New(&shy{"Ada"})})
		if !errors.Is(err, errShy) || results[1].Err != nil {
			t.Errorf("got %+v, %v; want the first refused", results, err)
		}
		var invalid *midge.InvalidError
		if _, err := b.client.Enqueue(b.ctx, wrongly{}); !errors.As(err, &invalid) {
			t.Errorf("enqueue with another signature: got %v, want an *InvalidError", err)
		}
		r := b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := midge.Handle(r, func(context.Context, wrongly) error { return nil }); !errors.As(err, &invalid) {
			t.Errorf("register with another signature: got %v, want an *InvalidError", err)
		}
	})
}

// bulky is a job with large parameters. BeforeEnqueue adds a prefix to the name.
type bulky struct {
	Name string
	Body []byte
}

func (j *bulky) BeforeEnqueue(context.Context) error {
	j.Name = "Ms " + j.Name
	return nil
}

// bulkyItems returns items of about 1,000 KiB each, every other one as a pointer.
func bulkyItems(n int) (items []midge.Item) {
	for i := range n {
		job := bulky{fmt.Sprint(i), make([]byte, 1000<<10)}
		if i%2 == 0 {
			items = append(items, midge.New(&job))
		} else {
			items = append(items, midge.New(job))
		}
	}
	return items
}

// enqueueBulky enqueues more bytes than one call takes, and checks that each item was prepared once.
func (b *bench) enqueueBulky(client *midge.Client) (refs []midge.Ref) {
	b.Helper()
	results, err := client.EnqueueMany(b.ctx, bulkyItems(10))
	if err != nil {
		b.Fatal(err)
	}
	for i, r := range results {
		refs = append(refs, r.Task.Ref)
		var stored bulky
		if err := midge.Decode(b.task(r.Task.Ref), &stored); err != nil || stored.Name != fmt.Sprint("Ms ", i) {
			b.Errorf("item %d is stored with the name %q (%v), want one prefix", i, stored.Name, err)
		}
	}
	return refs
}

// TestAnItemBetweenTwoCallsIsPreparedOnce enqueues more bytes than one call takes. Some items are pointers, whose
// jobs BeforeEnqueue changes in place.
func TestAnItemBetweenTwoCallsIsPreparedOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		var parts []int
		var passed []midge.Ref
		counting := func(next func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
			return func(ctx context.Context, inserts []*storage.Insert) error {
				parts = append(parts, len(inserts))
				for _, in := range inserts {
					passed = append(passed, in.Ref)
				}
				return next(ctx, inserts)
			}
		}
		c, err := midge.NewClient(b.store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{counting}})
		if err != nil {
			t.Fatal(err)
		}
		for _, client := range []*midge.Client{b.client, c} {
			refs := b.enqueueBulky(client)
			if client == c && !slices.Equal(passed, refs) {
				t.Errorf("the middleware saw %v, want each item once, in its place: %v", passed, refs)
			}
		}
		if len(parts) < 3 || len(passed) != 10 {
			t.Errorf("the middleware saw parts of %v items, want 10 items in three calls", parts)
		}
	})
}

// errAfterwards is the error of a middleware whose own work fails after next.
var errAfterwards = errors.New("the audit is down")

// afterwards returns a middleware that fails after next.
func afterwards(next func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
	return func(ctx context.Context, inserts []*storage.Insert) error {
		return errors.Join(next(ctx, inserts), errAfterwards)
	}
}

// The task is there although the call fails, and the call returns it.
func TestAMiddlewareThatFailsAfterNextGivesTheTask(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := b.runner.Periodic(midge.Every(time.Hour), work{"tick"}, midge.To("ticks")); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		c, err := midge.NewClient(b.store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{afterwards, passing(odd), marking("m")}})
		if err != nil {
			t.Fatal(err)
		}
		there := func(what string, task midge.Ref, err error) {
			t.Helper()
			if !errors.Is(err, errAfterwards) || task.ID == "" || b.task(task).Headers["through"] != "m" {
				t.Errorf("%s: got %v, %v; want the task that is there, with the error", what, task, err)
			}
		}
		out := midge.Header("out", "1")
		task, err := c.Enqueue(b.ctx, work{"a"})
		there("Enqueue", task.Ref, err)
		if task.Kind != "work" || task.State != midge.Waiting || task.Headers["through"] != "m" {
			t.Errorf("got %+v, want the whole task", task)
		}
		task, err = c.EnqueueIn(b.ctx, time.Hour, work{"a"})
		there("EnqueueIn", task.Ref, err)
		at, err := c.Queue("ticks").RunSchedule(b.ctx, "work")
		there("RunSchedule", at, err)
		task, err = c.With(storageTx{b.store}).Enqueue(b.ctx, work{"in a transaction"})
		there("With", task.Ref, err)
		results, err := c.EnqueueMany(b.ctx, []midge.Item{midge.New(work{"1"}), midge.New(work{"out"}, out), midge.New(work{"2"})})
		there("EnqueueMany", results[0].Task.Ref, err)
		there("EnqueueMany", results[2].Task.Ref, results[2].Err)
		if results[1].Task.ID != "" || !errors.Is(results[1].Err, errAfterwards) {
			t.Errorf("got %+v of an item that was left out, want the error alone", results[1])
		}
		if task, err := c.Enqueue(b.ctx, work{"out"}, out); task.ID != "" || !errors.Is(err, errAfterwards) {
			t.Errorf("got %v, %v of a task that was left out, want the error alone", task, err)
		}
		c, err = midge.NewClient(b.store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{failing(errAfterwards)}})
		if err != nil {
			t.Fatal(err)
		}
		if task, err := c.Enqueue(b.ctx, work{"refused"}); task.ID != "" || !errors.Is(err, errAfterwards) {
			t.Errorf("got %v, %v of a middleware that never calls next, want the error alone", task, err)
		}
		if n := b.stats("default").Waiting; n != 4 {
			t.Errorf("%d wait, want 4", n)
		}
	})
}

// A task that exists already is returned with the error too.
func TestAMiddlewareThatFailsAfterNextGivesAnExistingTask(t *testing.T) {
	bubble(t, func(b *bench) {
		c, err := midge.NewClient(b.store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{afterwards}})
		if err != nil {
			t.Fatal(err)
		}
		for _, existing := range []bool{false, true} {
			task, err := c.Enqueue(b.ctx, work{"a"}, midge.ID("a"))
			if !errors.Is(err, errAfterwards) || task.ID != "a" || task.Existing != existing {
				t.Errorf("got %q, existing %t, %v; want the task with the error", task.ID, task.Existing, err)
			}
		}
	})
}

// labelled is a job whose type has a header.
type labelled struct{ Name string }

func (labelled) Options() midge.Options {
	return midge.Options{Headers: map[string]string{"team": "a"}}
}

// altering alters the headers and the parameters of each insert in place.
func altering() []midge.EnqueueMiddleware {
	return []midge.EnqueueMiddleware{passing(func(inserts []*storage.Insert) []*storage.Insert {
		for _, in := range inserts {
			in.Headers["through"] += "m"
			in.Payload[len(in.Payload)-1]++ // of the name
		}
		return inserts
	})}
}

// A change in place by a middleware concerns one task, and neither its type nor its schedule.
func TestEnqueueMiddlewareAltersOneTaskInPlace(t *testing.T) {
	bubble(t, func(b *bench) {
		var err error
		if b.client, err = midge.NewClient(b.store, midge.ClientConfig{Middleware: altering()}); err != nil {
			t.Fatal(err)
		}
		err = b.client.Queue(midge.DefaultQueue).SetSchedule(b.ctx, "s", midge.Every(time.Minute), labelled{"x"}, midge.AllMissed(0))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := b.client.Enqueue(b.ctx, labelled{"a"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.client.EnqueueMany(b.ctx, []midge.Item{midge.New(labelled{"a"}), midge.New(labelled{"a"})}); err != nil {
			t.Fatal(err)
		}
		b.after(150 * time.Second) // two ticks or more are missed
		var ran []string
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Concurrency: 1, EnqueueMiddleware: altering()}, nil)
		err = midge.Handle(b.runner, func(ctx context.Context, job labelled) error {
			info, _ := midge.Current(ctx)
			ran = append(ran, job.Name+info.Headers["through"])
			if job.Name == "b" {
				return midge.FollowUp(ctx, labelled{"c"})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(10 * time.Second)
		slices.Sort(ran)
		want := []string{"bm", "bm", "bm", "bm", "dm", "dm", "dm", "dm", "ym", "ym"}
		if !slices.Equal(ran, want) {
			t.Errorf("got %q, want %q", ran, want)
		}
	})
}
