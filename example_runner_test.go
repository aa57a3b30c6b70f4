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

// set makes the parts that each example needs: a runner and a client on the memory storage.
func set() (*midge.Runner, *midge.Client) {
	store, err := memory.Open(memory.Config{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Concurrency: 1})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	return runner, client
}

// start runs the runner until stop is called, which waits for the end of the run.
func start(runner *midge.Runner) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()
	return ctx, func() {
		cancel()
		must(<-ended)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Resize is a job that a function runs.
type Resize struct {
	Path  string
	Width int
}

// Options keep its tasks for a while, so that Await sees their end.
func (Resize) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: time.Minute}}
}

// A closure holds dependencies that the parameters of a job cannot hold.
func ExampleHandle() {
	runner, client := set()
	disk := map[string]int{"cat.png": 4000} // stands for a database, a mailer, …
	must(midge.Handle(runner, func(_ context.Context, job Resize) error {
		disk[job.Path] = job.Width
		return nil
	}))
	ctx, stop := start(runner)
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: 300})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	stop()
	fmt.Println(disk["cat.png"], "pixels wide")
	// Output: 300 pixels wide
}

// An error that no retry can mend makes the task dead at once. The task is kept, to be inspected
// and requeued.
func ExampleDiscard() {
	runner, client := set()
	must(midge.Handle(runner, func(_ context.Context, job Resize) error {
		return midge.Discard(fmt.Errorf("%s is no picture", job.Path))
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.txt"})
	must(err)
	if dead, ok := errors.AsType[*midge.DeadError](client.Await(ctx, task.Ref, nil)); ok {
		fmt.Println(dead.Reason+":", dead.Last)
	}
	// Output: discarded: cat.txt is no picture
}

// A job that fails may choose the delay of its retry. Other errors are retried by the backoff of
// the job, or of the runner.
func ExampleRetryIn() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		task, _ := midge.Current(ctx)
		fmt.Println("run after", task.Retries, "failures")
		if task.Retries == 0 {
			return midge.RetryIn(10*time.Millisecond, errors.New("busy, come back in 10ms"))
		}
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	// Output:
	// run after 0 failures
	// run after 1 failures
}

// A backoff is a function from the number of a retry to the delay before it. This one suits
// Options.Backoff and RunnerConfig.Backoff; the Geometric itself is an option of one call.
func ExampleGeometric() {
	backoff := midge.Geometric{First: time.Second, Factor: 3, Max: time.Minute, Jitter: -1}.Delay
	for retry := 1; retry <= 5; retry++ {
		fmt.Println(backoff(retry))
	}
	// Output:
	// 1s
	// 3s
	// 9s
	// 27s
	// 1m0s
}

// A service that is back after a fixed time needs no growing delays.
func ExampleConstant() {
	backoff := midge.Constant(30 * time.Second)
	fmt.Println(backoff(1), backoff(10))
	// Output: 30s 30s
}

// A job that runs too early puts itself off. That is not a failure.
func ExampleSnooze() {
	runner, client := set()
	uploaded := false
	must(midge.Handle(runner, func(context.Context, Resize) error {
		if !uploaded {
			uploaded = true // by somebody else, meanwhile
			return midge.Snooze(10 * time.Millisecond)
		}
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	ref := must1(client.Enqueue(ctx, Resize{Path: "cat.png"})).Ref
	must(client.Await(ctx, ref, nil))
	fmt.Println(must1(client.Task(ctx, ref)).Retries, "retries")
	// Output: 0 retries
}

func must1[T any](v T, err error) T {
	must(err)
	return v
}

// Order is a job with a follow-up.
type Order struct{ Number int }

// Options keep its tasks for a while.
func (Order) Options() midge.Options { return midge.Options{Keep: midge.Keep{For: time.Minute}} }

// Invoice follows an order.
type Invoice struct{ Order int }

// Options keep its tasks for a while.
func (Invoice) Options() midge.Options { return midge.Options{Keep: midge.Keep{For: time.Minute}} }

// A follow-up is enqueued in the same step as the completion of its job: whatever crashes, and
// whenever, there is one invoice for each completed order.
func ExampleFollowUp() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, job Order) error {
		fmt.Println("order", job.Number)
		return midge.FollowUp(ctx, Invoice{Order: job.Number}, midge.ID("invoice-7"))
	}))
	must(midge.Handle(runner, func(_ context.Context, job Invoice) error {
		fmt.Println("invoice for order", job.Order)
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Order{Number: 7})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	must(client.Await(ctx, storage.Ref{Queue: task.Queue, ID: "invoice-7"}, nil)) // it is there by now
	// Output:
	// order 7
	// invoice for order 7
}

// With the storage on PostgreSQL, a job can complete its task in its own transaction, so that its writes
// there happen exactly once. In this example the memory storage stands in for both.
func ExampleCompleteWith() {
	store, err := memory.Open(memory.Config{})
	must(err)
	runner := must1(midge.NewRunner(store, midge.RunnerConfig{}))
	client := must1(midge.NewClient(store, midge.ClientConfig{}))
	must(midge.Handle(runner, func(ctx context.Context, job Order) error {
		// tx, err := db.Begin(ctx)
		// defer tx.Rollback(ctx)
		// tx.Exec(ctx, "INSERT INTO orders …")
		within := store // store.Within(tx)
		if err := midge.CompleteWith(ctx, within); err != nil {
			return err
		}
		fmt.Println("order", job.Number)
		return errors.New("too late to fail") // return tx.Commit(ctx)
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Order{Number: 7})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	// Output: order 7
}

// A result is stored with the completion, and kept for an hour unless the options say otherwise.
func ExampleSetResult() {
	type size struct{ Width, Height int }
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, job Resize) error {
		return midge.SetResult(ctx, size{job.Width, job.Width * 3 / 4})
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: 300})
	must(err)
	var result size
	must(client.Await(ctx, task.Ref, &result))
	fmt.Printf("%d × %d\n", result.Width, result.Height)
	// Output: 300 × 225
}

// The calls of a job to other systems should be idempotent: a key that is the same for each run of the
// task lets the other system recognize a repeat.
func ExampleCurrent() {
	runner, client := set()
	charged := map[string]int{} // stands for a payment service
	must(midge.Handle(runner, func(ctx context.Context, job Order) error {
		task, _ := midge.Current(ctx)
		charged[task.IdempotencyKey] = job.Number * 100
		if task.Retries == 0 {
			return midge.RetryIn(time.Millisecond, errors.New("the connection was cut behind the payment"))
		}
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Order{Number: 7})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	fmt.Println("charges:", len(charged))
	// Output: charges: 1
}

// Progress is stored at once, as JSON, for the people who inspect the task.
func ExampleProgress() {
	runner, client := set()
	told, seen := make(chan bool), make(chan bool)
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		if err := midge.Progress(ctx, map[string]int{"percent": 40}); err != nil {
			return err // the lease is lost, or the storage is away
		}
		close(told)
		<-seen
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "film.mp4"})
	must(err)
	<-told
	now, err := client.Task(ctx, task.Ref)
	must(err)
	fmt.Printf("%s: %s\n", now.State, now.Progress)
	close(seen)
	// Output: pending: {"percent":40}
}

// A checkpoint is the point from which the next run continues, if this run fails or its runner
// dies.
func ExampleCheckpoint() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		page := 1
		if _, err := midge.LoadCheckpoint(ctx, &page); err != nil {
			return err
		}
		for ; page <= 4; page++ {
			if task, _ := midge.Current(ctx); page == 3 && task.Retries == 0 {
				return midge.RetryIn(time.Millisecond, errors.New("out of paper"))
			}
			fmt.Println("page", page)
			if err := midge.Checkpoint(ctx, page+1); err != nil {
				return err
			}
		}
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "book.pdf"})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	// Output:
	// page 1
	// page 2
	// page 3
	// page 4
}

