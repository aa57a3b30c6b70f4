package storage

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestPatienceIsADeadline: a patient context ends as one with a deadline does, at its own end or at the
// caller's, whether Done or Err is asked first, and its cause shows which of the two ended it.
func TestPatienceIsADeadline(t *testing.T) {
	for name, c := range map[string]struct {
		caller   time.Duration // of the caller's context, 0 for none
		patience time.Duration
		ends     time.Duration
		cause    error
	}{
		"the patience ends first":    {caller: time.Minute, patience: time.Second, ends: time.Second, cause: errPatience},
		"the caller ends first":      {caller: time.Second, patience: time.Minute, ends: time.Second, cause: context.DeadlineExceeded},
		"a caller without a bound":   {patience: time.Second, ends: time.Second, cause: errPatience},
		"a patience without a bound": {caller: time.Second, patience: -1, ends: time.Second, cause: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller := t.Context()
				if c.caller > 0 {
					var cancel context.CancelFunc
					caller, cancel = context.WithTimeout(caller, c.caller)
					defer cancel()
				}
				endsAsADeadline(caller, t, c.patience, c.ends, c.cause)
			})
		})
	}
}

func endsAsADeadline(caller context.Context, t *testing.T, patience, ends time.Duration, cause error) {
	t.Helper()
	begun := time.Now()
	p, asked := new(sharedEnd).patient(caller, patience), new(sharedEnd).patient(caller, patience)
	defer p.stop()
	defer asked.stop()
	if until, ok := p.Deadline(); !ok || until.Sub(begun) != ends {
		t.Errorf("the deadline is after %v, %v; want %v", until.Sub(begun), ok, ends)
	}
	if p.Err() != nil || asked.Err() != nil {
		t.Errorf("over at once: %v, %v", p.Err(), asked.Err())
	}
	<-p.Done()
	if took := time.Since(begun); took != ends {
		t.Errorf("over after %v, want %v", took, ends)
	}
	for _, ctx := range []context.Context{p, asked} { // asked has had no timer so far
		why := context.Cause(ctx) //nolint:contextcheck // it is the caller's, with a bound
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(why, cause) {
			t.Errorf("ended by %v, because of %v; want a deadline, %v", ctx.Err(), why, cause)
		}
	}
}

// TestAPatientContextCostsNoGoroutine, neither for itself nor for a context derived from it.
func TestAPatientContextCostsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	p := new(sharedEnd).patient(t.Context(), time.Minute)
	defer p.stop()
	for range 100 {
		_, cancel := context.WithTimeout(p, time.Second)
		defer cancel()
	}
	if n := runtime.NumGoroutine() - before; n > 10 {
		t.Errorf("%d goroutines were started, want none", n)
	}
	var end sharedEnd
	if got := testing.AllocsPerRun(100, func() { end.patient(t.Context(), time.Minute).stop() }); got > 1 {
		t.Errorf("%v allocations, want one", got)
	}
}

// TestCallersWithoutAnEndShareATimer: if the caller's context never ends, calls of about the same time
// share one, at most a hundredth of the patience late, and each keeps the values of its caller.
func TestCallersWithoutAnEndShareATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var end sharedEnd
		type key struct{}
		const patience = 10 * time.Second
		begun := time.Now()
		var contexts []*patientContext
		timers := make(map[<-chan struct{}]bool)
		for i := range 1000 { // one each millisecond
			p := end.patient(context.WithValue(context.Background(), key{}, i), patience)
			timers[p.Done()] = true
			if got := p.Value(key{}); got != i {
				t.Fatalf("the value of call %d is %v", i, got)
			}
			contexts = append(contexts, p)
			p.stop() // as a call that has returned
			time.Sleep(time.Millisecond)
		}
		if len(timers) > 11 {
			t.Errorf("%d timers for a second, want one for each tenth", len(timers))
		}
		for i, p := range contexts {
			<-p.Done()
			late := time.Since(begun) - patience - time.Duration(i)*time.Millisecond
			if late < 0 || late > patience/shareOf {
				t.Fatalf("call %d ended %v late", i, late)
			}
			if !errors.Is(context.Cause(p), errPatience) || !errors.Is(p.Err(), context.DeadlineExceeded) {
				t.Fatalf("call %d ended by %v, because of %v", i, p.Err(), context.Cause(p))
			}
		}
	})
	var end sharedEnd
	calls := func() { <-closedWhen(end.patient(context.Background(), time.Minute)) }
	if got := testing.AllocsPerRun(100, calls); got > 1 {
		t.Errorf("%v allocations for a call that waits, want one", got)
	}
}

// closed is a channel that never blocks.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// closedWhen asks for the context's Done as a call does that waits.
func closedWhen(p *patientContext) <-chan struct{} {
	select {
	case <-p.Done():
	default:
	}
	p.stop()
	return closed
}
