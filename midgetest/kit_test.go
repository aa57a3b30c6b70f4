package midgetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/midgetest"
	"github.com/midgehq/midge/storage"
)

// step is a job. Each test supplies its function.
type step struct{ Name string }

func (step) Options() midge.Options { return midge.Options{Retries: 3} }

var errAway = errors.New("the server is away")

// start is the first time of the clock in these tests.
var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// newKit returns a kit whose steps run fn.
func newKit(t testing.TB, fn func(ctx context.Context, s step) error) *midgetest.Kit {
	t.Helper()
	return midgetest.New(t, midgetest.Config{
		Start: start,
		Register: func(r *midge.Runner) error {
			return errors.Join(midge.Handle(r, fn), midge.Handle(r, func(context.Context, mail) error { return nil }))
		},
	})
}

func TestWorkTellsAllThatAnAttemptDid(t *testing.T) {
	k := newKit(t, func(ctx context.Context, s step) error {
		info, ok := midge.Current(ctx)
		if !ok || info.Kind != "step" {
			t.Errorf("Current tells %+v, %t", info, ok)
		}
		var at int
		if found, err := midge.LoadCheckpoint(ctx, &at); err != nil || found != (info.Retries > 0) {
			t.Errorf("after %d failures LoadCheckpoint tells %t, %v", info.Retries, found, err)
		}
		must(t, errors.Join(midge.Progress(ctx, info.Retries*50), midge.Checkpoint(ctx, at+7)))
		if info.Retries == 0 {
			return errAway
		}
		must(t, midge.FollowUp(ctx, mail{To: s.Name}, midge.In(time.Hour)))
		return midge.SetResult(ctx, "done by "+s.Name)
	})
	failed := k.Work(step{Name: "ann"})
	var progress, checkpoint int
	failed.Progress(&progress)
	failed.Checkpoint(&checkpoint)
	if failed.Outcome != midge.OutcomeFailed || !errors.Is(failed.Err, errAway) || failed.RetryIn != 2*time.Second ||
		failed.Final || failed.Task.Retries != 1 || len(failed.FollowUps) > 0 || progress != 0 || checkpoint != 7 {
		t.Errorf("the first attempt is %+v, progress %d, checkpoint %d", failed, progress, checkpoint)
	}
	done := k.WorkTask(failed.Task.Ref)
	var result string
	done.Result(&result)
	done.Progress(&progress)
	done.Checkpoint(&checkpoint)
	if done.Outcome != midge.OutcomeSucceeded || !done.Final || result != "done by ann" || progress != 50 || checkpoint != 14 {
		t.Errorf("the second attempt is %+v, result %q, progress %d, checkpoint %d", done, result, progress, checkpoint)
	}
	if len(done.FollowUps) != 1 || done.FollowUps[0].Kind != "mail" || !done.FollowUps[0].Due.Equal(start.Add(time.Hour)) {
		t.Errorf("the follow-ups are %+v, want a mail in an hour", done.FollowUps)
	}
	midgetest.RequireEnqueued[mail](t, k.Client(), midgetest.Params(mail{To: "ann"}), midgetest.With(midge.In(time.Hour)))
}

func TestEachOutcomeOfWork(t *testing.T) {
	for want, fn := range map[midge.Outcome]func(ctx context.Context, s step) error{
		midge.OutcomeSucceeded: func(context.Context, step) error { return nil },
		midge.OutcomeFailed:    func(context.Context, step) error { return errAway },
		midge.OutcomePanicked:  func(context.Context, step) error { panic("broken") },
		midge.OutcomeDiscarded: func(context.Context, step) error { return midge.Discard(errAway) },
		midge.OutcomeSnoozed:   func(context.Context, step) error { return midge.Snooze(time.Hour) },
		midge.OutcomeThrottled: func(context.Context, step) error { return midge.Throttle(time.Hour) },
		midge.OutcomeTimedOut: func(ctx context.Context, _ step) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		timeout := time.Duration(0) // none: on a busy machine any job could take longer
		if want == midge.OutcomeTimedOut {
			timeout = time.Millisecond
		}
		worked := newKit(t, fn).Work(step{}, midge.Timeout(timeout))
		if worked.Outcome != want {
			t.Errorf("got %s (%v), want %s", worked.Outcome, worked.Err, want)
		}
		waits := want == midge.OutcomeSnoozed || want == midge.OutcomeThrottled
		if waits && worked.RetryIn != time.Hour {
			t.Errorf("it comes back in %v, want an hour", worked.RetryIn)
		}
	}
}

