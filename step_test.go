package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// jsonWork is a job whose values are stored as JSON.
type jsonWork struct{}

func (jsonWork) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

// stepNames returns the names of the stored steps of a task.
func stepNames(t *testing.T, task midge.Task) (names []string) {
	t.Helper()
	all, err := midge.StepsOf(task)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// account is the result of a step.
type account struct {
	ID   int64
	Tags []string
}

// fiveSteps is a job whose last step fails in the first attempt.
type fiveSteps struct{ calls, results []string }

func (s *fiveSteps) run(ctx context.Context) error {
	a, err1 := midge.Step(ctx, "account", func(context.Context) (account, error) {
		s.calls = append(s.calls, "account")
		return account{7, []string{"new"}}, nil
	})
	n, err2 := midge.Step(ctx, "number", func(context.Context) (any, error) { return 1 << 60, nil })
	at, err3 := midge.Step(ctx, "moment", func(context.Context) (time.Time, error) {
		return time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("there", 3600)), nil
	})
	_, err4 := midge.Step(ctx, "nothing", func(context.Context) (struct{}, error) { return struct{}{}, nil })
	s.results = append(s.results, fmt.Sprintf("%+v %T %v %v", a, n, n, at))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	_, err := midge.Step(ctx, "mail", func(context.Context) (string, error) {
		s.calls = append(s.calls, "mail")
		if info, _ := midge.Current(ctx); info.Attempt == 1 {
			return "lost", errBroken
		}
		return "sent", nil
	})
	if err == errBroken { //nolint:errorlint // the same error, not an error that wraps it
		return midge.RetryIn(time.Second, err)
	}
	return err
}

// A finished step returns its stored result in later attempts, which equals that of the first, in both
// encodings. A step that fails is called again.
func TestAFinishedStepIsNotCalledAgain(t *testing.T) {
	for _, job := range []any{work{}, jsonWork{}} {
		bubble(t, func(b *bench) {
			var s fiveSteps
			b.runner = b.newRunner(b.store, midge.RunnerConfig{}, func(ctx context.Context, _ work) error { return s.run(ctx) })
			must(midge.Handle(b.runner, func(ctx context.Context, _ jsonWork) error { return s.run(ctx) }))
			go func() { b.done <- b.runner.Run(b.ctx) }()
			task := must1(b.client.Enqueue(b.Context(), job, midge.KeepFor(time.Hour)))
			b.after(10 * time.Second)
			got := b.task(task.Ref)
			if want := []string{"account", "mail", "mail"}; got.State != storage.Completed || !slices.Equal(s.calls, want) {
				t.Errorf("the task is %s (%s) after the calls %q, want %q", got.State, got.LastError(), s.calls, want)
			}
			if len(s.results) != 2 || s.results[0] != s.results[1] {
				t.Errorf("two attempts saw %q", s.results)
			}
			if names, want := stepNames(t, got), []string{"account", "number", "moment", "nothing", "mail"}; !slices.Equal(names, want) {
				t.Errorf("the stored steps are %q, want %q", names, want)
			}
			checkAccount(t, got)
		})
	}
}

// checkAccount checks the stored data of the first of fiveSteps.
func checkAccount(t *testing.T, task midge.Task) {
	t.Helper()
	all, err := midge.StepsOf(task)
	if err != nil {
		t.Fatal(err)
	}
	var a account
	if err := all[0].Decode(&a); err != nil || a.ID != 7 || !all[0].Until.IsZero() || all[0].Ended.IsZero() {
		t.Errorf("the first step is %+v with the result %+v, %v", all[0], a, err)
	}
	if err := all[0].Decode(new(string)); err == nil || !strings.Contains(err.Error(), `step "account" of`) {
		t.Errorf("a result into a string: got %v", err)
	}
}

