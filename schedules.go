package midge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// ScheduleInfo is a schedule as it is stored. Due is its next tick, zero where there
// will be none; an orphaned one stands still, and Due may have passed. Cursor.Last is its
// last tick.
type ScheduleInfo struct {
	storage.Task
	// Name of the schedule, within its queue.
	Name string
	// Declared tells its text, zone and policies.
	Declared storage.Declaration
	// Damaged says that Declared could not be read: the schedule stands still until a
	// runner declares it anew, or it is removed.
	Damaged bool
	// Orphaned says that no live runner declares it: it stands still until one does,
	// or it is removed.
	Orphaned bool
}

// Schedules lists the queue's schedules.
func (q *Queue) Schedules(ctx context.Context) ([]ScheduleInfo, error) {
	if err := q.check(); err != nil {
		return nil, q.wrap("list schedules", err)
	}
	runners, err := q.client.store.Runners(ctx)
	if err != nil {
		return nil, q.wrap("list schedules", err)
	}
	var list []ScheduleInfo
	for t, err := range storage.Each(ctx, q.client.store, q.name, storage.Cursors) {
		if err != nil {
			return nil, q.wrap("list schedules", err)
		}
		info := ScheduleInfo{Task: t, Name: strings.TrimPrefix(t.ID, storage.CursorPrefix)}
		if t.Cursor != nil {
			info.Due = t.Cursor.Next
		}
		info.Declared, err = t.Cursor.Decode()
		info.Damaged = err != nil
		declared := storage.Declared{Ref: t.Ref, Hash: info.Declared.Hash}
		info.Orphaned = info.Damaged || !slices.ContainsFunc(runners, func(r storage.RunnerInfo) bool {
			return slices.Contains(r.Schedules, declared)
		})
		list = append(list, info)
	}
	return list, nil
}

// RunSchedule enqueues the task of a schedule now, beside its ticks, which it does not
// move, and gives its ref. With [NoOverlap], where the task of an earlier tick or run has
// not ended, nothing is enqueued and the ref is that task's. [ErrNotFound].
func (q *Queue) RunSchedule(ctx context.Context, name string) (storage.Ref, error) {
	if err := q.checkSchedule(name); err != nil {
		return storage.Ref{}, q.wrap("run schedule", err)
	}
	ref, err := q.client.session.RunSchedule(ctx, q.ref(storage.CursorPrefix+name))
	return ref, q.wrap("run schedule", ofSchedule(name, err))
}

// RemoveSchedule removes a schedule; the tasks that it enqueued stay. A runner that
// declares it brings it back with its next heartbeat. [ErrNotFound].
func (q *Queue) RemoveSchedule(ctx context.Context, name string) error {
	if err := q.checkSchedule(name); err != nil {
		return q.wrap("remove schedule", err)
	}
	err := q.client.session.DeleteTask(ctx, q.ref(storage.CursorPrefix+name))
	return q.wrap("remove schedule", ofSchedule(name, err))
}

func (q *Queue) checkSchedule(name string) error {
	if err := q.check(); err != nil {
		return err
	}
	return checkScheduleName("schedule name", name)
}

// ofSchedule says what is not there in words of who declared it.
func ofSchedule(name string, err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("no schedule is named %s: %w", name, storage.ErrNotFound)
	}
	return err
}
