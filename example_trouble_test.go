package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// why says why a task does not run.
func why(ctx context.Context, client *midge.Client, ref midge.Ref) (string, error) {
	task, err := client.Task(ctx, ref)
	if errors.Is(err, midge.ErrNotFound) {
		return "it is not here: it has ended and is not kept, or was enqueued elsewhere", nil
	} else if err != nil {
		return "", err
	}
	stats, err := client.Queue(ref.Queue).Stats(ctx)
	if err != nil {
		return "", err
	}
	runners, err := client.Runners(ctx)
	if err != nil {
		return "", err
	}
	serve := func(r storage.RunnerInfo) bool { return slices.Contains(r.Queues, ref.Queue) }
	know := func(r storage.RunnerInfo) bool { return serve(r) && slices.Contains(r.Kinds, task.Kind) }
	free := func(r storage.RunnerInfo) bool { return know(r) && len(r.Running) < r.Concurrency }

	switch {
	case task.State == midge.Pending && task.Started:
		return "it runs, on " + task.Runner, nil
	case task.State == midge.Scheduled, task.State == midge.Retry:
		return fmt.Sprintf("it is %s: its moment has not come", task.State), nil
	case task.State == midge.Dead:
		return "it is dead: " + task.Reason, nil
	case task.State.Ended():
		return fmt.Sprintf("it is %s", task.State), nil
	case stats.Paused:
		return "its queue is paused", nil
	case !slices.ContainsFunc(runners, serve):
		return "no live runner serves its queue", nil
	case !slices.ContainsFunc(runners, know):
		return "no live runner of its queue knows its kind", nil
	case !slices.ContainsFunc(runners, free):
		return "all slots were busy at the last heartbeat", nil
	case task.PassedOver == storage.PassedOverSuspect:
		return "it is one crash short of its limit: a runner runs one such task at a time", nil
	}
	return fmt.Sprintf("it waits for its turn, among %d", stats.Waiting), nil
}

// Bill is a job that nobody knows here.
type Bill struct{ Customer string }

// Each reason for which a task does not run can be seen from a client.
func Example_notRunning() {
	runner, client := set()
	must(midge.Handle(runner, func(context.Context, Resize) error { return nil }))
	show := func(ref midge.Ref) {
		reason, err := why(context.Background(), client, ref)
		must(err)
		fmt.Println(reason)
	}

	later, err := client.EnqueueIn(context.Background(), time.Hour, Bill{Customer: "ann"})
	must(err)
	show(later.Ref)
	now, err := client.Enqueue(context.Background(), Bill{Customer: "bob"})
	must(err)
	show(now.Ref)

	ctx, stop := start(runner)
	ran, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	must(client.Await(ctx, ran.Ref, nil))
	show(ran.Ref)
	show(now.Ref)
	must(client.Queue(now.Queue).Pause(ctx))
	show(now.Ref)
	stop()
	show(midge.Ref{Queue: "default", ID: "gone"})
	// Output:
	// it is scheduled: its moment has not come
	// no live runner serves its queue
	// it is completed
	// no live runner of its queue knows its kind
	// its queue is paused
	// it is not here: it has ended and is not kept, or was enqueued elsewhere
}
