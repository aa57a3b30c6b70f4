package midge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// crowd counts the running jobs of each queue.
type crowd struct {
	now, most, ran map[string]*atomic.Int64
}

func newCrowd(queues ...string) *crowd {
	c := &crowd{make(map[string]*atomic.Int64), make(map[string]*atomic.Int64), make(map[string]*atomic.Int64)}
	for _, q := range queues {
		c.now[q], c.most[q], c.ran[q] = new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)
	}
	return c
}

// job returns a job that takes a while of virtual time.
func (c *crowd) job(take time.Duration) func(context.Context, work) error {
	return func(ctx context.Context, _ work) error {
		info, _ := midge.Current(ctx)
		q := info.Ref.Queue
		n := c.now[q].Add(1)
		for most := c.most[q].Load(); n > most && !c.most[q].CompareAndSwap(most, n); most = c.most[q].Load() {
			continue
		}
		c.ran[q].Add(1)
		defer c.now[q].Add(-1)
		select {
		case <-time.After(take):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

func TestAQueueTakesOnlyItsSlots(t *testing.T) {
	for name, take := range map[string]time.Duration{"slow jobs": time.Minute, "short jobs": time.Millisecond} {
		for _, queues := range [][]string{{"slow", "other"}, {"other", "slow"}} {
			t.Run(name+" of "+queues[0]+" first", func(t *testing.T) {
				bubble(t, func(b *bench) {
					c := newCrowd(queues...)
					for i := range 100 {
						b.enqueue(fmt.Sprint(i), midge.To("slow"))
					}
					b.run(midge.RunnerConfig{
						Queues: queues, Concurrency: 4, QueueConcurrency: map[string]int{"slow": 3},
					}, c.job(take))
					b.after(time.Second)
					b.enqueue("urgent", midge.To("other"))
					b.after(time.Second)
					if c.ran["other"].Load() != 1 {
						t.Error("the job of the other queue did not start")
					}
					b.after(2 * time.Hour)
					if ran, most := c.ran["slow"].Load(), c.most["slow"].Load(); ran != 100 || most != 3 {
						t.Errorf("%d jobs ran, %d at once; want 100, 3 at once", ran, most)
					}
				})
			})
		}
	}
}

func TestQueueConcurrencyChangesWhileRunning(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCrowd("default")
		b.run(midge.RunnerConfig{Concurrency: 20}, c.job(time.Minute))
		set := func(n int) {
			b.Helper()
			if err := b.runner.SetQueueConcurrency("default", n); err != nil {
				t.Fatal(err)
			}
		}
		running := func(want int64) {
			b.Helper()
			b.after(time.Second / 10)
			if got := c.now["default"].Load(); got != want {
				t.Errorf("%d jobs run, want %d", got, want)
			}
		}
		for i := range 200 {
			b.enqueue(fmt.Sprint(i))
		}
		running(20)
		set(5) // running jobs go on
		running(20)
		b.after(time.Minute)
		running(5)
		set(12)
		running(12)
		set(midge.None)
		running(20)
	})
}

// claimsCounted counts the claims of a storage.
type claimsCounted struct {
	storage.Storage
	claims atomic.Int64
}

func (c *claimsCounted) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	c.claims.Add(1)
	return c.Storage.Claim(ctx, req)
}

// TestAFullQueueIsNotClaimed: 10,000 inserts a second into a queue whose slots are taken cause at most five
// claims a second.
func TestAFullQueueIsNotClaimed(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &claimsCounted{Storage: b.store}
		b.store = s
		c := newCrowd("default")
		b.run(midge.RunnerConfig{Concurrency: 4, QueueConcurrency: map[string]int{"default": 2}}, c.job(time.Hour))
		b.enqueue("a")
		b.enqueue("b")
		b.after(10 * time.Second)
		s.claims.Store(0)
		const seconds = 3
		for range seconds * 1000 {
			for range 10 {
				b.enqueue("")
			}
			b.after(time.Millisecond)
		}
		if n := s.claims.Load(); n > 5*seconds {
			t.Errorf("%d claims in %d seconds, want at most 5 a second", n, seconds)
		}
	})
}

// TestACancelInAFullQueueIsSeen: a job of a queue whose slots are taken learns within a second that it is to
// be cancelled.
func TestACancelInAFullQueueIsSeen(t *testing.T) {
	bubble(t, func(b *bench) {
		var cause error
		b.run(midge.RunnerConfig{Concurrency: 4, QueueConcurrency: map[string]int{"default": 1}},
			func(ctx context.Context, _ work) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return cause
			})
		task := b.enqueue("a")
		b.enqueue("b")
		b.after(5 * time.Second)
		if _, err := b.client.Cancel(b.Context(), task.Ref); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		if !errors.Is(cause, midge.ErrCancelled) {
			t.Errorf("got %v, want ErrCancelled", cause)
		}
	})
}

func TestAGateOpensAndClosesItsQueue(t *testing.T) {
	bubble(t, func(b *bench) {
		var open atomic.Bool
		c := newCrowd("default", "other")
		b.run(midge.RunnerConfig{
			Queues: []string{"default", "other"}, Concurrency: 4, Gates: map[string]func() bool{"default": open.Load},
		}, c.job(time.Millisecond))
		ran := func(want int64) {
			b.Helper()
			if got := c.ran["default"].Load(); got != want {
				t.Errorf("%d jobs ran, want %d", got, want)
			}
		}
		b.enqueue("a")
		b.enqueue("b", midge.To("other"))
		b.after(10 * time.Second)
		ran(0)
		if c.ran["other"].Load() != 1 {
			t.Error("the job of the other queue did not start")
		}
		open.Store(true)
		b.after(2 * time.Second)
		ran(1)
		open.Store(false)
		b.after(2 * time.Second)
		b.enqueue("c")
		b.after(10 * time.Second)
		ran(1)
	})
}

