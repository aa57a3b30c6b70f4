// Package store opens the storage that an example runs on.
package store

import (
	"context"
	"errors"
	"flag"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// Flag declares the flag -redis.
func Flag() *string {
	return flag.String("redis", "", "`URL` of a Redis, such as redis://localhost:6379; empty runs on memory")
}

// Open opens the Redis at url, or memory where it is empty. The caller closes it.
func Open(_ context.Context, url string) (storage.Storage, error) {
	if url == "" {
		return memory.Open(memory.Config{})
	}
	return nil, errors.New("redis is not there yet")
}
