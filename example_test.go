package midge_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// SendWelcome is a job. Its exported fields are its parameters.
type SendWelcome struct{ User string }

// Run does the work.
func (j SendWelcome) Run(context.Context) error {
	fmt.Println("welcome,", j.User)
	return nil
}

// The first program: a job, a runner, a task.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	store, err := memory.Open(memory.Config{})
	if err != nil {
		log.Fatal(err)
	}
	runner, err := midge.NewRunner(store, midge.RunnerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if err := midge.Register[SendWelcome](runner); err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()

	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	// A task is gone once it has completed, unless it is kept.
	task, err := client.Enqueue(ctx, SendWelcome{User: "ann"}, midge.KeepFor(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Await(ctx, task.Ref, nil); err != nil {
		log.Fatal(err)
	}

	stop() // a server would end its context on a signal
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: welcome, ann
}

// A job enqueues its follow-up and stores its result, in the same step as its completion. The README shows
// this.
func Example_followUp() {
	runner, client := set()
	err := midge.Handle(runner, func(ctx context.Context, job Order) error {
		if err := midge.FollowUp(ctx, Invoice{Order: job.Number}); err != nil {
			return err
		}
		return midge.SetResult(ctx, "confirmed") // both are stored when the job returns nil, or neither
	})
	must(err)
	invoices := make(chan int, 1)
	must(midge.Handle(runner, func(_ context.Context, job Invoice) error {
		invoices <- job.Order
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()

	task, err := client.Enqueue(ctx, Order{Number: 7})
	must(err)
	var result string
	err = client.Await(ctx, task.Ref, &result) // "confirmed", and the invoice is enqueued
	must(err)
	fmt.Println(result, <-invoices)
	// Output: confirmed 7
}
