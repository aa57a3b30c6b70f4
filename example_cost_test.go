package midge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// Ask is a job that uses up tokens of a service.
type Ask struct {
	Prompt string
	Tokens int
}

// Cost is the number of tokens.
func (a Ask) Cost() int { return a.Tokens }

// The service takes 100 tokens an hour, in however many calls. The second prompt does not fit beside the first
// one. The third prompt would fit, and does not overtake.
func ExampleCost() {
	store, err := memory.Open(memory.Config{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		QueueLimits: map[string]midge.Limit{"default": {Rate: midge.Rate{N: 100, Per: time.Hour}}},
	})
	must(err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	ran := make(chan Ask)
	must(midge.Handle(runner, func(_ context.Context, a Ask) error {
		ran <- a
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	_, err = client.Enqueue(ctx, Ask{"first", 60})
	must(err)
	fmt.Println(<-ran)
	_, err = client.Enqueue(ctx, Ask{"second", 50})
	must(err)
	third, err := client.Enqueue(ctx, Ask{"third", 50}, midge.Cost(10)) // in place of the answer of the method
	must(err)
	verdict, err := client.Why(ctx, third.Ref)
	must(err)
	fmt.Println(third.Cost.N(), verdict.Cause, verdict.Cost.N())
	// Output:
	// {first 60}
	// 10 rate spent 50
}
