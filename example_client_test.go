package midge_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// Statement is a job whose type declares options.
type Statement struct {
	Customer string
	Month    string
}

// Options apply to every task of the type, unless a call overrides them.
func (Statement) Options() midge.Options {
	return midge.Options{
		Queue:    "billing",
		Priority: 2,
		Retries:  5,
		Timeout:  time.Minute,
		Backoff:  midge.Geometric{First: 10 * time.Second, Max: time.Hour}.Delay,
		Unique:   &midge.Unique{By: []string{"Customer", "Month"}},
		Encoding: midge.JSON,
	}
}

// A type declares the options of all its tasks; the options of one call override them.
func ExampleOptions() {
	_, client := set()
	ctx := context.Background()
	task, err := client.Enqueue(ctx, Statement{Customer: "ann", Month: "May"})
	must(err)
	fmt.Println(task.Queue, task.Priority, task.MaxRetries, task.Timeout, string(task.Payload))

	task, err = client.Enqueue(ctx, Statement{Customer: "bob", Month: "May"},
		midge.To("bulk"), midge.Priority(-1), midge.Retries(midge.None), midge.Timeout(0))
	must(err)
	fmt.Println(task.Queue, task.Priority, task.MaxRetries, task.Timeout == storage.NoTimeout)
	// Output:
	// billing 2 5 1m0s {"Customer":"ann","Month":"May"}
	// bulk -1 0 true
}

// An id makes it safe to repeat an enqueue whose outcome is not known.
func ExampleClient_Enqueue() {
	_, client := set()
	ctx := context.Background()
	for range 2 {
		task, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: 100}, midge.ID("cat-100"))
		must(err)
		fmt.Println(task, task.State, task.Existing)
	}
	_, err := client.Enqueue(ctx, Resize{Path: "dog.png", Width: 100}, midge.ID("cat-100"))
	var collision *midge.DependencyError
	fmt.Println(errors.As(err, &collision))
	// Output:
	// default/cat-100 waiting false
	// default/cat-100 waiting true
	// true
}

// An enqueue under the id of a task that will never run is an error: the caller decides whether the
// task runs after all.
func ExampleClient_Enqueue_ended() {
	_, client := set()
	ctx := context.Background()
	job, id := Resize{Path: "cat.png", Width: 100}, midge.ID("cat-100")
	task, err := client.Enqueue(ctx, job, id, midge.KeepFor(time.Hour))
	must(err)
	_, err = client.Cancel(ctx, task.Ref)
	must(err)

	task, err = client.Enqueue(ctx, job, id)
	fmt.Println(errors.Is(err, midge.ErrExists), task.State)
	must(client.Requeue(ctx, task.Ref))
	task, err = client.Enqueue(ctx, job, id)
	fmt.Println(err, task.State, task.Existing)
	// Output:
	// true cancelled
	// <nil> waiting true
}

func ExampleClient_EnqueueIn() {
	_, client := set()
	task, err := client.EnqueueIn(context.Background(), 3*time.Minute, Resize{Path: "cat.png"})
	must(err)
	fmt.Println(task.State)

	_, err = client.EnqueueIn(context.Background(), -time.Minute, Resize{Path: "cat.png"})
	var invalid *midge.InvalidError
	fmt.Println(errors.As(err, &invalid))
	// Output:
	// scheduled
	// true
}

// A task with a past moment is due now.
func ExampleClient_EnqueueAt() {
	_, client := set()
	ctx := context.Background()
	for _, moment := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Hour)} {
		task, err := client.EnqueueAt(ctx, moment, Resize{Path: "cat.png"})
		must(err)
		fmt.Println(task.State)
	}
	// Output:
	// scheduled
	// waiting
}

