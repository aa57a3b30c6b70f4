package midge_test

import (
	"context"
	"fmt"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
)

// A program runs the jobs of a kind of which it has no Go type.
func ExampleHandleRaw() {
	store, err := memory.Open(memory.Config{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{})
	must(err)
	must(midge.HandleRaw(runner, "resize", func(ctx context.Context, job midge.RawJob) error {
		params, err := job.JSON()
		if err != nil {
			return err
		}
		return midge.SetResult(ctx, string(params))
	}))
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	ctx, stop := start(runner)
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	var passed string
	must(client.Await(ctx, task.Ref, &passed))
	fmt.Println(passed)
	stop()
	// Output: {"Path":"cat.png","Width":0}
}
