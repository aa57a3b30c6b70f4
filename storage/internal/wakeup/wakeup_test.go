package wakeup

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// waiting begins a Wait. The channel receives its error.
func waiting(t *testing.T, s *Stream, req storage.WaitRequest) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Wait(t.Context(), req) }()
	synctest.Wait()
	return done
}

func wantReturned(t *testing.T, what string, done <-chan error, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		if !errors.Is(err, want) {
			t.Errorf("%s: Wait returned %v, want %v", what, err, want)
		}
	default:
		t.Errorf("%s: Wait did not return", what)
	}
}

func wantWaiting(t *testing.T, what string, done <-chan error) {
	t.Helper()
	synctest.Wait()
	if len(done) > 0 {
		t.Errorf("%s: Wait returned", what)
	}
}

// TestWaitFindsWhatCameSinceTheClaim: Wait finds the events of its queues since the claim, and no others.
func TestWaitFindsWhatCameSinceTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		s.Ring(News, "mail")
		since := s.Since()
		done := waiting(t, &s, storage.WaitRequest{Queues: []string{"mail", "bulk"}, Since: since})
		s.Ring(Alert, "other")
		wantWaiting(t, "an event of another queue", done)
		s.Ring(News, "bulk")
		wantReturned(t, "an event", done, nil)
		for range 2 {
			done = waiting(t, &s, storage.WaitRequest{Queues: []string{"bulk"}, Since: since})
			wantReturned(t, "an event before the Wait", done, nil)
		}
		done = waiting(t, &s, storage.WaitRequest{Queues: []string{"mail"}, Since: since})
		wantWaiting(t, "an event before the Claim", done)
		s.Close()
		wantReturned(t, "Close", done, storage.ErrClosed)
		wantReturned(t, "a closed stream", waiting(t, &s, storage.WaitRequest{}), storage.ErrClosed)
	})
}

// TestAlerts reach a Wait that ignores work, and work counts as new for a later Wait.
func TestAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		req := storage.WaitRequest{Queues: []string{"mail"}, CancelsOnly: true}
		done := waiting(t, &s, req)
		s.Ring(Work, "mail")
		wantWaiting(t, "work", done)
		s.Ring(Alert, "mail")
		wantReturned(t, "an alert", done, nil)
		wantReturned(t, "an alert before the Wait", waiting(t, &s, req), nil)
		req.Since, req.CancelsOnly = s.Since()-2, false
		wantReturned(t, "work that was ignored", waiting(t, &s, req), nil)
	})
}

// claim returns a claim from the queue mail.
func claim() *storage.ClaimRequest {
	return &storage.ClaimRequest{Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1}
}

// TestWorkWakesOne at a time, the caller that has waited longest, and the next callers once a Claim has left
// work.
func TestWorkWakesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		req := storage.WaitRequest{Queues: []string{"other", "mail"}}
		var waits []<-chan error
		for range 6 {
			waits = append(waits, waiting(t, &s, req))
		}
		s.Ring(Work, "mail")
		wantReturned(t, "work, first of all", waits[0], nil)
		s.Ring(Work, "mail")
		wantWaiting(t, "more work before a Claim", waits[1])
		s.Looking(claim())
		s.Ring(Work, "mail")
		wantReturned(t, "work after a Claim", waits[1], nil)
		s.Looking(claim())
		wantWaiting(t, "a Claim", waits[2])
		both := claim()
		both.Queues = append(both.Queues, storage.ClaimQueue{Name: "other"})
		s.Left(both)
		wantReturned(t, "work that was left", waits[2], nil)
		wantReturned(t, "work that was left, second of all", waits[3], nil)
		wantWaiting(t, "work that was left in two queues", waits[4])
		s.Looking(both)
		time.Sleep(time.Second)
		wantWaiting(t, "a second", waits[4])
		s.Ring(News, "mail")
		for _, done := range waits[4:] {
			wantReturned(t, "news", done, nil)
		}
	})
}

// TestAWakeUpIsPassedOn if the woken caller makes no Claim, or a Claim that takes nothing.
func TestAWakeUpIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		req := storage.WaitRequest{Queues: []string{"mail"}}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- s.Wait(ctx, req) }()
		synctest.Wait()
		second, third := waiting(t, &s, req), waiting(t, &s, req)
		leave()
		s.Ring(Work, "mail")
		wantWaiting(t, "work for who leaves, or for the next", third)
		maintaining, keeping := claim(), claim()
		maintaining.Start, keeping.Queues[0].Max = 0, -1
		s.Looking(maintaining)
		s.Looking(keeping)
		time.Sleep(2 * passAfter)
		wantReturned(t, "work that no Claim followed", second, nil)
		time.Sleep(passAfter)
		wantReturned(t, "work that no Claim followed for long", third, nil)
	})
}

