//go:build unix

package faulttest

import (
	"context"
	"time"

	"github.com/midgehq/midge/storage"
)

// skewed is a storage as a process sees it whose clock is ahead by a duration. The clock of a Go process
// cannot be changed from outside. It need not be: a wrong clock can only change the difference between the
// process's times and the storage's. So every time that the storage returns is moved back by the skew, and
// every time that it receives is moved forward. For everything above the storage, that is the same as a
// process whose clock is ahead by the skew.
type skewed struct {
	storage.Storage
	by time.Duration
}

// toProcess converts a time of the storage to the clock of the process.
func (s *skewed) toProcess(t *time.Time) {
	if !t.IsZero() {
		*t = t.Add(-s.by)
	}
}

// toStorage returns a time of the process by the clock of the storage.
func (s *skewed) toStorage(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(s.by)
}

func (s *skewed) taskToProcess(t *storage.Task) {
	for _, at := range []*time.Time{&t.SnoozedSince, &t.Created, &t.Due, &t.Ended, &t.Expires, &t.LeaseUntil} {
		s.toProcess(at)
	}
	for i := range t.Attempts {
		s.toProcess(&t.Attempts[i].At)
	}
	if t.Cursor != nil {
		s.toProcess(&t.Cursor.Next)
		s.toProcess(&t.Cursor.Last)
	}
}

func (s *skewed) cursorToStorage(c *storage.Cursor) *storage.Cursor {
	if c == nil {
		return nil
	}
	moved := *c
	moved.Next, moved.Last = s.toStorage(c.Next), s.toStorage(c.Last)
	return &moved
}

func (s *skewed) callToStorage(c storage.Call) storage.Call {
	c.Lane.Opened = s.toStorage(c.Lane.Opened)
	return c
}

// Spans passes on the optional ability of the storage.
func (s *skewed) Spans(queues ...string) bool { return storage.Spans(s.Storage, queues...) }

func (s *skewed) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	moved := make([]storage.Tx, len(txs))
	for i, tx := range txs {
		moved[i] = tx
		moved[i].Inserts = append([]storage.Insert(nil), tx.Inserts...)
		for j := range moved[i].Inserts {
			in := &moved[i].Inserts[j]
			in.At, in.Cursor = s.toStorage(in.At), s.cursorToStorage(in.Cursor)
		}
		moved[i].Changes = append([]storage.Change(nil), tx.Changes...)
		for j := range moved[i].Changes {
			ch := &moved[i].Changes[j]
			ch.At, ch.Cursor = s.toStorage(ch.At), s.cursorToStorage(ch.Cursor)
		}
	}
	return s.Storage.Apply(ctx, s.callToStorage(call), moved...)
}

func (s *skewed) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	req.Call = s.callToStorage(req.Call)
	answer, err := s.Storage.Claim(ctx, req)
	for i := range answer.Tasks {
		s.taskToProcess(&answer.Tasks[i])
	}
	for i := range answer.Ticks {
		s.taskToProcess(&answer.Ticks[i])
	}
	s.toProcess(&answer.Now)
	s.toProcess(&answer.NextDue)
	return answer, err
}

func (s *skewed) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	req.Call = s.callToStorage(req.Call)
	req.Runner.Started = s.toStorage(req.Runner.Started)
	req.Runner.Running = append([]storage.Running(nil), req.Runner.Running...)
	for i := range req.Runner.Running {
		req.Runner.Running[i].Since = s.toStorage(req.Runner.Running[i].Since)
	}
	answer, err := s.Storage.Extend(ctx, req)
	s.toProcess(&answer.Now)
	return answer, err
}

func (s *skewed) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	t, err := s.Storage.Task(ctx, ref)
	s.taskToProcess(&t)
	return t, err
}

func (s *skewed) Tasks(ctx context.Context, query storage.TasksQuery) (storage.TasksPage, error) {
	page, err := s.Storage.Tasks(ctx, query)
	for i := range page.Tasks {
		s.taskToProcess(&page.Tasks[i])
	}
	return page, err
}

func (s *skewed) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	stats, err := s.Storage.Stats(ctx, queues...)
	for i := range stats {
		s.toProcess(&stats[i].PausedUntil)
	}
	return stats, err
}

func (s *skewed) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	list, err := s.Storage.Runners(ctx)
	for i := range list {
		s.toProcess(&list[i].Started)
		s.toProcess(&list[i].Seen)
		for j := range list[i].Running {
			s.toProcess(&list[i].Running[j].Since)
		}
	}
	return list, err
}

func (s *skewed) Configure(ctx context.Context, call storage.Call, queue string, set storage.Settings) error {
	return s.Storage.Configure(ctx, s.callToStorage(call), queue, set)
}

func (s *skewed) Describe(ctx context.Context) (storage.Description, error) {
	d, err := s.Storage.Describe(ctx)
	s.toProcess(&d.Now)
	return d, err
}