// oneAttempt runs a job once, which must end its task, and returns the task.
func oneAttempt(t *testing.T, limits storage.Limits, job func(ctx context.Context) error, opts ...midge.Option) (task midge.Task) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.Open(memory.Config{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{T: t, store: store, done: make(chan error, 1)}
		b.ctx, b.stop = context.WithCancel(t.Context())
		if b.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
			t.Fatal(err)
		}
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error { return job(ctx) })
		ref := b.enqueue("a", append(opts, midge.KeepFor(time.Hour))...).Ref
		b.after(time.Second)
		task = b.task(ref)
		_ = b.drain()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return task
}

// A fault of a step or a sleep is found before its function is called and before anything is stored.
func TestInvalidSteps(t *testing.T) {
	type hidden struct{ secret int }
	called := func(context.Context) (int, error) { panic("it was called") }
	one := func(context.Context) (int, error) { return 1, nil }
	step := func(ctx context.Context, name string, f func(context.Context) (int, error)) error {
		_, err := midge.Step(ctx, name, f)
		return err
	}
	for name, c := range map[string]struct {
		job  func(ctx context.Context) error
		want string
	}{
		"no name":      {func(ctx context.Context) error { return step(ctx, "", called) }, "1 to 128 bytes of printable UTF-8"},
		"a control":    {func(ctx context.Context) error { return midge.Sleep(ctx, "a\nb", 0) }, "1 to 128 bytes of printable UTF-8"},
		"no function":  {func(ctx context.Context) error { return step(ctx, "a", nil) }, "a function that does the step"},
		"a name twice": {func(ctx context.Context) error { return errors.Join(step(ctx, "a", one), step(ctx, "a", called)) }, `invalid name of a step "a"`},
		"of a sleep":   {func(ctx context.Context) error { return errors.Join(midge.Sleep(ctx, "a", 0), step(ctx, "a", called)) }, `invalid name of a step "a"`},
		"of a step":    {func(ctx context.Context) error { return errors.Join(step(ctx, "a", one), midge.Sleep(ctx, "a", 0)) }, `invalid name of a step "a"`},
		"of itself": {func(ctx context.Context) error {
			return step(ctx, "a", func(ctx context.Context) (int, error) { return 1, step(ctx, "a", called) })
		}, `invalid name of a step "a"`},
		"a long sleep": {func(ctx context.Context) error { return midge.Sleep(ctx, "a", storage.MaxDelay+1) }, "at most 876000h0m0s"},
		"a function": {func(ctx context.Context) error {
			_, err := midge.Step(ctx, "a", func(context.Context) (func(), error) { panic("it was called") })
			return err
		}, "of type func()"},
		"a hidden field": {func(ctx context.Context) error {
			_, err := midge.Step(ctx, "a", func(context.Context) (hidden, error) { panic(hidden{secret: 1}.secret) })
			return err
		}, "exported fields"},
		"an interface": {func(ctx context.Context) error {
			_, err := midge.Step(ctx, "a", func(context.Context) (fmt.Stringer, error) { panic("it was called") })
			return err
		}, "no value can be decoded into an interface"},
	} {
		var got error
		task := oneAttempt(t, storage.Limits{}, func(ctx context.Context) error {
			got = c.job(ctx)
			return nil
		})
		if invalid := (*midge.InvalidError)(nil); !errors.As(got, &invalid) || !strings.Contains(got.Error(), c.want) {
			t.Errorf("%s: got %v, want an *InvalidError with %q", name, got, c.want)
		}
		if task.State != storage.Completed {
			t.Errorf("%s: the task is %s (%s), want it as the job has returned", name, task.State, task.LastError())
		}
	}
}

func TestStepsOutsideOfAJob(t *testing.T) {
	late := make(chan context.Context, 1)
	oneAttempt(t, storage.Limits{}, func(ctx context.Context) error {
		late <- ctx
		return nil
	})
	for _, ctx := range []context.Context{t.Context(), <-late} {
		_, err := midge.Step(ctx, "a", func(context.Context) (int, error) { panic("it was called") })
		if slept := midge.Sleep(ctx, "b", time.Hour); !errors.Is(err, midge.ErrNotInJob) || !errors.Is(slept, midge.ErrNotInJob) {
			t.Errorf("got %v and %v, want ErrNotInJob", err, slept)
		}
	}
}

