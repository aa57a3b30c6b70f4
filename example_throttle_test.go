package midge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// Each account has a quota of its own, over all processes: two jobs of each start in an hour, and one of each runs
// at once. A job of another account does not wait for them.
func ExamplePartitionLimit() {
	store, err := memory.Open(memory.Config{})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		QueueLimits: map[string]midge.Limit{
			"api": {
				Concurrency: 50, // of all accounts together
				Partition: midge.PartitionLimit{
					Concurrency: 1, // of each account
					Rate:        midge.Rate{N: 2, Per: time.Hour},
				},
			},
		},
	})
	must(err)
	ran := make(chan Sync, 4)
	must(midge.Handle(runner, func(_ context.Context, s Sync) error {
		ran <- s
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	var last midge.Task
	for page := range 3 {
		last, err = client.Enqueue(ctx, Sync{"acme", page})
		must(err)
	}
	fmt.Println(<-ran)
	fmt.Println(<-ran)
	_, err = client.Enqueue(ctx, Sync{"small", 0})
	must(err)
	fmt.Println(<-ran)
	for {
		verdict, err := client.Why(ctx, last.Ref)
		must(err)
		if verdict.PartitionRunning == 0 { // the second job has ended
			fmt.Println(verdict.Cause, verdict.Limit.Partition.Rate)
			return
		}
	}
	// Output:
	// {acme 0}
	// {acme 1}
	// {small 0}
	// partition rate spent 2 in 1h0m0s
}

// A service has refused the call of an account, and names the time from which it may be called again. The
// task waits for that time, uncharged, and so do the other tasks of the account.
func ExampleThrottle() {
	store, err := memory.Open(memory.Config{})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Concurrency: 1})
	must(err)
	ended := make(chan Sync, 3)
	busy := true // the service answers 429 Too Many Requests
	must(midge.Handle(runner, func(_ context.Context, s Sync) error {
		if s.Account == "acme" && busy {
			busy = false
			fmt.Println("refused:", s)
			return midge.Throttle(300 * time.Millisecond) // as in its header Retry-After
		}
		ended <- s
		return nil
	}))
	ctx := context.Background()
	for _, s := range []Sync{{"acme", 1}, {"acme", 2}, {"other", 1}} {
		_, err := client.Enqueue(ctx, s)
		must(err)
	}
	_, stop := start(runner)
	defer stop()
	for range 3 {
		fmt.Println(<-ended)
	}
	// Output:
	// refused: {acme 1}
	// {other 1}
	// {acme 1}
	// {acme 2}
}
