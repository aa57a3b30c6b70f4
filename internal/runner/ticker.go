package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// ticker is the actor that turns a shard's due cursors into tasks. Several tickers may be handed the
// same cursor: each changes the cursor at its version, so that only one succeeds.
type ticker struct {
	*shared

	schedules *schedules
	kick      chan struct{} // capacity 1; signals that a cursor is due
	taken     chan struct{} // capacity 1; signals that cursors were taken from the queue
	pulse     *pulse

	mu    sync.Mutex // guards queue
	queue []dueCursor
}

// dueCursor is a cursor that a claim handed out as due.
type dueCursor struct {
	cursor storage.Task
	now    time.Time     // the storage's time of that claim
	until  time.Duration // when its hiding is over at the latest, by the runner's clock; set by the ticker
}

// dueCursors returns the cursors that a claim handed out.
func dueCursors(claimed storage.Claimed) []dueCursor {
	due := make([]dueCursor, len(claimed.Ticks))
	for i, c := range claimed.Ticks {
		due[i] = dueCursor{cursor: c, now: claimed.Now}
	}
	return due
}

// due queues due cursors.
func (t *ticker) due(cursors []dueCursor) {
	now := t.elapsed()
	for i := range cursors {
		cursors[i].until = now + storage.TickHide
	}
	t.mu.Lock()
	t.dropLocked(now) // a middleware that does not return holds up take, and the same cursors come again
	t.queue = append(t.queue, cursors...)
	t.mu.Unlock()
	kick(t.kick)
}

// loop makes the ticks until ctx ends.
func (t *ticker) loop(ctx context.Context) {
	defer t.pulse.ends()
	for {
		select {
		case <-t.kick:
			for due := t.take(); len(due) > 0 && ctx.Err() == nil; due = t.take() {
				t.schedules.tick(ctx, t.pulse, t.tasks, due)
			}
		case <-ctx.Done():
			return
		}
	}
}

// dropLocked drops the cursors whose hiding is over: the storage hands them out again, to this runner or
// another. The mutex is held.
func (t *ticker) dropLocked(now time.Duration) {
	for len(t.queue) > 0 && t.queue[0].until < now {
		t.queue = t.queue[1:]
	}
}

// take takes the first cursors from the queue.
func (t *ticker) take() []dueCursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropLocked(t.elapsed())
	n := min(len(t.queue), atOnce)
	due := t.queue[:n:n]
	if t.queue = t.queue[n:]; len(t.queue) == 0 {
		t.queue = nil
	}
	kick(t.taken)
	return due
}

// A claim hands out the next cursors though the ticker has not made the ticks of the last ones. So a
// claimer waits until queueMost cursors or fewer are queued, but never for longer than queueWait,
// because it claims tasks too.
const (
	queueMost = 2 * atOnce
	queueWait = 100 * time.Millisecond
)

// awaitRoom waits until the queue has room for the cursors of a claim.
func (t *ticker) awaitRoom(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, queueWait)
	defer cancel()
	for t.queued() > queueMost {
		select {
		case <-t.taken:
		case <-ctx.Done():
			return
		}
	}
}

func (t *ticker) queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// tick is a due cursor's step.
type tick struct {
	cursor  *storage.Task
	tx      storage.Tx
	refused error     // why its tasks are left out
	skipped int       // how many of them a middleware left out
	missed  time.Time // the first tick that SkipMissed leaves out, zero for none
}

// tick enqueues the tasks of due cursors and moves the cursors on, each cursor in one step. The middleware of the
// application works in the loop of the pulse.
func (s *schedules) tick(ctx context.Context, of *pulse, session *storage.Session, due []dueCursor) {
	k := keeping{schedules: s, live: declarers{schedules: s}}
	ticks := make([]tick, 0, len(due))
	for i := range due {
		t, ok := s.prepare(ctx, of, &k, &due[i])
		if ctx.Err() != nil { // a middleware may take its time
			return
		}
		if ok {
			ticks = append(ticks, t)
		}
	}
	s.carryOut(ctx, session, ticks)
	if k.flush(ctx); k.err != nil && ctx.Err() == nil {
		s.log.trouble("declare schedules", k.err)
	}
}