// foreign is a transaction of another storage.
type foreign struct{}

func (foreign) Apply(context.Context, storage.Call, ...storage.Tx) ([]storage.Applied, error) {
	return nil, errors.New("the kit used the transaction")
}

func TestCompleteWithCompletesWhereTheJobReturnsNil(t *testing.T) {
	for _, fails := range []bool{false, true} {
		k := newKit(t, func(ctx context.Context, _ step) error {
			must(t, errors.Join(midge.FollowUp(ctx, mail{To: "ann"}), midge.SetResult(ctx, 7)))
			must(t, midge.CompleteWith(ctx, foreign{}))
			if err := midge.SetResult(ctx, 8); !errors.Is(err, midge.ErrCompleted) {
				t.Errorf("a result behind CompleteWith: got %v, want ErrCompleted", err)
			}
			if fails { // for example, the commit fails
				return errAway
			}
			return nil
		})
		worked := k.Work(step{})
		if want := map[bool]midge.Outcome{false: midge.OutcomeSucceeded, true: midge.OutcomeFailed}[fails]; worked.Outcome != want {
			t.Errorf("fails %t: got %s, %v; want %s", fails, worked.Outcome, worked.Err, want)
		}
		if n := map[bool]int{false: 1, true: 0}[fails]; len(worked.FollowUps) != n {
			t.Errorf("fails %t: %d follow-ups, want %d", fails, len(worked.FollowUps), n)
		}
		midgetest.RequireEnqueued[mail](t, k.Client(), midgetest.Times(map[bool]int{false: 1, true: 0}[fails]))
	}
}

func TestDrainLeavesWhatIsLater(t *testing.T) {
	k := newKit(t, func(ctx context.Context, s step) error {
		if s.Name == "first" {
			return midge.FollowUp(ctx, step{Name: "second"})
		}
		return errAway
	})
	enqueue(t, k.Client(), step{Name: "first"})
	enqueue(t, k.Client(), mail{To: "later"}, midge.In(time.Second))
	worked := k.Drain()
	if len(worked) != 2 || worked[0].Outcome != midge.OutcomeSucceeded || worked[1].Outcome != midge.OutcomeFailed {
		t.Errorf("Drain tells %+v, want the first step and its follow-up", worked)
	}
	if !k.Now().Equal(start) {
		t.Errorf("the clock shows %v, want it to stand still", k.Now())
	}
	if again := k.Drain(); len(again) > 0 {
		t.Errorf("a second Drain tells %+v", again)
	}
}

