package midge

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// ScheduleInfo is a stored schedule. Due is its next tick, zero if there is none or if it is
// paused; an orphaned schedule stands still, so that its Due may have passed. Cursor.Last is its last
// tick.
type ScheduleInfo struct {
	Task
	// Name is the name of the schedule within its queue.
	Name string
	// Declared holds the schedule's text, zone and policies, whether it is paused, and whether it is
	// kept: set by [Queue.SetSchedule] and declared by no program.
	Declared storage.Declaration
	// Damaged means that Declared could not be read. The schedule stands still until a runner
	// declares it anew, or until it is removed.
	Damaged bool
	// Orphaned means that no live runner declares the schedule or, if it is kept, that none serves
	// its queue and handles its kind. It stands still until such a runner comes, or until it is removed.
	// A schedule that is paused is not orphaned.
	Orphaned bool
}

// Schedules returns the queue's schedules.
func (q *Queue) Schedules(ctx context.Context) ([]ScheduleInfo, error) {
	if err := q.check(); err != nil {
		return nil, q.wrap("list schedules of", err)
	}
	runners, err := q.client.store.Runners(ctx)
	if err != nil {
		return nil, q.wrap("list schedules of", err)
	}
	tickers := storage.TickersOf(runners)
	var list []ScheduleInfo
	for t, err := range storage.Each(ctx, q.client.store, q.name, storage.Cursors) {
		if err != nil {
			return nil, q.wrap("list schedules of", err)
		}
		info := ScheduleInfo{Task: t, Name: strings.TrimPrefix(t.ID, storage.CursorPrefix)}
		if t.Cursor != nil {
			info.Due = t.Cursor.Next
		}
		info.Declared, err = t.Cursor.Decode()
		info.Damaged = err != nil
		info.Orphaned = tickers.Orphaned(&t, &info.Declared)
		list = append(list, info)
	}
	return list, nil
}

// SetSchedule keeps a schedule in the storage, such as one for each customer: it enqueues a job into the
// queue at each tick of s, until [Queue.RemoveSchedule]. No program declares it. It ticks while a
// live runner serves the queue and handles the kind of the job; otherwise it is orphaned. The options
// are those of [Runner.Periodic], except Named and To.
//
// A kept schedule of the same name is replaced: the new one keeps the last tick and the pause. If the
// moments are the same, no tick is lost; otherwise the first tick is the first one after now. Setting the
// same schedule again undoes an edit of the stored schedule, and otherwise writes nothing. Once SetSchedule
// has returned nil, no tick of the former schedule is made. It returns an [ErrExists] if a program has
// declared a schedule of that name, even if no program declares it now.
func (q *Queue) SetSchedule(
	ctx context.Context, name string, s Schedule, job any, opts ...PeriodicOption,
) error {
	if err := q.checkSchedule(name); err != nil {
		return q.wrap("set schedule in", err)
	}
	err := q.setSchedule(ctx, name, s, job, opts)
	if errors.Is(err, schedule.ErrDeclared) || errors.Is(err, schedule.ErrDamaged) {
		err = &existsError{err.Error()}
	}
	return q.wrap("set schedule "+name+" in", err)
}

func (q *Queue) setSchedule(
	ctx context.Context, name string, s Schedule, job any, opts []PeriodicOption,
) error {
	d, err := q.client.definitions.of(job)
	if err != nil {
		return err
	}
	in, err := cursorInsert(d, name, job, s, append(slices.Clip(opts), inQueue(q.name)))
	if err == nil {
		err = q.client.checkPayload(in.Payload)
	}
	if err != nil {
		return err
	}
	return schedule.Set(ctx, q.client.session, in)
}

// inQueue is To for a schedule of a queue. It refuses another To.
func inQueue(name string) PeriodicOption {
	return periodicOption(func(t *scheduleTerms) {
		if t.queue != nil {
			t.fail(storage.Invalid("option To", "beside the queue "+name, "one queue"))
		}
		t.queue = &name
	})
}

// PauseSchedule stops the ticks of a schedule until [Queue.ResumeSchedule], also if a program declares
// it, or a later version of it. Once PauseSchedule has returned nil, no tick is made. It returns
// [ErrNotFound] if there is no such schedule.
func (q *Queue) PauseSchedule(ctx context.Context, name string) error {
	return q.pauseSchedule(ctx, "pause", name, true)
}

// ResumeSchedule lets a paused schedule tick again, beginning with its first tick after now: the ticks that
// were missed during the pause are left out. It returns [ErrNotFound] if there is no such schedule.
func (q *Queue) ResumeSchedule(ctx context.Context, name string) error {
	return q.pauseSchedule(ctx, "resume", name, false)
}

func (q *Queue) pauseSchedule(ctx context.Context, action, name string, paused bool) error {
	err := q.checkSchedule(name)
	if err == nil {
		err = ofSchedule(name, schedule.Pause(ctx, q.client.session, q.ref(storage.CursorPrefix+name), paused))
	}
	return q.wrap(action+" schedule in", err)
}

// RunSchedule enqueues the task of a schedule now, without moving its ticks, and returns the task's
// ref. The Tick of its [RunInfo] is the moment of the call, by the storage's clock. With
// [NoOverlap], while the task of an earlier tick or run has not ended, nothing is enqueued and the
// ref is that of the earlier task. It returns [ErrNotFound] if there is no such schedule.
func (q *Queue) RunSchedule(ctx context.Context, name string) (Ref, error) {
	if err := q.checkSchedule(name); err != nil {
		return Ref{}, q.wrap("run schedule in", err)
	}
	c := *q.client
	c.within = nil // RunSchedule is never part of a caller's transaction
	in, err := c.session.ScheduleInsert(ctx, q.ref(storage.CursorPrefix+name))
	if err != nil {
		return Ref{}, q.wrap("run schedule in", ofSchedule(name, err))
	}
	applied, err := c.place(ctx, []storage.Insert{in})
	if err == nil {
		err = applied[0].Err
	}
	if err != nil {
		return there([]storage.Insert{in}, applied, 0).Ref, q.wrap("run schedule in", err)
	}
	return applied[0].Inserted[0].Ref, nil
}

// RemoveSchedule removes a schedule; the tasks that it enqueued stay. Once it has returned nil, no tick
// of the schedule is made any more, but a runner that declares it stores it again at its next check;
// see [Runner.Periodic]. RemoveSchedule returns [ErrNotFound] if there is no such schedule.
func (q *Queue) RemoveSchedule(ctx context.Context, name string) error {
	if err := q.checkSchedule(name); err != nil {
		return q.wrap("remove schedule in", err)
	}
	err := q.client.session.DeleteTask(ctx, q.ref(storage.CursorPrefix+name))
	return q.wrap("remove schedule in", ofSchedule(name, err))
}

func (q *Queue) checkSchedule(name string) error {
	if err := q.checkOwn(); err != nil {
		return err
	}
	return checkScheduleName("schedule name", name)
}

// ofSchedule returns an ErrNotFound that names the schedule instead of the ref of its cursor.
func ofSchedule(name string, err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return &notFoundError{"no schedule is named " + name}
	}
	return err
}
