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
	list  []Schedule
	cut   int64                     // how many more there are
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
// deploy has replaced the schedule, or soon will. It leaves out queues of which not all schedules were read.
func (r *Reader) redeclared(runners []storage.RunnerInfo) map[string]bool {
	queues := make(map[string]bool)
	for i := range runners {
		for _, d := range runners[i].Schedules {
			if c := r.cursors[d.Ref.Queue]; c != nil && c.cut == 0 && !c.as[d] && !c.kept[d.Ref] {
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
	read := make([]*queueCursors, len(old))
	err := Concurrently(len(old), func(i int) (err error) {
		read[i], err = r.cursorsOf(ctx, old[i], fresh)
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
	var all []*queueCursors
	for i := range fresh.Queues {
		if c := r.cursors[fresh.Queues[i].Queue]; c != nil {
			all = append(all, c)
			fresh.Queues[i].UnreadSchedules = c.cut
		}
	}
	same := before != nil && len(fresh.Queues) == len(before.Queues) && fresh.runnersRead == before.runnersRead
	if same && len(old) == 0 {
		fresh.Schedules = before.Schedules
		return nil
	}
	fresh.Schedules = judged(all, fresh.Runners)
	return nil
}

// cursorsOf reads the schedules of a queue. With Config.AllSchedules it reads on behind maxSchedules of them,
// and keeps as many again of those with a finding.
func (r *Reader) cursorsOf(ctx context.Context, q *Queue, fresh *Survey) (*queueCursors, error) {
	c := &queueCursors{
		at: fresh.At, count: q.Cursors, as: make(map[storage.Declared]bool), kept: make(map[storage.Ref]bool),
	}
	if q.Cursors == 0 {
		return c, nil
	}
	var tickers *storage.Tickers
	for t, err := range storage.Each(ctx, r.store, q.Queue, storage.Cursors) {
		if err != nil {
			return nil, err
		}
		if t.Cursor == nil {
			continue
		}
		s := Schedule{Task: t}
		s.Declaration, err = t.Cursor.Decode()
		s.Damaged = err != nil
		switch full := len(c.list) >= maxSchedules; {
		case full && !r.cfg.AllSchedules:
			c.cut = max(q.Cursors-int64(len(c.list)), 1)
			return c, nil
		case full:
			if tickers == nil {
				tickers = storage.TickersOf(fresh.Runners)
			}
			if s.judge(tickers); !s.troubled() {
				continue
			}
			if len(c.list) >= 2*maxSchedules {
				c.cut++
				continue
			}
		}
		c.add(s)
	}
	return c, nil
}

// add adds a schedule.
func (c *queueCursors) add(s Schedule) {
	if next := s.Cursor.Next; !next.IsZero() && (c.due.IsZero() || next.Before(c.due)) {
		c.due = next
	}
	if !s.Damaged {
		c.as[storage.Declared{Ref: s.Ref, Hash: s.Declaration.Hash}] = true
		c.kept[s.Ref] = s.Declaration.Kept
	}
	c.list = append(c.list, s)
}

// judge marks a schedule that no runner ticks.
func (c *Schedule) judge(tickers *storage.Tickers) {
	c.Orphaned = !c.Damaged && tickers.Orphaned(&c.Task, &c.Declaration)
	c.Clashes = tickers.Clashes(&c.Task, &c.Declaration)
}

// troubled reports whether there is a finding on a judged schedule.
func (c *Schedule) troubled() bool { return c.Damaged || c.Orphaned || c.Clashes }

// judged returns the schedules of queues, the next to tick first: maxSchedules of those without a finding,
// and all others. It marks the schedules that no runner ticks.
func judged(queues []*queueCursors, runners []storage.RunnerInfo) []Schedule {
	tickers := storage.TickersOf(runners)
	schedules, fine := []Schedule{}, 0
	for _, c := range queues {
		for _, s := range c.list {
			if s.judge(tickers); !s.troubled() {
				if fine++; fine > maxSchedules {
					continue
				}
			}
			schedules = append(schedules, s)
		}
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
