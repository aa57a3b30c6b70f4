package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// Extend extends leases and keeps the runner's heartbeat. A lease that is lost
// leaves the others of the call alone.
func (s *Storage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := storage.CheckExtend(s.limits, &req); err != nil {
		return storage.Extended{}, err
	}
	if err := s.begin(ctx); err != nil {
		return storage.Extended{}, fmt.Errorf("memory: extend: %w", err)
	}
	defer s.mu.Unlock()
	ln, repeated, err := s.admit(req.Call)
	if err != nil {
		return storage.Extended{}, fmt.Errorf("memory: extend: %w", err)
	}
	if repeated {
		first, ok := ln.outcome.(storage.Extended)
		if !ok {
			return storage.Extended{}, fmt.Errorf("memory: extend: repeats another call: %w", storage.ErrUnknown)
		}
		return copyExtended(first), nil
	}
	extended := storage.Extended{Now: s.now.time()}
	for i := range req.Leases {
		e := &req.Leases[i]
		t := s.fenced(&e.Fence)
		if t == nil {
			extended.Lost = append(extended.Lost, e.Fence.Ref)
			continue
		}
		s.extend(t, e)
		if t.CancelAsked {
			extended.CancelAsked = append(extended.CancelAsked, t.ref())
		}
	}
	if req.Runner.ID != "" {
		s.hear(&req.Runner)
	}
	ln.remember(copyExtended(extended))
	return extended, nil
}

// extend carries out one extension of a valid lease, expired or not. The version
// stays.
func (s *Storage) extend(t *task, e *storage.Extension) {
	if e.For > 0 {
		t.LeaseUntil = s.now.after(e.For)
		q := t.queue
		q.pending.remove(t.place)
		t.place.major = int64(t.LeaseUntil)
		q.pending.insert(t.place, t)
	}
	t.Started = t.Started || e.Started
	if e.Progress != nil {
		t.rest().Progress = bytes.Clone(e.Progress)
	}
	if e.Checkpoint != nil {
		t.rest().Checkpoint = bytes.Clone(e.Checkpoint)
	}
	t.queue.touched = s.now
}

// runner is what was last heard of a runner.
type runner struct {
	storage.RunnerInfo

	end place // in Storage.runnerEnds
}

// hear keeps a heartbeat, or forgets a runner that leaves.
func (s *Storage) hear(info *storage.RunnerInfo) {
	s.sweepRunners(2) // a heartbeat adds one at most, so that this keeps up
	s.forget(info.ID)
	if info.Leaving {
		return
	}
	r := &runner{RunnerInfo: copyRunner(info)}
	r.Seen = s.now.time()
	r.end = s.at(s.now.after(r.For))
	s.runners[r.ID] = r
	s.runnerEnds.insert(r.end, r)
}

func (s *Storage) forget(id string) {
	if r := s.runners[id]; r != nil {
		s.runnerEnds.remove(r.end)
		delete(s.runners, id)
	}
}

// sweepRunners forgets some runners whose heartbeat expired.
func (s *Storage) sweepRunners(most int) {
	for _, r := range s.runnerEnds.until(s.come, most) {
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
		if r.end.major > int64(s.now) {
			alive = append(alive, copyRunner(&r.RunnerInfo))
		}
	}
	slices.SortFunc(alive, func(a, b storage.RunnerInfo) int { return cmp.Compare(a.ID, b.ID) })
	return alive, nil
}

func copyRunner(r *storage.RunnerInfo) storage.RunnerInfo {
	c := *r
	c.Queues = slices.Clone(r.Queues)
	c.Running = slices.Clone(r.Running)
	c.Schedules = slices.Clone(r.Schedules)
	c.Started = micros(r.Started)
	c.For = r.For.Truncate(time.Microsecond)
	for i := range c.Running {
		c.Running[i].Since = micros(c.Running[i].Since)
	}
	return c
}
