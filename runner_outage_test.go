package midge_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// TestAnOutageChargesNoCrash has two runners that run jobs and have slots for the jobs of the other, and a
// storage that answers nobody for half a lease to three leases, and then all calls that wait, in an order of
// chance. Every second job goes on after its context has ended.
func TestAnOutageChargesNoCrash(t *testing.T) {
	bubble(t, func(b *bench) {
		const lease, jobs, outages = 2 * time.Second, 8, 26
		s := &blackhole{Storage: b.store}
		var all sync.WaitGroup
		for range 2 {
			r := b.newRunner(s, midge.RunnerConfig{Concurrency: jobs, Lease: lease}, func(ctx context.Context, w work) error {
				over := time.After(5 * time.Second) // virtual
				if w.Name == "goes on" {
					<-over
					return nil
				}
				select {
				case <-over:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			all.Go(func() { _ = r.Run(b.ctx) })
		}
		for i := range outages {
			for j := range jobs {
				b.enqueue([]string{"goes on", "ends"}[j%2], midge.ID(fmt.Sprint(i, "-", j)))
			}
			b.after(time.Second + time.Duration(i)*30*time.Millisecond)
			s.open()
			b.after(lease/2 + lease*5/2*time.Duration(i)/outages)
			s.close()
			b.after(30 * time.Second)
		}
		got := b.stats(midge.DefaultQueue).Totals
		if got.Crashed != 0 || got.Dead != 0 || got.Completed != jobs*outages {
			t.Errorf("%d crashes, %d dead and %d completed, want none, none and %d", got.Crashed, got.Dead, got.Completed,
				jobs*outages)
		}
		b.stop()
		all.Wait()
	})
}

// TestALoneRunnerRecoversSoon checks that a runner which starts alone, long after another runner died, runs the
// tasks of that runner within some seconds.
func TestALoneRunnerRecoversSoon(t *testing.T) {
	bubble(t, func(b *bench) {
		task := b.enqueue("left")
		session := storage.NewSession(b.store, 0)
		claimed, err := session.Claim(b.ctx, storage.ClaimRequest{
			Runner: "dead", Queues: []storage.ClaimQueue{{Name: midge.DefaultQueue}}, Start: 1, Lease: time.Second,
		})
		if err != nil || len(claimed.Tasks) != 1 {
			t.Fatalf("claimed %d tasks, error %v, want one", len(claimed.Tasks), err)
		}
		b.after(storage.JumpAfter - time.Minute)
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { return nil })
		b.after(5 * time.Second)
		b.gone(task.Ref)
	})
}

// unconfirmedError is of a storage that answered, and whose replicas did not.
type unconfirmedError struct{ error }

func (unconfirmedError) Answered() bool  { return true }
func (e unconfirmedError) Unwrap() error { return e.error }

// unconfirming carries calls of Apply out, and confirms none of them while lacks is true.
type unconfirming struct {
	storage.Storage
	lacks atomic.Bool
}

func (s *unconfirming) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	applied, err := s.Storage.Apply(ctx, call, txs...)
	if err == nil && s.lacks.Load() {
		return nil, fmt.Errorf("apply: %w", unconfirmedError{fmt.Errorf("%w: 0 of 1 replicas", storage.ErrUnknown)})
	}
	return applied, err
}

// TestCallsThatAreNotConfirmedAreNoOutage checks that a runner whose storage answers claims, and confirms no
// settlement, is ready, and logs that once until the storage confirms one.
func TestCallsThatAreNotConfirmedAreNoOutage(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		s := &unconfirming{Storage: b.store}
		runs := 0
		r := b.newRunner(s, midge.RunnerConfig{Concurrency: 1, Logger: logger}, func(context.Context, work) error {
			runs++
			return nil
		})
		var all sync.WaitGroup
		all.Go(func() { _ = r.Run(b.ctx) })
		b.after(time.Second)
		for range 2 {
			task := b.enqueue("a")
			s.lacks.Store(true)
			for range 8 {
				b.after(time.Second)
				if err := r.Ready(); err != nil {
					t.Errorf("while nothing is confirmed: %v", err)
				}
			}
			s.lacks.Store(false)
			b.after(10 * time.Second)
			b.gone(task.Ref)
		}
		if got := lines("cannot confirm a call"); len(got) != 2 || runs != 2 {
			t.Errorf("the log has %q after %d runs, want one line for each of two", got, runs)
		}
		if got := append(lines("does not answer"), lines("answers again")...); len(got) > 0 {
			t.Errorf("the log has %q, want no outage", got)
		}
		b.stop()
		all.Wait()
	})
}
