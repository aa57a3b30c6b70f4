// Package store opens the storage that an example runs on: memory, or Redis if the flag
// -redis is set. The examples share nothing else.
package store

import (
	"cmp"
	"context"
	"flag"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/open"
)

// Flag declares the flag -redis.
func Flag() *string {
	return flag.String("redis", "", "`URL` of a Redis, such as redis://localhost:6379; empty runs on memory")
}

// Open opens the Redis at url, or the memory storage if url is empty. The caller closes
// it.
func Open(ctx context.Context, url string) (storage.Storage, error) {
	return open.Open(ctx, cmp.Or(url, "memory:"))
}
