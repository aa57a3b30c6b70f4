package difftest

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// requeued is the job whose tasks are requeued.
type requeued struct{ Name string }

// requeue is a requeue of a task that has finished two steps, and the later steps of its job.
type requeue struct {
	end  func(ctx context.Context, rig *requeueRig, ref midge.Ref) error // ends the first attempt
	from storage.State
	opts []midge.RequeueOption
	want []string // the steps that are called again
}

var requeues = map[string]requeue{
	"dead":                     {discard, storage.Dead, nil, nil},
	"dead, from the start":     {discard, storage.Dead, []midge.RequeueOption{midge.FromStart()}, []string{"first", "second"}},
	"cancelled":                {cancel, storage.Cancelled, nil, nil},
	"cancelled, from start":    {cancel, storage.Cancelled, []midge.RequeueOption{midge.FromStart()}, []string{"first", "second"}},
	"completed":                {complete, storage.Completed, nil, []string{"first", "second"}},
	"completed, from start":    {complete, storage.Completed, []midge.RequeueOption{midge.FromStart()}, []string{"first", "second"}},
	"in retry":                 {retry, storage.Retry, nil, nil},
	"in retry, from the start": {retry, storage.Retry, []midge.RequeueOption{midge.FromStart()}, []string{"first", "second"}},
	"asleep":                   {asleep, storage.Scheduled, nil, nil},
	"asleep, from the start":   {asleep, storage.Scheduled, []midge.RequeueOption{midge.FromStart()}, []string{"first", "second"}},
}

func discard(context.Context, *requeueRig, midge.Ref) error {
	return midge.Discard(errors.New("no use"))
}

func cancel(ctx context.Context, rig *requeueRig, ref midge.Ref) error {
	if _, err := rig.client.Cancel(ctx, ref); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func complete(context.Context, *requeueRig, midge.Ref) error { return nil }

func retry(context.Context, *requeueRig, midge.Ref) error {
	return midge.RetryIn(time.Hour, errors.New("later"))
}

func asleep(ctx context.Context, _ *requeueRig, _ midge.Ref) error {
	return midge.Sleep(ctx, "nap", time.Hour)
}

// requeueRig runs one task at a time on a storage.
type requeueRig struct {
	store  storage.Storage
	client *midge.Client
	ends   chan midge.Ended
	called []string
	points []int
	first  func(ctx context.Context) error
}

// run makes two steps and a checkpoint. The first attempt then ends as the test sets, and the
// second one with a nil, unless the task still sleeps.
func (rig *requeueRig) run(ctx context.Context, _ requeued) error {
	var point int
	if _, err := midge.LoadCheckpoint(ctx, &point); err != nil {
		return err
	}
	rig.points = append(rig.points, point)
	for _, name := range []string{"first", "second"} {
		got, err := midge.Step(ctx, name, func(context.Context) (string, error) {
			rig.called = append(rig.called, name)
			return "of " + name, nil
		})
		if err != nil {
			return err
		}
		if got != "of "+name {
			return midge.Discard(errors.New("the step " + name + " returned " + got))
		}
	}
	if err := midge.Checkpoint(ctx, 7); err != nil {
		return err
	}
	if first := rig.first; first != nil {
		rig.first = nil
		return first(ctx)
	}
	return nil
}

// TestRequeuesOfSteps requeues tasks that have finished steps: they go on behind their steps, unless
// they have completed or begin at the start.
func TestRequeuesOfSteps(t *testing.T) {
	for name, open := range requeueStorages() {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			rig := &requeueRig{store: store, ends: make(chan midge.Ended)}
			var err error
			if rig.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
				t.Fatal(err)
			}
			runner, err := midge.NewRunner(store, midge.RunnerConfig{
				Concurrency: 1, Slog: slog.New(slog.DiscardHandler), OnEnd: []func(context.Context, midge.Ended){
					func(ctx context.Context, end midge.Ended) {
						select {
						case rig.ends <- end:
						case <-ctx.Done():
						}
					},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := midge.Handle(runner, rig.run); err != nil {
				t.Fatal(err)
			}
			if err := runner.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := runner.Shutdown(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			for name, c := range requeues {
				t.Run(name, func(t *testing.T) { rig.requeue(t, c) })
			}
		})
	}
}

func (rig *requeueRig) requeue(t *testing.T, c requeue) {
	rig.called, rig.points = nil, nil
	ref := midge.Ref{Queue: midge.DefaultQueue, ID: "task"}
	rig.first = func(ctx context.Context) error { return c.end(ctx, rig, ref) }
	if _, err := rig.client.Enqueue(t.Context(), requeued{}, midge.ID(ref.ID), midge.KeepFor(time.Hour)); err != nil {
		t.Fatal(err)
	}
	first := <-rig.ends
	if first.Task.State != c.from || !slices.Equal(rig.called, []string{"first", "second"}) {
		t.Fatalf("the first attempt led to %s, with %q called; want %s", first.Task.State, rig.called, c.from)
	}
	if err := rig.client.Requeue(t.Context(), ref, c.opts...); err != nil {
		t.Fatal(err)
	}
	<-rig.ends
	if again := rig.called[2:]; !slices.Equal(again, c.want) {
		t.Errorf("called again: got %q, want %q", again, c.want)
	}
	point := 7
	if len(c.want) > 0 {
		point = 0
	}
	if !slices.Equal(rig.points, []int{0, point}) {
		t.Errorf("checkpoints: got %d, want 0 and %d", rig.points, point)
	}
	task, err := rig.client.Task(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := midge.StepsOf(task)
	if want := 2; err != nil || len(steps) < want || steps[0].Name != "first" || steps[1].Name != "second" {
		t.Errorf("steps: got %v, %v, want first and second", steps, err)
	}
	if err := rig.client.Delete(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
}

// requeueStorages opens memory and SQLite, and real servers if there are some.
func requeueStorages() map[string]func(t *testing.T) storage.Storage {
	closed := func(t *testing.T, store storage.Storage, err error) storage.Storage {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	all := map[string]func(t *testing.T) storage.Storage{
		"memory": func(t *testing.T) storage.Storage {
			store, err := memory.Open(memory.Config{})
			return closed(t, store, err)
		},
		"sqlite": func(t *testing.T) storage.Storage {
			store, err := modernc.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"))
			return closed(t, store, err)
		},
	}
	if testserver.Enabled() {
		all["redis"] = func(t *testing.T) storage.Storage {
			store, err := redis.Open(t.Context(), redis.Config{URL: testserver.Redis(t).URL()})
			return closed(t, store, err)
		}
		all["postgres"] = func(t *testing.T) storage.Storage {
			cfg := postgres.Config{URL: testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true}).URL()}
			if err := postgres.Migrate(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			store, err := postgres.Open(t.Context(), cfg)
			return closed(t, store, err)
		}
	}
	return all
}
