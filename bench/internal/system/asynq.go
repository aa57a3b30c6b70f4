package system

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"
)

// asynqSystem returns asynq with its defaults. Its payload is the bytes themselves. asynq has
// no codec, so it is measured without the cost of one.
func asynqSystem() System {
	return System{Name: "asynq", Storages: []string{Redis}, Open: openAsynq(asynq.Config{})}
}

// asynqTuned returns asynq with a check for work and for due tasks every 5 ms.
func asynqTuned() System {
	const often = 5 * time.Millisecond
	cfg := asynq.Config{TaskCheckInterval: often, DelayedTaskCheckInterval: often}
	return System{Name: "asynq-tuned", Storages: []string{Redis}, Tuned: ForPickUp, Open: openAsynq(cfg)}
}

// asynqKind is the type of asynq's tasks.
const asynqKind = "bench"

// onAsynq is an opened asynq.
type onAsynq struct {
	cfg    asynq.Config
	redis  asynq.RedisClientOpt
	client *asynq.Client
	look   *goredis.Client // reads the counters
}

func openAsynq(cfg asynq.Config) func(context.Context, Place) (Instance, error) {
	return func(_ context.Context, at Place) (Instance, error) {
		if at.Storage != Redis {
			return nil, fmt.Errorf("asynq: no storage is named %q", at.Storage)
		}
		to := asynq.RedisClientOpt{Addr: at.Addr}
		return &onAsynq{
			cfg: cfg, redis: to, client: asynq.NewClient(to),
			look: goredis.NewClient(&goredis.Options{Addr: at.Addr, PoolSize: 1}),
		}, nil
	}
}

func (a *onAsynq) Enqueue(ctx context.Context, queue string, payload []byte, due time.Time) error {
	opts := []asynq.Option{asynq.Queue(queue)}
	if !due.IsZero() {
		opts = append(opts, asynq.ProcessAt(due))
	}
	_, err := a.client.EnqueueContext(context.WithoutCancel(ctx), asynq.NewTask(asynqKind, payload), opts...)
	return err
}

func (a *onAsynq) Work(ctx context.Context, w Worker) error {
	cfg := a.cfg
	cfg.Concurrency, cfg.Queues, cfg.LogLevel = w.Concurrency, equally(w.Queues), asynq.FatalLevel
	server := asynq.NewServer(a.redis, cfg)
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		err := w.Run(task.Payload())
		if errors.Is(err, ErrDiscard) {
			return asynq.SkipRetry
		}
		return err
	})
	if err := server.Start(handler); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

// Totals reads the keys that asynq's own inspector reads, because it is called during
// the measurement: the inspector would also sample the memory.
func (a *onAsynq) Totals(ctx context.Context, queues ...string) (Totals, error) {
	var sum Totals
	for _, queue := range queues {
		t, err := a.totalsOf(ctx, queue)
		if err != nil {
			return Totals{}, err
		}
		sum = sum.Plus(t)
	}
	return sum, nil
}

func (a *onAsynq) totalsOf(ctx context.Context, queue string) (Totals, error) {
	key := func(name string) string { return "asynq:{" + queue + "}:" + name }
	pipe := a.look.Pipeline()
	waiting := pipe.LLen(ctx, key("pending"))
	pending := pipe.LLen(ctx, key("active"))
	scheduled := pipe.ZCard(ctx, key("scheduled"))
	retry := pipe.ZCard(ctx, key("retry"))
	archived := pipe.ZCard(ctx, key("archived"))
	counted := pipe.MGet(ctx, key("processed"), key("failed"))
	if _, err := pipe.Exec(ctx); err != nil {
		return Totals{}, fmt.Errorf("asynq: read the totals of %s: %w", queue, err)
	}
	processed, err := counter(counted.Val()[0])
	if err != nil {
		return Totals{}, err
	}
	failed, err := counter(counted.Val()[1])
	return Totals{
		Waiting: waiting.Val(), Pending: pending.Val(), Later: scheduled.Val() + retry.Val(),
		Dead: archived.Val(), Completed: processed - failed, Failed: failed,
	}, err
}

// counter parses a value of MGET. A missing key counts as 0.
func counter(value any) (int64, error) {
	text, ok := value.(string)
	if !ok {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

func (a *onAsynq) Close() error { return errors.Join(a.client.Close(), a.look.Close()) }
