package midgetest

import (
	"bytes"
	"context"
	"sync"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// kitStore is the storage of a kit. It has the clock, and records what attempts store.
type kitStore struct {
	storage.Storage

	kit   *Kit
	start time.Time

	mu     sync.Mutex // guards the fields below
	at     time.Time  // what the clock shows; zero if it is that of a bubble
	seen   time.Time  // in a bubble: the time of the previous call
	stored map[storage.Ref]*stored
	called map[storage.Ref][]string   // steps that the current attempt of a task has called
	joined map[storage.Ref]storage.Tx // the completions of jobs that have called CompleteWith
}

// stored is what an attempt has stored with its task.
type stored struct {
	progress, checkpoint []byte
	followUps            []midge.Task
}

var (
	_ storage.Storage = (*kitStore)(nil)
	_ runner.Stepped  = (*kitStore)(nil)
	_ runner.Clocked  = (*kitStore)(nil)
	_ codec.Verifier  = (*kitStore)(nil)
)

// Verify decodes a job that is enqueued, encodes it again, and fails the test if the result
// differs, so that the job would not run with its own parameters.
func (s *kitStore) Verify(p codec.Parameters, encoding string, payload []byte) {
	again, err := p.Again(encoding, payload)
	switch {
	case err != nil:
		s.kit.t.Errorf("midgetest: the parameters of %v do not come back: %v", p.Type(), err)
	case !bytes.Equal(again, payload):
		s.kit.t.Errorf("midgetest: the parameters of %v do not come back as they were enqueued: %s",
			p.Type(), differing(encoding, payload, again))
	}
}

// Stepped keeps the function that makes attempts.
func (s *kitStore) Stepped(
	step func(ctx context.Context, want storage.Ref) (runner.Step, error), _ func() map[string]runner.JobType,
) {
	s.kit.step = step
}

// inBubble reports whether the caller is in a bubble of testing/synctest.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }() // Wait panics outside a bubble
	synctest.Wait()
	return true
}

// Clock returns the time of the storage, which lines of the log have too.
func (s *kitStore) Clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() {
		return time.Now()
	}
	return s.at
}

// forward sets the clock forward in steps. A storage does not at once believe a clock that jumps
// far ahead, so it is shown the time between.
func (s *kitStore) forward(ctx context.Context, d time.Duration) {
	for end := s.Clock().Add(d); ; {
		now := s.Clock()
		if !now.Before(end) {
			return
		}
		s.mu.Lock()
		s.at = now.Add(min(end.Sub(now), storage.JumpAfter))
		s.mu.Unlock()
		s.look(ctx)
	}
}

// look makes the storage read its clock.
func (s *kitStore) look(ctx context.Context) {
	// This extends no lease. An error of it recurs in the next call.
	_, _ = s.Storage.Extend(context.WithoutCancel(ctx), storage.ExtendRequest{})
}

// catchUp shows the storage in steps the time that a test in a bubble has slept.
func (s *kitStore) catchUp(ctx context.Context) {
	if !s.kit.inBubble {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for !s.seen.IsZero() && now.Sub(s.seen) > storage.JumpAfter {
		s.seen = s.seen.Add(storage.JumpAfter)
		s.at = s.seen
		s.mu.Unlock()
		s.look(ctx)
		s.mu.Lock()
	}
	s.at, s.seen = time.Time{}, now
}

// Claim forwards to the storage.
func (s *kitStore) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	s.catchUp(ctx)
	return s.Storage.Claim(ctx, req)
}

// Extend forwards to the storage.
func (s *kitStore) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	s.catchUp(ctx)
	return s.Storage.Extend(ctx, req)
}

// Apply records what attempts store, and the follow-ups that it inserts.
func (s *kitStore) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	s.catchUp(ctx)
	for i := range txs {
		for _, settle := range txs[i].Settles {
			task, err := s.Storage.Task(ctx, settle.Fence.Ref)
			if err == nil {
				s.note(task.Ref, &stored{progress: task.Progress, checkpoint: task.Checkpoint})
			}
		}
	}
	applied, err := s.Storage.Apply(ctx, call, txs...)
	for i := range applied {
		for _, settled := range applied[i].Settled {
			s.follow(ctx, settled.Ref, applied[i].Inserted)
		}
	}
	return applied, err
}

func (s *kitStore) note(ref storage.Ref, what *stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil {
		s.stored = make(map[storage.Ref]*stored)
	}
	s.stored[ref] = what
}

// noteCalled records which steps an attempt has called.
func (s *kitStore) noteCalled(a *runner.Attempt) {
	called := a.Called()
	if len(called) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.called == nil {
		s.called = make(map[storage.Ref][]string)
	}
	s.called[a.Fence.Ref] = called
}

// follow records the follow-ups of a settled task.
func (s *kitStore) follow(ctx context.Context, ref storage.Ref, placed []storage.Placed) {
	for _, p := range placed {
		task, err := s.Storage.Task(ctx, p.Ref)
		if err != nil || p.Existing {
			continue
		}
		s.mu.Lock()
		if to := s.stored[ref]; to != nil {
			to.followUps = append(to.followUps, task)
		}
		s.mu.Unlock()
	}
}

// worked returns the Worked of an end.
func (s *kitStore) worked(e midge.Ended) Worked {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := Worked{Ended: e, t: s.kit.t}
	if of := s.stored[e.Task.Ref]; of != nil {
		w.Task.Progress, w.Task.Checkpoint, w.FollowUps = of.progress, of.checkpoint, of.followUps
		delete(s.stored, e.Task.Ref)
	}
	w.Called = s.called[e.Task.Ref]
	delete(s.called, e.Task.Ref)
	return w
}

// Within replaces the transaction that a job passes to CompleteWith, which belongs to another
// storage. The task is completed here once the job has returned nil.
func (s *kitStore) Within(storage.Applier) storage.Applier { return kitTx{s} }

// kitTx keeps the completion of a job for later.
type kitTx struct{ store *kitStore }

// Apply keeps the completion.
func (x kitTx) Apply(_ context.Context, _ storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined == nil {
		s.joined = make(map[storage.Ref]storage.Tx)
	}
	s.joined[txs[0].Settles[0].Fence.Ref] = txs[0]
	return []storage.Applied{{}}, nil
}

// commits is the outermost middleware. After a job that returned nil it completes a task for which
// the job has called CompleteWith. It also records which steps the job has called.
func (s *kitStore) commits(next func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		defer s.noteCalled(runner.FromContext(ctx))
		err := next(ctx)
		info, _ := midge.Current(ctx)
		s.mu.Lock()
		tx, ok := s.joined[info.Ref]
		delete(s.joined, info.Ref)
		s.mu.Unlock()
		if err != nil || !ok {
			return err
		}
		_, err = storage.NewSession(s, 0).ApplyOne(context.WithoutCancel(ctx), tx)
		return err
	}
}
