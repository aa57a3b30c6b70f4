package midge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// The tasks that wait, and that a function accepts, are cancelled.
func ExampleQueue_CancelAll() {
	_, client := set()
	ctx := context.Background()
	for _, width := range []int{100, 200, 300} {
		_, err := client.Enqueue(ctx, Resize{Path: "cat.png", Width: width})
		must(err)
	}
	queue := client.Queue(midge.DefaultQueue)
	n, err := queue.CancelAll(ctx, midge.Waiting, func(t midge.Task) bool {
		var job Resize
		return midge.Decode(t, &job) == nil && job.Width > 100
	})
	must(err)
	stats, err := queue.Stats(ctx)
	must(err)
	fmt.Println(n, stats.Waiting, stats.Cancelled)
	// Output: 2 1 2
}

// All tasks of one state are deleted. The tasks of other states stay.
func ExampleQueue_DeleteAll() {
	_, client := set()
	ctx := context.Background()
	for _, d := range []time.Duration{0, time.Hour, 2 * time.Hour} {
		_, err := client.EnqueueIn(ctx, d, Resize{Path: "cat.png"})
		must(err)
	}
	queue := client.Queue(midge.DefaultQueue)
	n, err := queue.DeleteAll(ctx, midge.Scheduled, nil) // nil accepts all of them
	must(err)
	stats, err := queue.Stats(ctx)
	must(err)
	fmt.Println(n, stats.Scheduled, stats.Waiting)
	// Output: 2 0 1
}

// A queue that no program uses any more is removed, with its tasks and schedules.
func ExampleQueue_Remove() {
	_, client := set()
	ctx := context.Background()
	for _, queue := range []string{"mail", "old"} {
		_, err := client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.To(queue))
		must(err)
	}
	must(client.Queue("old").Remove(ctx))
	for name, err := range client.Queues(ctx, "") {
		must(err)
		fmt.Println(name)
	}
	// Output: mail
}

// A page for operators shows the tasks of a queue in parts. The Next of a page leads to the page behind it.
func ExampleQueue_Page() {
	_, client := set()
	ctx := context.Background()
	for _, id := range []string{"a", "b", "c"} {
		_, err := client.Enqueue(ctx, Resize{Path: id + ".png"}, midge.ID(id))
		must(err)
	}
	queue := client.Queue(midge.DefaultQueue)
	for after, number := "", 1; ; number++ {
		page, err := queue.Page(ctx, midge.Waiting, after, 2)
		must(err)
		for _, task := range page.Tasks {
			fmt.Println(number, task.ID)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	// Output:
	// 1 a
	// 1 b
	// 2 c
}

// The limit of an operator ends, and the limit that the program declares holds again.
func ExampleQueue_ClearLimit() {
	store, err := memory.Open(memory.Config{})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		QueueLimits: map[string]midge.Limit{midge.DefaultQueue: {Concurrency: 50}},
	})
	must(err)
	must(midge.Handle(runner, func(context.Context, Resize) error { return nil }))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	must(client.Await(ctx, task.Ref, nil)) // the runner has declared its limit

	queue := client.Queue(midge.DefaultQueue)
	show := func() {
		stats, err := queue.Stats(ctx)
		must(err)
		fmt.Println(stats.Limit.InForce())
	}
	must(queue.SetLimit(ctx, midge.Limit{Concurrency: 3}))
	show()
	must(queue.ClearLimit(ctx))
	show()
	// Output:
	// 3 at once
	// 50 at once
}

// A runner serves other queues without a restart.
func ExampleRunner_SetQueues() {
	runner, client := set()
	ran := make(chan string, 1)
	must(midge.Handle(runner, func(_ context.Context, job Resize) error {
		ran <- job.Path
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	_, err := client.Enqueue(ctx, Resize{Path: "cat.png"}, midge.To("bulk"))
	must(err)
	must(runner.SetQueues([]string{"default", "bulk"}, map[string]int{"default": 3, "bulk": 1}))
	fmt.Println(<-ran)
	// Output: cat.png
}

// A second job starts beside the first one, once the runner may run two jobs at once.
func ExampleRunner_SetConcurrency() {
	runner, client := set() // one job at once
	begun, end := make(chan string, 2), make(chan bool)
	must(midge.Handle(runner, func(_ context.Context, job Resize) error {
		begun <- job.Path
		<-end
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	for _, path := range []string{"cat.png", "dog.png"} {
		_, err := client.Enqueue(ctx, Resize{Path: path})
		must(err)
	}
	fmt.Println(<-begun)
	must(runner.SetConcurrency(2))
	fmt.Println(<-begun)
	close(end)
	// Output:
	// cat.png
	// dog.png
}

// The live runners are listed, with their queues and the kinds of jobs that they know.
func ExampleClient_Runners() {
	runner, client := set()
	must(midge.Handle(runner, func(context.Context, Resize) error { return nil }))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	must(client.Await(ctx, task.Ref, nil)) // the runner lives
	runners, err := client.Runners(ctx)
	must(err)
	for _, r := range runners {
		fmt.Println(r.ID == runner.ID(), r.Queues, r.Kinds, r.Concurrency)
	}
	// Output: true [default] [resize] 1
}
