package midge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// logged returns a logger, and a function that returns the lines that mention a text.
func logged() (*zap.Logger, func(about string) []string) {
	core, logs := observer.New(zapcore.DebugLevel)
	return zap.New(core), func(about string) (lines []string) {
		for _, entry := range logs.All() {
			if strings.Contains(entry.Message, about) {
				lines = append(lines, entry.Message)
			}
		}
		return lines
	}
}

func TestAnErrorOfManyLinesIsOneLineOfTheLog(t *testing.T) {
	for name, text := range map[string]string{
		"joined":     "dial\nrunner stopped, nothing left behind",
		"returns":    "one\r\ntwo\rthree",
		"a terminal": "\x1b[2J\x00\x07",
		"separators": "a\u2028b\u2029c\u0085d",
		"a reversal": "pay\u202egpj.exe\u200b\u2066\ufeff",
		"broken":     "\xff\xfe",
	} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			b.run(midge.RunnerConfig{Logger: logger, Backoff: midge.Constant(time.Second)}, func(context.Context, work) error {
				return errors.New(text)
			})
			b.enqueue("a", midge.ID("failing"), midge.Retries(1))
			b.after(time.Minute)
			got := lines("failing")
			if len(got) != 2 || !strings.Contains(got[0], "failed: ") || !strings.Contains(got[1], "is dead") {
				t.Fatalf("%s: got %q, want a failure and its end", name, got)
			}
			for _, line := range got {
				if strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) || !utf8.ValidString(line) {
					t.Errorf("%s: %q breaks its line", name, line)
				}
			}
			if name == "joined" && !strings.Contains(got[0], `dial\nrunner stopped`) {
				t.Errorf("got %q, want the break shown", got[0])
			}
		})
	}
}

// The last line about a task reports how its retries ended.
func TestADeadTaskSaysHowItsRetriesEnded(t *testing.T) {
	for retries, want := range map[int]string{
		midge.None: "work default/failing is dead, it has no retries: no paper",
		1:          "work default/failing is dead, out of retries after 1: no paper",
	} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			b.run(midge.RunnerConfig{Logger: logger, Backoff: midge.Constant(time.Second)}, func(context.Context, work) error {
				return errors.New("no paper")
			})
			b.enqueue("a", midge.ID("failing"), midge.Retries(retries))
			b.after(time.Minute)
			if got := lines("is dead"); len(got) != 1 || got[0] != want {
				t.Errorf("%d retries: got %q, want %q", retries, got, want)
			}
		})
	}
}

// huge is an error whose text is long and expensive to make.
type huge struct{ made *atomic.Int64 }

func (h huge) Error() string {
	h.made.Add(1)
	return "huge " + strings.Repeat("x", 4<<20)
}

// A text of any size is made once per attempt, and shortened in the log.
func TestAHugeErrorIsAShortLineOfTheLog(t *testing.T) {
	for name, end := range map[string]func(error) error{
		"a failure":  func(err error) error { return err },
		"a discard":  midge.Discard,
		"a snooze":   func(err error) error { return errors.Join(err, midge.Snooze(time.Hour)) },
		"a throttle": func(err error) error { return errors.Join(err, midge.Throttle(time.Hour)) },
		"a panic":    func(err error) error { panic(err) },
	} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			var made atomic.Int64
			b.run(midge.RunnerConfig{Logger: logger, Backoff: midge.Constant(time.Hour)}, func(context.Context, work) error {
				return end(huge{&made})
			})
			task := b.enqueue("a", midge.ID("failing"))
			b.after(time.Second)
			got := lines("failing")
			if len(got) != 1 || len(got[0]) > 5<<10 || !strings.Contains(got[0], "huge xxx") || !strings.Contains(got[0], "x…") {
				t.Errorf("%s: got %d lines of %d bytes, want a short one that shows the cut", name, len(got), len(strings.Join(got, "")))
			}
			if n := made.Load(); n != 1 {
				t.Errorf("%s: the text was made %d times, want once", name, n)
			}
			if a := b.task(task.Ref).Attempts; name != "a snooze" && name != "a throttle" && (len(a) != 1 || !strings.Contains(a[0].Error, "huge xxx")) {
				t.Errorf("%s: got %d attempts, want the error kept", name, len(a))
			}
		})
	}
}