// The checkpoint of a dead task shows how far its job came.
func ExampleDecodeCheckpoint() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		if err := midge.Checkpoint(ctx, 3); err != nil {
			return err
		}
		return midge.Discard(errors.New("out of paper"))
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "book.pdf"})
	must(err)
	fmt.Println(client.Await(ctx, task.Ref, nil) != nil)

	task, err = client.Task(ctx, task.Ref)
	must(err)
	var page int
	must(midge.DecodeCheckpoint(task, &page))
	fmt.Println(task.State, page)
	// Output:
	// true
	// dead 3
}

// Middleware wraps every attempt: it may add to the context, read the error, or change it.
func ExampleMiddleware() {
	store, err := memory.Open(memory.Config{})
	must(err)
	report := func(next func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			err := next(ctx)
			task, _ := midge.Current(ctx)
			fmt.Printf("%s: %v\n", task.Kind, err)
			return err
		}
	}
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Middleware: []midge.Middleware{report}})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	must(midge.Handle(runner, func(context.Context, Resize) error { return nil }))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	// Output: resize: <nil>
}

// A middleware gets the panic of a job as an error, and may report it.
func ExamplePanicError() {
	store, err := memory.Open(memory.Config{})
	must(err)
	panics := make(chan any, 1)
	report := func(next func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			err := next(ctx)
			if panicked, ok := errors.AsType[*midge.PanicError](err); ok {
				panics <- panicked.Value // panicked.Stack has the place
			}
			return err
		}
	}
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Middleware: []midge.Middleware{report}})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	must(midge.Handle(runner, func(context.Context, Resize) error { panic("no such picture") }))
	ctx, stop := start(runner)
	defer stop()
	_, err = client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.Retries(midge.None))
	must(err)
	fmt.Println(<-panics)
	// Output: no such picture
}

