package midgetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// Config configures a [Kit].
type Config struct {
	// Register registers the jobs and schedules, as the program does in its main. Nil registers
	// none.
	Register func(*midge.Runner) error
	// Client configures the clients of the kit.
	Client midge.ClientConfig
	// Runner configures the runner that makes the attempts. Its OnEnd and Middleware are called as
	// usual, in the goroutine of the test. Without a Backoff, retries have the default delays
	// without jitter: 2 s, 4 s, 8 s and so on. Without a logger, warnings and errors go to the log
	// of the test. Lines of the log have the time of the kit's clock. Concurrency, Grace and Ahead
	// have no effect.
	Runner midge.RunnerConfig
	// Start is the time that the kit's clock shows first: default the current time. It must be zero
	// in a bubble of testing/synctest, whose clock the kit uses.
	Start time.Time
}

// Kit runs jobs in a test, one after the other, in the goroutine that calls it. Its storage is in
// memory, with a clock that stands still until the kit sets it forward. So a week of retries and
// schedules takes milliseconds, and runs the same way each time. Jobs may use databases and
// servers, but these do not follow the kit's clock.
//
// In a bubble of testing/synctest the kit uses the bubble's clock, and sleeps to set it forward.
//
// A cancel of a task whose job runs does not end the context of the job, as it does in production: the
// task is completed if the job returns nil, and else cancelled.
//
// A Kit must not be used by several goroutines at once; its clients may be.
type Kit struct {
	t        testing.TB
	store    *kitStore
	client   *midge.Client
	inline   *midge.Client
	inBubble bool

	turn    sync.Mutex // held while attempts are made
	step    func(ctx context.Context, want storage.Ref) (runner.Step, error)
	ended   []Worked // since the current call of a method began
	pending pending
}

// Worked is the end of an attempt, and the values that the job stored. Its Task also has the progress and the
// checkpoint.
type Worked struct {
	midge.Ended

	// FollowUps are the tasks of the job's follow-ups that were enqueued with its completion.
	FollowUps []midge.Task
	// Called holds the names of the steps whose functions this attempt has called, and of the
	// sleeps that it has begun, in that order. Steps that were finished before are not among them.
	Called []string

	t testing.TB
}

// New returns a kit. It fails the test at once if the configuration is invalid.
func New(t testing.TB, cfg Config) *Kit {
	t.Helper()
	k := &Kit{t: t, inBubble: inBubble()}
	if k.inBubble && !cfg.Start.IsZero() {
		t.Fatalf("midgetest: invalid Config.Start %v: want none in a bubble, whose clock the kit takes", cfg.Start)
	}
	k.store = &kitStore{kit: k, start: cfg.Start}
	if cfg.Start.IsZero() && !k.inBubble {
		k.store.start = time.Now()
	}
	k.store.at = k.store.start
	store, err := memory.Open(memory.Config{Now: k.store.Clock})
	k.check(err)
	k.store.Storage = store
	t.Cleanup(func() { _ = store.Close() })
	k.client, err = midge.NewClient(k.store, cfg.Client)
	k.check(err)
	k.inline, err = midge.NewClient(&inlineStore{k.store}, cfg.Client)
	k.check(err)

	own := cfg.Runner
	k.configure(&own)
	r, err := midge.NewRunner(k.store, own)
	k.check(err)
	if cfg.Register != nil {
		if err := cfg.Register(r); err != nil {
			t.Fatalf("midgetest: Config.Register: %v", err)
		}
	}
	return k
}

// lease is the lease of the kit's attempts, which nobody extends.
const lease = 365 * 24 * time.Hour

