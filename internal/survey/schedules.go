package survey

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// queueCursors are the schedules of a queue, as they were last read.
type queueCursors struct {
	at    time.Time
	count int64
	due   time.Time // when the first of them ticks, by the storage's clock; zero if none does
	tasks []storage.Task
	as    map[storage.Declared]bool // their declarations
	kept  map[storage.Ref]bool      // those that no program may declare
}

// old reports whether the schedules have to be read again: their number has changed, one of them was due and
// they were not read for schedulesFor, or they were not read for schedulesAgain.
func (c *queueCursors) old(count int64, at, now time.Time) bool {
	ticked := !c.due.IsZero() && now.After(c.due) && at.Sub(c.at) >= schedulesFor
	return c.count != count || ticked || at.Sub(c.at) >= schedulesAgain
}

// redeclared returns the queues with a schedule that a runner declares differently from what was read: a
// deploy has replaced the schedule, or soon will.
func (r *Reader) redeclared(runners []storage.RunnerInfo) map[string]bool {
	queues := make(map[string]bool)
	for i := range runners {
		for _, d := range runners[i].Schedules {
			if c := r.cursors[d.Ref.Queue]; c != nil && !c.as[d] && !c.kept[d.Ref] {
				queues[d.Ref.Queue] = true
			}
		}
	}
	return queues
}

// readSchedules reads the schedules of the queues in which they may have changed.
func (r *Reader) readSchedules(ctx context.Context, before, fresh *Survey) error {
	var old []*Queue
	now := r.storageNow()
	var others map[string]bool
	if before != nil && fresh.runnersRead != before.runnersRead {
		others = r.redeclared(fresh.Runners)
	}
	for i := range fresh.Queues {
		q := &fresh.Queues[i]
		was := r.cursors[q.Queue]
		if was == nil && q.Cursors > 0 || was != nil && (others[q.Queue] || was.old(q.Cursors, fresh.At, now)) {
			old = append(old, q)
		}
	}
	same := before != nil && len(fresh.Queues) == len(before.Queues) && fresh.runnersRead == before.runnersRead
	if same && len(old) == 0 {
		fresh.Schedules = before.Schedules
		return nil
	}
	read := make([]*queueCursors, len(old))
	err := Concurrently(len(old), func(i int) (err error) {
		read[i], err = r.cursorsOf(ctx, old[i], fresh.At)
		return err
	})
	if err != nil {
		return err
	}
	if r.cursors == nil {
		r.cursors = make(map[string]*queueCursors)
	}
	for i, q := range old {
		r.cursors[q.Queue] = read[i]
	}
	var tasks []storage.Task
	for i := range fresh.Queues {
		if c := r.cursors[fresh.Queues[i].Queue]; c != nil && len(tasks) < maxSchedules {
			tasks = append(tasks, c.tasks...)
		}
	}
	fresh.Schedules = schedulesOf(tasks[:min(len(tasks), maxSchedules)], fresh.Runners)
	return nil
}

// cursorsOf reads the schedules of a queue.
func (r *Reader) cursorsOf(ctx context.Context, q *Queue, at time.Time) (*queueCursors, error) {
	c := &queueCursors{
		at: at, count: q.Cursors, as: make(map[storage.Declared]bool), kept: make(map[storage.Ref]bool),
	}
	if q.Cursors == 0 {
		return c, nil
	}
	for t, err := range storage.Each(ctx, r.store, q.Queue, storage.Cursors) {
		if err != nil {
			return nil, err
		}
		if t.Cursor != nil && !t.Cursor.Next.IsZero() && (c.due.IsZero() || t.Cursor.Next.Before(c.due)) {
			c.due = t.Cursor.Next
		}
		if t.Cursor != nil {
			if d, err := t.Cursor.Decode(); err == nil {
				c.as[storage.Declared{Ref: t.Ref, Hash: d.Hash}] = true
				c.kept[t.Ref] = d.Kept
			}
		}
		if c.tasks = append(c.tasks, t); len(c.tasks) >= maxSchedules {
			break
		}
	}
	return c, nil
}

// schedulesOf makes schedules of cursors, the next to tick first. It marks the schedules that no runner
// ticks.
func schedulesOf(cursors []storage.Task, runners []storage.RunnerInfo) []Schedule {
	tickers := storage.TickersOf(runners)
	schedules := make([]Schedule, 0, len(cursors))
	for _, t := range cursors {
		if t.Cursor == nil {
			continue
		}
		d, err := t.Cursor.Decode()
		schedules = append(schedules, Schedule{
			Task: t, Declaration: d, Damaged: err != nil,
			Orphaned: err == nil && tickers.Orphaned(&t, &d), Clashes: tickers.Clashes(&t, &d),
		})
	}
	slices.SortStableFunc(schedules, func(a, b Schedule) int {
		never := func(s Schedule) int {
			if s.Cursor.Next.IsZero() {
				return 1
			}
			return 0
		}
		return cmp.Or(never(a)-never(b), a.Cursor.Next.Compare(b.Cursor.Next), cmp.Compare(a.ID, b.ID))
	})
	return schedules
}
