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
