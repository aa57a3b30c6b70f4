package midge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestAwaitEveryEnd(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, w work) error {
			switch w.Name {
			case "result":
				return midge.SetResult(ctx, []string{"a", "b"})
			case "dead":
				return midge.Discard(errors.New("smtp refused"))
			}
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		var got []string
		if err := b.client.Await(b.ctx, b.enqueue("result").Ref, &got); err != nil || fmt.Sprint(got) != "[a b]" {
			t.Errorf("got %v, %v; want the result", got, err)
		}
		var dead *midge.DeadError
		err := b.client.Await(b.ctx, b.enqueue("dead").Ref, &got)
		if !errors.As(err, &dead) || dead.Reason != "discarded" || dead.Last != "smtp refused" {
			t.Errorf("got %v, want a *DeadError with the reason and the last error", err)
		}
		cancelled := b.enqueue("cancelled", midge.In(time.Hour), midge.KeepFor(time.Hour))
		if _, err := b.client.Cancel(b.ctx, cancelled.Ref); err != nil {
			t.Fatal(err)
		}
		if err := b.client.Await(b.ctx, cancelled.Ref, nil); !errors.Is(err, midge.ErrCancelled) {
			t.Errorf("got %v, want ErrCancelled", err)
		}
		kept := b.enqueue("slow", midge.KeepFor(time.Hour))
		if err := b.client.Await(b.ctx, kept.Ref, nil); err != nil {
			t.Errorf("without a result wanted: got %v", err)
		}
		if err := b.client.Await(b.ctx, kept.Ref, &got); !errors.Is(err, midge.ErrNoResult) {
			t.Errorf("got %v, want ErrNoResult", err)
		}
		seen, never := b.client.Await(b.ctx, b.enqueue("slow").Ref, nil), b.client.Await(b.ctx, ref("default", "nobody"), nil)
		if !errors.Is(seen, midge.ErrNotKept) || !errors.Is(never, midge.ErrNotFound) {
			t.Errorf("got %v and %v, want ErrNotKept where it was seen alive, ErrNotFound where it never was", seen, never)
		}
		if err := b.client.Await(b.ctx, b.enqueue("result").Ref, new(int)); err == nil {
			t.Error("into another type: got no error")
		}
	})
}

// resized is a job whose result is written as JSON.
type resized struct{ Path string }

func (resized) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

func TestAwaitIntoAnotherTypeNamesBothAndQuotesNothing(t *testing.T) {
	const secret = "hunter2"
	type login struct{ Password string }
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			return midge.SetResult(ctx, map[string]any{secret: []string{secret}, "Password": 7})
		})
		if err := midge.Handle(b.runner, func(ctx context.Context, _ resized) error {
			return midge.SetResult(ctx, map[string]any{secret: secret, "Password": 7})
		}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		for _, c := range []struct {
			job  any
			into any
			want string
		}{
			{work{}, new(int), "of work is of another shape than *int: msgpack: got map, want int"},
			{work{}, new(login), `of work is of another shape than *midge_test.login: msgpack: got integer for field "Password", want string`},
			{resized{}, new([]int), "of resized is of another shape than *[]int: json: got object, want []int"},
			{resized{}, new(login), `*midge_test.login: json: got number for field "Password", want string`},
		} {
			task, err := b.client.Enqueue(b.ctx, c.job)
			if err != nil {
				t.Fatal(err)
			}
			err = b.client.Await(b.ctx, task.Ref, c.into)
			if err == nil || !strings.Contains(err.Error(), "await "+task.String()+": the result ") ||
				!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, want %q without what the result says", err, c.want)
			}
		}
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(b *bench) {
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(b.ctx, time.Minute, why)
		defer cancel()
		begun := time.Now()
		if err := b.client.Await(ctx, b.enqueue("a").Ref, nil); !errors.Is(err, why) || time.Since(begun) != time.Minute {
			t.Errorf("got %v after %v, want the context's cause after a minute", err, time.Since(begun))
		}
	})
}

func TestAwaitDeletesWhatIsKeptUntilRead(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error { return midge.SetResult(ctx, 42) })
		task := b.enqueue("a", midge.UntilRead())
		if err := b.client.Await(b.ctx, task.Ref, nil); err != nil {
			t.Fatal(err)
		}
		if got := b.task(task.Ref); got.State != storage.Completed {
			t.Errorf("waiting alone left it %s, want completed", got.State)
		}
		var wrong string
		if err := b.client.Await(b.ctx, task.Ref, &wrong); err == nil {
			t.Error("into another type: got no error")
		}
		var got int
		if err := b.client.Await(b.ctx, task.Ref, &got); err != nil || got != 42 {
			t.Errorf("got %d, %v; want 42", got, err)
		}
		b.gone(task.Ref)
	})
}

// away is a storage that does not answer its first reads.
type away struct {
	storage.Storage
	reads int
	until int
}

func (a *away) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if a.reads++; a.reads <= a.until {
		return storage.Task{}, fmt.Errorf("no answer: %w", storage.ErrUnknown)
	}
	return a.Storage.Task(ctx, ref)
}

func TestAwaitWaitsOutTheStoragesAbsence(t *testing.T) {
	bubble(t, func(b *bench) {
		task := b.enqueue("a", midge.KeepFor(time.Hour))
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { return nil })
		b.after(time.Second)
		store := &away{Storage: b.store, until: 30}
		if err := newClient(t, store).Await(b.ctx, task.Ref, nil); err != nil || store.reads != 31 {
			t.Errorf("got %v after %d reads, want none after 31", err, store.reads)
		}
	})
}