// TestUntilRunsAWeekTheSameWayEachTime has a schedule tick and a job fail for a week.
func TestUntilRunsAWeekTheSameWayEachTime(t *testing.T) {
	var before []string
	for range 3 {
		var log []string
		var k *midgetest.Kit
		note := func(what string) { log = append(log, k.Now().Format("02 15:04:05 ")+what) }
		k = midgetest.New(t, midgetest.Config{Start: start, Register: func(r *midge.Runner) error {
			return errors.Join(
				midge.Handle(r, func(_ context.Context, m mail) error {
					note("mail " + m.To)
					return nil
				}),
				midge.Handle(r, func(_ context.Context, s step) error {
					note("step " + s.Name)
					return errAway
				}),
				r.Periodic(midge.Cron("0 3 * * *"), mail{To: "all"}),
			)
		}})
		enqueue(t, k.Client(), step{Name: "a"})
		begun := testserver.ProcessorTime(t)
		worked := k.Until(7 * 24 * time.Hour)
		if took := testserver.ProcessorTime(t) - begun; took > 10*time.Second {
			t.Errorf("a week took %v of a processor", took)
		}
		if !k.Now().Equal(start.Add(7 * 24 * time.Hour)) {
			t.Errorf("the clock shows %v, want a week later", k.Now())
		}
		if before != nil && !slices.Equal(log, before) {
			t.Errorf("a run went\n%q\nanother one\n%q", log, before)
		}
		before = log
		if last := worked[3]; last.Outcome != midge.OutcomeFailed || !last.Final || last.Task.State != midge.Dead {
			t.Errorf("the fourth failure is %+v, want it final", last)
		}
	}
	want := []string{"01 00:00:00 step a", "01 00:00:02 step a", "01 00:00:06 step a", "01 00:00:14 step a"}
	for day := range 7 {
		want = append(want, fmt.Sprintf("%02d 03:00:00 mail all", day+1))
	}
	if !slices.Equal(before, want) {
		t.Errorf("it went\n%q\nwant\n%q", before, want)
	}
}

func TestUntilPassesAQueueThatIsPaused(t *testing.T) {
	k := newKit(t, func(context.Context, step) error { return nil })
	enqueue(t, k.Client(), step{})
	must(t, k.Client().Queue("default").PauseFor(t.Context(), time.Hour))
	if worked := k.Until(time.Minute); len(worked) > 0 {
		t.Errorf("in the pause it tells %+v", worked)
	}
	if worked := k.Until(time.Hour); len(worked) != 1 {
		t.Errorf("behind the pause it tells %+v, want one attempt", worked)
	}
}

// TestDrainLeavesWhatALimitHoldsBack: Drain makes the attempts that the rate of a queue admits now, and Until
// reaches the others.
func TestDrainLeavesWhatALimitHoldsBack(t *testing.T) {
	k := midgetest.New(t, midgetest.Config{
		Start: start,
		Runner: midge.RunnerConfig{QueueLimits: map[string]midge.Limit{
			"default": {Concurrency: 1, Rate: midge.Rate{N: 3, Per: time.Minute}},
		}},
		Register: func(r *midge.Runner) error {
			return midge.Handle(r, func(context.Context, step) error { return nil })
		},
	})
	for i := range 7 {
		enqueue(t, k.Client(), step{Name: fmt.Sprint(i)})
	}
	if worked := k.Drain(); len(worked) != 3 {
		t.Errorf("Drain made %d attempts, want 3", len(worked))
	}
	if worked := k.Until(59 * time.Second); len(worked) != 0 {
		t.Errorf("%d attempts were made within the minute, want none", len(worked))
	}
	if worked := k.Until(2 * time.Second); len(worked) != 3 {
		t.Errorf("%d attempts were made after the minute, want 3", len(worked))
	}
	must(t, k.Client().Queue("default").SetLimit(t.Context(), midge.Limit{}))
	if worked := k.Drain(); len(worked) != 1 {
		t.Errorf("Drain made %d attempts without a limit, want 1", len(worked))
	}
}

func TestInABubblePackageTimeMovesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []time.Duration
		begun := time.Now()
		k := midgetest.New(t, midgetest.Config{Register: func(r *midge.Runner) error {
			return midge.Handle(r, func(ctx context.Context, _ step) error {
				time.Sleep(time.Hour)
				must(t, midge.Progress(ctx, 50))
				ran = append(ran, time.Since(begun))
				if len(ran) == 1 {
					return midge.RetryIn(24*time.Hour, errAway)
				}
				return nil
			})
		}})
		enqueue(t, k.Client(), step{})
		if worked := k.Until(72 * time.Hour); len(worked) != 2 || !worked[1].Final {
			t.Errorf("Until tells %+v, want a failure and a success", worked)
		}
		if want := []time.Duration{time.Hour, 26 * time.Hour}; !slices.Equal(ran, want) {
			t.Errorf("the job ended after %v, want %v", ran, want)
		}
		if now := time.Since(begun); now != 72*time.Hour || !k.Now().Equal(time.Now()) {
			t.Errorf("the clock of the bubble is %v on, want 72 h; the kit's shows %v", now, k.Now())
		}
		_, err := k.Client().EnqueueIn(t.Context(), time.Hour, step{})
		must(t, err)
		time.Sleep(48 * time.Hour) // the test itself sleeps
		if worked := k.Drain(); len(worked) != 1 {
			t.Errorf("behind a sleep Drain tells %+v, want what fell due", worked)
		}
	})
}