// TestWorkIsLookedForOnce by the callers whose Claims were under way when it came.
func TestWorkIsLookedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		req := storage.WaitRequest{Queues: []string{"mail"}, Since: s.Since()}
		s.Ring(Work, "mail")
		wantReturned(t, "the first Wait from before", waiting(t, &s, req), nil)
		second, third := waiting(t, &s, req), waiting(t, &s, req)
		wantWaiting(t, "the second Wait from before", second)
		time.Sleep(passAfter * 3 / 2)
		wantReturned(t, "the second, where the first does not look", second, nil)
		s.Looking(claim())
		time.Sleep(time.Second)
		wantWaiting(t, "the third, although the second has looked", third)
		s.Left(claim())
		wantReturned(t, "work that was left", third, nil)
		wantReturned(t, "a Wait from before work was left", waiting(t, &s, req), nil)
		s.Close()
	})
}

// TestWorkIsFoundACallerElsewhere if the callers that waited here have left, or do not claim.
func TestWorkIsFoundACallerElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var found atomic.Int64
		s := Stream{Elsewhere: func(string) { found.Add(1) }}
		want := func(what string, n int64) {
			t.Helper()
			if synctest.Wait(); found.Load() != n {
				t.Errorf("%s: a caller elsewhere was found %d times, want %d", what, found.Load(), n)
			}
		}
		s.Ring(Work, "mail")
		want("nobody has ever waited", 0)
		full := waiting(t, &s, storage.WaitRequest{Queues: []string{"mail"}, Since: s.Since(), CancelsOnly: true})
		s.Ring(Shared, "mail")
		want("work of which others hear", 0)
		s.Ring(Work, "mail")
		want("nobody here has room", 1)
		done := waiting(t, &s, storage.WaitRequest{Queues: []string{"mail"}, Since: s.Since()})
		s.Ring(Work, "mail")
		wantReturned(t, "work", done, nil)
		want("who was woken has not looked yet", 1)
		time.Sleep(2 * passAfter)
		want("who was woken does not look", 2)
		done = waiting(t, &s, storage.WaitRequest{Queues: []string{"mail"}, Since: s.Since()})
		s.Ring(Work, "mail")
		wantReturned(t, "work", done, nil)
		s.Looking(claim())
		time.Sleep(2 * passAfter)
		want("who was woken has looked", 2)
		s.Ring(Shared, "mail")
		s.Alone("mail")
		want("work of which nobody else hears", 2)
		time.Sleep(2 * passAfter)
		want("nobody here looks for it", 3)
		s.Looking(claim())
		s.Alone("mail") // the note of it comes before the work
		s.Ring(Shared, "mail")
		time.Sleep(2 * passAfter)
		want("nobody here looks for the next", 4)
		s.Ring(Shared, "mail")
		s.Looking(claim())
		s.Alone("mail")
		time.Sleep(2 * passAfter)
		want("somebody here has looked", 4)
		s.Close()
		wantReturned(t, "Close", full, storage.ErrClosed)
		s.Ring(Work, "mail")
		want("a closed stream", 4)
	})
}

// TestMaintenance: a caller that only maintains a queue learns of its news and alerts.
func TestMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		req := storage.WaitRequest{Queues: []string{"bulk"}, Maintained: []string{"mail"}}
		done := waiting(t, &s, req)
		s.Ring(Work, "mail")
		wantWaiting(t, "work", done)
		s.Ring(News, "mail")
		wantReturned(t, "news", done, nil)
		wantReturned(t, "news before the Wait", waiting(t, &s, req), nil)
		req.CancelsOnly = true
		done = waiting(t, &s, req)
		s.Ring(News, "bulk")
		s.Ring(News, "mail")
		wantWaiting(t, "news for who waits for cancels", done)
		s.Ring(Alert, "mail")
		wantReturned(t, "an alert", done, nil)
	})
}

// TestAChannelThatIsHeardAgainIsAnEvent, for every queue.
func TestAChannelThatIsHeardAgainIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		req := storage.WaitRequest{Queues: []string{"mail"}, Since: s.Since()}
		done := waiting(t, &s, req)
		begun, why := time.Now(), errors.New("the line is cut")
		s.Silent(nil)
		time.Sleep(time.Second)
		s.Silent(why)
		if since, got := s.Silence(); !since.Equal(begun) || !errors.Is(got, why) {
			t.Errorf("silent since %v, %v, want %v, %v", since, got, begun, why)
		}
		wantWaiting(t, "silence", done)
		s.Heard()
		wantReturned(t, "a channel that is heard", done, nil)
		wantReturned(t, "a channel that was heard since", waiting(t, &s, req), nil)
		if since, why := s.Silence(); !since.IsZero() || why != nil {
			t.Errorf("silent since %v, %v, want no silence", since, why)
		}
	})
}

