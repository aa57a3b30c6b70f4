package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// refusing is a service that refuses jobs for a time, and notes which jobs called it.
type refusing struct {
	mu     sync.Mutex
	called []string
	refuse map[string]time.Duration // by name of a job: the rest that its next call asks for
}

func (r *refusing) job(_ context.Context, w work) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.called = append(r.called, w.Name)
	d, ok := r.refuse[w.Name]
	delete(r.refuse, w.Name)
	if ok {
		return errors.Join(errors.New("429 Too Many Requests"), midge.Throttle(d))
	}
	return nil
}

// calls returns the calls since the last call of it.
func (r *refusing) calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.called = nil }()
	return r.called
}

// TestAThrottledPartitionRests: the task goes to the head of its line, uncharged, and no task of its partition
// starts before the rest is over, not even a task that was claimed ahead. All others are served.
func TestAThrottledPartitionRests(t *testing.T) {
	bubble(t, func(b *bench) {
		r := &refusing{refuse: map[string]time.Duration{"acme 40": time.Minute}}
		logger, lines := logged()
		var rest []string
		var throttled midge.Task
		for i := range 100 {
			task := b.enqueue(fmt.Sprint("acme ", i), midge.Partition("acme"))
			if i >= 40 {
				rest = append(rest, fmt.Sprint("acme ", i))
			}
			if i == 40 {
				throttled = task
			}
		}
		b.run(midge.RunnerConfig{Concurrency: 1, Logger: logger}, r.job)
		b.after(time.Second)
		if got := r.calls(); len(got) != 41 || got[40] != "acme 40" {
			t.Errorf("%d jobs ran, the last is %s; want none after the throttled one", len(got), got[len(got)-1])
		}
		for _, opts := range [][]midge.Option{nil, {midge.Partition("other")}, {midge.Partition("acme")}} {
			b.enqueue(fmt.Sprint(len(opts)), opts...)
		}
		b.after(time.Second)
		if got := r.calls(); len(got) != 2 {
			t.Errorf("%q ran beside the partition that rests, want two jobs", got)
		}
		b.restsAfter(throttled, lines)
		b.after(59 * time.Second)
		if got := r.calls(); !slices.Equal(got, append(rest, "1")) {
			t.Errorf("%q ran after the rest, want all others in their order", got)
		}
		_ = b.drain()
		if got := lines("given back"); len(got) != 0 {
			t.Errorf("got %q", got)
		}
	})
}

// TestAThrottleAfterATransactionWithoutCommit stops the tasks that were claimed ahead, as any other throttle.
func TestAThrottleAfterATransactionWithoutCommit(t *testing.T) {
	bubble(t, func(b *bench) {
		r := &refusing{refuse: map[string]time.Duration{"acme 40": time.Minute}}
		for i := range 50 {
			b.enqueue(fmt.Sprint("acme ", i), midge.Partition("acme"))
		}
		b.run(midge.RunnerConfig{Concurrency: 1}, func(ctx context.Context, w work) error {
			err := r.job(ctx, w)
			if err != nil {
				err = errors.Join(err, midge.CompleteWith(ctx, &pretendTx{store: b.store}))
			}
			return err
		})
		b.after(time.Second)
		if got := r.calls(); len(got) != 41 {
			t.Errorf("%d jobs ran, want none after the throttled one", len(got))
		}
		b.after(time.Minute)
		if got := r.calls(); len(got) != 10 {
			t.Errorf("%q ran after the rest, want the ten others", got)
		}
	})
}

// restsAfter checks the places that show the rest of partition acme, two seconds after the task was
// throttled.
func (b *bench) restsAfter(throttled midge.Task, lines func(string) []string) {
	b.Helper()
	got := b.task(throttled.Ref)
	if got.State != storage.Waiting || got.Retries != 0 || len(got.Attempts) != 0 || got.Snoozes != 0 {
		b.Errorf("the throttled task is %s after %d retries, %+v", got.State, got.Retries, got.Attempts)
	}
	stats, err := b.client.Queue(midge.DefaultQueue).Partition("acme").Stats(b.Context())
	if err != nil || time.Until(stats.Rests).Round(time.Second) != 58*time.Second || stats.Waiting != 61 {
		b.Errorf("the partition is %+v, %v", stats, err)
	}
	want := "throttled: partition acme rests for 1m0s: 429 Too Many Requests"
	if got := lines("throttled"); len(got) != 1 || !strings.Contains(got[0], want) {
		b.Errorf("got the lines %q, want one with %q", got, want)
	}
	v, err := b.client.Why(b.Context(), throttled.Ref)
	if err != nil || v.Cause != storage.CauseThrottled ||
		v.String() != "partition acme of default rests for another 58s after a throttle" {
		b.Errorf("got %s: %s, %v", v.Cause, v, err)
	}
}

