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
		task := b.enqueue("a", midge.MaxRetries(2))
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
		p := b.enqueue("panic", midge.MaxRetries(midge.None))
		g := b.enqueue("goexit", midge.MaxRetries(midge.None))
		m := b.enqueue("nil map", midge.MaxRetries(midge.None))
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
	}{
		{"discard", midge.Discard(errors.New("no")), storage.Dead, 0, 0},
		{"retry in", midge.RetryIn(7*time.Minute, errors.New("later")), storage.Retry, 1, 7 * time.Minute},
		{"snooze", midge.Snooze(9 * time.Minute), storage.Scheduled, 0, 9 * time.Minute},
		{"error", errors.New("plain"), storage.Retry, 1, time.Hour},
		{"wrapped", fmt.Errorf("about: %w", midge.Snooze(time.Minute)), storage.Scheduled, 0, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Hour)}, func(context.Context, work) error { return c.err })
				task := b.enqueue("x")
				begun := time.Now()
				b.after(100 * time.Millisecond)
				got := b.task(task.Ref)
				if got.State != c.state || got.Retries != c.retries {
					t.Errorf("state %s with %d retries, want %s with %d", got.State, got.Retries, c.state, c.retries)
				}
				if in := got.Due.Sub(begun); c.in > 0 && (in < c.in || in > c.in+100*time.Millisecond) {
					t.Errorf("due in %v, want %v", in, c.in)
				}
			})
		})
	}
}

type stranger struct{ X int }

func TestUnknownKindIsPutOffUncharged(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := 0
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { ran++; return nil })
		task, err := b.client.Enqueue(b.Context(), stranger{1})
		if err != nil {
			t.Fatal(err)
		}
		b.enqueue("after it")
		b.after(10 * time.Minute)
		got := b.task(task.Ref)
		if ran != 1 || got.Retries != 0 || got.State != storage.Scheduled || got.Snoozes < 10 {
			t.Errorf("ran %d, state %s, retries %d, snoozes %d; want the neighbour run and the stranger snoozed", ran, got.State, got.Retries, got.Snoozes)
		}
		b.after(24*time.Hour + 10*time.Minute)
		if got := b.task(task.Ref); got.State != storage.Dead || got.Reason != "unknown kind" {
			t.Errorf("after a day: %s, %q; want dead, unknown kind", got.State, got.Reason)
		}
	})
}

func TestUndecodablePayloadIsDeadAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := 0
		logger, lines := logged()
		b.run(midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { ran++; return nil })
		ref := storage.Ref{Queue: midge.DefaultQueue, ID: "bad"}
		if _, err := storage.NewSession(b.store, 0).ApplyOne(b.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: ref, Kind: "work", Encoding: "msgpack", Payload: []byte("\x81\xa4Name\x01"), MaxRetries: 5, CrashLimit: 3,
		}}}); err != nil {
			t.Fatal(err)
		}
		b.enqueue("good")
		b.after(time.Second)
		if got := b.task(ref); got.State != storage.Dead || got.Reason != "undecodable payload" || ran != 1 {
			t.Errorf("%s %q, neighbours run %d; want dead, undecodable payload, 1", got.State, got.Reason, ran)
		}
		want := `work default/bad is dead, undecodable payload: midge_test.work from msgpack: ` +
			`got integer for field "Name", want string`
		if got := lines("default/bad"); len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
