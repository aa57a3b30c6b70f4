package system

import (
	"context"
	"time"

	"github.com/midgehq/midge"
)

// EnqueuePartitioned enqueues jobs in one call. Each stands in the partition whose key has its index.
func (m *onMidge) EnqueuePartitioned(
	ctx context.Context, queue string, payloads [][]byte, keys []string,
) error {
	items := make([]midge.Item, len(payloads))
	for i, p := range payloads {
		items[i] = midge.New(m.job(p), append(midgeOptions(queue, time.Time{}), midge.Partition(keys[i]))...)
	}
	_, err := m.client.EnqueueMany(ctx, items)
	return err
}