// Parameters, headers, results and checkpoints may be secret: neither the log nor the history of a
// task quotes them, however the task ends.
func TestNothingSecretIsLogged(t *testing.T) {
	const canary = "canary-7f3a"
	bubble(t, func(b *bench) {
		logger, lines := logged()
		b.limited(storage.Limits{DeclinedFor: time.Hour})
		b.run(midge.RunnerConfig{Logger: logger, Backoff: midge.Constant(time.Second)}, func(ctx context.Context, w work) error {
			err := errors.Join(midge.SetResult(ctx, canary), midge.Progress(ctx, canary), midge.Checkpoint(ctx, canary))
			switch how, _, _ := strings.Cut(w.Name, " "); {
			case err != nil:
				return err
			case how == "fails":
				return errors.New("boom")
			case how == "snoozes":
				return midge.Snooze(time.Hour)
			case how == "panics":
				panic("boom")
			case how == "misreads":
				_, err = midge.LoadCheckpoint(ctx, new(int))
			}
			return err
		})
		for _, how := range []string{"completes", "fails", "snoozes", "panics", "misreads"} {
			b.enqueue(how+" "+canary, midge.ID(how), midge.Header("secret", canary), midge.Retries(1), midge.Unique{Key: canary})
		}
		bad := storage.Insert{
			Ref: storage.Ref{Queue: midge.DefaultQueue, ID: "bad"}, Kind: "work", Encoding: "json", CrashLimit: 3,
			Payload: []byte(`{"Name": ["` + canary + `"]}`), Headers: map[string]string{"secret": canary},
		}
		if _, err := storage.NewSession(b.store, 0).ApplyOne(b.ctx, storage.Tx{Inserts: []storage.Insert{bad}}); err != nil {
			t.Fatal(err)
		}
		b.after(time.Hour + 2*time.Minute)
		if got := lines(canary); len(got) > 0 {
			t.Errorf("got %d lines with it, such as %q", len(got), got[0])
		}
		if got := lines("default/"); len(got) < 10 {
			t.Errorf("got %d lines of tasks, want some of each", len(got))
		}
		for _, task := range b.list(storage.Dead) {
			if text := fmt.Sprint(task.Attempts, task.Reason); strings.Contains(text, canary) {
				t.Errorf("%s: got %q with it", task.Ref, text)
			}
		}
	})
}

// The logger of zap.NewProduction adds a stack to each error, and that of NewDevelopment also to
// each warning.
func TestALineHasNeitherCallerNorStack(t *testing.T) {
	bubble(t, func(b *bench) {
		core, logs := observer.New(zapcore.DebugLevel)
		logger := zap.New(core, zap.AddCaller(), zap.AddStacktrace(zapcore.WarnLevel))
		b.run(midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { return errors.New("boom") })
		b.enqueue("a", midge.Retries(1))
		b.after(time.Minute)
		if n := logs.FilterLevelExact(zapcore.ErrorLevel).Len(); n != 1 {
			t.Errorf("got %d lines of errors, want that of the dead task", n)
		}
		for _, entry := range logs.All() {
			if entry.Stack != "" || entry.Caller.Defined {
				t.Errorf("%q: got stack %q and caller %v, want neither", entry.Message, entry.Stack, entry.Caller)
			}
		}
	})
}

