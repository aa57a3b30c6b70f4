package midge_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestRunnerRunsAndForgets(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran []string
		b.run(midge.RunnerConfig{Concurrency: 1}, func(_ context.Context, w work) error {
			ran = append(ran, w.Name)
			return nil
		})
		first := b.enqueue("a")
		b.enqueue("b")
		b.after(time.Millisecond)
		if got := strings.Join(ran, ""); got != "ab" {
			t.Errorf("ran %q, want ab", got)
		}
		b.gone(first.Ref)
	})
}

func TestRunnerRetriesUntilDead(t *testing.T) {
	bubble(t, func(b *bench) {
		runs := 0
		begun := time.Now()
		var at []time.Duration
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Minute)}, func(context.Context, work) error {
			runs++
			at = append(at, time.Since(begun))
			return fmt.Errorf("boom %d", runs)
		})
		task := b.enqueue("a", midge.Retries(2))
		b.after(10 * time.Minute)
		got := b.task(task.Ref)
		if runs != 3 || got.State != storage.Dead || got.Retries != 3 || got.Reason != storage.ReasonRetries {
			t.Errorf("runs %d, state %s, retries %d, reason %q; want 3, dead, 3, %q", runs, got.State, got.Retries, got.Reason, storage.ReasonRetries)
		}
		if len(got.Attempts) != 3 || got.Attempts[2].Error != "boom 3" {
			t.Errorf("attempts %+v, want three with the errors", got.Attempts)
		}
		for i, d := range at {
			if want := time.Duration(i) * time.Minute; d < want || d > want+50*time.Millisecond {
				t.Errorf("run %d at %v, want %v, not early", i+1, d, want)
			}
		}
	})
}

func TestPanicIsAFailureWithItsStack(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{Concurrency: 1}, func(_ context.Context, w work) error {
			switch w.Name {
			case "panic":
				panic("at the disco")
			case "nil map":
				map[string]map[string]int{}["a"][w.Name]++
			case "goexit":
				runtime.Goexit()
			}
			return nil
		})
		p := b.enqueue("panic", midge.Retries(midge.None))
		g := b.enqueue("goexit", midge.Retries(midge.None))
		m := b.enqueue("nil map", midge.Retries(midge.None))
		ok := b.enqueue("ok")
		b.after(time.Second)
		if got := b.task(p.Ref); got.State != storage.Dead || !strings.Contains(got.Attempts[0].Error, "at the disco") ||
			!strings.Contains(got.Stack, "runner_test.go") {
			t.Errorf("panic: %s, attempts %+v, stack %q", got.State, got.Attempts, got.Stack)
		}
		const where = `panic: assignment to entry in nil map \(runner_test\.go:\d+\)$`
		if got := b.task(m.Ref).Attempts[0].Error; !regexp.MustCompile(where).MatchString(got) {
			t.Errorf("got %q, want the line of the job", got)
		}
		if got := b.task(g.Ref); got.State != storage.Dead || !strings.Contains(got.Attempts[0].Error, "Goexit") {
			t.Errorf("goexit: %s, attempts %+v", got.State, got.Attempts)
		}
		b.gone(ok.Ref) // the slot was not lost
	})
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		state   storage.State
		retries int
		in      time.Duration
		reason  string
	}{
		{"discard", midge.Discard(errors.New("no")), storage.Dead, 0, 0, "discarded"},
		{"retry in", midge.RetryIn(7*time.Minute, errors.New("later")), storage.Retry, 1, 7 * time.Minute, ""},
		{"snooze", midge.Snooze(9 * time.Minute), storage.Scheduled, 0, 9 * time.Minute, ""},
		{"error", errors.New("plain"), storage.Retry, 1, time.Hour, ""},
		{"wrapped", fmt.Errorf("about: %w", midge.Snooze(time.Minute)), storage.Scheduled, 0, time.Minute, "about: snoozed for 1m0s"},
		{"joined", errors.Join(midge.Snooze(time.Minute), errors.New("rate\nlimited")), storage.Scheduled, 0, time.Minute, "rate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Hour)}, func(context.Context, work) error { return c.err })
				task := b.enqueue("x")
				begun := time.Now()
				b.after(100 * time.Millisecond)
				got := b.task(task.Ref)
				if got.State != c.state || got.Retries != c.retries || got.Reason != c.reason {
					t.Errorf("state %s with %d retries, reason %q; want %s with %d, %q", got.State, got.Retries, got.Reason, c.state, c.retries, c.reason)
				}
				if in := got.Due.Sub(begun); c.in > 0 && (in < c.in || in > c.in+100*time.Millisecond) {
					t.Errorf("due in %v, want %v", in, c.in)
				}
			})
		})
	}
}

