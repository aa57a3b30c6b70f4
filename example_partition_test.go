package midge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge"
)

// Sync is a job of an account. The accounts of a queue take turns.
type Sync struct {
	Account string
	Page    int
}

// Options name the queue of all accounts.
func (Sync) Options() midge.Options { return midge.Options{Queue: "api"} }

// Partition names the account.
func (s Sync) Partition() string { return s.Account }

// The job of a small account does not wait for all jobs of a big one: the partitions of a queue are served in
// turn, in all processes together.
func Example_partitions() {
	runner, client := set()
	ran := make(chan Sync, 4)
	must(midge.Handle(runner, func(_ context.Context, s Sync) error {
		ran <- s
		return nil
	}))
	ctx := context.Background()
	for page := range 3 {
		_, err := client.Enqueue(ctx, Sync{"big", page})
		must(err)
	}
	_, err := client.Enqueue(ctx, Sync{"small", 0})
	must(err)
	_, stop := start(runner)
	defer stop()
	for range 4 {
		fmt.Println(<-ran)
	}
	// Output:
	// {big 0}
	// {small 0}
	// {big 1}
	// {big 2}
}

// A call sets the partition of a task whose type does not name one.
func ExamplePartition() {
	_, client := set()
	task, err := client.Enqueue(context.Background(), Resize{Path: "cat.png"}, midge.Partition("acme"))
	must(err)
	fmt.Println(task.Partition)
	// Output: acme
}

// One account is paused, for example while its own service is down. The other accounts are served.
func ExampleQueue_Partition() {
	runner, client := set()
	ran := make(chan Sync, 2)
	must(midge.Handle(runner, func(_ context.Context, s Sync) error {
		ran <- s
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	must(client.Queue("api").Create(ctx)) // before its first task
	acme := client.Queue("api").Partition("acme")
	must(acme.Pause(ctx)) // or PauseFor(ctx, time.Hour)

	held, err := client.Enqueue(ctx, Sync{"acme", 1})
	must(err)
	_, err = client.Enqueue(ctx, Sync{"other", 1})
	must(err)
	fmt.Println(<-ran)
	verdict, err := client.Why(ctx, held.Ref)
	must(err)
	fmt.Println(verdict)
	must(acme.Resume(ctx))
	fmt.Println(<-ran)
	// Output:
	// {other 1}
	// partition acme of api is paused until it is resumed
	// {acme 1}
}

// The accounts whose tasks wait, or that are paused, are listed by their keys.
func ExampleQueue_Partitions() {
	_, client := set()
	ctx := context.Background()
	queue := client.Queue("api")
	for _, s := range []Sync{{"acme", 1}, {"acme", 2}, {"zeta", 1}} {
		_, err := client.Enqueue(ctx, s)
		must(err)
	}
	must(queue.Partition("late payer").PauseFor(ctx, 24*time.Hour))
	for p, err := range queue.Partitions(ctx) {
		must(err)
		fmt.Println(p.Key, p.Waiting, p.Paused)
	}
	for task, err := range queue.Partition("acme").Tasks(ctx) {
		must(err)
		var s Sync
		must(midge.Decode(task, &s))
		fmt.Println(s.Page)
	}
	// Output:
	// acme 2 false
	// late payer 0 true
	// zeta 1 false
	// 1
	// 2
}
