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
		s.Ring(false, "mail")
		since := s.Since()
		done := waiting(t, &s, storage.WaitRequest{Queues: []string{"mail", "bulk"}, Since: since})
		s.Ring(true, "other")
		wantWaiting(t, "an event of another queue", done)
		s.Ring(false, "bulk")
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
		s.Ring(false, "mail")
		wantWaiting(t, "work", done)
		s.Ring(true, "mail")
		wantReturned(t, "an alert", done, nil)
		wantReturned(t, "an alert before the Wait", waiting(t, &s, req), nil)
		req.Since, req.CancelsOnly = s.Since()-2, false
		wantReturned(t, "work that was ignored", waiting(t, &s, req), nil)
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
		s.Ring(false, "mail")
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
		b.Ring(false, strconv.Itoa(q))
	}
	b.alerts[q].Add(1)
	b.Ring(true, strconv.Itoa(q))
}

// find looks and waits until it has found all events of a queue.
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

// TestNoWakeUpIsLost under random schedules: a caller that looks and then waits finds all events. A
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
				if len(q.waiters) > 0 {
					t.Errorf("queue %s has %d waiters, want none", name, len(q.waiters))
				}
			}
		})
	}
}