func TestInlineRunsWhatIsEnqueued(t *testing.T) {
	var ran []string
	var k *midgetest.Kit
	k = newKit(t, func(ctx context.Context, s step) error {
		ran = append(ran, s.Name)
		switch s.Name {
		case "first":
			if _, err := k.Inline().Enqueue(ctx, step{Name: "within"}); err != nil {
				return err
			}
			ran = append(ran, "first ends")
			return midge.FollowUp(ctx, step{Name: "follows"})
		case "fails":
			return errAway
		}
		return nil
	})
	enqueue(t, k.Inline(), step{Name: "first"})
	enqueue(t, k.Inline(), step{Name: "later"}, midge.In(time.Hour))
	if want := []string{"first", "first ends", "within", "follows"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	ran = nil
	enqueue(t, k.Inline(), step{Name: "fails"})
	if len(ran) != 1 {
		t.Errorf("ran %q, want one attempt that fails", ran)
	}
	if worked := k.Until(2 * time.Hour); len(worked) != 4 { // three retries, and the task scheduled for later
		t.Errorf("Until tells %d attempts, want 4", len(worked))
	}
}

func TestInlineFromManyGoroutines(t *testing.T) {
	ran := 0
	k := newKit(t, func(context.Context, step) error {
		ran++ // without a lock: one job runs at a time
		return nil
	})
	done := make(chan error)
	const all = 20
	for range all {
		go func() {
			_, err := k.Inline().Enqueue(t.Context(), step{})
			done <- err
		}()
	}
	for range all {
		must(t, <-done)
	}
	if ran != all {
		t.Errorf("%d jobs ran, want %d", ran, all)
	}
}

func TestFailuresOfAKit(t *testing.T) {
	fails := func(context.Context, step) error { return errAway }
	for name, test := range map[string]struct {
		want string
		test func(t testing.TB)
	}{
		"a kind that is not registered": {
			"midgetest: paper/ID of kind sheet was not claimed: see whether Config.Register registers that kind, " +
				"whether its queue is served, not paused and below its limit, and whether its partition is not paused, below its limit, and does not rest after a throttle",
			func(t testing.TB) { newKit(t, fails).Work(sheet{}) },
		},
		"a task that has ended": {
			"midgetest: default/ID is dead: an attempt is made of a task that waits, is scheduled or is to be retried",
			func(t testing.TB) {
				k := newKit(t, fails)
				k.WorkTask(k.Work(step{}, midge.Retries(midge.None)).Task.Ref)
			},
		},
		"no task": {
			"midgetest: there is no task default/none: one that has ended and is not kept is gone",
			func(t testing.TB) { newKit(t, fails).WorkTask(midge.Ref{Queue: "default", ID: "none"}) },
		},
		"no result": {
			"midgetest: result of step default/ID, which failed (the server is away): " +
				"midge: decode result of default/ID: the job has stored none",
			func(t testing.TB) { newKit(t, fails).Work(step{}).Result(new(int)) },
		},
		"an endless job": {
			"midgetest: 10000 attempts were made at 2026-03-01 00:00:00 +0000 UTC, and more is due: " +
				"see whether a job enqueues itself",
			func(t testing.TB) {
				k := newKit(t, func(ctx context.Context, s step) error { return midge.FollowUp(ctx, s) })
				enqueue(t, k.Client(), step{})
				k.Drain()
			},
		},
		"a registration that is refused": {
			"midgetest: Config.Register: midge: register: invalid function \"nil\": want a function of a job",
			func(t testing.TB) { newKit(t, nil) },
		},
		"a negative time": {
			"midgetest: invalid Until -1s: want 0 to 876000h0m0s",
			func(t testing.TB) { newKit(t, fails).Until(-time.Second) },
		},
		"a configuration": {
			"midgetest: midge: new runner: invalid RunnerConfig.Concurrency -1: want 1 to 1000000",
			func(t testing.TB) { midgetest.New(t, midgetest.Config{Runner: midge.RunnerConfig{Concurrency: -1}}) },
		},
		"inline": {
			"midgetest: inline: paper/ID of kind sheet was not claimed: see whether Config.Register registers that kind, " +
				"whether its queue is served, not paused and below its limit, and whether its partition is not paused, below its limit, and does not rest after a throttle",
			func(t testing.TB) { enqueue(t, newKit(t, fails).Inline(), sheet{}) },
		},
	} {
		t.Run(name, func(t *testing.T) { wantFailure(t, test.want, test.test) })
	}
}

func TestAJobThatFailsIsToldInTheLogOfTheTest(t *testing.T) {
	f := &fake{TB: t}
	k := newKit(f, func(context.Context, step) error { return errAway })
	enqueue(t, k.Inline(), step{})
	if len(f.logs) != 1 || !strings.HasPrefix(f.logs[0], `level=WARN msg="failed: the server is away, retry 1 of 3 in 2s`) ||
		!strings.Contains(f.logs[0], " kind=step queue=default ") {
		t.Errorf("the log is %q", f.logs)
	}
}

// times is a handler that keeps the times of lines.
type times struct {
	slog.Handler

	at *[]time.Time
}

func (h times) Handle(ctx context.Context, line slog.Record) error {
	*h.at = append(*h.at, line.Time)
	return h.Handler.Handle(ctx, line)
}

// TestLinesOfTheLogHaveTheTimeOfTheKit checks the time of lines, and the moment of a retry in their
// text, with each logger.
func TestLinesOfTheLogHaveTheTimeOfTheKit(t *testing.T) {
	const later = 24 * time.Hour
	at := start.Add(later)
	for name, c := range map[string]func(text *strings.Builder, seen *[]time.Time) midge.RunnerConfig{
		"slog": func(text *strings.Builder, seen *[]time.Time) midge.RunnerConfig {
			return midge.RunnerConfig{Slog: slog.New(times{slog.NewTextHandler(text, nil), seen})}
		},
		"zap": func(text *strings.Builder, seen *[]time.Time) midge.RunnerConfig {
			encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m"})
			core := zapcore.NewCore(encoder, zapcore.AddSync(text), zapcore.WarnLevel)
			return midge.RunnerConfig{Logger: zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
				*seen = append(*seen, e.Time)
				return nil
			}))}
		},
	} {
		var text strings.Builder
		var seen []time.Time
		k := midgetest.New(t, midgetest.Config{
			Start: start, Runner: c(&text, &seen), Register: func(r *midge.Runner) error {
				return midge.Handle(r, func(context.Context, step) error { return errAway })
			},
		})
		k.Until(later)
		k.Work(step{})
		want := "in 2s at " + at.Add(2*time.Second).Format(time.RFC3339)
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s: got %q, want the retry %s", name, text.String(), want)
		}
		if len(seen) == 0 || !seen[len(seen)-1].Equal(at) {
			t.Errorf("%s: the lines have the times %v, want %v", name, seen, at)
		}
	}
	f := &fake{TB: t}
	k := midgetest.New(f, midgetest.Config{Start: start, Register: func(r *midge.Runner) error {
		return midge.Handle(r, func(context.Context, step) error { return errAway })
	}})
	k.Work(step{})
	if want := "at " + start.Add(2*time.Second).Format(time.RFC3339); len(f.logs) != 1 || !strings.Contains(f.logs[0], want) {
		t.Errorf("without a logger: got %q, want the retry %s", f.logs, want)
	}
}
