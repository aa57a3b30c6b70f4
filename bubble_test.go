package midge_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// work is the job of these tests. Each test registers its function.
type work struct {
	Name string
}

// bench holds a memory storage with a runner and a client, inside a bubble.
type bench struct {
	*testing.T
	store  storage.Storage
	client *midge.Client
	runner *midge.Runner
	ctx    context.Context
	stop   context.CancelFunc
	done   chan error
}

func bubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.Open(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{T: t, store: store, done: make(chan error, 1)}
		b.ctx, b.stop = context.WithCancel(t.Context())
		if b.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
			t.Fatal(err)
		}
		test(b)
		if b.runner != nil {
			_ = b.drain() // a test that cares calls drain itself
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// run starts a runner whose work job is fn.
func (b *bench) run(cfg midge.RunnerConfig, fn func(context.Context, work) error) {
	b.Helper()
	b.runner = b.newRunner(b.store, cfg, fn)
	go func() { b.done <- b.runner.Run(b.ctx) }()
	synctest.Wait()
}

func (b *bench) newRunner(store storage.Storage, cfg midge.RunnerConfig, fn func(context.Context, work) error) *midge.Runner {
	b.Helper()
	r, err := midge.NewRunner(store, cfg)
	if err != nil {
		b.Fatal(err)
	}
	if fn != nil {
		if err := midge.Handle(r, fn); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

// drain stops the runner and returns the error of Run.
func (b *bench) drain() error {
	b.Helper()
	b.stop()
	err := <-b.done
	b.done <- err // for a second call of drain
	return err
}

func (b *bench) enqueue(name string, opts ...midge.Option) midge.Task {
	b.Helper()
	t, err := b.client.Enqueue(b.Context(), work{name}, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func (b *bench) task(ref storage.Ref) storage.Task {
	b.Helper()
	t, err := b.store.Task(b.Context(), ref)
	if err != nil {
		b.Fatalf("task %s: %v", ref, err)
	}
	return t
}

func (b *bench) gone(ref storage.Ref) {
	b.Helper()
	if _, err := b.store.Task(b.Context(), ref); !errors.Is(err, storage.ErrNotFound) {
		b.Errorf("task %s: got %v, want it gone", ref, err)
	}
}

// after waits for virtual time, and until everything else is blocked.
func (b *bench) after(d time.Duration) {
	b.Helper()
	time.Sleep(d) // virtual: the bubble's clock
	synctest.Wait()
}

func (b *bench) stats(queue string) storage.Stats {
	b.Helper()
	s, err := b.store.Stats(b.Context(), queue)
	if err != nil {
		b.Fatal(err)
	}
	return s[0]
}

// ref returns the ref of a queue and an id.
func ref(queue, id string) midge.Ref { return midge.Ref{Queue: queue, ID: id} }

// halt makes a runner stop without a grace period. It does not wait, so that a job may call it.
func halt(ctx context.Context, r *midge.Runner) {
	over, cancel := context.WithCancel(ctx)
	cancel()
	go func() { _ = r.Shutdown(over) }() // ends when the runner has drained
}
