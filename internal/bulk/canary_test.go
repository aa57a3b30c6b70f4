package bulk

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// attempt is how a runner ends an attempt: after a while, in which it renews the lease, by a settle. Without
// an Outcome the runner vanishes instead.
type attempt struct {
	takes time.Duration
	storage.Settle
}

var (
	completes = attempt{takes: 100 * time.Millisecond, Settle: storage.Settle{Outcome: storage.Complete}}
	fails     = attempt{takes: 100 * time.Millisecond, Settle: storage.Settle{Outcome: storage.Fail, Error: "smtp: timeout", Delay: time.Hour}}
)

// serve runs tasks of queue a until ctx ends or it vanishes: each attempt ends as the function returns, which
// gets the number of the attempt from 0.
func (r *rig) serve(ctx context.Context, ends func(n int) attempt) {
	session := storage.NewSession(r.store, 0)
	for n := 0; ; {
		claimed, err := session.Claim(ctx, storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "a"}}, Start: 1, Lease: 30 * time.Second, Suspect: true,
		})
		if err != nil {
			return // ctx has ended
		}
		for _, fence := range claimed.Fences {
			end := ends(n)
			n++
			if !r.attempt(ctx, session, fence, end) {
				return
			}
		}
		if !sleep.For(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// attempt carries out an attempt. It returns false if the runner vanishes, or ctx has ended: a call that ctx
// cuts short is no failure.
func (r *rig) attempt(ctx context.Context, session *storage.Session, fence storage.Fence, end attempt) bool {
	for left := end.takes; left > 0; left -= 10 * time.Second {
		if !sleep.For(ctx, min(left, 10*time.Second)) {
			return false
		}
		_, err := session.Extend(ctx, storage.ExtendRequest{Leases: []storage.Extension{{Fence: fence, For: 30 * time.Second, Started: true}}})
		if err != nil && ctx.Err() == nil {
			r.t.Error(err)
		}
	}
	end.Fence = fence
	if end.Outcome == "" {
		return false
	}
	if _, err := session.ApplyOne(ctx, storage.Tx{Settles: []storage.Settle{end.Settle}}); err != nil && ctx.Err() == nil {
		r.t.Error(err)
	}
	return ctx.Err() == nil
}

// dead makes n dead tasks of queue a, which are not kept if they complete.
func (r *rig) dead(n int) {
	r.t.Helper()
	r.insert("a", n, func(_ int, in *storage.Insert) { in.Keep, in.MaxRetries = storage.Keep{}, 5 })
	r.bury("a")
}

// requeue requeues the dead tasks with a canary, at 20 a second.
func (r *rig) requeue(ctx context.Context, progress func(Result)) (Result, error) {
	return Run(ctx, r.Session, Request{
		Action: Action{Verb: Requeue}, Scan: matching(r.t, "state:dead"), Rate: 20, Canary: true, Progress: progress,
	})
}

// inBubble runs a test on a storage in a bubble, with a runner that ends its attempts as a function returns.
// nil is no runner.
func inBubble(t *testing.T, ends func(n int) attempt, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		r.dead(100)
		ctx, stop := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		defer serving.Wait()
		defer stop()
		if ends != nil {
			serving.Go(func() { r.serve(ctx, ends) })
		}
		test(t, r)
	})
}

// TestACanaryThatIsKeptSucceeds checks the first attempts of tasks that are kept, which have their success in
// their history.
func TestACanaryThatIsKeptSucceeds(t *testing.T) {
	f := first{version: 5}
	before := storage.Attempt{Version: 3, Outcome: storage.AttemptSucceeded}
	for _, c := range []struct {
		last storage.Attempt
		want fate
	}{
		{storage.Attempt{Version: 7, Outcome: storage.AttemptSucceeded}, survived},
		{storage.Attempt{Version: 7, Outcome: storage.AttemptFailed}, failed},
		{storage.Attempt{Outcome: storage.AttemptRequeued}, unstarted},
	} {
		task := storage.Task{State: storage.Waiting, Attempts: []storage.Attempt{before, c.last}}
		if got, _, _ := f.of(&task); got != c.want {
			t.Errorf("%s: got %d, want %d", c.last.Outcome, got, c.want)
		}
	}
}

