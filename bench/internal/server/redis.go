package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/bench/internal/system"
	"github.com/midgehq/midge/internal/testserver"
)

// SlowAfter is the duration after which a command enters the server's slow log.
const SlowAfter = 5 * time.Millisecond

// Redis is a private redis-server, with a connection for the harness.
type Redis struct {
	server *testserver.Server
	client *goredis.Client
}

func startRedis(config ...string) (*Redis, error) {
	slow := "slowlog-log-slower-than " + strconv.FormatInt(SlowAfter.Microseconds(), 10)
	server, err := testserver.Start(testserver.Options{Config: append(config, slow, "slowlog-max-len 100000")})
	if err != nil {
		return nil, err
	}
	client := goredis.NewClient(&goredis.Options{
		Addr: server.Addr(), PoolSize: 1, ReadTimeout: time.Minute, MaxRetries: -1,
	})
	return &Redis{server: server, client: client}, nil
}

// Place returns the server's address.
func (r *Redis) Place() system.Place {
	return system.Place{Storage: system.Redis, Addr: r.server.Addr()}
}

// Pid returns the server's process id.
func (r *Redis) Pid() int { return r.server.Pid() }

// Reset deletes every key.
func (r *Redis) Reset(ctx context.Context) error { return r.client.FlushAll(ctx).Err() }

// Describe returns the version and whether an append-only file is on.
func (r *Redis) Describe(ctx context.Context) (string, error) {
	info, err := r.client.Info(ctx, "server", "persistence").Result()
	if err != nil {
		return "", err
	}
	aof := "append-only file off"
	if field(info, "aof_enabled") == "1" {
		aof = "append-only file on, everysec"
	}
	return "Redis " + field(info, "redis_version") + ", " + aof, nil
}

// settleTries is how often Memory checks whether the memory still changes.
const settleTries = 50

// Memory returns the bytes that the server has allocated, when that number no longer
// changes: Redis rehashes growing tables step by step.
func (r *Redis) Memory(ctx context.Context) (int64, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for last, try := int64(-1), 0; ; try++ {
		info, err := r.client.Info(ctx, "memory").Result()
		if err != nil {
			return 0, err
		}
		used, err := strconv.ParseInt(field(info, "used_memory"), 10, 64)
		if err != nil {
			return 0, err
		}
		if change := used - last; try == settleTries || last >= 0 && max(change, -change) < 64<<10 {
			return used, nil
		}
		last = used
		<-tick.C
	}
}

// ResetSlow empties the slow log.
func (r *Redis) ResetSlow(ctx context.Context) error {
	return r.client.Do(ctx, "slowlog", "reset").Err()
}

// SlowScripts returns the durations of the scripts in the slow log.
func (r *Redis) SlowScripts(ctx context.Context) ([]time.Duration, error) {
	entries, err := r.client.SlowLogGet(ctx, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read the slow log: %w", err)
	}
	var slow []time.Duration
	for _, e := range entries {
		if len(e.Args) > 0 && strings.HasPrefix(strings.ToLower(e.Args[0]), "eval") {
			slow = append(slow, e.Duration)
		}
	}
	return slow, nil
}

// Ping waits for the reply to a PING.
func (r *Redis) Ping(ctx context.Context) error { return r.client.Ping(ctx).Err() }

// Close stops the server and deletes its data.
func (r *Redis) Close() error { return errors.Join(r.client.Close(), r.server.Close()) }

// field returns a field of the reply to INFO, or "" if it is missing.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