// Many jobs share round trips; each is enqueued, or refused, by itself.
func ExampleClient_EnqueueMany() {
	_, client := set()
	results, err := client.EnqueueMany(context.Background(), []midge.Item{
		midge.New(Resize{Path: "cat.png"}, midge.ID("a")),
		midge.New(Resize{Path: "dog.png"}, midge.ID("b"), midge.In(time.Hour)),
		midge.New(Resize{Path: "cow.png"}, midge.ID("a")), // taken
	})
	for _, r := range results {
		if r.Err != nil {
			fmt.Println("refused")
			continue
		}
		fmt.Println(r.Task, r.Task.State)
	}
	fmt.Println(err != nil)
	// Output:
	// default/a waiting
	// default/b scheduled
	// refused
	// true
}

// While a task lives, equal tasks are not enqueued beside it.
func ExampleUnique() {
	_, client := set()
	ctx := context.Background()
	sync := Resize{Path: "cat.png", Width: 100}
	first, err := client.Enqueue(ctx, sync, midge.Unique{})
	must(err)
	again, err := client.Enqueue(ctx, sync, midge.Unique{})
	must(err)
	fmt.Println(first.Existing, again.Existing, again.Ref == first.Ref)

	// Compared only by Path, for an hour, whatever happens to the task.
	hourly := midge.Unique{By: []string{"Path"}, For: time.Hour}
	for _, width := range []int{100, 200} {
		task, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: width}, hourly)
		must(err)
		fmt.Println(width, task.Existing)
	}
	// Output:
	// false true true
	// 100 false
	// 200 true
}

// A call lifts the uniqueness that the type declares, for example to send a statement once more.
func ExampleNotUnique() {
	_, client := set()
	ctx := context.Background()
	job := Statement{Customer: "ann", Month: "May"}
	for _, opts := range [][]midge.Option{nil, nil, {midge.NotUnique()}} {
		task, err := client.Enqueue(ctx, job, opts...)
		must(err)
		fmt.Println(task.Existing)
	}
	// Output:
	// false
	// true
	// false
}

// A task that may end its process is dead after its first crash, instead of its third.
func ExampleCrashLimit() {
	_, client := set()
	task, err := client.Enqueue(context.Background(), Resize{Path: "bomb.png"}, midge.CrashLimit(1))
	must(err)
	fmt.Println(task.CrashLimit)
	// Output: 1
}

// brokenLine is a storage whose first reply is lost, as on a connection that breaks.
type brokenLine struct {
	storage.Storage
	broken bool
}

// Apply carries out the first call, and loses its reply.
func (l *brokenLine) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	applied, err := l.Storage.Apply(ctx, call, txs...)
	if err == nil && !l.broken {
		l.broken = true
		return nil, fmt.Errorf("the connection broke: %w", storage.ErrUnknown)
	}
	return applied, err
}

// After an unknown outcome, Repeat learns whether the task was enqueued, or enqueues it. A client does this by
// itself for the time of its Patience.
func ExampleClient_Repeat() {
	store, err := memory.Open(memory.Config{})
	must(err)
	client, err := midge.NewClient(&brokenLine{Storage: store}, midge.ClientConfig{Patience: midge.None})
	must(err)
	ctx := context.Background()
	_, err = client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.ID("cat"))
	fmt.Println(errors.Is(err, midge.ErrUnknown))

	results, err := client.Repeat(ctx, err)
	must(err)
	for _, r := range results {
		fmt.Println(r.Task, r.Task.State, r.Err)
	}
	stats, err := client.Queue(midge.DefaultQueue).Stats(ctx)
	must(err)
	fmt.Println(stats.Waiting)
	// Output:
	// true
	// default/cat waiting <nil>
	// 1
}

// Await waits for the outcome of a task.
func ExampleClient_Await() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, job Resize) error {
		if job.Width == 0 {
			return midge.Discard(errors.New("no width"))
		}
		return midge.SetResult(ctx, job.Path+" done")
	}))
	ctx, stop := start(runner)
	defer stop()
	for _, width := range []int{100, 0} {
		task, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: width})
		must(err)
		var result string
		err = client.Await(ctx, task.Ref, &result)
		if dead, ok := errors.AsType[*midge.DeadError](err); ok {
			fmt.Println(dead.Reason+":", dead.Last)
			continue
		}
		must(err)
		fmt.Println(result)
	}
	// Output:
	// cat.png done
	// discarded: no width
}