// TestTheOthersFollowACanaryThatLives checks that all tasks are requeued at the rate, after the canary alone.
func TestTheOthersFollowACanaryThatLives(t *testing.T) {
	for name, c := range map[string]struct {
		first attempt
		least time.Duration // how long the others wait at least
		most  time.Duration
	}{
		"completes":         {completes, 0, 2 * time.Second},
		"completes slowly":  {attempt{takes: 30 * time.Second, Settle: completes.Settle}, 30 * time.Second, 32 * time.Second},
		"snoozes":           {attempt{Settle: storage.Settle{Outcome: storage.Snooze, Delay: time.Hour}}, 0, 2 * time.Second},
		"goes on for hours": {attempt{takes: 3 * time.Hour, Settle: fails.Settle}, canaryProof, canaryProof + 30*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ends := func(n int) attempt {
				if n == 0 {
					return c.first
				}
				return completes
			}
			inBubble(t, ends, func(t *testing.T, r *rig) {
				if passed := r.allFollow(); passed < c.least || passed > c.most {
					t.Errorf("the others followed after %v, want between %v and %v", passed, c.least, c.most)
				}
			})
		})
	}
}

// allFollow requeues the 100 dead tasks, of which 99 stay dead while the canary runs, and returns when the
// others followed.
func (r *rig) allFollow() (passed time.Duration) {
	r.t.Helper()
	begun := time.Now()
	got, err := r.requeue(r.t.Context(), func(now Result) {
		if now.Passed && passed == 0 {
			passed = time.Since(begun)
		}
		if dead := r.count("a", storage.Dead); !now.Passed && now.Done == 1 && dead != 99 {
			r.t.Errorf("%d tasks are dead while the canary runs, want all others", dead)
		}
	})
	if err != nil || got.Done != 100 || !got.Passed || got.Canary.Queue != "a" {
		r.t.Fatalf("got %+v, %v, want 100 tasks requeued", got, err)
	}
	if rest := time.Since(begun) - passed; rest < 99*time.Second/20-time.Second {
		r.t.Errorf("the others took %v, want 20 a second", rest)
	}
	return passed
}

// TestACanaryThatDiesStopsTheRequeue checks that one task was requeued, and the reason.
func TestACanaryThatDiesStopsTheRequeue(t *testing.T) {
	timeout := storage.Settle{Outcome: storage.Fail, As: storage.AttemptTimedOut, Error: "no answer"}
	for name, c := range map[string]struct {
		ends   attempt
		text   string
		detail string
	}{
		"fails":         {fails, "failed", "smtp: timeout"},
		"times out":     {attempt{50 * time.Second, timeout}, "timed out", "no answer"},
		"is discarded":  {attempt{0, storage.Settle{Outcome: storage.Bury, Error: "gone"}}, "was discarded by its job", "gone"},
		"is cancelled":  {attempt{0, storage.Settle{Outcome: storage.Cancel}}, "", ""},
		"crashes":       {attempt{takes: 5 * time.Second}, "crashed", "nobody has recovered the task"},
		"undecodable":   {attempt{0, storage.Settle{Outcome: storage.Snooze, Delay: time.Hour, Reason: storage.ReasonUndecodable + ": field to"}}, "cannot decode", "field to"},
		"has one retry": {attempt{time.Second, storage.Settle{Outcome: storage.Fail, Error: "again"}}, "failed", "again"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(int) attempt { return c.ends }, func(t *testing.T, r *rig) {
				got, err := r.requeue(t.Context(), nil)
				var stop *CanaryError
				if !errors.As(err, &stop) || got.Done != 1 || got.Passed || stop.Ref != got.Canary {
					t.Fatalf("got %+v, %v, want an end after the canary", got, err)
				}
				if !strings.Contains(stop.Error(), c.text) || !strings.Contains(stop.Detail, c.detail) {
					t.Errorf("the reason is %q, %q; want %q, %q", stop, stop.Detail, c.text, c.detail)
				}
				if c.detail != "" && strings.Contains(err.Error(), c.detail) {
					t.Errorf("the text %q has the error of the job", err)
				}
				if left := r.count("a", storage.Dead); left < 99 {
					t.Errorf("%d tasks are dead, want the others", left)
				}
			})
		})
	}
}

// TestACanaryOutlivesItsEarlierAttempts checks a job that hangs until its timeout of five minutes, which the
// history of its task shows.
func TestACanaryOutlivesItsEarlierAttempts(t *testing.T) {
	hangs := attempt{5 * time.Minute, storage.Settle{Outcome: storage.Bury, As: storage.AttemptTimedOut, Error: "no answer"}}
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		r.insert("a", 2, nil)
		ctx, stop := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { r.serve(ctx, func(int) attempt { return hangs }) })
		defer serving.Wait()
		defer stop()
		time.Sleep(11 * time.Minute) // virtual
		got, err := r.requeue(ctx, nil)
		var stopped *CanaryError
		if !errors.As(err, &stopped) || got.Done != 1 || !strings.Contains(stopped.Error(), "timed out") {
			t.Errorf("got %+v, %v, want an end after the timeout of the canary", got, err)
		}
	})
}

