package midge_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// unread is a storage that does not answer the reads of tasks until it is back.
type unread struct {
	storage.Storage

	back bool
}

func (u *unread) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if !u.back {
		return storage.Task{}, storage.ErrUnavailable
	}
	return u.Storage.Task(ctx, ref) //nolint:wrapcheck // as the storage has it
}

// TestAJobWhoseStepsAreNotReadHasFailed checks that a job completes nothing that drops the error of a step
// or a sleep because the storage did not answer: the attempt has failed, and its next step returns
// the error too, although the storage answers again.
func TestAJobWhoseStepsAreNotReadHasFailed(t *testing.T) {
	for name, first := range map[string]func(ctx context.Context) error{
		"step": func(ctx context.Context) error {
			_, err := midge.Step(ctx, "first", func(context.Context) (int, error) { return 1, nil })
			return err
		},
		"sleep": func(ctx context.Context) error { return midge.Sleep(ctx, "first", time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				store := &unread{Storage: b.store}
				b.store = store
				b.run(midge.RunnerConfig{Logger: zap.NewNop()}, func(ctx context.Context, _ work) error {
					if store.back {
						return nil
					}
					if err := first(ctx); err == nil {
						t.Error("the steps could not be read, and there is no error")
					}
					store.back = true
					if _, err := midge.Step(ctx, "second", func(context.Context) (int, error) { return 2, nil }); err == nil {
						t.Error("the next step of the attempt has no error")
					}
					return nil
				})
				task := b.enqueue("a", midge.KeepFor(time.Hour), midge.Retries(midge.None))
				b.after(time.Minute)
				if got := b.task(task.Ref); got.State != storage.Dead {
					t.Errorf("the task is %s, want it dead, because its only attempt has failed", got.State)
				}
			})
		})
	}
}