// A result that one reader wants is kept until Await has returned it.
func ExampleUntilRead() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, job Resize) error {
		return midge.SetResult(ctx, job.Width)
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: 300}, midge.UntilRead())
	must(err)
	var width int
	must(client.Await(ctx, task.Ref, &width))
	_, err = client.Task(ctx, task.Ref)
	fmt.Println(width, errors.Is(err, midge.ErrNotFound))
	// Output: 300 true
}

// A dead task is kept. It can be inspected, and run again once its cause is repaired.
func ExampleQueue_RequeueAll() {
	runner, client := set()
	disk := make(chan string, 1)
	must(midge.Handle(runner, func(_ context.Context, job Resize) error {
		select {
		case disk <- job.Path:
			return nil
		default:
			return errors.New("disk full")
		}
	}))
	disk <- "old.png"
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.Retries(midge.None))
	must(err)
	fmt.Println(client.Await(ctx, task.Ref, nil) != nil)

	queue := client.Queue("default")
	for dead, err := range queue.Tasks(ctx, storage.Dead) {
		must(err)
		fmt.Println(dead.Kind, dead.Reason+":", dead.Attempts[0].Error)
	}
	<-disk // make room
	n, err := queue.RequeueAll(ctx, storage.Dead, func(t storage.Task) bool { return t.Kind == "resize" })
	must(err)
	fmt.Println(n, client.Await(ctx, task.Ref, nil))
	// Output:
	// true
	// resize out of retries: disk full
	// 1 <nil>
}

// With the storage on PostgreSQL, a task can be enqueued in a transaction of the application: it
// exists if and when the transaction commits. In this example the memory storage stands in for
// PostgreSQL.
func ExampleClient_With() {
	store, err := memory.Open(memory.Config{})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	ctx := context.Background()
	// tx, err := db.Begin(ctx)
	// defer tx.Rollback(ctx)
	// tx.Exec(ctx, "INSERT INTO orders …")
	within := store // store.Within(tx)
	task, err := client.With(within).Enqueue(ctx, Order{Number: 7})
	must(err)
	// tx.Commit(ctx)
	fmt.Println(task.Kind, task.State)
	// Output: order waiting
}

// Tools that inspect tasks decode the parameters into the type of the job.
func ExampleDecode() {
	_, client := set()
	ctx := context.Background()
	_, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: 300})
	must(err)
	for task, err := range client.Queue(midge.DefaultQueue).Tasks(ctx, midge.Waiting) {
		must(err)
		var job Resize
		must(midge.Decode(task, &job))
		fmt.Println(task.Kind, job.Path, job.Width)
	}
	// Output: resize cat.png 300
}

// The result, the progress and the checkpoint of a task can be read.
func ExampleDecodeResult() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, job Resize) error {
		must(midge.Progress(ctx, "resized"))
		return midge.SetResult(ctx, job.Width)
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: 300})
	must(err)
	must(client.Await(ctx, task.Ref, nil))

	task, err = client.Task(ctx, task.Ref)
	must(err)
	var width int
	var progress string
	must(midge.DecodeResult(task, &width))
	must(midge.DecodeProgress(task, &progress))
	fmt.Println(task.State, width, progress)
	// Output: completed 300 resized
}

// A middleware adds a header to each task, and refuses the tasks of one tenant.
func ExampleEnqueueMiddleware() {
	tag := func(next func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error {
		return func(ctx context.Context, inserts []*storage.Insert) error {
			var passed []*storage.Insert
			for _, in := range inserts {
				if in.Headers["tenant"] == "closed" {
					continue // left out
				}
				in.Headers = map[string]string{"tenant": in.Headers["tenant"], "region": "eu"}
				passed = append(passed, in)
			}
			return next(ctx, passed)
		}
	}
	store, err := memory.Open(memory.Config{})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{tag}})
	must(err)
	ctx := context.Background()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.Header("tenant", "acme"))
	must(err)
	fmt.Println(task.Headers)
	_, err = client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.Header("tenant", "closed"))
	fmt.Println(errors.Is(err, midge.ErrSkipped))
	// Output:
	// map[region:eu tenant:acme]
	// true
}