// TestTheFirstAttemptIsFollowedThroughOtherClaims checks a canary whose claims end without an attempt: it is
// released, as by a shutdown, or its runner vanishes before it has started the task.
func TestTheFirstAttemptIsFollowedThroughOtherClaims(t *testing.T) {
	released := func(n int) attempt {
		if n == 0 {
			return attempt{takes: 50 * time.Second, Settle: storage.Settle{Outcome: storage.Release}}
		}
		return attempt{takes: 3 * time.Hour, Settle: completes.Settle}
	}
	inBubble(t, released, func(t *testing.T, r *rig) {
		if passed := r.allFollow(); passed < 50*time.Second+canaryProof {
			t.Errorf("the others followed after %v, want a minute after the second claim", passed)
		}
	})
	inBubble(t, nil, func(t *testing.T, r *rig) {
		ctx, stop := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		defer serving.Wait()
		defer stop()
		time.AfterFunc(time.Second, func() {
			r.claim(ctx, storage.ClaimRequest{Ahead: 1, Lease: 30 * time.Second})
			serving.Go(func() {
				r.serve(ctx, func(int) attempt { return attempt{takes: 5 * time.Second, Settle: completes.Settle} })
			})
		})
		if passed := r.allFollow(); passed < 30*time.Second {
			t.Errorf("the others followed after %v, want it after the end of the first lease", passed)
		}
	})
}

// claim claims tasks of queue a, and forgets them.
func (r *rig) claim(ctx context.Context, req storage.ClaimRequest) {
	req.Runner, req.Queues = "gone", []storage.ClaimQueue{{Name: "a"}}
	if claimed, err := storage.NewSession(r.store, 0).Claim(ctx, req); err != nil || len(claimed.Tasks) != 1 {
		r.t.Errorf("claimed %v, %v; want the canary", claimed.Tasks, err)
	}
}

// TestALongLeaseProvesNothing checks a runner that vanishes at once under a lease of an hour: the canary
// counts as crashed when the lease ends, because nobody has renewed it.
func TestALongLeaseProvesNothing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		time.AfterFunc(time.Second, func() { r.claim(t.Context(), storage.ClaimRequest{Start: 1, Lease: time.Hour}) })
		got, err := r.requeue(t.Context(), nil)
		var stop *CanaryError
		if !errors.As(err, &stop) || got.Done != 1 || !strings.HasSuffix(stop.Error(), "crashed") {
			t.Errorf("got %+v, %v, want an end after the crash", got, err)
		}
	})
}

// TestOnlySomeAttemptsAreFollowed checks the bound, and that cancelled tasks do not count.
func TestOnlySomeAttemptsAreFollowed(t *testing.T) {
	r := open(t)
	c := &canary{session: r.Session}
	r.insert("a", mostFollowed+50, nil)
	for task, err := range storage.Each(t.Context(), r.store, "a", storage.Waiting) {
		if err != nil {
			t.Fatal(err)
		}
		c.follow(&task)
	}
	if len(c.open) != mostFollowed {
		t.Errorf("%d attempts are followed, want %d", len(c.open), mostFollowed)
	}
	if _, err := r.CancelAll(t.Context(), "a", storage.Waiting, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.check(t.Context()); err != nil || len(c.open)+len(c.last) > 0 {
		t.Errorf("after a cancel of all %d attempts are followed and %d counted, %v; want none", len(c.open), len(c.last), err)
	}
}

// TestAnotherRunnerRecoversTheCanary checks a canary whose runner vanishes beside a live one.
func TestAnotherRunnerRecoversTheCanary(t *testing.T) {
	inBubble(t, func(int) attempt { return attempt{} }, func(t *testing.T, r *rig) {
		ctx, stop := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		defer serving.Wait()
		defer stop()
		time.AfterFunc(10*time.Second, func() { // after the claim of the first runner
			serving.Go(func() { r.serve(ctx, func(int) attempt { return completes }) })
		})
		got, err := r.requeue(ctx, nil)
		var crashed *CanaryError
		if !errors.As(err, &crashed) || got.Done != 1 || !strings.HasSuffix(crashed.Error(), "crashed") {
			t.Errorf("got %+v, %v, want an end after the crash", got, err)
		}
	})
}

// TestACanaryThatDoesNotStartStopsTheRequeue checks the reason after ten minutes.
func TestACanaryThatDoesNotStartStopsTheRequeue(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		begun := time.Now()
		got, err := r.requeue(t.Context(), nil)
		var stop *CanaryError
		if !errors.As(err, &stop) || !stop.Waits || got.Done != 1 || !strings.Contains(stop.Error(), "10 minutes (no runner)") ||
			!strings.Contains(stop.Detail, "no live runner serves queue a") {
			t.Errorf("got %+v, %v, want an end because no runner serves the queue", got, err)
		}
		if took := time.Since(begun); took < canaryStart || took > canaryStart+time.Second {
			t.Errorf("it ended after %v, want %v", took, canaryStart)
		}
	})
}

