package midge_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge"
)

// The first attempt makes the account and fails. The second one has the account, and goes on with the
// mail. The key lets the mail server recognize a repeat, should the process die before the step is
// stored.
func ExampleStep() {
	runner, client := set()
	sent := map[string]int{} // stands for a mail server
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		task, _ := midge.Current(ctx)
		id, err := midge.Step(ctx, "account", func(context.Context) (int, error) {
			fmt.Println("make an account")
			return 7, nil
		})
		if err != nil {
			return err
		}
		_, err = midge.Step(ctx, "mail", func(context.Context) (struct{}, error) {
			if task.Attempt == 1 {
				return struct{}{}, midge.RetryIn(time.Millisecond, errors.New("the mail server is away"))
			}
			sent[task.IdempotencyKey+" mail"] = id
			return struct{}{}, nil
		})
		return err
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	fmt.Println("mails:", len(sent))
	// Output:
	// make an account
	// mails: 1
}

// A job sleeps without a slot, and without a process that waits.
func ExampleSleep() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		if err := midge.Sleep(ctx, "trial", 10*time.Millisecond); err != nil { // or two weeks
			return err
		}
		fmt.Println("the trial is over")
		return nil
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	// Output: the trial is over
}

// A requeue of a dead task keeps its finished steps. With FromStart the job runs all of them again.
func ExampleFromStart() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		_, err := midge.Step(ctx, "account", func(context.Context) (int, error) {
			fmt.Println("make an account")
			return 7, nil
		})
		if err != nil {
			return err
		}
		return midge.Discard(errors.New("no mail server"))
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	await := func() {
		dead, ok := errors.AsType[*midge.DeadError](client.Await(ctx, task.Ref, nil))
		fmt.Println("dead:", ok && dead.Last == "no mail server")
	}
	await()
	must(client.Requeue(ctx, task.Ref))
	await()
	must(client.Requeue(ctx, task.Ref, midge.FromStart()))
	await()
	// Output:
	// make an account
	// dead: true
	// dead: true
	// make an account
	// dead: true
}

// The steps of a task show how far it has come.
func ExampleStepsOf() {
	runner, client := set()
	must(midge.Handle(runner, func(ctx context.Context, _ Resize) error {
		_, err := midge.Step(ctx, "width", func(context.Context) (int, error) { return 640, nil })
		return errors.Join(err, midge.Sleep(ctx, "pause", 0))
	}))
	ctx, stop := start(runner)
	defer stop()
	task, err := client.Enqueue(ctx, Resize{Path: "cat.png"})
	must(err)
	must(client.Await(ctx, task.Ref, nil))
	steps, err := midge.StepsOf(must1(client.Task(ctx, task.Ref)))
	must(err)
	for _, s := range steps {
		var result int
		if err := s.Decode(&result); errors.Is(err, midge.ErrNoResult) {
			fmt.Println(s.Name, "until", s.Until.Sub(s.Ended), "later")
		} else {
			fmt.Println(s.Name, result)
		}
	}
	// Output:
	// width 640
	// pause until 0s later
}