// cannotRun enqueues tasks that no runner of these tests can run. It returns them by reason.
func (b *bench) cannotRun() map[string]storage.Ref {
	b.Helper()
	refs := make(map[string]storage.Ref)
	for id, in := range map[string]storage.Insert{
		"misfit":    {Kind: "work", Encoding: "msgpack", Payload: []byte("\x81\xa4Name\x01")},
		"malformed": {Kind: "work", Encoding: "json", Payload: []byte("{")},
		"foreign":   {Kind: "work", Encoding: "cbor"},
	} {
		in.Ref, in.MaxRetries, in.CrashLimit = storage.Ref{Queue: midge.DefaultQueue, ID: id}, 5, 3
		if _, err := storage.NewSession(b.store, 0).ApplyOne(b.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
			b.Fatal(err)
		}
		refs[id] = in.Ref
	}
	return refs
}

// During a deploy a runner of the older or newer version may be unable to decode a task's
// parameters: the task is put off for Limits.DeclinedFor.
func TestWhatCannotRunIsPutOffUncharged(t *testing.T) {
	bubble(t, func(b *bench) {
		core, logs := observer.New(zapcore.InfoLevel)
		ran := 0
		b.limited(storage.Limits{DeclinedFor: time.Hour})
		b.run(midge.RunnerConfig{Logger: zap.New(core)}, func(context.Context, work) error { ran++; return nil })
		refs := b.cannotRun()
		b.enqueue("after them")
		b.after(58 * time.Minute)
		reasons := map[string]string{
			"misfit":    `undecodable payload: got integer for field "Name", want string`,
			"malformed": "undecodable payload: syntax error at byte 1",
			"foreign":   `undecodable payload: invalid encoding "cbor": want "msgpack" or "json"`,
		}
		for id, ref := range refs {
			got := b.task(ref)
			if got.State != storage.Scheduled || got.Retries != 0 || len(got.Attempts) != 0 || got.Snoozes < 10 || got.Reason != reasons[id] {
				t.Errorf("%s: got %s of reason %q after %d snoozes and %d retries, want it put off, uncharged, of %q", id, got.State, got.Reason, got.Snoozes, got.Retries, reasons[id])
			}
			want := got.Kind + " default/" + id + " cannot run here, " + reasons[id] +
				"; tasks like it are put off, uncharged, and are dead after 1h0m0s"
			if n := logs.FilterMessage(want).Len(); n != 1 {
				t.Errorf("%s: got %d lines %q, want one", id, n, want)
			}
		}
		if n := logs.FilterLevelExact(zapcore.WarnLevel).Len(); n != len(refs) {
			t.Errorf("got %d warnings, want one of each", n)
		}
		if ran != 1 {
			t.Errorf("the neighbour ran %d times, want once", ran)
		}
		b.after(4 * time.Minute)
		for id, ref := range refs {
			if got := b.task(ref); got.State != storage.Dead || !strings.HasPrefix(reasons[id], got.Reason) || len(got.Attempts) != 1 {
				t.Errorf("%s after an hour: got %s, %q, %+v; want it dead of %q", id, got.State, got.Reason, got.Attempts, reasons[id])
			}
		}
	})
}

// renamed is a job with the kind of work, but with other parameters.
type renamed struct{ Name int }

func (renamed) Kind() string { return "work" }

// runRenamed starts a runner that registers renamed, so that it cannot decode tasks of work.
func (b *bench) runRenamed(r *midge.Runner) {
	b.Helper()
	if err := midge.Handle(r, func(context.Context, renamed) error { return nil }); err != nil {
		b.Fatal(err)
	}
	b.runner = r
	go func() { b.done <- r.Run(b.ctx) }()
}

// The time begins when the task is first put off, however long its job had snoozed before.
func TestASnoozingJobIsPutOffForAsLong(t *testing.T) {
	bubble(t, func(b *bench) {
		b.limited(storage.Limits{DeclinedFor: time.Hour})
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { return midge.Snooze(10 * time.Minute) })
		task := b.enqueue("a")
		b.after(2 * time.Hour)
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		b.ctx, b.stop = context.WithCancel(b.Context())
		b.done = make(chan error, 1)
		b.runRenamed(b.newRunner(b.store, midge.RunnerConfig{}, nil))
		b.after(55 * time.Minute)
		if got := b.task(task.Ref); got.State != storage.Scheduled || !strings.HasPrefix(got.Reason, "undecodable payload") {
			t.Errorf("after most of an hour: got %s, %q; want it put off", got.State, got.Reason)
		}
		b.after(20 * time.Minute)
		if got := b.task(task.Ref); got.State != storage.Dead || got.Reason != "undecodable payload" {
			t.Errorf("after an hour: got %s, %q; want it dead", got.State, got.Reason)
		}
	})
}

// A checkpoint that does not fit is a failure of the job, whose parameters did fit.
func TestACheckpointThatDoesNotFitFailsTheAttempt(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Hour)}, func(ctx context.Context, _ work) error {
			if err := midge.Checkpoint(ctx, "text"); err != nil {
				return err
			}
			_, err := midge.LoadCheckpoint(ctx, new(int))
			return err
		})
		task := b.enqueue("a")
		b.after(time.Second)
		if got := b.task(task.Ref); got.State != storage.Retry || got.Retries != 1 {
			t.Errorf("got %s after %d retries, want a failure", got.State, got.Retries)
		}
	})
}

// stranger is a job that these runners do not know.
type stranger struct{ X int }
