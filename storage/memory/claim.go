package memory

import (
	"context"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Claim maintains the queues named and takes tasks from them.
func (s *Storage) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := storage.CheckClaim(&req); err != nil {
		return storage.Claimed{}, err
	}
	ln, repeated, err := s.begin(ctx, req.Call, engine.VerbClaim)
	if err != nil {
		return storage.Claimed{}, fmt.Errorf("memory: claim: %w", err)
	}
	defer s.mu.Unlock()
	s.events.Looking(&req)
	queues := make([]*engine.Queue, len(req.Queues))
	for i := range queues {
		queues[i] = (*records)(s).Lookup(req.Queues[i].Name)
	}
	var answer storage.Claimed
	c := s.step.Claim(&req, queues)
	c.Taken = s.taken[:0]
	if repeated {
		c.Again(ln.fences) // without ticks: other claims get these when they are no longer hidden
		c.Give(&answer)
	} else {
		s.sweep(queues)
		c.Maintain(&answer)
		c.Take()
		c.Give(&answer)
		ln.rememberFences(answer.Fences)
	}
	c.Finish(&answer)
	answer.Since = s.events.Since()
	s.taken = c.Taken
	clear(s.taken)
	if answer.More {
		s.events.Left(&req)
	}
	return answer, nil
}

// sweep forgets some lanes, runners, queues and unique windows whose time is over.
func (s *Storage) sweep(queues []*engine.Queue) {
	s.sweepLanes(engine.Batch)
	s.sweepRunners(engine.Batch)
	s.inspectQueue()
	for _, q := range queues {
		if q != nil {
			ours(q).sweepWindows(s.step.Come, max(engine.Batch/len(queues), engine.BatchLeast))
		}
	}
}
