package system

import (
	"context"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// Litterer is an instance that can add to a queue the tasks that a typical queue in
// production holds.
type Litterer interface {
	// Litter adds scheduled, retried, dead and suspect tasks, and returns by how much the
	// totals of the queue grow. The suspects are waiting jobs, which a worker runs.
	Litter(ctx context.Context, queue string) (Totals, error)
}

// The numbers of tasks that Litter adds.
const (
	litterLater    = 5000 // scheduled, and as many retried
	litterDead     = 1000
	litterSuspects = 5
)

// Litter implements Litterer.
func (m *onMidge) Litter(ctx context.Context, queue string) (Totals, error) {
	gains := Totals{
		Waiting: litterSuspects, Later: 2 * litterLater, Dead: litterDead, Failed: litterLater,
	}
	s := storage.NewSession(m.store, 0)
	later := storage.Settle{Outcome: storage.Fail, Delay: time.Hour, Error: "an error of this attempt"}
	dead := storage.Settle{Outcome: storage.Bury, Reason: "discarded", Error: "an error that does not go away"}
	for _, step := range []func() error{
		func() error { return fill(ctx, m, queue, litterLater, time.Now().Add(time.Hour)) },
		func() error { return m.settled(ctx, s, queue, litterLater, later) },
		func() error { return m.settled(ctx, s, queue, litterDead, dead) },
		func() error { return m.suspects(ctx, s, queue) },
	} {
		if err := step(); err != nil {
			return Totals{}, err
		}
	}
	return gains, nil
}

// Decline adds declined tasks of the second kind.
func (m *onMidge) Decline(ctx context.Context, queue string, n int) (Totals, error) {
	second := &onMidge{store: m.store, client: m.client, other: true}
	s, declined := storage.NewSession(m.store, 0), storage.Settle{Outcome: storage.Decline}
	return Totals{Declined: int64(n)}, second.settled(ctx, s, queue, n, declined)
}

// settled enqueues n tasks, claims them and settles them.
func (m *onMidge) settled(
	ctx context.Context, s *storage.Session, queue string, n int, se storage.Settle,
) error {
	for ; n > 0; n -= storage.MaxTxOps {
		some := min(n, storage.MaxTxOps)
		if err := fill(ctx, m, queue, some, time.Time{}); err != nil {
			return err
		}
		fences, err := m.claimed(ctx, s, queue, some, time.Minute)
		if err != nil {
			return err
		}
		var tx storage.Tx
		for _, f := range fences {
			se.Fence = f
			tx.Settles = append(tx.Settles, se)
		}
		if _, err := s.ApplyOne(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// fill enqueues n jobs in calls of storage.MaxTxOps.
func fill(ctx context.Context, m *onMidge, queue string, n int, due time.Time) error {
	for ; n > 0; n -= storage.MaxTxOps {
		if err := m.EnqueueMany(ctx, queue, make([][]byte, min(n, storage.MaxTxOps)), due); err != nil {
			return err
		}
	}
	return nil
}

// claimed claims exactly n tasks, none of them declined.
func (m *onMidge) claimed(
	ctx context.Context, s *storage.Session, queue string, n int, lease time.Duration,
) ([]storage.Fence, error) {
	c, err := s.Claim(ctx, storage.ClaimRequest{
		Runner: "litter", Queues: []storage.ClaimQueue{{Name: queue}}, Kinds: []string{"none"},
		Start: n, Lease: lease,
	})
	if err == nil && len(c.Fences) != n {
		err = fmt.Errorf("a claim gave %d tasks, want %d", len(c.Fences), n)
	}
	return c.Fences, err
}

// suspects adds tasks that are one crash short of their limit.
func (m *onMidge) suspects(ctx context.Context, s *storage.Session, queue string) error {
	sample, err := m.client.Enqueue(ctx, bench{}, midgeOptions(queue, time.Time{})...)
	if err != nil {
		return err
	}
	first, err := m.store.Task(ctx, storage.Ref{Queue: queue, ID: sample.ID})
	if err != nil {
		return err
	}
	tx := storage.Tx{Deletes: []storage.Delete{{Ref: first.Ref, Version: first.Version}}}
	for range litterSuspects {
		tx.Inserts = append(tx.Inserts, storage.Insert{
			Ref: storage.Ref{Queue: queue, ID: storage.NewID()}, Kind: first.Kind, Encoding: first.Encoding,
			Payload: first.Payload, CrashLimit: 2,
		})
	}
	if _, err := s.ApplyOne(ctx, tx); err != nil {
		return err
	}
	if _, err := m.claimed(ctx, s, queue, litterSuspects, storage.MinLease); err != nil {
		return err
	}
	for ctx.Err() == nil {
		_, err := s.Claim(ctx, storage.ClaimRequest{Runner: "litter", Queues: []storage.ClaimQueue{{Name: queue}}})
		if err != nil {
			return err
		}
		all, err := m.store.Stats(ctx, queue)
		if err != nil {
			return err
		}
		if all[0].Pending == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ctx.Err()
}
