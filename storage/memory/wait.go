package memory

import (
	"context"
	"fmt"

	"github.com/midgehq/midge/storage"
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

// ring notes an event of a queue: new work, an earlier due moment or, as an alert, an event
// that also concerns runners without a free slot.
func (s *Storage) ring(q *queue, alert bool) { s.events.Ring(alert, q.Name) }
