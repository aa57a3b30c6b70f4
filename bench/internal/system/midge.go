package system

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// midgeSystem returns midge with its defaults, with leases, heartbeats and fences, and with
// work claimed ahead of free slots.
func midgeSystem() System {
	return System{
		Name: "midge", Storages: []string{Redis, Memory, Postgres, SQLite}, Bulk: true, Own: true, Open: openMidge,
	}
}

// bench is the job. The name of its kind is as long as in the other systems.
type bench struct{ Payload []byte }

// other is a job of the second kind.
type other struct{ Payload []byte }

// onMidge is an opened midge.
type onMidge struct {
	store  storage.Storage
	client *midge.Client
	other  bool // its jobs are of the second kind
	runner func(*midge.RunnerConfig)
}

// Other returns the instance of the second kind.
func (m *onMidge) Other() Instance {
	second := *m
	second.other = true
	return otherMidge{&second}
}

// otherMidge is an instance whose Close leaves the storage open for the instance that
// opened it.
type otherMidge struct{ *onMidge }

// Close does nothing.
func (otherMidge) Close() error { return nil }

// job makes a job of the instance's kind.
func (m *onMidge) job(payload []byte) any {
	if m.other {
		return other{payload}
	}
	return bench{payload}
}

func openMidge(ctx context.Context, at Place) (Instance, error) {
	return openWatched(ctx, at, func(storage.Storage) (watching, error) {
		return watching{client: func(*midge.ClientConfig) {}, runner: func(*midge.RunnerConfig) {}}, nil
	})
}

// openWatched opens midge with something that watches it.
func openWatched(
	ctx context.Context, at Place, watch func(storage.Storage) (watching, error),
) (Instance, error) {
	store, err := openStorage(ctx, at)
	if err != nil {
		return nil, err
	}
	by, err := watch(store)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	var cfg midge.ClientConfig
	by.client(&cfg)
	client, err := midge.NewClient(store, cfg)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &onMidge{store: store, client: client, runner: by.runner}, nil
}

func openStorage(ctx context.Context, at Place) (storage.Storage, error) {
	limits := storage.Limits{DeadMax: at.DeadMax}
	switch at.Storage {
	case Memory:
		return memory.Open(memory.Config{Limits: limits})
	case Redis:
		return redis.Open(ctx, redis.Config{URL: "redis://" + at.Addr, Limits: limits})
	case Postgres:
		cfg := postgres.Config{URL: at.Addr, Limits: limits}
		if err := postgres.Migrate(ctx, cfg); err != nil {
			return nil, err
		}
		return postgres.Open(ctx, cfg)
	case SQLite:
		return sqlite.Open(ctx, sqlite.Config{Path: at.Addr, Driver: modernc.Driver, Limits: limits})
	}
	return nil, fmt.Errorf("midge: no storage is named %q", at.Storage)
}

// Enqueue waits for its answer, however long that takes, as asynq's Enqueue does.
func (m *onMidge) Enqueue(ctx context.Context, queue string, payload []byte, due time.Time) error {
	ctx = context.WithoutCancel(ctx)
	_, err := m.client.Enqueue(ctx, m.job(payload), midgeOptions(queue, due)...)
	return err
}

func (m *onMidge) EnqueueMany(ctx context.Context, queue string, payloads [][]byte, due time.Time) error {
	items := make([]midge.Item, len(payloads))
	for i, p := range payloads {
		items[i] = midge.New(m.job(p), midgeOptions(queue, due)...)
	}
	_, err := m.client.EnqueueMany(ctx, items)
	return err
}

func midgeOptions(queue string, due time.Time) []midge.Option {
	var opts []midge.Option
	if queue != midge.DefaultQueue {
		opts = append(opts, midge.To(queue))
	}
	if !due.IsZero() {
		opts = append(opts, midge.At(due))
	}
	return opts
}

func (m *onMidge) Work(ctx context.Context, w Worker) error {
	cfg := midge.RunnerConfig{Concurrency: w.Concurrency, Queues: w.Queues}
	if len(w.Queues) > 1 {
		cfg.Weights = equally(w.Queues)
	}
	m.runner(&cfg)
	store := m.store
	if w.Counted != nil {
		store = counting{store, w.Counted}
	}
	runner, err := midge.NewRunner(store, cfg)
	if err != nil {
		return err
	}
	run := func(payload []byte) error {
		err := w.Run(payload)
		if errors.Is(err, ErrDiscard) {
			return midge.Discard(err)
		}
		return err
	}
	if m.other {
		err = midge.Handle(runner, func(_ context.Context, job other) error { return run(job.Payload) })
	} else {
		err = midge.Handle(runner, func(_ context.Context, job bench) error { return run(job.Payload) })
	}
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

// counting is a storage that reports when it has counted each start. No work is claimed ahead from it,
// because the queues have limits.
type counting struct {
	storage.Storage

	counted func(at time.Time)
}

// Claim implements storage.Storage.
func (s counting) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	c, err := s.Storage.Claim(ctx, req)
	for range c.Tasks {
		s.counted(c.Now)
	}
	return c, err
}

// equally returns the same weight for each queue.
func equally(queues []string) map[string]int {
	weights := make(map[string]int, len(queues))
	for _, q := range queues {
		weights[q] = 1
	}
	return weights
}

func (m *onMidge) Totals(ctx context.Context, queues ...string) (Totals, error) {
	all, err := m.store.Stats(ctx, queues...)
	if err != nil {
		return Totals{}, err
	}
	var sum Totals
	for _, s := range all {
		var declined int64
		for _, k := range s.Declined {
			declined += k.Tasks
		}
		sum = sum.Plus(Totals{
			Waiting: s.Waiting - declined, Declined: declined, Pending: s.Pending,
			Later: s.Scheduled + s.Retry, Dead: s.Dead, Completed: s.Totals.Completed, Failed: s.Totals.Failed,
		})
	}
	return sum, nil
}

func (m *onMidge) Close() error { return m.store.Close() }

// Alive implements Fleet.
func (m *onMidge) Alive(ctx context.Context) (int, error) {
	runners, err := m.client.Runners(ctx)
	return len(runners), err
}
