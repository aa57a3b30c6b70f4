package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// schedules holds the schedules that a runner declares.
type schedules struct {
	*shared

	mu  sync.Mutex // guards own
	own []ownSchedule
}

// ownSchedule is a schedule that this runner declares: the insert of its cursor, without its
// moments, and the decoded declaration of that cursor.
type ownSchedule struct {
	insert      storage.Insert
	declaration storage.Declaration
}

func (s *schedules) declare(in storage.Insert) error {
	d, err := in.Cursor.Decode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.own {
		if other.insert.Ref == in.Ref {
			return storage.Invalid("schedule", schedule.Name(in.Ref)+" twice",
				"each declared once; tell them apart by Named")
		}
	}
	s.own = append(s.own, ownSchedule{in, d})
	return nil
}

// declared returns the schedules as a heartbeat declares them.
func (s *schedules) declared() []storage.Declared {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]storage.Declared, len(s.own))
	for i, own := range s.own {
		list[i] = storage.Declared{Ref: own.insert.Ref, Hash: own.declaration.Hash}
	}
	return list
}

func (s *schedules) all() []ownSchedule {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.own)
}

// keep inserts a schedule, or replaces an older declaration of it.
func (s *schedules) keep(ctx context.Context, own ownSchedule) error {
	now, err := s.beats.Now(ctx)
	if err != nil {
		return err
	}
	stored, err := s.store.Task(ctx, own.insert.Ref)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		err = s.put(ctx, own, storage.Tx{}, nil, now)
	case err == nil:
		err = s.replace(ctx, &stored, own, now)
	}
	var dep *storage.DependencyError
	if errors.As(err, &dep) {
		return nil // another runner was faster; the next heartbeat looks again
	}
	return err
}

// replace replaces the stored declaration by own, if own is newer. A declaration that was itself
// replaced returns only when no live runner declares its successor. A damaged declaration is
// replaced at once.
func (s *schedules) replace(ctx context.Context, stored *storage.Task, own ownSchedule, now time.Time) error {
	if before, err := stored.Cursor.Decode(); err == nil {
		hash := own.declaration.Hash
		if before.Hash == hash {
			return nil
		}
		if slices.Contains(before.Replaced, hash) {
			live, err := s.declaredLive(ctx, storage.Declared{Ref: stored.Ref, Hash: before.Hash})
			if live || err != nil {
				return err
			}
		}
	}
	tx := storage.Tx{Deletes: []storage.Delete{{Ref: stored.Ref, Version: stored.Version}}}
	return s.put(ctx, own, tx, stored.Cursor, now)
}

// put inserts the cursor of a schedule. before is the cursor that it replaces, which tx deletes;
// nil for none.
func (s *schedules) put(
	ctx context.Context, own ownSchedule, tx storage.Tx, before *storage.Cursor, now time.Time,
) error {
	in := own.insert
	var err error
	if in.Cursor, err = schedule.After(before, own.declaration, now); err != nil {
		return err
	}
	tx.Inserts = []storage.Insert{in}
	_, err = s.beats.ApplyOne(ctx, tx)
	return err
}

// declaredLive reports whether a live runner declares exactly this version of a schedule.
func (s *schedules) declaredLive(ctx context.Context, want storage.Declared) (bool, error) {
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

// tick enqueues the tasks of a due cursor and moves the cursor on, in one step.
func (s *schedules) tick(ctx context.Context, session *storage.Session, d dueCursor) {
	c := d.cursor
	declaration, err := c.Cursor.Decode()
	if err != nil {
		s.setApart(ctx, session, &c, err)
		return
	}
	live, err := s.declaredLive(ctx, storage.Declared{Ref: c.Ref, Hash: declaration.Hash})
	if err != nil || !live {
		return // it is handed out again after TickHide, and stands still while nobody declares it
	}
	due, next, err := schedule.Ticks(&declaration, c.Cursor.Next, d.now)
	if err != nil {
		s.log.trouble("schedule "+schedule.Name(c.Ref), err)
		return
	}
	moved := *c.Cursor
	moved.Next = next
	tx := storage.Tx{}
	for i, at := range due {
		if one := len(c.Payload) + storage.MaxHeaderBytes; i > 0 && (i+1)*one > storage.MaxTxBytes {
			moved.Next = at // the ticks that do not fit into one step are due again at once
			break
		}
		moved.Last = at
		tx.Inserts = append(tx.Inserts, c.TickInsert(storage.NewID(), &declaration).AtTick(at))
	}
	var leftOut func()
	tx.Inserts, leftOut = s.permitted(ctx, &c, tx.Inserts)
	if s.move(ctx, session, &c, tx, moved) {
		leftOut()
	}
}

// permitted returns the tasks of a cursor's ticks that are to be enqueued. leftOut logs the others,
// once this runner has made the ticks. They are left out for good: a refused tick is not tried
// again.
func (s *schedules) permitted(
	ctx context.Context, c *storage.Task, ticks []storage.Insert,
) (passed []storage.Insert, leftOut func()) {
	passed, err := s.jobs.Enqueue(ctx, ticks)
	if err == nil {
		for _, in := range passed {
			if !storage.Spans(s.store, c.Queue, in.Ref.Queue) {
				err = fmt.Errorf("in queue %s: %w", in.Ref.Queue, storage.ErrSpan)
			}
		}
	}
	if err != nil {
		return nil, func() { s.log.refusedTick(c.Ref, err) }
	}
	return passed, func() {
		if n := len(ticks) - len(passed); n > 0 {
			s.log.skippedTick(c.Ref, n)
		}
	}
}

// move carries out tx and moves a due cursor on. It reports whether this runner moved the cursor.
func (s *schedules) move(
	ctx context.Context, session *storage.Session, c *storage.Task, tx storage.Tx, moved storage.Cursor,
) bool {
	tx.Changes = []storage.Change{{Ref: c.Ref, Version: c.Version, Cursor: &moved}}
	_, err := session.ApplyOne(ctx, tx)
	var dep *storage.DependencyError
	var invalid *storage.InvalidError
	if errors.As(err, &dep) && len(dep.Colliding) > 0 || errors.As(err, &invalid) { // a middleware caused it
		tx.Inserts = nil
		why := err
		if _, err = session.ApplyOne(ctx, tx); err == nil {
			s.log.refusedTick(c.Ref, why)
		}
	}
	if err != nil && !errors.As(err, &dep) && ctx.Err() == nil { // dep: another runner ticked
		s.log.trouble("tick "+schedule.Name(c.Ref), err)
	}
	return err == nil
}

// setApart stops the ticks of a cursor whose declaration is damaged. A runner that declares the
// schedule anew replaces it.
func (s *schedules) setApart(ctx context.Context, session *storage.Session, c *storage.Task, why error) {
	s.log.damagedSchedule(c.Ref, why)
	if c.Cursor == nil {
		return
	}
	still := storage.Cursor{
		Last: c.Cursor.Last, Declaration: storage.CleanText(c.Cursor.Declaration, storage.MaxHeaderBytes),
	}
	s.move(ctx, session, c, storage.Tx{}, still)
}