// prepare returns the tick of a due cursor. It reports false if no tick is to be made. A cursor that
// no live runner ticks stands still, unless this runner has another declaration of it.
func (s *schedules) prepare(ctx context.Context, of *pulse, k *keeping, due *dueCursor) (t tick, ok bool) {
	c := &due.cursor
	t.cursor = c
	declaration, err := c.Cursor.Decode()
	if err != nil {
		return s.setApart(c, err)
	}
	ticks, err := k.live.tick(ctx, c, &declaration)
	if err != nil || !ticks { // it is handed out again after TickHide, or when it is replaced
		if own := s.find(c.Ref); err == nil && own != nil {
			k.replace(ctx, c, own)
		}
		return t, false
	}
	moments, next, err := schedule.Ticks(c.Ref, &declaration, c.Cursor.Next, due.now)
	if err != nil {
		s.log.trouble("schedule "+schedule.Name(c.Ref), err)
		return t, false
	}
	if first := c.Cursor.Next; declaration.CatchUp == schedule.SkipMissed && !next.Equal(first) &&
		(len(moments) == 0 || moments[0].After(first)) {
		t.missed = first
	}
	moved := *c.Cursor
	moved.Next = next
	for i, at := range moments {
		if one := len(c.Payload) + storage.MaxHeaderBytes; i > 0 && (i+1)*one > storage.MaxTxBytes {
			moved.Next = at // the ticks that do not fit into one step are due again at once
			break
		}
		moved.Last = at
		in := c.TickInsert(storage.NewID(), &declaration).AtTick(at)
		in.Payload = bytes.Clone(in.Payload) // a middleware may alter that of one tick in place
		t.tx.Inserts = append(t.tx.Inserts, in)
	}
	t.move(moved)
	of.during(func() { s.permit(ctx, &t) })
	return t, true
}

// setApart returns the tick that stops a cursor whose declaration is damaged. A runner that declares
// the schedule anew replaces it.
func (s *schedules) setApart(c *storage.Task, why error) (t tick, ok bool) {
	s.log.damagedSchedule(c.Ref, why)
	if c.Cursor == nil {
		return t, false
	}
	t.cursor = c
	t.move(storage.Cursor{
		Last: c.Cursor.Last, Declaration: storage.CleanText(c.Cursor.Declaration, storage.MaxHeaderBytes),
	})
	return t, true
}

// move makes the tick's step move the cursor.
func (t *tick) move(moved storage.Cursor) {
	t.tx.Changes = []storage.Change{{Ref: t.cursor.Ref, Version: t.cursor.Version, Cursor: &moved}}
}

// permit lets the tasks of a tick pass the middleware. Tasks that are left out are left out for good: a
// refused tick is not tried again.
func (s *schedules) permit(ctx context.Context, t *tick) {
	passed, err := s.jobs.Enqueue(ctx, t.tx.Inserts)
	if err == nil {
		for _, in := range passed {
			if !storage.Spans(s.store, t.cursor.Queue, in.Ref.Queue) {
				err = fmt.Errorf("in queue %s: %w", in.Ref.Queue, storage.ErrSpan)
			}
		}
	}
	if err != nil {
		t.refuse(err)
		return
	}
	t.skipped = len(t.tx.Inserts) - len(passed)
	t.tx.Inserts = passed
}

// refuse leaves out the tasks of a tick.
func (t *tick) refuse(why error) { t.tx.Inserts, t.refused = nil, why }

// carryOut makes ticks.
func (s *schedules) carryOut(ctx context.Context, session *storage.Session, ticks []tick) {
	txs := make([]storage.Tx, len(ticks))
	for i := range ticks {
		txs[i] = ticks[i].tx
	}
	refused, err := s.apply(ctx, session, txs)
	if err != nil && ctx.Err() == nil {
		s.log.trouble("tick", err)
	}
	var again []tick
	for i, why := range refused {
		t := &ticks[i]
		var dep *storage.DependencyError
		var invalid *storage.InvalidError
		collides := errors.As(why, &dep) && len(dep.Colliding) > 0
		switch {
		case why == nil:
			s.log.ticked(t)
		case len(t.tx.Inserts) > 0 && (collides || errors.As(why, &invalid)): // a middleware caused it
			t.refuse(why)
			again = append(again, *t)
		case dep == nil: // else another runner ticked
			s.log.trouble("tick "+schedule.Name(t.cursor.Ref), why)
		}
	}
	if len(again) > 0 {
		s.carryOut(ctx, session, again)
	}
}

// ticked logs what a tick left out.
func (l *lifeLog) ticked(t *tick) {
	if t.refused != nil {
		l.refusedTick(t.cursor.Ref, t.refused)
	}
	if t.skipped > 0 {
		l.skippedTick(t.cursor.Ref, t.skipped)
	}
	if !t.missed.IsZero() {
		l.missedTicks(t.cursor.Ref, t.missed)
	}
}
