package midge_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// These are the delays that the jobs of types ask for themselves.
const (
	atOnce   time.Duration = 0
	below    time.Duration = -time.Minute
	tooLong                = 2 * 365 * 24 * time.Hour
	aYear                  = 365 * 24 * time.Hour
	ordinary               = time.Minute
)

// These jobs have a backoff of their own.
type (
	retriedAtOnce   struct{}
	retriedBelow    struct{}
	retriedTooLong  struct{}
	retriedOrdinary struct{}
)

func (retriedAtOnce) Options() midge.Options   { return backing(atOnce) }
func (retriedBelow) Options() midge.Options    { return backing(below) }
func (retriedTooLong) Options() midge.Options  { return backing(tooLong) }
func (retriedOrdinary) Options() midge.Options { return backing(ordinary) }

func backing(d time.Duration) midge.Options { return midge.Options{Backoff: midge.Constant(d)} }

// failsBy registers a job that fails by err.
func failsBy[J any](b *bench, r *midge.Runner, err error) {
	b.Helper()
	if err := midge.Handle(r, func(context.Context, J) error { return err }); err != nil {
		b.Fatal(err)
	}
}

// retried runs two tasks of a job that fails once, and returns the delays of their retries and the
// warnings.
func retried(
	b *bench, cfg midge.RunnerConfig, register func(*midge.Runner), job any, opts ...midge.Option,
) (delays []time.Duration, warnings []string) {
	b.Helper()
	var told heard
	logger, lines := logged()
	cfg.Logger, cfg.OnEnd, cfg.Concurrency = logger, told.hooks(), 1
	b.runner = b.newRunner(b.store, cfg, nil)
	register(b.runner)
	go func() { b.done <- b.runner.Run(b.ctx) }()
	for range 2 {
		task, err := b.client.Enqueue(b.ctx, job, append(opts, midge.Retries(1))...)
		if err != nil {
			b.Fatal(err)
		}
		b.after(100 * time.Millisecond)
		ends := told.of(task.Ref)
		if len(ends) == 0 || ends[0].Task.State != storage.Retry {
			b.Fatalf("got the ends %+v, want a failure that is retried", ends)
		}
		if again := len(ends) > 1; again != (ends[0].RetryIn == 0) {
			b.Errorf("after a delay of %v the job ran again at once: %v", ends[0].RetryIn, again)
		}
		delays = append(delays, ends[0].RetryIn)
	}
	return delays, lines("its formula may have overflowed")
}

// TestDelaysOfRetries checks each way in which a delay is chosen.
func TestDelaysOfRetries(t *testing.T) {
	type way struct {
		cfg      midge.RunnerConfig
		register func(b *bench, r *midge.Runner)
		job      any
		opts     []midge.Option
	}
	plain := func(b *bench, r *midge.Runner) { failsBy[work](b, r, errBroken) }
	runners := func(f midge.Backoff) way { return way{midge.RunnerConfig{Backoff: f}, plain, work{}, nil} }
	asks := func(d time.Duration) way {
		retry := func(b *bench, r *midge.Runner) { failsBy[work](b, r, midge.RetryIn(d, errBroken)) }
		return way{midge.RunnerConfig{Backoff: midge.Constant(time.Hour)}, retry, work{}, nil}
	}
	types := way{register: func(b *bench, r *midge.Runner) {
		failsBy[retriedAtOnce](b, r, errBroken)
		failsBy[retriedBelow](b, r, errBroken)
		failsBy[retriedTooLong](b, r, errBroken)
		failsBy[retriedOrdinary](b, r, errBroken)
	}}
	of := func(job any) way { w := types; w.job = job; return w }
	recorded := runners(midge.Constant(below))
	recorded.opts = []midge.Option{midge.Geometric{First: tooLong, Max: 2 * tooLong, Jitter: -1}}
	for name, c := range map[string]struct {
		way
		want time.Duration
	}{
		"the runner's, 0":          {runners(midge.Constant(atOnce)), atOnce},
		"the runner's, below 0":    {runners(midge.Constant(below)), below},
		"the runner's, too long":   {runners(midge.Constant(tooLong)), aYear},
		"the runner's, ordinary":   {runners(midge.Constant(ordinary)), ordinary},
		"the runner's, the least":  {runners(midge.Constant(math.MinInt64)), below},
		"the runner's, the most":   {runners(midge.Constant(math.MaxInt64)), aYear},
		"a product that overflows": {runners(func(n int) time.Duration { return time.Duration(n) * math.MaxInt64 * 2 }), below},
		"the type's, 0":            {of(retriedAtOnce{}), atOnce},
		"the type's, below 0":      {of(retriedBelow{}), below},
		"the type's, too long":     {of(retriedTooLong{}), aYear},
		"the type's, ordinary":     {of(retriedOrdinary{}), ordinary},
		"RetryIn, 0":               {asks(atOnce), atOnce},
		"RetryIn, below 0":         {asks(below), below},
		"RetryIn, too long":        {asks(tooLong), aYear},
		"RetryIn, ordinary":        {asks(ordinary), ordinary},
		"recorded with the task":   {recorded, aYear},
	} {
		bubble(t, func(b *bench) {
			got, warnings := retried(b, c.cfg, func(r *midge.Runner) { c.register(b, r) }, c.job, c.opts...)
			want := 0
			for _, d := range got {
				switch {
				case c.want == below: // the zero Geometric
					want = 1
					if d < 1800*time.Millisecond || d > 2200*time.Millisecond {
						t.Errorf("%s: got a retry in %v, want the default", name, d)
					}
				case d != c.want:
					t.Errorf("%s: got a retry in %v, want %v", name, d, c.want)
				}
			}
			if len(warnings) != want {
				t.Errorf("%s: got the warnings %q of two tasks, want %d", name, warnings, want)
			}
		})
	}
}

// TestOtherDelaysStayAsTheyAre has the delays of enqueues and snoozes.
func TestOtherDelaysStayAsTheyAre(t *testing.T) {
	const years = 3 * 365 * 24 * time.Hour
	bubble(t, func(b *bench) {
		begun := time.Now()
		b.run(midge.RunnerConfig{}, func(_ context.Context, w work) error {
			if w.Name == "long" {
				return midge.Snooze(years)
			}
			return midge.Snooze(-time.Minute)
		})
		wantsInvalid(t, "EnqueueIn of -1s", second(b.client.EnqueueIn(b.ctx, -time.Second, work{"a"})), "")
		in := must1(b.client.EnqueueIn(b.ctx, years, work{"a"}))
		at := must1(b.client.EnqueueAt(b.ctx, begun.Add(years), work{"a"}))
		if past := must1(b.client.EnqueueAt(b.ctx, begun.Add(-time.Hour), work{"long"})); past.State != storage.Waiting {
			t.Errorf("a past moment is %s, want it due", past.State)
		}
		long, short := b.enqueue("long"), b.enqueue("short")
		b.after(500 * time.Millisecond)
		for what, c := range map[string]struct {
			ref  midge.Ref
			want time.Duration
		}{
			"EnqueueIn": {in.Ref, years}, "EnqueueAt": {at.Ref, years}, "Snooze": {long.Ref, years}, "Snooze below 0": {short.Ref, time.Second},
		} {
			if got := b.task(c.ref); got.State != storage.Scheduled || got.Due.Sub(begun).Round(time.Second) != c.want {
				t.Errorf("%s: it is %s and due after %v, want %v", what, got.State, got.Due.Sub(begun), c.want)
			}
		}
	})
}
