package postgres

import (
	"context"

	"github.com/midgehq/midge/storage"
)

// Partitions lists the partitions of a queue.
func (s *Storage) Partitions(context.Context, storage.PartitionsQuery) (storage.PartitionsPage, error) {
	return storage.PartitionsPage{}, nil
}