// TestACanaryThatIsTakenAwayStopsTheRequeue deletes, moves and cancels the canary before it starts.
func TestACanaryThatIsTakenAwayStopsTheRequeue(t *testing.T) {
	for name, c := range map[string]struct {
		action Action
		text   string
	}{
		"deleted":   {Action{Verb: Delete}, "is gone"},
		"moved":     {Action{Verb: Move, Queue: "b"}, "is gone"},
		"cancelled": {Action{Verb: Cancel}, "is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				time.AfterFunc(5*time.Second, func() {
					_, err := Run(t.Context(), storage.NewSession(r.store, 0), Request{Action: c.action, Scan: matching(t, "state:waiting")})
					if err != nil {
						t.Error(err)
					}
				})
				got, err := r.requeue(t.Context(), nil)
				var stop *CanaryError
				if !errors.As(err, &stop) || got.Done != 1 || !strings.Contains(stop.Error(), c.text) {
					t.Errorf("got %+v, %v, want an end because the canary %s", got, err, c.text)
				}
			})
		})
	}
}

// TestFailuresAfterTheCanaryStopTheRequeue checks tasks of which some fail after the canary has completed.
func TestFailuresAfterTheCanaryStopTheRequeue(t *testing.T) {
	for _, c := range []struct {
		every int // each task of this number fails
		stops bool
	}{{4, true}, {7, true}, {15, false}} {
		inBubble(t, func(n int) attempt {
			if n > 0 && n%c.every == 0 {
				return fails
			}
			return attempt{Settle: completes.Settle}
		}, func(t *testing.T, r *rig) {
			got, err := r.requeue(t.Context(), nil)
			var stop *CanaryError
			switch stopped := errors.As(err, &stop); {
			case stopped != c.stops:
				t.Errorf("each task in %d fails: got %+v, %v", c.every, got, err)
			case stopped && (got.Done > 60 || !got.Passed || stop.Detail != "smtp: timeout" || !strings.HasPrefix(stop.Error(), "3 of the last ")):
				t.Errorf("each task in %d fails: got %+v, %v, %q, want an end soon after the third failure", c.every, got, err, stop.Detail)
			case !stopped && (err != nil || got.Done != 100):
				t.Errorf("each task in %d fails: got %+v, %v, want all requeued", c.every, got, err)
			}
		})
	}
}

// TestACanaryRequeueEndsWithItsContext checks that the result counts the tasks requeued by then.
func TestACanaryRequeueEndsWithItsContext(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		got, err := r.requeue(ctx, nil)
		if !errors.Is(err, context.DeadlineExceeded) || got.Done != 1 || len(got.Refs) != 1 || got.Refs[0] != got.Canary {
			t.Errorf("got %+v, %v, want an end of the context after the canary", got, err)
		}
	})
}

// TestAnotherTaskIsTheCanary checks a task that somebody requeues right before it would go first.
func TestAnotherTaskIsTheCanary(t *testing.T) {
	inBubble(t, func(int) attempt { return completes }, func(t *testing.T, r *rig) {
		meddles := &beforeApply{r.store, func() {
			if err := r.Requeue(t.Context(), storage.Ref{Queue: "a", ID: "t0000"}); err != nil {
				t.Error(err)
			}
		}}
		targets := Refs(storage.Ref{Queue: "a", ID: "t0000"}, storage.Ref{Queue: "a", ID: "t0001"}, storage.Ref{Queue: "a", ID: "t0002"})
		got, err := Run(t.Context(), storage.NewSession(meddles, 0), Request{Action: Action{Verb: Requeue}, Tasks: targets, Canary: true})
		if err != nil || brief(got) != [5]int64{3, 2, 1, 0, 0} || got.Canary.ID != "t0001" {
			t.Errorf("got %+v, %v, want t0001 first and t0000 left alone", got, err)
		}
	})
}

// TestOnlyARequeueHasACanary checks the other verbs.
func TestOnlyARequeueHasACanary(t *testing.T) {
	r := open(t)
	r.insert("a", 1, nil)
	var invalid *storage.InvalidError
	if _, err := Run(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:a"), Canary: true}); !errors.As(err, &invalid) {
		t.Errorf("got %v, want an *InvalidError", err)
	}
}
