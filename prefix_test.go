package midge_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestMidgeNamesItselfOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			if err := midge.CompleteWith(ctx, b.store); err != nil {
				return err
			}
			return midge.SetResult(ctx, 1)
		})
		cancelled := b.enqueue("a", midge.In(time.Hour), midge.KeepFor(time.Hour))
		if _, err := b.client.Cancel(b.ctx, cancelled.Ref); err != nil {
			b.Fatal(err)
		}
		stopped, stop := context.WithCancelCause(b.ctx)
		stop(midge.ErrShutdown)
		unkept := storage.Ref{Queue: "default", ID: "unkept"}
		_, many := b.client.EnqueueMany(b.ctx, []midge.Item{midge.New(work{}), midge.New(5)})
		for want, err := range map[string]error{
			"midge: await default/unkept: it never was, or has ended and was not kept, see KeepFor: " +
				"storage: task not found": b.client.Await(b.ctx, unkept, nil),
			"midge: read task default/unkept: storage: task not found":                       second(b.client.Task(b.ctx, unkept)),
			"midge: await " + cancelled.Ref.String() + ": task cancelled":                    b.client.Await(b.ctx, cancelled.Ref, nil),
			"midge: await default/unkept: the runner is shutting down":                       b.client.Await(stopped, unkept, nil),
			`midge: await default/unkept: invalid result "nil *int": want nil, or a pointer`: b.client.Await(b.ctx, unkept, (*int)(nil)),
			`midge: await default/unkept: invalid result "int": want nil, or a pointer`:      b.client.Await(b.ctx, unkept, 5),
			"midge: complete with: the context is not that of a running job":                 midge.CompleteWith(b.ctx, b.store),
			"midge: set result: the context is not that of a running job":                    midge.SetResult(b.ctx, 1),
			`midge: 1 of 2 items were refused, items[1]: enqueue int: invalid job "int": ` +
				"want a struct, or a pointer to one": many,
			"midge: register work: the runner has been started":                             midge.Handle(b.runner, func(context.Context, work) error { return nil }),
			"midge: periodic default/work: the runner has been started":                     b.runner.Periodic(midge.Every(time.Hour), work{}),
			"midge: the runner has been started: Run can be called once; make a new runner": b.runner.Run(b.ctx),
		} {
			if err == nil || err.Error() != want {
				b.Errorf("got %v,\nwant %s", err, want)
			}
		}
		if err := b.client.Await(stopped, unkept, nil); !errors.Is(err, midge.ErrShutdown) {
			b.Errorf("got %v, want it to wrap the cause", err)
		}
	})
}