// returns are ways in which a job may return after a step or a sleep has returned err.
var returns = map[string]func(err error) error{
	"its error":    func(err error) error { return err },
	"wrapped":      func(err error) error { return fmt.Errorf("about: %w", err) },
	"nil":          func(error) error { return nil },
	"another":      func(error) error { return errBroken },
	"a RetryIn":    func(err error) error { return midge.RetryIn(time.Minute, err) },
	"a Snooze":     func(error) error { return midge.Snooze(time.Minute) },
	"a panic":      func(error) error { panic("broken") },
	"a Discard":    midge.Discard,
	"with another": func(err error) error { return errors.Join(errBroken, err) },
	"a typed nil":  func(error) error { return (*hollow)(nil) },
	"beside it":    func(err error) error { return errors.Join((*hollow)(nil), err) },
}

// hollow is an error whose methods panic on a nil pointer.
type hollow struct{ cause error }

func (h *hollow) Error() string { return h.cause.Error() }
func (h *hollow) Unwrap() error { return h.cause }

// A step that cannot be stored buries its task, whatever the job returns: a retry would repeat the step.
func TestAStepThatCannotBeStoredBuriesItsTask(t *testing.T) {
	for name, job := range map[string]func(ctx context.Context, calls *int) error{
		"too large": func(ctx context.Context, calls *int) error {
			_, err := midge.Step(ctx, "charge", func(context.Context) (string, error) { *calls++; return strings.Repeat("x", 10_001), nil })
			return err
		},
		"too large with the others": func(ctx context.Context, calls *int) error {
			_, err1 := midge.Step(ctx, "before", func(context.Context) (string, error) { return strings.Repeat("x", 6000), nil })
			_, err2 := midge.Step(ctx, "charge", func(context.Context) (string, error) { *calls++; return strings.Repeat("x", 6000), nil })
			return errors.Join(err1, err2)
		},
		"no value that comes back": func(ctx context.Context, calls *int) error {
			_, err := midge.Step(ctx, "charge", func(context.Context) (any, error) { *calls++; return func() {}, nil })
			return err
		},
		"too many": func(ctx context.Context, calls *int) error {
			for i := range 256 {
				if _, err := midge.Step(ctx, fmt.Sprint(i), func(context.Context) (bool, error) { return true, nil }); err != nil {
					return err
				}
			}
			*calls++
			_, err := midge.Step(ctx, "charge", func(context.Context) (int, error) { *calls++; return 0, nil })
			return err
		},
	} {
		for how, end := range returns {
			calls := 0
			task := oneAttempt(t, storage.Limits{MaxPayload: 10_000}, func(ctx context.Context) error {
				err := job(ctx, &calls)
				invalid := (*midge.InvalidError)(nil)
				if !errors.As(err, &invalid) {
					t.Errorf("%s: got %v, want an *InvalidError", name, err)
				}
				if _, again := midge.Step(ctx, "more", func(context.Context) (int, error) { panic("it was called") }); !errors.Is(again, invalid) {
					t.Errorf("%s: the next step got %v, want the same error", name, again)
				}
				return end(err)
			})
			if task.State != storage.Dead || task.Reason != "cannot store step charge" || calls != 1 {
				t.Errorf("%s, and the job returned %s: the task is %s (%q) after %d calls", name, how, task.State, task.Reason, calls)
			}
			if last := task.Attempts[len(task.Attempts)-1]; last.Outcome != storage.AttemptDiscarded || !strings.Contains(last.Error, "charge") {
				t.Errorf("%s, and the job returned %s: the attempt is %+v", name, how, last)
			}
		}
	}
}

// sleeper is a job that sleeps, and returns something when it should.
type sleeper struct {
	*bench
	end      func(err error) error
	outcomes []midge.Outcome // as a middleware saw them, which then dropped all errors
	woke     time.Time
}

func (s *sleeper) middleware(next func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		s.outcomes = append(s.outcomes, midge.OutcomeOf(next(ctx)))
		return nil
	}
}

