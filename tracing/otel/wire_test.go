package otel_test

import (
	"context"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// enqueuing is a storage that has what is enqueued pass a middleware, as the client and the runner have.
type enqueuing struct {
	storage.Storage
	tracing func(func(context.Context, []*storage.Insert) error) func(context.Context, []*storage.Insert) error
}

func (e *enqueuing) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) (all []storage.Applied, err error) {
	var inserts []*storage.Insert
	for i := range txs {
		for j := range txs[i].Inserts {
			in := &txs[i].Inserts[j]
			if in.Cursor == nil && in.Headers["traceparent"] == "" { // a follow-up has its context
				inserts = append(inserts, in)
			}
		}
	}
	err = e.tracing(func(ctx context.Context, _ []*storage.Insert) error {
		all, err = e.Storage.Apply(ctx, call, txs...)
		return err
	})(ctx, inserts)
	return all, err
}

// wire makes client and runner.
func (a *traced) wire(store storage.Storage) {
	a.Helper()
	store = &enqueuing{store, a.tracing.Enqueue}
	var err error
	a.client, err = midge.NewClient(store, midge.ClientConfig{})
	a.must(err)
	runner, err := midge.NewRunner(store, a.config())
	a.must(err)
	a.run(runner)
}

// followUp follows up with a job, whose insert passes the middleware.
func (a *traced) followUp(ctx context.Context, job mail) error {
	in := &storage.Insert{Ref: storage.Ref{Queue: midge.DefaultQueue, ID: "mail"}, Kind: "mail"}
	return a.tracing.Enqueue(func(ctx context.Context, inserts []*storage.Insert) error {
		var options []midge.Option
		for name, text := range inserts[0].Headers {
			options = append(options, midge.Header(name, text))
		}
		return midge.FollowUp(ctx, job, options...)
	})(ctx, []*storage.Insert{in})
}
