package system

import (
	"context"

	"github.com/midgehq/midge"
)

// Limit sets the limit of a queue.
func (m *onMidge) Limit(ctx context.Context, queue string, b Bounds) error {
	return m.client.Queue(queue).SetLimit(ctx, midge.Limit{
		Concurrency: b.Concurrency, Rate: midge.Rate{N: b.Starts, Per: b.Per},
		Partition: midge.PartitionLimit{Concurrency: b.Each},
	})
}