func TestAReleaseSaysWhy(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		leave := make(chan struct{})
		cfg := midge.RunnerConfig{Logger: logger, Grace: time.Second, Concurrency: 4}
		b.run(cfg, func(ctx context.Context, w work) error {
			switch w.Name {
			case "deaf":
				<-leave
			case "heard":
				<-ctx.Done()
				return ctx.Err()
			case "broken":
				<-ctx.Done()
				return errBroken
			case "panics":
				<-ctx.Done()
				panic("no reply")
			}
			return nil
		})
		b.enqueue("deaf", midge.ID("1-deaf"))
		b.enqueue("heard", midge.ID("2-heard"))
		b.enqueue("broken", midge.ID("3-broken"))
		b.enqueue("panics", midge.ID("4-panics"))
		b.after(time.Second)
		if err := b.drain(); !errors.Is(err, midge.ErrGraceExceeded) {
			t.Errorf("drain: %v, want ErrGraceExceeded", err)
		}
		for about, why := range map[string]string{
			"1-deaf":   "released: its job runs on after the grace period",
			"2-heard":  "released: midge: the runner is shutting down",
			"3-broken": "released: midge: the runner is shutting down, and its job returned: " + errBroken.Error(),
			"4-panics": "released: midge: the runner is shutting down, and its job returned: panic: no reply",
		} {
			got := lines(about)
			line, _, _ := strings.Cut(strings.Join(got, "\n"), " (log_test.go:") // where it panicked
			if len(got) != 1 || !strings.HasSuffix(line, why) {
				t.Errorf("%s: got %q, want %q", about, got, why)
			}
		}
		close(leave)
		synctest.Wait()
	})
}

func TestAReleaseOfWhatWasClaimedAheadSaysSo(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		cfg := midge.RunnerConfig{Logger: logger, Concurrency: 1, Grace: midge.None}
		b.run(cfg, func(ctx context.Context, w work) error {
			if w.Name == "slow" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		for i := range 400 { // short jobs, so that tasks are claimed ahead when the slow one begins
			b.enqueue([]string{"short", "slow"}[i/399])
		}
		for range 50 {
			b.enqueue("behind")
		}
		b.after(10 * time.Second)
		got := lines(" released")
		if len(got) == 0 {
			t.Error("nothing was given back, want what was ahead of the slow job")
		}
		for _, line := range got {
			if !strings.HasSuffix(line, "released: it was claimed ahead and has not started here") {
				t.Errorf("got %q, want why", line)
			}
		}
	})
}

func TestADrainSaysWhatRunsAndWhatItGaveBack(t *testing.T) {
	const nobodyKnows = "; the storage did not answer: tasks may be held until their leases expire"
	for name, c := range map[string]struct {
		jobs        int
		stop, away  bool
		grace       time.Duration
		drains, end string
	}{
		"idle":     {0, false, false, 5 * time.Second, "0 running, grace 5s", ", nothing left behind"},
		"in time":  {2, false, false, 20 * time.Second, "2 running, grace 20s", ", nothing left behind"},
		"too late": {2, false, false, 5 * time.Second, "2 running, grace 5s", ", 2 given back"},
		"stopped":  {2, true, false, 5 * time.Second, "2 running, grace 0s", ", 2 given back"},
		"away":     {2, false, true, 5 * time.Second, "2 running, grace 5s", ", 2 left until their leases expire"},
		"in doubt": {0, false, true, 5 * time.Second, "0 running, grace 5s", nobodyKnows},
	} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			hole := &blackhole{Storage: b.store}
			b.store = hole
			b.run(midge.RunnerConfig{Logger: logger, Grace: c.grace}, tenSeconds)
			for range c.jobs {
				b.enqueue("a")
			}
			b.after(time.Second)
			if c.away {
				hole.open()
				defer hole.close()
				b.after(2 * time.Second) // a claim is under way
			}
			if c.stop {
				halt(b.Context(), b.runner)
				synctest.Wait()
			}
			if err := b.drain(); err != nil {
				t.Errorf("%s: drain: %v", name, err)
			}
			if got := lines("drains"); len(got) != 1 || got[0] != "runner "+b.runner.ID()+" drains: "+c.drains {
				t.Errorf("%s: got %q, want one that ends in %q", name, got, c.drains)
			}
			if got := lines("stopped"); len(got) != 1 || got[0] != "runner "+b.runner.ID()+" stopped"+c.end {
				t.Errorf("%s: got %q, want %q", name, got, c.end)
			}
		})
	}
}

