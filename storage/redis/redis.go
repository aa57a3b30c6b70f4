package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
	"github.com/midgehq/midge/storage/internal/room"
)

// Storage keeps tasks in Redis. It is safe for concurrent use.
type Storage struct {
	link

	cluster bool
	keys    *keys
	limits  storage.Limits
	scripts *scripts
	health  health
	room    room.Room
	unsound unsound
	names   names
	wake    *wake
	brought brought
	looked  looked
	upkeep  upkeep

	combiner   *combine.Combiner[*slotCall]
	background context.Context         //nolint:containedctx // of what no caller's context ends
	stop       context.CancelCauseFunc // ends background
	jobs       sync.WaitGroup          // the goroutines that run until background ends

	replicas int           // Config.WaitReplicas
	waits    chan struct{} // holds a value for each pipeline that waits for replicas

	closed atomic.Bool
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Located = (*Storage)(nil)
	_ storage.Spanner = (*Storage)(nil)
)

// Open connects to Redis and checks that the server is fit: a master of version 6.2 or later that
// does not evict keys. Its errors are *storage.InvalidError for a bad Config, *LayoutError for
// data that this version cannot read, storage.ErrRefused for a server that is unfit or that
// rejects a setting of the Config, such as the password or the database,
// storage.ErrUnavailable for a server that cannot be reached, and storage.ErrUnknown for a server
// that does not answer. ctx bounds only the opening.
func Open(ctx context.Context, cfg Config) (*Storage, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("redis: open: %w", err)
	}
	l, err := cfg.connect()
	if err != nil {
		return nil, fmt.Errorf("redis: open: %w", err)
	}
	s, err := newStorage(ctx, cfg, l)
	if err == nil {
		err = s.begin(ctx)
	}
	if err != nil {
		if l.own {
			_ = l.client.Close()
		}
		return nil, fmt.Errorf("redis: open %w", cfg.explain(l.client, err))
	}
	return s, nil
}

func newStorage(ctx context.Context, cfg Config, l link) (*Storage, error) {
	_, cluster := l.client.(*goredis.ClusterClient)
	limits := cfg.Limits.WithDefaults()
	by := cfg.ways
	by.cluster, by.general = cluster, by.general || !shortWays
	all, err := loadScripts(l.interrupts, limits, by)
	if err != nil {
		return nil, err
	}
	background, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &Storage{
		link: l, cluster: cluster, scripts: all,
		keys:       &keys{prefix: cfg.Prefix, shared: !cluster},
		limits:     limits,
		replicas:   cfg.WaitReplicas,
		waits:      make(chan struct{}, max(poolOf(l.client)/2, 1)),
		background: background, stop: stop,
	}
	s.health.allowEviction = cfg.AllowEviction
	s.room.Of, s.room.Remedy = "Redis", "raise maxmemory, or delete tasks"
	s.combiner = s.newCombiner()
	s.wake = newWake(background, l.client, s.keys, s.passOn)
	return s, nil
}

// begin checks the server and starts the goroutines that run until Close.
func (s *Storage) begin(ctx context.Context) error {
	err := s.examine(ctx)
	if err == nil {
		err = patiently(func() error { return s.checkLayout(ctx) })
	}
	if err != nil {
		s.stop(storage.ErrClosed)
		return err
	}
	s.jobs.Go(func() { s.watch(s.background) })
	return nil
}

// enter returns storage.ErrClosed if the storage was closed.
func (s *Storage) enter() error {
	if s.closed.Load() {
		return storage.ErrClosed
	}
	return nil
}

// Close ends every Wait and the storage's goroutines, and closes the client unless it belongs
// to the application. Calls under way may fail with an ErrUnknown.
func (s *Storage) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop(storage.ErrClosed)
	var err error
	if s.own { // first, so that calls under way do not wait for a server that hangs
		err = s.client.Close()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.combiner.Close()
		s.wake.close()
		s.jobs.Wait()
		s.scripts.calls.close()
	}()
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	}
	if err != nil {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}

