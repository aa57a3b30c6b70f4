package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// story holds what the chapters of this example need.
type story struct {
	client *midge.Client
	say    *zap.SugaredLogger
	mended *atomic.Bool
}

// tell runs one chapter after the other, and stops at the first that fails.
func (s *story) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		s.moments, s.unique, s.result, s.failure, s.death, s.summary,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// moments enqueues the same job at once, after a delay and at a moment.
func (s *story) moments(ctx context.Context) error {
	noon := time.Now().Add(3 * time.Second)
	s.say.Infof("» welcome: ann now, bob in 1.5s, eve at %s", noon.Format("15:04:05.000"))
	if _, err := s.client.Enqueue(ctx, SendWelcome{User: "ann"}); err != nil {
		return err
	}
	if _, err := s.client.EnqueueIn(ctx, 1500*time.Millisecond, SendWelcome{User: "bob"}); err != nil {
		return err
	}
	_, err := s.client.EnqueueAt(ctx, noon, SendWelcome{User: "eve"})
	return err
}

// unique enqueues a job twice and gets one task.
func (s *story) unique(ctx context.Context) error {
	first, err := s.client.EnqueueIn(ctx, 2*time.Second, SendWelcome{User: "zoe"}, midge.Unique{})
	if err != nil {
		return err
	}
	again, err := s.client.EnqueueIn(ctx, 2*time.Second, SendWelcome{User: "zoe"}, midge.Unique{})
	if err != nil {
		return err
	}
	s.say.Infof("» welcome zoe in 2s, unique: %s; enqueued again: %s, was there already: %t",
		first.Ref, again.Ref, again.Existing)
	return nil
}

// result waits for the result of a job.
func (s *story) result(ctx context.Context) error {
	task, err := s.client.Enqueue(ctx, AddUp{Numbers: []int{1, 2, 3, 4}})
	if err != nil {
		return err
	}
	var sum int
	if err := s.client.Await(ctx, task.Ref, &sum); err != nil {
		return err
	}
	s.say.Infof("» 1+2+3+4 = %d, says %s", sum, task.Ref)
	return nil
}

// failure waits for a job that succeeds in the end.
func (s *story) failure(ctx context.Context) error {
	task, err := s.client.Enqueue(ctx, ChargeCard{Cents: 990})
	if err != nil {
		return err
	}
	s.say.Infof("» charge a card: %s, whose bank does not answer twice", task.Ref)
	if err := s.client.Await(ctx, task.Ref, nil); err != nil {
		return err
	}
	s.say.Info("» the card is charged")
	return nil
}

// death lets a task die, mends the cause and requeues the task.
func (s *story) death(ctx context.Context) error {
	task, err := s.client.Enqueue(ctx, ImportFile{Path: "prices.csv"}, midge.KeepFor(time.Minute))
	if err != nil {
		return err
	}
	s.say.Infof("» import a damaged file: %s, with one retry", task.Ref)
	var dead *midge.DeadError
	if err := s.client.Await(ctx, task.Ref, nil); !errors.As(err, &dead) {
		return err
	}
	for t, err := range s.client.Queue(queue).Tasks(ctx, storage.Dead) {
		if err != nil {
			return err
		}
		s.say.Infof("» dead: %s %s, %s; its last error: %s", t.Kind, t.Ref, t.Reason, dead.Last)
	}
	s.mended.Store(true)
	s.say.Info("» the file is mended, the task is requeued") // printed first, because the task runs at once
	if err := s.client.Requeue(ctx, task.Ref); err != nil {
		return err
	}
	return s.client.Await(ctx, task.Ref, nil)
}

// summary waits until no task is live and prints the counts.
func (s *story) summary(ctx context.Context) error {
	for {
		stats, err := s.client.Queue(queue).Stats(ctx)
		if err != nil {
			return err
		}
		if stats.Live() == 0 && stats.Totals.Completed >= 10 {
			s.print(stats)
			return nil
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *story) print(stats storage.Stats) {
	t := stats.Totals
	s.say.Infof("» queue %s now: %d waiting, %d pending, %d scheduled, %d retry, %d dead, "+
		"%d completed and kept, %d schedule", stats.Queue, stats.Waiting, stats.Pending, stats.Scheduled,
		stats.Retry, stats.Dead, stats.Completed, stats.Cursors)
	s.say.Infof("» in its life: %d tasks enqueued, %d completed, %d attempts failed, %d died, %d requeued",
		t.Enqueued, t.Completed, t.Failed, t.Dead, t.Requeued)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