func TestADrainReportsACancelledTaskWhoseJobRunsOn(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		b.run(midge.RunnerConfig{Logger: logger, Grace: time.Second}, func(context.Context, work) error {
			time.Sleep(time.Hour) // virtual
			return nil
		})
		cancelled := b.enqueue("a")
		b.enqueue("b")
		b.after(time.Second)
		if _, err := b.client.Cancel(b.Context(), cancelled.Ref); err != nil {
			t.Fatal(err)
		}
		if err := b.drain(); !errors.Is(err, midge.ErrGraceExceeded) {
			t.Errorf("the drain returned %v, want an ErrGraceExceeded", err)
		}
		want := "work " + cancelled.Ref.String() + " cancelled: its job runs on after the grace period"
		if got := lines("cancelled"); len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := lines("stopped"); len(got) != 1 || !strings.HasSuffix(got[0], "2 still run, 1 given back") {
			t.Errorf("got %q, want 2 that still run and 1 given back", got)
		}
		b.after(time.Hour)
	})
}

func TestARetrySaysItsMomentWithDateAndZone(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		cfg := midge.RunnerConfig{Logger: logger, Backoff: midge.Constant(6 * time.Hour)}
		b.run(cfg, func(context.Context, work) error { return errors.New("boom") })
		b.enqueue("a")
		b.after(time.Second)
		want := "failed: boom, retry 1 of 20 in 6h0m0s at " + time.Now().Add(6*time.Hour-time.Second).Format(time.RFC3339)
		if got := lines("failed"); len(got) != 1 || !strings.HasSuffix(got[0], want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAnErrorBesideASnoozeIsLogged(t *testing.T) {
	boom, hour := errors.New("boom"), midge.Snooze(time.Hour)
	for want, err := range map[string]error{
		"snoozed for 1h0m0s":                              hour,
		"snoozed for 1h0m0s: boom":                        errors.Join(boom, hour),
		"snoozed for 1h0m0s: not yet: snoozed for 1h0m0s": fmt.Errorf("not yet: %w", hour),
	} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			b.run(midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { return err })
			b.enqueue("a")
			b.after(time.Second)
			if got := lines("snoozed"); len(got) != 1 || !strings.HasSuffix(got[0], " "+want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// The storage decides about a crash loop, in a claim or a sweep of any runner.
func TestACrashLoopIsLogged(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		session := storage.NewSession(b.store, 0)
		for _, queue := range []string{midge.DefaultQueue, "elsewhere"} {
			if _, err := session.ApplyOne(b.Context(), storage.Tx{Inserts: []storage.Insert{{
				Ref: storage.Ref{Queue: queue, ID: "pill"}, Kind: "work", Encoding: "msgpack", CrashLimit: 1,
			}}}); err != nil {
				t.Fatal(err)
			}
			if c, err := session.Claim(b.Context(), storage.ClaimRequest{
				Runner: "died", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 1, Lease: time.Second,
			}); err != nil || len(c.Tasks) != 1 {
				t.Fatalf("claim: %d tasks, %v", len(c.Tasks), err)
			}
		}
		b.run(midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { return nil })
		b.after(2 * time.Minute)
		for _, about := range []string{"work default/pill", "work elsewhere/pill"} {
			want := about + " is dead, crash loop: too often its runner died with it, or was cut off"
			if got := lines(about); len(got) != 1 || got[0] != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

// The starts after the first one follow a snooze, and no crash of their own.
func TestAStartAfterACrashReportsNoNewCrash(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		task := b.enqueue("a")
		b.crash()
		b.recover()
		b.run(midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { return midge.Snooze(time.Minute) })
		b.after(150 * time.Second)
		want := "work " + task.Ref.String() + " starts after crash 1 of 3: a runner died with it, or was cut off"
		if got := lines("crash"); !slices.Equal(got, []string{want, want, want}) {
			t.Errorf("got %q, want three times %q", got, want)
		}
	})
}

// tenSeconds is a job that takes ten seconds, or until its context ends.
func tenSeconds(ctx context.Context, _ work) error {
	select {
	case <-time.After(10 * time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The fields of a line have for programs the facts that its sentence has for people.
func TestALineCarriesFields(t *testing.T) {
	bubble(t, func(b *bench) {
		core, logs := observer.New(zapcore.DebugLevel)
		b.run(midge.RunnerConfig{
			Logger: zap.New(core), Backoff: midge.Constant(time.Second), SuccessLevel: zapcore.DebugLevel,
		}, endings)
		b.enqueue("failed", midge.ID("fails"), midge.Retries(1))
		b.enqueue("succeeded", midge.ID("succeeds"))
		b.after(5 * time.Second)
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		want := []struct {
			text   string
			level  zapcore.Level
			fields map[string]any
		}{
			{"fails failed", zapcore.WarnLevel, map[string]any{"task": "fails", "attempt": int64(1), "outcome": "failed"}},
			{"fails is dead", zapcore.ErrorLevel, map[string]any{"task": "fails", "attempt": int64(2), "outcome": "failed"}},
			{"succeeds succeeded", zapcore.DebugLevel, map[string]any{
				"task": "succeeds", "attempt": int64(1), "outcome": "succeeded", "took": 2 * time.Second,
			}},
			{"started on", zapcore.InfoLevel, nil},
			{"drains", zapcore.InfoLevel, nil},
		}
		for _, w := range want {
			found := logs.Filter(func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, w.text) }).All()
			if len(found) != 1 || found[0].Level != w.level {
				t.Fatalf("%q: got %v, want one line of level %v", w.text, found, w.level)
			}
			got := found[0].ContextMap()
			wanted := map[string]any{"runner": b.runner.ID()}
			if w.fields != nil {
				wanted["kind"], wanted["queue"] = "work", midge.DefaultQueue
			}
			maps.Copy(wanted, w.fields)
			if !maps.Equal(got, wanted) {
				t.Errorf("%q: got %v, want %v", w.text, got, wanted)
			}
		}
	})
}

func TestSlogGetsShortLines(t *testing.T) {
	bubble(t, func(b *bench) {
		var out strings.Builder
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn, AddSource: true}))
		b.run(midge.RunnerConfig{Slog: logger, SuccessLevel: zapcore.WarnLevel}, endings)
		b.enqueue("succeeded", midge.ID("succeeds"))
		b.after(5 * time.Second)
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		want := `level=WARN msg=succeeded ` +
			`kind=work queue=default task=succeeds attempt=1 outcome=succeeded took=2s runner=` + b.runner.ID() + "\n"
		if _, got, _ := strings.Cut(out.String(), "level="); "level="+got != want && !strings.HasSuffix(out.String(), want) {
			t.Errorf("got %q, want %q alone", out.String(), want)
		}
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Errorf("got %d lines, want those of the level alone: %s", n, out.String())
		}
	})
}

// A program without a logger still gets warnings.
func TestWithoutALoggerWarningsGoToSlogsDefault(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var out strings.Builder
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Hour)}, endings)
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		b.enqueue("failed")
		b.enqueue("succeeded")
		b.after(5 * time.Second)
		_ = b.drain()
	})
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "outcome=failed") {
		t.Errorf("got %q, want the failure alone", got)
	}
}

func TestOneLoggerIsEnough(t *testing.T) {
	for name, cfg := range map[string]midge.RunnerConfig{
		"two loggers":           {Logger: zap.NewNop(), Slog: slog.Default()},
		"a level that does not": {SuccessLevel: zapcore.FatalLevel},
	} {
		if _, err := midge.NewRunner(nopStore{}, cfg); !errors.As(err, new(*midge.InvalidError)) {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
}

func TestTheLogHasTheReasonOfAStepOnce(t *testing.T) {
	for name, ends := range map[string]func(err error) error{
		"returned": func(err error) error { return err }, "dropped": func(error) error { return nil },
	} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			b.run(midge.RunnerConfig{Logger: logger}, func(ctx context.Context, _ work) error {
				_, err := midge.Step(ctx, "any", func(context.Context) (any, error) { return make(chan int), nil })
				return ends(err)
			})
			b.enqueue("a")
			b.after(time.Second)
			if got := lines("is dead"); len(got) != 1 || strings.Count(got[0], "cannot store step any") != 1 ||
				!strings.Contains(got[0], "a type that msgpack can store") {
				t.Errorf("%s: got %q, want the reason once", name, got)
			}
		})
	}
}
