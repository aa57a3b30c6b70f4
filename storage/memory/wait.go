package memory

import (
	"context"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// Wait returns once there is an event in one of the queues after req.Since.
func (s *Storage) Wait(ctx context.Context, req storage.WaitRequest) error {
	if err := storage.CheckWait(&req); err != nil {
		return err
	}
	if err := s.events.Wait(ctx, req); err != nil {
		return fmt.Errorf("memory: wait: %w", err)
	}
	return nil
}

// ring notes an event of a queue.
func (s *Storage) ring(q *queue, event wakeup.Event) { s.events.Ring(event, q.Name) }