// A printed ref, in a URL or on a command line, can be parsed.
func ExampleParseRef() {
	_, client := set()
	ctx := context.Background()
	_, err := client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.ID("cat"))
	must(err)
	ref, err := midge.ParseRef("default/cat")
	must(err)
	must(client.Delete(ctx, ref))
	_, err = client.Task(ctx, ref)
	fmt.Println(errors.Is(err, midge.ErrNotFound))
	// Output: true
}

// Tasks can be enqueued in a paused queue, but no runner claims them.
func ExampleQueue_Pause() {
	_, client := set()
	ctx := context.Background()
	queue := client.Queue("default")
	must(queue.Create(ctx)) // before its first task
	must(queue.Pause(ctx))
	_, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	stats, err := queue.Stats(ctx)
	must(err)
	fmt.Println(stats.Paused, stats.Waiting)
	must(queue.Resume(ctx))
	fmt.Println(errors.Is(client.Queue("mial").Pause(ctx), midge.ErrNotFound))
	// Output:
	// true 1
	// true
}

// Digest is a job with a schedule for each customer.
type Digest struct{ Customer string }

// A schedule for each customer is kept in the storage, until it is removed. Runners that know the job tick it,
// and no program declares it. The ticks of all customers are spread over six hours.
func ExampleQueue_SetSchedule() {
	_, client := set()
	ctx := context.Background()
	queue := client.Queue("digests")
	for _, customer := range []string{"ann", "bob"} {
		must(queue.SetSchedule(ctx, customer, midge.Every(24*time.Hour), Digest{customer}, midge.Jitter(6*time.Hour)))
	}
	must(queue.PauseSchedule(ctx, "ann"))
	schedules, err := queue.Schedules(ctx)
	must(err)
	for _, s := range schedules {
		fmt.Printf("%s: %s, paused: %t\n", s.Name, s.Declared.Spec, s.Declared.Paused)
	}
	must(queue.RemoveSchedule(ctx, "bob"))
	// Unordered output:
	// ann: every 24h0m0s jitter 6h0m0s, paused: true
	// bob: every 24h0m0s jitter 6h0m0s, paused: false
}

// A waiting task can be brought forward, put off, moved and re-prioritised.
func ExampleClient_Change() {
	_, client := set()
	ctx := context.Background()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.ID("cat"))
	must(err)
	must(client.Change(ctx, task.Ref, midge.Priority(9), midge.In(time.Hour)))
	must(client.ChangeJob(ctx, task.Ref, Resize{Path: "dog.png"}, midge.To("bulk")))
	moved, err := client.Task(ctx, midge.Ref{Queue: "bulk", ID: "cat"})
	must(err)
	fmt.Println(moved.Ref, moved.State, moved.Priority)
	// Output: bulk/cat scheduled 9
}

// A task that died of its parameters is corrected and then requeued.
func ExampleClient_ChangeJob() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, job Resize) error {
		if job.Width == 0 {
			return midge.Discard(errors.New("no width"))
		}
		return midge.SetResult(ctx, job.Width)
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	fmt.Println(client.Await(ctx, task.Ref, nil) != nil)

	must(client.ChangeJob(ctx, task.Ref, Resize{Path: "cat.png", Width: 100}))
	changed, err := client.Task(ctx, task.Ref)
	must(err)
	fmt.Println(changed.State)

	must(client.Requeue(ctx, task.Ref))
	var width int
	fmt.Println(client.Await(ctx, task.Ref, &width), width)
	// Output:
	// true
	// dead
	// <nil> 100
}
