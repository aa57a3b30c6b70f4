// Package store opens the storage that an example runs on: memory, or Redis where the
// flag -redis says so. It is all that the examples share.
package store

import (
	"context"
	"flag"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/redis"
)

// Flag declares the flag -redis.
func Flag() *string {
	return flag.String("redis", "", "`URL` of a Redis, such as redis://localhost:6379; empty runs on memory")
}

// Open opens the Redis at url, or memory where it is empty. The caller closes it.
func Open(ctx context.Context, url string) (storage.Storage, error) {
	if url == "" {
		opened, err := memory.Open(memory.Config{})
		if err != nil {
			return nil, fmt.Errorf("open memory: %w", err)
		}
		return opened, nil
	}
	opened, err := redis.Open(ctx, redis.Config{URL: url})
	if err != nil {
		return nil, fmt.Errorf("open redis: %w", err)
	}
	return opened, nil
}