// TestAThrottleWithoutAPartition rests all tasks of the queue without one, and no partition.
func TestAThrottleWithoutAPartition(t *testing.T) {
	bubble(t, func(b *bench) {
		r := &refusing{refuse: map[string]time.Duration{"a": time.Minute}}
		logger, lines := logged()
		b.enqueue("a")
		second := b.enqueue("b")
		b.enqueue("c", midge.Partition("acme"))
		b.run(midge.RunnerConfig{Concurrency: 1, Logger: logger}, r.job)
		b.after(10 * time.Second)
		if got := r.calls(); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("%q ran, want a and c", got)
		}
		want := "throttled: the tasks of queue default without a partition rest for 1m0s"
		if got := lines("throttled"); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("got the lines %q, want one with %q", got, want)
		}
		v, err := b.client.Why(b.Context(), second.Ref)
		if want := "the tasks of default without a partition rest for another 50s after a throttle"; err != nil || v.String() != want {
			t.Errorf("got %s, %v, want %s", v, err, want)
		}
		b.after(time.Minute)
		if got := r.calls(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%q ran after the rest, want a and b", got)
		}
	})
}

// TestAThrottleOutOfBoundsFailsTheJob with an *InvalidError that names the accepted values.
func TestAThrottleOutOfBoundsFailsTheJob(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second, time.Millisecond - 1, storage.MaxDelay + 1} {
		err := midge.Throttle(d)
		if !errors.As(err, new(*midge.InvalidError)) || !strings.Contains(err.Error(), "want 1ms to 100 years") {
			t.Errorf("%v: got %v, want an *InvalidError", d, err)
		}
		if got := midge.OutcomeOf(err); got != midge.OutcomeFailed {
			t.Errorf("%v: got %s", d, got)
		}
	}
	for _, d := range []time.Duration{time.Millisecond, storage.MaxDelay} {
		if got := midge.OutcomeOf(midge.Throttle(d)); got != midge.OutcomeThrottled {
			t.Errorf("%v: got %s", d, got)
		}
	}
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { return midge.Throttle(0) })
		task := b.enqueue("a")
		b.after(time.Second)
		if got := b.task(task.Ref); got.Retries != 1 || !strings.Contains(got.LastError(), "Throttle 0s") {
			t.Errorf("%d retries, %q; want a failure", got.Retries, got.LastError())
		}
	})
}

// TestAThrottleBeyondADeadline rests the partition all the same. The task expires after the rest.
func TestAThrottleBeyondADeadline(t *testing.T) {
	bubble(t, func(b *bench) {
		r := &refusing{refuse: map[string]time.Duration{"a": time.Minute}}
		var told heard
		b.run(midge.RunnerConfig{OnEnd: told.hooks()}, r.job)
		task := b.enqueue("a", midge.Partition("acme"), midge.Deadline(time.Now().Add(30*time.Second)))
		b.after(time.Second)
		b.enqueue("b", midge.Partition("acme"))
		b.after(50 * time.Second)
		if got := r.calls(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q ran during the rest", got)
		}
		b.after(10 * time.Second)
		if got := r.calls(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("%q ran after the rest", got)
		}
		_ = b.drain()
		var outcomes []midge.Outcome
		for _, e := range told.of(task.Ref) {
			outcomes = append(outcomes, e.Outcome)
		}
		if want := []midge.Outcome{midge.OutcomeThrottled, midge.OutcomeExpired}; !slices.Equal(outcomes, want) {
			t.Errorf("got %q, want %q", outcomes, want)
		}
	})
}
