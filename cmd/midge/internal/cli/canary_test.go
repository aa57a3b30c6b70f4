package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/open"
)

// canaryCase is a requeue of the night's dead tasks with a canary.
type canaryCase struct {
	line    string
	settle  storage.Settle // of the waiting tasks after a second, none without an Outcome
	code    int
	out     string
	errs    []string
	dead    int // tasks of the night that stay dead
	outcome string
}

// TestARequeueBeginsWithACanary checks the output of the command, its exit code and the audit, for a canary
// that completes, a canary that fails and a canary that does not start.
func TestARequeueBeginsWithACanary(t *testing.T) {
	completes := storage.Settle{Outcome: storage.Complete}
	for name, c := range map[string]canaryCase{
		"completes": {
			line: "task requeue error:timeout --canary", settle: completes, out: "matched 3, requeued 3",
			errs:    []string{" goes first; the others wait for its attempt", "its attempt did not fail; the others follow at 50 a second"},
			outcome: ledger.Done,
		},
		"at another rate": {
			line: "task requeue mail/a1 mail/a2 --canary --rate 5", settle: completes, out: "matched 2, requeued 2",
			errs: []string{"mail/a1 goes first", "follow at 5 a second"}, dead: 1, outcome: ledger.Done,
		},
		"fails": {
			line: "task requeue error:timeout --canary", settle: storage.Settle{Outcome: storage.Fail, Error: "smtp: timeout again"},
			code: Partly, out: "matched 1, requeued 1", dead: 2, outcome: ledger.Failed,
			errs: []string{"1 task requeued, then: the canary mail/", " failed: smtp: timeout again\nnext: midge task show mail/"},
		},
		"does not start": {
			line: "task requeue --canary mail/a3", code: Partly, out: "matched 1, requeued 1", dead: 2, outcome: ledger.Failed,
			errs: []string{"has not started within 10 minutes (", "next: midge task why mail/a3"},
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, c.check) })
	}
}

func (c canaryCase) check(t *testing.T) {
	r := newRig(t)
	r.night()
	if c.settle.Outcome != "" {
		time.AfterFunc(time.Second, func() { r.work("mail", c.settle) })
	}
	got := r.run(c.line + " --yes")
	if got.code != c.code || !strings.Contains(got.out, c.out) {
		t.Errorf("midge %s: got %+v, want %d and %q", c.line, got, c.code, c.out)
	}
	for _, want := range c.errs {
		if !strings.Contains(got.err, want) {
			t.Errorf("midge %s writes %s, want %q", c.line, got.err, want)
		}
	}
	if dead := strings.Count(r.ok("task ls --queue mail state:dead error:30s -o ids"), "\n"); dead != c.dead {
		t.Errorf("%d tasks are dead, want %d", dead, c.dead)
	}
	actions, _, err := ledger.NewAudit(r.store).List(t.Context(), "", 1)
	if err != nil || actions[0].Outcome != c.outcome || actions[0].Note != "with a canary" || strings.Contains(actions[0].Error, "smtp") {
		t.Errorf("the audit has %+v, %v, want %s with a canary, and no error of the job", actions, err, c.outcome)
	}
}

// template is a job that does what its test sets.
type template struct{}

// TestACanaryIsFollowedOnARealRunner checks jobs of a runner with its own heartbeats: the canary runs for hours,
// panics, fails with retries left, and hangs until its timeout.
func TestACanaryIsFollowedOnARealRunner(t *testing.T) {
	hang := func(ctx context.Context) error { sleep.For(ctx, 2*time.Hour); return ctx.Err() }
	for name, c := range map[string]struct {
		job   func(context.Context) error
		flags string // of each task
		code  int
		text  string
		least time.Duration
		most  time.Duration
	}{
		"goes on": {hang, "", Done, "matched 20, requeued 20", time.Minute, 90 * time.Second},
		"panics":  {func(context.Context) error { panic("no template") }, "", Partly, " panicked: ", 0, 5 * time.Second},
		"fails":   {func(context.Context) error { return errors.New("refused") }, "", Partly, " failed: refused", 0, 5 * time.Second},
		"hangs":   {hang, " --run-timeout 30s", Partly, " timed out: ", 30 * time.Second, 35 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mended atomic.Bool
				r, start := live(t, "mail", func(runner *midge.Runner) error {
					return midge.Handle(runner, func(ctx context.Context, _ template) error {
						if !mended.Load() {
							return midge.Discard(errors.New("no template"))
						}
						return c.job(ctx)
					})
				})
				defer start(t.Context())()
				for i := range 20 {
					r.ok(fmt.Sprintf("task add template --queue mail --id t%d --params {}%s", i, c.flags))
				}
				time.Sleep(time.Minute) // virtual
				mended.Store(true)
				begun := time.Now()
				got := r.run("task requeue --queue mail --canary --yes")
				took := time.Since(begun)
				if got.code != c.code || !strings.Contains(got.out+got.err, c.text) || took < c.least || took > c.most {
					t.Errorf("got %+v after %v, want %d and %q after %v to %v", got, took, c.code, c.text, c.least, c.most)
				}
			})
		})
	}
}

// TestACanaryOnServers requeues ten tasks with a canary on Redis and PostgreSQL. If the first attempt succeeds, the
// rest follow; if it fails, no other task is requeued.
func TestACanaryOnServers(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	testserver.RequirePostgres(t)
	for name, url := range map[string]string{
		"redis": testserver.Redis(t).URL(), "postgres": testserver.Postgres(t, testserver.PostgresOptions{}).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			r := on(t, url)
			var attempts atomic.Int64
			var mended atomic.Bool
			stop := r.runs(url, func(context.Context, template) error {
				if attempts.Add(1); !mended.Load() {
					return midge.Discard(errors.New("no template"))
				}
				return nil
			})
			defer stop()
			for i := range 10 {
				r.ok(fmt.Sprintf("task add template --queue mail --id t%d --params {}", i))
			}
			dead := func() int { return strings.Count(r.ok("task ls --queue mail state:dead -o ids"), "\n") }
			testserver.Await(t, "all tasks are dead", func() bool { return dead() == 10 })
			const line = "task requeue --queue mail --canary --rate 1000 --yes"
			r.says(Partly, "matched 1, requeued 1", line)
			if n := attempts.Load(); n != 11 || dead() != 10 {
				t.Errorf("after a canary that fails: %d attempts, and %d tasks are dead; want 11 and 10", n, dead())
			}
			mended.Store(true)
			r.says(Done, "matched 10, requeued 10", line)
			testserver.Await(t, "no task is dead or waits", func() bool {
				return r.ok("task ls --queue mail state:all -o ids") == ""
			})
			if n := attempts.Load(); n != 21 {
				t.Errorf("%d attempts in all, want 21", n)
			}
		})
	}
}

// runs runs a job on the queue mail of a storage until stop is called.
func (r *rig) runs(url string, job func(context.Context, template) error) (stop func()) {
	r.t.Helper()
	store, err := open.Open(r.t.Context(), url)
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := midge.RunnerConfig{Queues: []string{"mail"}, Slog: slog.New(slog.DiscardHandler)}
	runner, err := midge.NewRunner(store, cfg)
	if err == nil {
		err = midge.Handle(runner, job)
	}
	if err != nil {
		r.t.Fatal(errors.Join(err, store.Close()))
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = runner.Run(ctx) }() // ends with stop
	return func() { cancel(); <-ended; _ = store.Close() }
}