// TestNoJobBeginsAfterItsGateHasClosed has a gate close while a worker reads the history of a task for a hook,
// after a crash and before the job begins.
func TestNoJobBeginsAfterItsGateHasClosed(t *testing.T) {
	bubble(t, func(b *bench) {
		var open, ran atomic.Bool
		open.Store(true)
		task := b.enqueue("a")
		b.crash()
		b.recover()
		b.runner = b.newRunner(slowReads{b.store, 5 * time.Second}, midge.RunnerConfig{
			OnEnd: only(func(context.Context, midge.Ended) {}), Gates: map[string]func() bool{"default": open.Load},
		}, func(context.Context, work) error { ran.Store(true); return nil })
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		if got := b.task(task.Ref); got.State != storage.Pending {
			t.Fatalf("got %+v, want it claimed", got)
		}
		open.Store(false)
		b.after(5 * time.Second)
		if got := b.task(task.Ref); ran.Load() || got.State != storage.Waiting || got.Crashes != 1 || got.Retries != 0 {
			t.Errorf("the job ran: %t; got %+v, want it waiting without a run, with the one crash before", ran.Load(), got)
		}
		open.Store(true)
		b.after(10 * time.Second)
		if !ran.Load() {
			t.Error("the job does not run behind the gate that is open again")
		}
	})
}

// TestAGateThatFailsIsClosed: a gate that panics, ends its goroutine or does not return counts as closed, and
// the log has one warning of each kind.
func TestAGateThatFailsIsClosed(t *testing.T) {
	for name, fail := range map[string]func(){
		"panic":                     func() { panic("no device") },
		"runtime.Goexit was called": runtime.Goexit,
		"has not returned in time":  func() { <-time.After(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var fails atomic.Bool
				fails.Store(true)
				logger, lines := logged()
				c := newCrowd("default")
				b.run(midge.RunnerConfig{Logger: logger, Gates: map[string]func() bool{"default": func() bool {
					if fails.Load() {
						fail()
					}
					return true
				}}}, c.job(time.Millisecond))
				b.enqueue("a")
				b.after(30 * time.Second)
				if c.ran["default"].Load() != 0 {
					t.Error("the job has started")
				}
				if got := lines("gate of queue default"); len(got) != 1 || !strings.Contains(got[0], name) {
					t.Errorf("the log has %q, want one line with %q", got, name)
				}
				fails.Store(false)
				b.after(time.Minute)
				if c.ran["default"].Load() != 1 {
					t.Error("the job has not started")
				}
			})
		})
	}
}

func TestBoundsAreChecked(t *testing.T) {
	bubble(t, func(b *bench) {
		open := func() bool { return true }
		for want, cfg := range map[string]midge.RunnerConfig{
			`QueueConcurrency["mail"]`:              {QueueConcurrency: map[string]int{"mail": 0}},
			"1000000":                               {QueueConcurrency: map[string]int{"mail": 1_000_001}},
			"name in RunnerConfig.QueueConcurrency": {QueueConcurrency: map[string]int{"a{b": 1}},
			`Gates["mail"]`:                         {Gates: map[string]func() bool{"mail": nil}},
			"name in RunnerConfig.Gates":            {Gates: map[string]func() bool{"": open}},
		} {
			_, err := midge.NewRunner(b.store, cfg)
			var invalid *midge.InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an *InvalidError with %q", err, want)
			}
		}
		logger, lines := logged()
		b.run(midge.RunnerConfig{
			Logger: logger, Queues: []string{"default"}, QueueConcurrency: map[string]int{"mail": 1},
			Gates: map[string]func() bool{"video": open},
		}, func(context.Context, work) error { return nil })
		b.after(time.Second)
		if got := append(lines("QueueConcurrency bounds queue mail"), lines("Gates bounds queue video")...); len(got) != 2 {
			t.Errorf("the log has %q, want a line for each queue", got)
		}
		for _, n := range []int{0, -2, 1_000_001} {
			if err := b.runner.SetQueueConcurrency("mail", n); err == nil {
				t.Errorf("SetQueueConcurrency(%d) was accepted", n)
			}
		}
	})
}

// TestWhyNamesTheSlotsOfAQueue and the gate.
func TestWhyNamesTheSlotsOfAQueue(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCrowd("default")
		var closed atomic.Bool
		b.run(midge.RunnerConfig{
			Concurrency: 8, QueueConcurrency: map[string]int{"default": 2},
			Gates: map[string]func() bool{"default": func() bool { return !closed.Load() }},
		}, c.job(time.Hour))
		b.after(time.Second)
		var last midge.Task
		for range 5 {
			last = b.enqueue("")
		}
		why := func(cause storage.Cause, text string) {
			b.Helper()
			b.after(30 * time.Second) // with a heartbeat
			v, err := b.client.Why(b.Context(), last.Ref)
			if err != nil {
				t.Fatal(err)
			}
			if v.Cause != cause || !strings.Contains(v.String(), text) {
				t.Errorf("got %q, %s; want %q with %q", v.Cause, v, cause, text)
			}
		}
		why(storage.CauseBusy, "all 2 slots for queue default of the runners that can run it are busy")
		closed.Store(true)
		why(storage.CauseGated, "a gate keeps queue default closed")
	})
}