// closeTime bounds how long Close waits for calls under way. Only a server that hangs delays
// Close that long, on a connection that is being made or that belongs to the application;
// go-redis ends such a call by its timeouts.
const closeTime = time.Second / 2

// Spans reports whether all these queues are in one slot of a Cluster. On one Redis
// any queues can share a Tx.
func (s *Storage) Spans(queues ...string) bool {
	for _, q := range queues {
		if s.slot(q) != s.slot(queues[0]) {
			return false
		}
	}
	return true
}

// slot returns the slot of a queue on a Cluster, and 0 on one Redis. Queues of the same slot can
// share an atomic step.
func (s *Storage) slot(queue string) int {
	if !s.cluster {
		return 0
	}
	return slotOf(queue)
}

// time asks a server for its time.
func (s *Storage) time(ctx context.Context) (time.Time, error) {
	return heed(ctx, &s.scripts.calls, func(ctx context.Context) (time.Time, error) {
		return s.client.Time(ctx).Result()
	})
}

// clocks are the server's time, the latest mark of the queues that this process uses, and the
// latest moment since when timed work waits in one of them (jump.lua). The last two are zero if there
// is none. reindexed has by queue when a claim last found unindexed records there (reindex.lua).
type clocks struct {
	now, mark, jumped time.Time
	reindexed         map[string]time.Time
}

// clocks reads them in one round trip.
func (s *Storage) clocks(ctx context.Context) (clocks, error) {
	return heed(ctx, &s.scripts.calls, func(ctx context.Context) (c clocks, err error) {
		pipe := s.client.Pipeline()
		now := pipe.Time(ctx)
		queues := s.used()
		metas := make([]*goredis.SliceCmd, 0, len(queues))
		for _, queue := range queues {
			metas = append(metas, pipe.HMGet(ctx, s.keys.key(queue, metaKey), "mark", "jumped", "reindexed"))
		}
		_, _ = pipe.Exec(ctx) // each has its own error
		if c.now, err = now.Result(); err != nil {
			return c, err
		}
		c.now = moment(c.now.UnixMicro())
		c.reindexed = make(map[string]time.Time)
		for n, meta := range metas {
			var at [3]time.Time // zero for a key that cannot be read
			for i, v := range meta.Val() {
				text, _ := v.(string)
				if us, err := strconv.ParseInt(text, 10, 64); err == nil && us > 0 {
					at[i] = moment(us)
				}
			}
			if at[0].After(c.mark) {
				c.mark = at[0]
			}
			if at[1].After(c.jumped) && !at[1].After(c.now) { // else the clock has jumped back
				c.jumped = at[1]
			}
			if !at[2].IsZero() {
				c.reindexed[queues[n]] = at[2]
			}
		}
		return c, nil
	})
}

// Location returns "redis" for every server: no transaction of an application's database can include
// tasks in Redis.
func (s *Storage) Location() string { return "redis" }

// Describe returns the server's version, time and durability, the limits, and warnings for the
// operator.
func (s *Storage) Describe(ctx context.Context) (storage.Description, error) {
	if err := s.enter(); err != nil {
		return storage.Description{}, fmt.Errorf("redis: describe: %w", err)
	}
	c, err := s.clocks(ctx)
	if err != nil {
		return storage.Description{}, wrap("describe", translateRead(err))
	}
	d := s.health.describe()
	d.Warnings = append(d.Warnings, s.unsound.warnings()...)
	if s.unverified {
		d.Warnings = append(d.Warnings,
			"TLS does not verify the server: whoever is on the way can read and change everything")
	}
	d.Now = c.now
	s.findRoom(ctx)
	s.room.Tell(&d)
	d.Warnings = append(d.Warnings, storage.ClockWarnings(c.now, c.mark, c.jumped)...)
	d.Warnings = append(d.Warnings, reindexWarnings(&c)...)
	d.Limits = s.limits
	return d, nil
}
