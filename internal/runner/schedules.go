package runner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// schedules are the schedules that a runner declares.
type schedules struct {
	*shared

	mu      sync.Mutex // guards inserts
	inserts []storage.Insert
}

func (s *schedules) declare(in storage.Insert) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.inserts {
		if other.Ref == in.Ref {
			return storage.Invalid("schedule", schedule.Name(in.Ref)+" twice",
				"each declared once; tell them apart by Named")
		}
	}
	s.inserts = append(s.inserts, in)
	return nil
}

// declared lists them as a heartbeat does.
func (s *schedules) declared() []storage.Declared {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]storage.Declared, len(s.inserts))
	for i, in := range s.inserts {
		list[i] = storage.Declared{Ref: in.Ref, Declaration: in.Cursor.Declaration}
	}
	return list
}

func (s *schedules) all() []storage.Insert {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.inserts)
}

// keep inserts a schedule, or replaces an older declaration of it.
func (s *schedules) keep(ctx context.Context, in storage.Insert) error {
	now, err := s.beats.Now(ctx)
	if err != nil {
		return err
	}
	stored, err := s.store.Task(ctx, in.Ref)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		if in, err = schedule.WithNext(in, storage.Cursor{}, now); err != nil {
			return err
		}
		_, err = s.beats.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{in}})
	case err == nil:
		err = s.replace(ctx, stored, in, now)
	}
	var dep *storage.DependencyError
	if errors.As(err, &dep) {
		return nil // another runner was faster; the next heartbeat looks again
	}
	return err
}

// replace lets a new declaration take the place of the stored one, if its time has
// come: one that was replaced itself comes back only when no live runner declares its
// successor.
func (s *schedules) replace(
	ctx context.Context, stored storage.Task, in storage.Insert, now time.Time,
) error {
	if stored.Cursor == nil || stored.Cursor.Declaration == in.Cursor.Declaration {
		return nil
	}
	if slices.Contains(stored.Cursor.Replaced, in.Cursor.Declaration) {
		live, err := s.declaredLive(ctx, stored)
		if live || err != nil {
			return err
		}
	}
	in, err := schedule.WithNext(in, *stored.Cursor, now)
	if err != nil {
		return err
	}
	_, err = s.beats.ApplyOne(ctx, storage.Tx{
		Deletes: []storage.Delete{{Ref: stored.Ref, Version: stored.Version}},
		Inserts: []storage.Insert{in},
	})
	return err
}

// declaredLive reports whether a live runner declares the cursor as it is stored.
func (s *schedules) declaredLive(ctx context.Context, cursor storage.Task) (bool, error) {
	want := storage.Declared{Ref: cursor.Ref, Declaration: cursor.Cursor.Declaration}
	if slices.Contains(s.declared(), want) {
		return true, nil
	}
	runners, err := s.store.Runners(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(runners, func(other storage.RunnerInfo) bool {
		return slices.Contains(other.Schedules, want)
	}), nil
}

// tick enqueues the tasks of a due cursor and moves it on, in one step.
func (s *schedules) tick(ctx context.Context, session *storage.Session, d dueCursor) {
	c := d.cursor
	live, err := s.declaredLive(ctx, c)
	if err != nil || !live {
		return // it is handed out again in TickHide, and stands still while nobody declares it
	}
	due, next, err := schedule.Ticks(*c.Cursor, d.now)
	if err != nil {
		s.log.trouble("schedule "+schedule.Name(c.Ref), err)
		return
	}
	moved := *c.Cursor
	moved.Next = next
	tx := storage.Tx{}
	for i, at := range due {
		if one := len(c.Payload) + storage.MaxHeaderBytes; i > 0 && (i+1)*one > storage.MaxTxBytes {
			moved.Next = at // what one step cannot hold is due at once again
			break
		}
		moved.Last = at
		tx.Inserts = append(tx.Inserts, tickTask(c, at))
	}
	tx.Changes = []storage.Change{{Ref: c.Ref, Version: c.Version, Cursor: &moved}}
	_, err = session.ApplyOne(ctx, tx)
	var dep *storage.DependencyError
	if err != nil && !errors.As(err, &dep) && ctx.Err() == nil { // a dep: another runner ticked
		s.log.trouble("tick "+schedule.Name(c.Ref), err)
	}
}

// tickTask is the insert that stands for the tick at a moment.
func tickTask(cursor storage.Task, at time.Time) storage.Insert {
	in := cursor.TickInsert(storage.NewID())
	headers := make(map[string]string, len(in.Headers)+1)
	maps.Copy(headers, in.Headers)
	headers[schedule.TickHeader] = at.UTC().Format(time.RFC3339Nano)
	in.Headers = headers
	return in
}
