package midge_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// Bill is a job that nobody knows here.
type Bill struct{ Customer string }

// Why returns in any process the reason why a task does not run.
func ExampleClient_Why() {
	runner, client := set()
	must(midge.Handle(runner, func(context.Context, Resize) error { return nil }))
	show := func(ref midge.Ref) {
		verdict, err := client.Why(context.Background(), ref)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(verdict.Cause)
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
	// due later
	// no runner
	// ended
	// unknown kind
	// paused
	// midge: why default/gone: there is no such task: it never was, or has ended and is not kept, see KeepFor and UntilRead
}

// explain returns a sentence with the reason why a task does not run.
func explain(ctx context.Context, client *midge.Client, ref midge.Ref) (string, error) {
	verdict, err := client.Why(ctx, ref)
	if errors.Is(err, midge.ErrNotFound) {
		return "it is not here: it has ended and is not kept, or was enqueued elsewhere", nil
	} else if err != nil {
		return "", err
	}
	switch verdict.Cause {
	case storage.CausePaused, storage.CausePartitionPaused, storage.CauseNoRunner,
		storage.CauseUnknownKind: // somebody has to do something
		return "stuck: " + verdict.String(), nil
	default:
		return verdict.String(), nil
	}
}

// A verdict prints as a sentence, and its cause is there for a switch.
func ExampleVerdict() {
	_, client := set()
	ctx := context.Background()
	task, err := client.Enqueue(ctx, Bill{Customer: "ann"}, midge.To("billing"))
	must(err)
	for _, ref := range []midge.Ref{task.Ref, {Queue: "billing", ID: "gone"}} {
		text, err := explain(ctx, client, ref)
		must(err)
		fmt.Println(text)
	}
	// Output:
	// stuck: no live runner serves queue billing
	// it is not here: it has ended and is not kept, or was enqueued elsewhere
}
