package midge_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// stepped is a storage as a test kit wraps it.
type stepped struct {
	storage.Storage
	step func(ctx context.Context, want storage.Ref) (runner.Step, error)
}

func (s *stepped) Stepped(
	step func(context.Context, storage.Ref) (runner.Step, error), _ func() map[string]runner.JobType,
) {
	s.step = step
}

func (s *stepped) Within(tx storage.Applier) storage.Applier { return tx }

// kit holds a memory storage with a client and a runner that makes steps.
type kit struct {
	*testing.T
	stepped
	client *midge.Client
	runner *midge.Runner
	ends   []midge.Ended // appended to without a lock: a step makes its calls in the goroutine of its caller
}

func stepping(t *testing.T, fn func(context.Context, work) error, test func(k *kit)) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.Open(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		k := &kit{T: t, stepped: stepped{Storage: store}}
		if k.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
			t.Fatal(err)
		}
		k.runner, err = midge.NewRunner(&k.stepped, midge.RunnerConfig{
			Backoff: midge.Constant(time.Minute),
			OnEnd:   only(func(_ context.Context, e midge.Ended) { k.ends = append(k.ends, e) }),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := midge.Handle(k.runner, fn); err != nil {
			t.Fatal(err)
		}
		test(k)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (k *kit) enqueue(name string) storage.Ref {
	k.Helper()
	task, err := k.client.Enqueue(k.Context(), work{name}, midge.ID(name), midge.KeepFor(time.Hour))
	if err != nil {
		k.Fatal(err)
	}
	return task.Ref
}

func (k *kit) next(want storage.Ref) runner.Step {
	k.Helper()
	s, err := k.step(k.Context(), want)
	if err != nil {
		k.Fatal(err)
	}
	return s
}

func TestAStepMakesOneAttempt(t *testing.T) {
	stepping(t, func(ctx context.Context, w work) error {
		if info, _ := midge.Current(ctx); w.Name == "a" && info.Retries == 0 {
			return errBroken
		}
		return errors.Join(midge.SetResult(ctx, "b"), midge.Checkpoint(ctx, 7), midge.FollowUp(ctx, other{}, midge.To("else")))
	}, func(k *kit) {
		a := k.enqueue("a")
		if s := k.next(storage.Ref{}); !s.Ran || len(k.ends) != 1 {
			t.Fatalf("got %+v and %d ends, want an attempt", s, len(k.ends))
		}
		if e := k.ends[0]; e.Outcome != midge.OutcomeFailed || e.RetryIn != time.Minute || e.Task.State != storage.Retry {
			t.Errorf("got %+v", e)
		}
		s := k.next(storage.Ref{})
		if s.Ran || time.Until(s.Next).Round(time.Second) != time.Minute {
			t.Errorf("got %+v, want to be told of the retry in a minute", s)
		}
		time.Sleep(time.Minute + time.Second) // virtual
		if s = k.next(storage.Ref{}); !s.Ran || len(k.ends) != 2 || k.ends[1].Outcome != midge.OutcomeSucceeded {
			t.Fatalf("got %+v, %+v; want a success", s, k.ends)
		}
		done, err := k.Task(t.Context(), a)
		if err != nil || done.State != storage.Completed || done.Result == nil || done.Checkpoint == nil {
			t.Errorf("got %+v, %v", done, err)
		}
		if stats, err := k.Stats(t.Context(), "else"); err != nil || stats[0].Waiting != 1 {
			t.Errorf("got %+v, %v; want the follow-up", stats, err)
		}
	})
}

// Only the wanted task runs, and tasks that wait before it keep their order.
func TestAStepOfOneTaskLeavesTheOthersInTheirPlaces(t *testing.T) {
	var ran []string
	stepping(t, func(_ context.Context, w work) error {
		ran = append(ran, w.Name)
		return nil
	}, func(k *kit) {
		var c storage.Ref
		for _, name := range []string{"a", "b", "c", "d"} {
			if ref := k.enqueue(name); name == "c" {
				c = ref
			}
		}
		k.next(c)
		if _, err := k.step(t.Context(), c); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("a task that has ended: got %v, want ErrNotFound", err)
		}
		for k.next(storage.Ref{}).Ran {
			continue
		}
		if want := []string{"c", "a", "b", "d"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		if len(k.ends) != 4 {
			t.Errorf("%d ends were told, want 4", len(k.ends))
		}
	})
}

func TestStepsTickSchedulesAndExcludeRun(t *testing.T) {
	ticked := 0
	stepping(t, func(context.Context, work) error {
		ticked++
		return nil
	}, func(k *kit) {
		if err := k.runner.Periodic(midge.Every(time.Hour), work{}); err != nil {
			t.Fatal(err)
		}
		for range 5 { // a clock that leaps by an hour is not believed for five seconds
			s := k.next(storage.Ref{})
			for ; s.Ran; s = k.next(storage.Ref{}) {
				continue
			}
			time.Sleep(time.Until(s.Next)) // virtual
		}
		if ticked != 2 {
			t.Errorf("%d ticks ran, want 2", ticked)
		}
		if err := k.runner.Run(t.Context()); !errors.Is(err, midge.ErrRunning) {
			t.Errorf("Run beside steps: got %v, want ErrRunning", err)
		}
	})
}
