package system

import (
	"context"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// Limit sets a limit on a queue that never binds.
func (m *onMidge) Limit(ctx context.Context, queue string) error {
	limit := midge.Limit{
		Concurrency: storage.MaxLimitConcurrency, Rate: midge.Rate{N: storage.MaxRate, Per: time.Minute},
	}
	return m.client.Queue(queue).SetLimit(ctx, limit)
}
