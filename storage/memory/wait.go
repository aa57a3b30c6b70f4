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

// ring notes an event of a queue: new work or an earlier due moment, or what also
// those want to know who have no slot for work (alert).
func (s *Storage) ring(q *queue, alert bool) { s.events.Ring(alert, q.Name) }