func (s *sleeper) run(ctx context.Context, _ work) error {
	err := midge.Sleep(ctx, "wait for the bank", 10*time.Minute)
	if err == nil {
		s.woke = time.Now()
		return nil
	}
	_, step := midge.Step(ctx, "more", func(context.Context) (int, error) { panic("it was called") })
	slept, done := midge.Sleep(ctx, "again", 0), midge.CompleteWith(ctx, &pretendTx{store: s.store})
	for _, other := range []error{step, slept, done} {
		if !strings.Contains(other.Error(), "sleeps until") {
			s.Errorf("later in the job: got %v", other)
		}
	}
	time.Sleep(time.Second) // virtual: it does not make the sleep longer
	return s.end(err)
}

// asleep checks that a task sleeps until a moment.
func (s *sleeper) asleep(how string, ref midge.Ref, until time.Time) {
	s.Helper()
	want := fmt.Sprintf("sleeps until %s (wait for the bank)", until.UTC().Format("2006-01-02 15:04:05 UTC"))
	got := s.task(ref)
	if got.State != storage.Scheduled || got.Reason != want || got.Retries != 0 || got.Due.Sub(until).Abs() > time.Second {
		s.Errorf("%s: the task is %s until %v (%q), after %d retries; want %q", how, got.State, got.Due, got.Reason, got.Retries, want)
	}
	if v, err := s.client.Why(s.Context(), ref); err != nil || !strings.Contains(v.String(), want) {
		s.Errorf("%s: Why: got %v, %v", how, v, err)
	}
}

// A sleep snoozes its task until its end, whatever the job returns.
func TestASleep(t *testing.T) {
	for how, end := range returns {
		bubble(t, func(b *bench) {
			s := &sleeper{bench: b, end: end}
			b.run(midge.RunnerConfig{Middleware: []midge.Middleware{s.middleware}}, s.run)
			until := time.Now().Add(10 * time.Minute)
			task := b.enqueue("a", midge.KeepFor(time.Hour))
			b.after(time.Minute)
			s.asleep(how, task.Ref, until)
			must(b.client.Requeue(b.Context(), task.Ref)) // it sleeps on
			b.after(time.Minute)
			s.asleep(how+", and a requeue", task.Ref, until)
			b.after(10 * time.Minute)
			if got := b.task(task.Ref); got.State != storage.Completed || s.woke.Before(until) || s.woke.Sub(until) > 2*time.Second {
				t.Errorf("%s: the task is %s, and its job went on at %v, want %v", how, got.State, s.woke, until)
			}
			if want := []midge.Outcome{midge.OutcomeSnoozed, midge.OutcomeSnoozed, midge.OutcomeSucceeded}; !slices.Equal(s.outcomes, want) {
				t.Errorf("%s: a middleware saw %q, want %q", how, s.outcomes, want)
			}
		})
	}
}

// A sleep that would last beyond the deadline ends the task at once.
func TestASleepBeyondTheDeadline(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error { return midge.Sleep(ctx, "trial", time.Hour) })
		task := b.enqueue("a", midge.Deadline(time.Now().Add(time.Minute)))
		b.after(time.Second)
		if got := b.task(task.Ref); got.State != storage.Dead || got.Reason != "expired" {
			t.Errorf("the task is %s (%q), want it dead, as it has expired", got.State, got.Reason)
		}
	})
}

// A name that an earlier attempt has used for a sleep cannot be that of a step, and the other way round.
func TestAChangedStep(t *testing.T) {
	bubble(t, func(b *bench) {
		var got [2]error
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second)}, func(ctx context.Context, _ work) error {
			one := func(context.Context) (int, error) { return 1, nil }
			if info, _ := midge.Current(ctx); info.Attempt == 1 {
				_, err := midge.Step(ctx, "a", one)
				return errors.Join(err, midge.Sleep(ctx, "b", 0), errBroken)
			}
			got[0] = midge.Sleep(ctx, "a", time.Hour)
			_, got[1] = midge.Step(ctx, "b", one)
			return nil
		})
		b.enqueue("a")
		b.after(time.Minute)
		for i, want := range []string{"has stored a step", "has stored a sleep"} {
			if got[i] == nil || !strings.Contains(got[i].Error(), want) {
				t.Errorf("got %v, want %q", got[i], want)
			}
		}
	})
}

