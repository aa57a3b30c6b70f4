package midge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge"
)

// An operator runs a schedule now, for example to try it. Its next tick comes at its own moment.
func ExampleQueue_RunSchedule() {
	_, client := set()
	ctx := context.Background()
	queue := client.Queue("digests")
	must(queue.SetSchedule(ctx, "ann", midge.Every(24*time.Hour), Digest{"ann"}))
	ref, err := queue.RunSchedule(ctx, "ann")
	must(err)
	task, err := client.Task(ctx, ref)
	must(err)
	var job Digest
	must(midge.Decode(task, &job))
	fmt.Println(task.Queue, task.State, job.Customer)
	// Output: digests waiting ann
}

// While the task of an earlier tick or run has not ended, nothing is enqueued.
func ExampleNoOverlap() {
	_, client := set()
	ctx := context.Background()
	queue := client.Queue("digests")
	must(queue.SetSchedule(ctx, "ann", midge.Every(24*time.Hour), Digest{"ann"}, midge.NoOverlap()))
	first, err := queue.RunSchedule(ctx, "ann")
	must(err)
	second, err := queue.RunSchedule(ctx, "ann")
	must(err)
	fmt.Println(second == first)
	// Output: true
}

// After a night without a runner nobody wants the reports of the hours that have passed: they are left out.
func ExampleSkipMissed() {
	_, client := set()
	ctx := context.Background()
	queue := client.Queue("digests")
	must(queue.SetSchedule(ctx, "ann", midge.Every(time.Hour), Digest{"ann"}, midge.SkipMissed()))
	schedules, err := queue.Schedules(ctx)
	must(err)
	for _, s := range schedules {
		fmt.Println(s.Name, s.Declared.Spec, s.Declared.CatchUp)
	}
	// Output: ann every 1h0m0s skip
}

// After a night without a runner each hour is made up for, but only the last twelve of them.
func ExampleAllMissed() {
	_, client := set()
	ctx := context.Background()
	queue := client.Queue("digests")
	must(queue.SetSchedule(ctx, "ann", midge.Every(time.Hour), Digest{"ann"}, midge.AllMissed(12)))
	schedules, err := queue.Schedules(ctx)
	must(err)
	for _, s := range schedules {
		fmt.Println(s.Name, s.Declared.Spec, s.Declared.CatchUp, s.Declared.CatchUpCap)
	}
	// Output: ann every 1h0m0s all 12
}
