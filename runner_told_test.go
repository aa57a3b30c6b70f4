package midge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// TestTheLogSaysOnceThatLeasesRanOut checks for one warning per outage in which jobs end because
// the storage is away for longer than their lease.
func TestTheLogSaysOnceThatLeasesRanOut(t *testing.T) {
	bubble(t, func(b *bench) {
		h := &blackhole{Storage: b.store}
		logger, lines := logged()
		b.runner = b.newRunner(h, midge.RunnerConfig{Logger: logger}, func(ctx context.Context, _ work) error {
			<-ctx.Done()
			return nil
		})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		for outage := range 2 {
			for _, name := range []string{"a", "b", "c"} {
				b.enqueue(name)
				b.after(5 * time.Second) // the leases end one after the other
			}
			h.open()
			b.after(2 * time.Minute)
			h.close()
			b.after(2 * time.Minute)
			got := lines("no call has extended the lease")
			if len(got) != outage+1 || !strings.Contains(got[outage], "running jobs") {
				t.Errorf("after %d outages: got %q, want a line for each", outage+1, got)
			}
		}
	})
}

// TestTheLogSaysThatAFollowUpWasLeftOut has a follow-up whose id belongs to a dead task.
func TestTheLogSaysThatAFollowUpWasLeftOut(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		b.run(midge.RunnerConfig{Logger: logger}, func(ctx context.Context, w work) error {
			switch w.Name {
			case "dies":
				return midge.Discard(errors.New("no use"))
			case "joined":
				if err := midge.FollowUp(ctx, work{"dies"}, midge.ID("dead")); err != nil {
					return err
				}
				return midge.CompleteWith(ctx, b.store)
			}
			return errors.Join(midge.FollowUp(ctx, work{"dies"}, midge.ID("dead")),
				midge.FollowUp(ctx, work{"dies"}, midge.ID("fresh")))
		})
		b.enqueue("dies", midge.ID("dead"))
		b.after(time.Second)
		for i, name := range []string{"first", "joined"} {
			b.enqueue(name)
			b.after(time.Second)
			got := lines("was left out")
			if len(got) != i+1 || !strings.Contains(got[i], "default/dead of") || !strings.Contains(got[i], "is dead") {
				t.Errorf("got %q, want %d lines of the follow-up whose id is taken", got, i+1)
			}
		}
	})
}

// TestSetQueuesWarnsOfWhatItDrops checks the warnings about jobs and schedules.
func TestSetQueuesWarnsOfWhatItDrops(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		b.runner = b.newRunner(b.store, midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { return nil })
		if err := b.runner.Periodic(midge.Every(time.Hour), work{"tick"}); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		const not = "which this runner does not serve"
		for i, c := range []struct {
			queues []string
			want   int
		}{{[]string{"default", "other"}, 0}, {[]string{"other"}, 2}, {[]string{"other", "third"}, 2}, {[]string{"default"}, 2}, {[]string{"other"}, 4}} {
			if err := b.runner.SetQueues(c.queues, nil); err != nil {
				t.Fatal(err)
			}
			if got := lines(not); len(got) != c.want {
				t.Errorf("after %d changes: got %q, want %d lines", i+1, got, c.want)
			}
		}
		kinds := func(about string) bool {
			return slices.ContainsFunc(lines(not), func(l string) bool { return strings.HasPrefix(l, about) })
		}
		if !kinds("jobs of kind work go to queue default") || !kinds("schedule ") {
			t.Errorf("got %q, want a line of the job and one of its schedule", lines(not))
		}
	})
}

// ailing is a storage that cannot carry out settles for a while.
type ailing struct {
	storage.Storage

	ill atomic.Bool
}

func (s *ailing) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if !s.ill.Load() || len(txs[0].Settles) == 0 {
		return s.Storage.Apply(ctx, call, txs...)
	}
	applied := make([]storage.Applied, len(txs))
	for i := range applied {
		applied[i].Err = errors.New("the queue is damaged")
	}
	return applied, nil
}

// TestASettleByItselfComesAgain settles a task whose transaction was not committed, while the
// storage refuses settles for a while, and while other tasks are settled.
func TestASettleByItselfComesAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &ailing{Storage: b.store}
		joined := &pretendTx{store: b.store} // never committed
		b.runner = b.newRunner(s, midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			s.ill.Store(true)
			return midge.CompleteWith(ctx, joined)
		})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		task := b.enqueue("a", midge.Retries(midge.None))
		b.after(2 * time.Second)
		s.ill.Store(false)
		b.after(5 * time.Second)
		if got := b.task(task.Ref); got.State != storage.Dead {
			t.Errorf("got %s, want the failure settled when the storage took it", got.State)
		}
	})
}