// Cleanup is a job that a schedule enqueues.
type Cleanup struct{}

// A page for operators shows when a schedule ticks next.
func ExampleSchedule_Next() {
	weekdays := midge.Cron("0 9 * * 1-5")
	friday := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	fmt.Println(weekdays.Next(friday))
	// Output: 2026-11-30 09:00:00 +0000 UTC
}

// A schedule is declared in code. Every runner of a fleet declares it, and each tick makes one
// task.
func ExampleRunner_Periodic() {
	runner, client := set()
	ticks := make(chan time.Time, 10)
	must(midge.Handle(runner, func(ctx context.Context, _ Cleanup) error {
		task, _ := midge.Current(ctx)
		ticks <- task.Tick
		return nil
	}))
	must(runner.Periodic(midge.Every(time.Second), Cleanup{}))
	must(runner.Periodic(midge.Cron("0 3 * * 1-5"), Cleanup{}, midge.Named("nightly"), midge.Zone("Europe/Paris")))
	ctx, stop := start(runner)
	tick := <-ticks
	fmt.Println("ticked on the second:", tick.Equal(tick.Truncate(time.Second)))
	schedules, err := client.Queue(midge.DefaultQueue).Schedules(ctx)
	must(err)
	for _, s := range schedules {
		fmt.Printf("%s: %s %q\n", s.Name, s.Declared.Spec, s.Declared.Zone)
	}
	stop()
	// Output:
	// ticked on the second: true
	// cleanup: every 1s ""
	// nightly: cron 0 3 * * 1-5 "Europe/Paris"
}

// The end of its context asks a job to stop, and the cause of that end is the reason.
func ExampleClient_Cancel() {
	runner, client := set()
	begun := make(chan bool)
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	<-begun
	_, err = client.Cancel(ctx, task.Ref)
	must(err)
	fmt.Println(errors.Is(client.Await(ctx, task.Ref, nil), midge.ErrCancelled))
	// Output: true
}

// Jobs of one queue leave slots to the other queues. A gate lets the jobs of a queue start only while a device is
// free.
func ExampleRunner_SetQueueConcurrency() {
	store, err := memory.Open(memory.Config{})
	must(err)
	gpuIsFree := func() bool { return true } // the runner calls it every two seconds
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		Concurrency:      100,
		Queues:           []string{"default", "payments", "video"},
		QueueConcurrency: map[string]int{"default": 90, "video": 2}, // ten slots stay free for payments
		Gates:            map[string]func() bool{"video": gpuIsFree},
	})
	must(err)
	must(runner.SetQueueConcurrency("video", 4))
	fmt.Println(runner.SetQueueConcurrency("video", 0))
	// Output: midge: set queue concurrency: invalid concurrency["video"] 0: want 1 to 1000000
}

// A limit holds over all processes: here one of two jobs starts now, and the other in an hour. An operator can
// override the limit while programs run.
func ExampleQueue_SetLimit() {
	store, err := memory.Open(memory.Config{})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	ran := make(chan string, 2)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		QueueLimits: map[string]midge.Limit{
			"default": {Concurrency: 50, Rate: midge.Rate{N: 1, Per: time.Hour}},
		},
	})
	must(err)
	must(midge.Handle(runner, func(_ context.Context, r Resize) error {
		ran <- r.Path
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	_, err = client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	fmt.Println(<-ran)
	second, err := client.Enqueue(ctx, Resize{Path: "dog.png"})
	must(err)
	verdict, err := client.Why(ctx, second.Ref)
	must(err)
	fmt.Println(verdict.Cause, verdict.Limit.Rate)
	must(client.Queue("default").SetLimit(ctx, midge.Limit{Concurrency: 3})) // above the declared limit
	fmt.Println(<-ran)
	// Output:
	// cat.png
	// rate spent 1 in 1h0m0s
	// dog.png
}