// configure adds to the runner's configuration what the kit needs.
func (k *Kit) configure(cfg *midge.RunnerConfig) {
	cfg.Lease = lease
	if cfg.Logger == nil && cfg.Slog == nil {
		cfg.Slog = slog.New(slog.NewTextHandler(testLog{k.t}, &slog.HandlerOptions{
			Level: slog.LevelWarn, ReplaceAttr: withoutTime,
		}))
	}
	if cfg.Backoff == nil {
		cfg.Backoff = midge.Geometric{Jitter: -1}.Delay
	}
	hears := func(_ context.Context, e midge.Ended) { k.ended = append(k.ended, k.store.worked(e)) }
	cfg.OnEnd = append([]func(context.Context, midge.Ended){hears}, cfg.OnEnd...)
	cfg.Middleware = append([]midge.Middleware{k.store.commits}, cfg.Middleware...)
}

// testLog writes lines to the log of a test, which shows them if the test fails.
type testLog struct{ t testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Helper()
	l.t.Logf("%s", bytes.TrimRight(line, "\n"))
	return len(line), nil
}

// withoutTime removes the time of a line, which only lengthens the log of a test.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// check fails the test at once if err is not nil.
func (k *Kit) check(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatalf("midgetest: %v", err)
	}
}

// Client returns a client of the kit's storage. Its tasks wait for Work, Drain or Until.
func (k *Kit) Client() *midge.Client { return k.client }

// Now returns the time of the kit's clock.
func (k *Kit) Now() time.Time { return k.store.Clock() }

// Work enqueues a job and makes one attempt of its task, whether the task is due or not. It uses
// the code of a runner, with its middleware, timeout and backoff, and with a context in which all
// of midge's functions for jobs work. If an equal task exists, by its unique key or id, Work makes an attempt
// of that task. Tasks that wait before it are put back after the attempt. A limit of the queue counts them
// all the same, and the turns of partitions move on: to test limits, use [Kit.Drain].
//
// [midge.CompleteWith] does not touch the transaction: the task is completed when the job returns
// nil.
func (k *Kit) Work(job any, opts ...midge.Option) Worked {
	k.t.Helper()
	task, err := k.client.Enqueue(k.t.Context(), job, opts...)
	k.check(err)
	return k.WorkTask(task.Ref)
}

// WorkTask makes one attempt of a task that waits, is scheduled or is to be retried; see
// [Kit.Work]. It does not end a [midge.Sleep], as Until does: the attempt is snoozed again. It fails
// the test if a pause, a limit or a [midge.Throttle] holds the task back.
func (k *Kit) WorkTask(ref midge.Ref) Worked {
	k.t.Helper()
	k.turn.Lock()
	defer k.turn.Unlock()
	worked, err := k.work(ref)
	k.check(err)
	return worked
}

// work makes an attempt of a task. The turn is held.
func (k *Kit) work(ref midge.Ref) (Worked, error) {
	ctx := k.t.Context()
	task, err := k.client.Task(ctx, ref)
	if errors.Is(err, midge.ErrNotFound) {
		return Worked{}, fmt.Errorf("there is no task %s: one that has ended and is not kept is gone", ref)
	}
	if err != nil {
		return Worked{}, err
	}
	switch task.State {
	case midge.Waiting:
	case midge.Scheduled, midge.Retry:
		if err := k.client.Requeue(ctx, ref); err != nil {
			return Worked{}, err
		}
	default:
		return Worked{}, fmt.Errorf("%s is %s: "+
			"an attempt is made of a task that waits, is scheduled or is to be retried", ref, task.State)
	}
	k.ended = nil
	_, err = k.step(ctx, ref)
	if errors.Is(err, storage.ErrNotFound) {
		return Worked{}, fmt.Errorf("%s of kind %s was not claimed: see whether Config.Register registers "+
			"that kind, whether its queue is served, not paused and below its limit, and whether its partition "+
			"is not paused, below its limit, and does not rest after a throttle", ref, task.Kind)
	}
	for _, w := range k.ended {
		if err == nil && w.Task.Ref == ref {
			return w, nil
		}
	}
	return Worked{}, fmt.Errorf("the attempt of %s told no end: %w", ref, err)
}

// attemptsMost bounds the attempts of one call while the clock stands still.
const attemptsMost = 10_000

