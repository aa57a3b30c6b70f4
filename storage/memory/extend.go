package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Extend extends leases and keeps the runner's heartbeat. A lost lease does not affect the
// other leases of the call.
func (s *Storage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := storage.CheckExtend(s.step.Limits, &req); err != nil {
		return storage.Extended{}, err
	}
	ln, repeated, err := s.begin(ctx, req.Call, engine.VerbExtend)
	if err != nil {
		return storage.Extended{}, fmt.Errorf("memory: extend: %w", err)
	}
	defer s.mu.Unlock()
	if repeated {
		return copyExtended(ln.extended), nil
	}
	extended := storage.Extended{Now: engine.Time(s.step.Now)}
	for _, e := range req.Leases {
		e.Progress, e.Checkpoint = bytes.Clone(e.Progress), bytes.Clone(e.Checkpoint)
		s.step.Extend(&e, &extended)
	}
	if req.Runner.ID != "" {
		s.hear(&req.Runner)
	}
	if ln != nil {
		ln.extended = copyExtended(extended)
	}
	return extended, nil
}

// runner is the last heartbeat of a runner.
type runner struct {
	storage.RunnerInfo

	end place // in Storage.runnerEnds
}

// hear keeps a heartbeat, or forgets a runner that leaves.
func (s *Storage) hear(info *storage.RunnerInfo) {
	s.sweepRunners(2) // a heartbeat adds at most one runner, so that sweeping keeps up
	before := s.runners[info.ID]
	s.forget(info.ID)
	if info.Leaving {
		return
	}
	r := &runner{RunnerInfo: engine.CopyRunner(info)}
	if before != nil {
		engine.KeepParts(&r.RunnerInfo, &before.RunnerInfo)
	}
	r.Seen = engine.Time(s.step.Now)
	r.end = s.at(s.step.Now + r.For.Microseconds())
	s.runners[r.ID] = r
	s.runnerEnds.insert(r.end, r)
}

func (s *Storage) forget(id string) {
	if r := s.runners[id]; r != nil {
		s.runnerEnds.remove(r.end)
		delete(s.runners, id)
	}
}

// sweepRunners forgets up to most runners whose heartbeat expired.
func (s *Storage) sweepRunners(most int) {
	for _, r := range s.runnerEnds.until(s.step.Come, most) {
		s.forget(r.ID)
	}
}

// Runners lists the runners whose heartbeat has not expired, by id.
func (s *Storage) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	if err := s.look(ctx); err != nil {
		return nil, fmt.Errorf("memory: runners: %w", err)
	}
	defer s.mu.Unlock()
	var alive []storage.RunnerInfo
	for _, r := range s.runners {
		if r.end.Sort > s.step.Now {
			alive = append(alive, engine.CopyRunner(&r.RunnerInfo))
		}
	}
	slices.SortFunc(alive, func(a, b storage.RunnerInfo) int { return cmp.Compare(a.ID, b.ID) })
	return alive, nil
}
