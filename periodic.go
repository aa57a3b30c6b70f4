package midge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// tickHeader is the header of a periodic task that holds the moment it stands for.
const tickHeader = "midge.tick"

// Periodic declares that a job is enqueued by a schedule, once per tick however many
// runners declare it. It is stored when the runner runs, and again with each heartbeat:
// a schedule that no live runner declares stands still. A later version of it replaces
// the stored one, which keeps its last tick.
func (r *Runner) Periodic(s Schedule, job any, opts ...PeriodicOption) error {
	d, err := r.definitions.of(job)
	if err != nil {
		return fmt.Errorf("midge: periodic %T: %w", job, err)
	}
	in, err := cursorInsert(d, job, s, opts, time.Time{})
	if err != nil {
		return fmt.Errorf("midge: periodic %s: %w", d.kind, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return wrap(ErrRunning, "periodic %s", scheduleRef(in.Ref))
	}
	if err := r.schedules.declare(in); err != nil {
		return fmt.Errorf("midge: periodic %s: %w", d.kind, err)
	}
	return nil
}

// schedules are those that a runner declares.
type schedules struct {
	mu      sync.Mutex // guards inserts
	inserts []storage.Insert
}

func (s *schedules) declare(in storage.Insert) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.inserts {
		if other.Ref == in.Ref {
			return storage.Invalid("schedule", scheduleRef(in.Ref)+" twice",
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

// storeSchedule inserts a schedule, or replaces an older declaration of it.
func (r *Runner) storeSchedule(ctx context.Context, in storage.Insert) error {
	now, err := r.beats.Now(ctx)
	if err != nil {
		return err
	}
	stored, err := r.store.Task(ctx, in.Ref)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		if in, err = withNext(in, storage.Cursor{}, now); err != nil {
			return err
		}
		_, err = r.beats.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{in}})
	case err == nil:
		err = r.replaceSchedule(ctx, stored, in, now)
	}
	var dep *storage.DependencyError
	if errors.As(err, &dep) {
		return nil // another runner was faster; the next heartbeat looks again
	}
	return err
}

// replaceSchedule lets a new declaration take the place of the stored one, if its time has
// come: one that was replaced itself comes back only when no live runner declares its
// successor.
func (r *Runner) replaceSchedule(
	ctx context.Context, stored storage.Task, in storage.Insert, now time.Time,
) error {
	if stored.Cursor == nil || stored.Cursor.Declaration == in.Cursor.Declaration {
		return nil
	}
	if slices.Contains(stored.Cursor.Replaced, in.Cursor.Declaration) {
		live, err := r.declaresLive(ctx, stored)
		if live || err != nil {
			return err
		}
	}
	in, err := withNext(in, *stored.Cursor, now)
	if err != nil {
		return err
	}
	_, err = r.beats.ApplyOne(ctx, storage.Tx{
		Deletes: []storage.Delete{{Ref: stored.Ref, Version: stored.Version}},
		Inserts: []storage.Insert{in},
	})
	return err
}

// declaresLive reports whether a live runner declares the cursor as it is stored.
func (r *Runner) declaresLive(ctx context.Context, cursor storage.Task) (bool, error) {
	want := storage.Declared{Ref: cursor.Ref, Declaration: cursor.Cursor.Declaration}
	if slices.Contains(r.schedules.declared(), want) {
		return true, nil
	}
	runners, err := r.store.Runners(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(runners, func(other storage.RunnerInfo) bool {
		return slices.Contains(other.Schedules, want)
	}), nil
}

// withNext fills in when a schedule is next due: when the declaration before it was, if
// its moments are the same, so that a deploy drops no tick; else after now, and strictly
// later than the last tick.
func withNext(in storage.Insert, before storage.Cursor, now time.Time) (storage.Insert, error) {
	c := *in.Cursor
	s, err := parseSchedule(c.Spec, c.Zone)
	if err != nil {
		return in, err
	}
	from := now
	if before.Last.After(from) {
		from = before.Last
	}
	c.Next = s.next(from)
	if before.Spec == c.Spec && before.Zone == c.Zone && !before.Next.IsZero() {
		c.Next = before.Next
	}
	c.Last = before.Last
	if before.Declaration != "" {
		c.Replaced = append(slices.DeleteFunc(slices.Clone(before.Replaced), func(d string) bool {
			return d == c.Declaration
		}), before.Declaration)
		c.Replaced = c.Replaced[max(len(c.Replaced)-replacedMost, 0):]
	}
	in.Cursor = &c
	return in, nil
}

// replacedMost bounds how many earlier declarations a cursor remembers.
const replacedMost = 16