// Drain makes attempts until nothing is due, including follow-ups and the tasks that jobs enqueue,
// and returns how each attempt ended. The clock stands still: tasks that are scheduled or to be
// retried later wait, and so do the tasks of a queue or a partition that is paused, at its limit, or at
// rest after a [midge.Throttle]. Drain serves one queue after the other, in the order of
// RunnerConfig.Queues, or by name.
//
// It fails the test at once after 10,000 attempts, for example of a job that enqueues itself.
func (k *Kit) Drain() []Worked {
	k.t.Helper()
	return k.run(0)
}

// Until makes attempts of all tasks that are due now or fall due within d, each at its moment, and
// returns how each attempt ended. Afterwards the clock is d later. A [midge.Sleep] of a job, a pause, or a
// rest after a [midge.Throttle] that ends within d is then over.
//
// It fails the test at once after 10,000 attempts at one moment.
func (k *Kit) Until(d time.Duration) []Worked {
	k.t.Helper()
	if d < 0 || d > storage.MaxDelay {
		k.t.Fatalf("midgetest: invalid Until %v: want 0 to %v", d, storage.MaxDelay)
	}
	return k.run(d)
}

func (k *Kit) run(d time.Duration) []Worked {
	k.t.Helper()
	k.turn.Lock()
	defer k.turn.Unlock()
	ctx := k.t.Context()
	k.ended = nil
	end := k.Now().Add(d)
	for attempts := 0; ; {
		step, err := k.step(ctx, storage.Ref{})
		k.check(err)
		now := k.Now()
		switch {
		case step.Ran:
			if attempts++; attempts == attemptsMost {
				k.t.Fatalf("midgetest: %d attempts were made at %v, and more is due: "+
					"see whether a job enqueues itself", attempts, now)
			}
		case !now.Before(end):
			return k.ended
		default:
			attempts = 0
			next := step.Next
			if next.IsZero() || next.After(end) {
				next = end
			}
			// A task that is due in a queue or partition that is paused or rests waits for the end of that.
			k.forward(max(next.Sub(now), min(time.Second, end.Sub(now))))
		}
	}
}

// forward sets the clock forward by d.
func (k *Kit) forward(d time.Duration) {
	ctx := k.t.Context()
	if k.inBubble {
		sleep.For(ctx, d)
		return
	}
	k.store.forward(ctx, d)
}

// Result decodes the value that the job passed to [midge.SetResult] into v, a pointer. It fails the
// test at once if there is no result, or the result does not fit.
func (w Worked) Result(v any) {
	w.t.Helper()
	w.decoded("result", midge.DecodeResult(w.Task, v))
}

// Progress decodes the last progress of the task into v, a pointer; see [midge.Progress]. It fails
// the test at once if there is none, or it does not fit.
func (w Worked) Progress(v any) {
	w.t.Helper()
	w.decoded("progress", midge.DecodeProgress(w.Task, v))
}

// Checkpoint decodes the last checkpoint of the task into v, a pointer; see [midge.Checkpoint]. It
// fails the test at once if there is none, or it does not fit.
func (w Worked) Checkpoint(v any) {
	w.t.Helper()
	w.decoded("checkpoint", midge.DecodeCheckpoint(w.Task, v))
}

// Steps returns the steps that are stored with the task after this attempt, and its sleeps; see
// [midge.StepsOf].
func (w Worked) Steps() []midge.StepInfo {
	w.t.Helper()
	steps, err := midge.StepsOf(w.Task)
	w.decoded("steps", err)
	return steps
}

func (w Worked) decoded(what string, err error) {
	w.t.Helper()
	if err == nil {
		return
	}
	text := fmt.Sprintf("midgetest: %s of %s %s, which %s", what, w.Task.Kind, w.Task.Ref, w.Outcome)
	if w.Err != nil {
		text += " (" + w.Err.Error() + ")"
	}
	w.t.Fatalf("%s: %v", text, err)
}
