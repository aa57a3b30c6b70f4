package redis_test

import (
	"context"
	"log/slog"

	"github.com/midgehq/midge/storage/redis"
)

// First thing in main, before anything opens a connection.
func ExampleSendLogs() { //nolint:testableexamples // there is no server
	redis.SendLogs(slog.Default())
	store, err := redis.Open(context.Background(), redis.Config{URL: "redis://localhost/0"})
	if err != nil {
		slog.Error(err.Error())
		return
	}
	defer func() { _ = store.Close() }()
}