// TestWhoLeavesLeavesNothingBehind: a Wait that ends leaves no memory of queues without events.
func TestWhoLeavesLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		s.Ring(Work, "mail")
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		err := s.Wait(ctx, storage.WaitRequest{Queues: []string{"mail", "bulk"}, Since: s.Since()})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the error of the context", err)
		}
		s.Forget("mail")
		if len(s.queues) > 0 {
			t.Errorf("%d queues are left", len(s.queues))
		}
	})
}

// board counts the events of each queue before they ring.
type board struct {
	Stream

	work, alerts [queues]atomic.Int64
}

const queues, events = 4, 50

// put counts and rings the events of a queue. The last of them is an alert.
func (b *board) put(q int) {
	for range events {
		pause()
		b.work[q].Add(1)
		b.Ring(News, strconv.Itoa(q))
	}
	b.alerts[q].Add(1)
	b.Ring(Alert, strconv.Itoa(q))
}

// find reads and waits until it has found all events of a queue.
func (b *board) find(t *testing.T, q int) {
	t.Helper()
	impatient := rand.N(2) == 0
	for {
		since := b.Since()
		if pause(); b.work[q].Load() == events && b.alerts[q].Load() == 1 {
			return
		}
		ctx, leave := context.WithCancel(t.Context())
		if impatient {
			time.AfterFunc(rand.N(time.Millisecond), leave)
		}
		_ = b.Wait(ctx, storage.WaitRequest{
			Queues: []string{strconv.Itoa(q), strconv.Itoa(rand.N(queues))}, Since: since, CancelsOnly: rand.N(3) == 0,
		})
		leave()
	}
}

func pause() { time.Sleep(rand.N(3 * time.Millisecond)) }

// TestNoWakeUpIsLost under random schedules: a caller that reads and then waits finds all events. A
// lost wake-up would deadlock the bubble.
func TestNoWakeUpIsLost(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var b board
			var all sync.WaitGroup
			for q := range queues {
				all.Go(func() { b.put(q) })
				for range 3 {
					all.Go(func() { b.find(t, q) })
				}
			}
			all.Wait()
			for name, q := range b.queues {
				if n := len(q.takers) + len(q.others); n > 0 {
					t.Errorf("queue %s has %d waiters, want none", name, n)
				}
			}
		})
	}
}

// pool holds the work of a queue. Its users take work as a Claim does, and then wait.
type pool struct {
	Stream

	tasks atomic.Int64
}

// take takes up to most tasks, and reports whether there was one.
func (p *pool) take(most int64) (since storage.Since, some bool) {
	req := claim()
	since = p.Looking(req)
	pause()
	for {
		n := p.tasks.Load()
		left := max(n-most, 0)
		if !p.tasks.CompareAndSwap(n, left) {
			continue
		}
		if left > 0 {
			p.Left(req)
		}
		return since, n > 0
	}
}

// work takes and waits until ctx ends. Sometimes it ends a Wait by itself, and then it does not claim before
// its next wake-up but waits anew, as a caller that has found no room; sometimes it leaves.
func (p *pool) work(ctx context.Context, loyal bool) {
	for ctx.Err() == nil {
		since, some := p.take(1 + rand.Int64N(3))
		if some {
			pause() // the jobs
			continue
		}
		waits, leave := context.WithCancel(ctx)
		if !loyal {
			time.AfterFunc(rand.N(20*time.Millisecond), leave)
		}
		_ = p.Wait(waits, storage.WaitRequest{Queues: []string{"mail"}, Since: since})
		leave()
		if !loyal && rand.N(4) == 0 {
			return
		}
	}
}

// TestNoWorkIsLost under random schedules, however many of the waiting callers leave, as long as one stays:
// no task waits for longer than it takes to pass a wake-up on to each of them.
func TestNoWorkIsLost(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var p pool
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			const some = 5
			for i := range some {
				all.Go(func() { p.work(ctx, i == 0) })
			}
			for range 20 {
				all.Go(func() { pause(); p.work(ctx, false) })
				p.tasks.Add(1 + rand.Int64N(4))
				p.Ring(Work, "mail")
				pause()
			}
			time.Sleep(time.Second)
			if n := p.tasks.Load(); n > 0 {
				t.Errorf("%d tasks wait although somebody waits for them", n)
			}
			stop()
			all.Wait()
		})
	}
}