// A checkpoint and the steps of a task do not disturb each other.
func TestCheckpointsBesideSteps(t *testing.T) {
	bubble(t, func(b *bench) {
		attempt := 0
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second)}, func(ctx context.Context, _ work) error {
			attempt++
			one := func(context.Context) (int, error) { return attempt, nil }
			var page string
			switch attempt {
			case 1:
				_, err := midge.Step(ctx, "a", one)
				return errors.Join(err, midge.Checkpoint(ctx, "page 1"), errBroken)
			case 2: // a job that stores without a read
				return errors.Join(midge.Checkpoint(ctx, "page 2"), errBroken)
			}
			a, err := midge.Step(ctx, "a", one)
			ok, err2 := midge.LoadCheckpoint(ctx, &page)
			if a != 1 || !ok || page != "page 2" || errors.Join(err, err2) != nil {
				t.Errorf("got the step %d, the checkpoint %q, %v, %v", a, page, err, err2)
			}
			return nil
		})
		task := b.enqueue("a", midge.KeepFor(time.Hour))
		b.after(time.Minute)
		var page string
		got := b.task(task.Ref)
		if err := midge.DecodeCheckpoint(got, &page); err != nil || page != "page 2" || len(stepNames(t, got)) != 1 {
			t.Errorf("the task has the checkpoint %q, %v, and the steps %q", page, err, stepNames(t, got))
		}
	})
}

func TestStepsRunConcurrently(t *testing.T) {
	task := oneAttempt(t, storage.Limits{}, func(ctx context.Context) error {
		var all sync.WaitGroup
		barrier := make(chan struct{})
		var waiting atomic.Int32
		errs := make([]error, 20)
		for i := range errs {
			all.Go(func() {
				_, errs[i] = midge.Step(ctx, fmt.Sprint("step ", i), func(context.Context) (int, error) {
					if waiting.Add(1) == 20 {
						close(barrier)
					}
					<-barrier // all functions run at once
					return i, nil
				})
			})
		}
		all.Wait()
		return errors.Join(errs...)
	})
	if names := stepNames(t, task); task.State != storage.Completed || len(names) != 20 {
		t.Errorf("the task is %s (%s) with the steps %q", task.State, task.LastError(), names)
	}
}

// A step that is done is stored, although the context of its job has ended meanwhile. No other step begins then.
func TestAStepOutlastsItsContext(t *testing.T) {
	task := oneAttempt(t, storage.Limits{}, func(ctx context.Context) error {
		_, err := midge.Step(ctx, "a", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 1, nil
		})
		_, late := midge.Step(ctx, "b", func(context.Context) (int, error) { panic("it was called") })
		if err != nil || !errors.Is(late, midge.ErrTimeout) {
			t.Errorf("the steps returned %v and %v, want nil and ErrTimeout", err, late)
		}
		return ctx.Err()
	}, midge.Timeout(100*time.Millisecond), midge.Retries(midge.None))
	if names := stepNames(t, task); task.State != storage.Dead || !slices.Equal(names, []string{"a"}) {
		t.Errorf("the task is %s with the steps %q, want it dead with the step", task.State, names)
	}
}

// Steps that cannot be read are an error, and not a job that begins anew.
func TestDamagedSteps(t *testing.T) {
	damaged := midge.Task{Ref: ref("q", "a"), Checkpoint: []byte("\xc1\x01\x00")}
	_, err := midge.StepsOf(damaged)
	if into := midge.DecodeCheckpoint(damaged, new(string)); !errors.Is(err, midge.ErrDamaged) || !errors.Is(into, midge.ErrDamaged) {
		t.Errorf("got %v and %v, want ErrDamaged", err, into)
	}
}
