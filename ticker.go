package midge

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// ticker is the actor that declares a domain's schedules and turns its due cursors into
// tasks. Any number of tickers may be handed the same cursor: the change of the cursor
// at its version lets one of them through.
type ticker struct {
	d    *domain
	kick chan struct{} // capacity 1: a cursor is due

	mu    sync.Mutex // guards queue
	queue []dueCursor
}

// dueCursor is a cursor that a claim handed out.
type dueCursor struct {
	cursor storage.Task
	now    time.Time // the storage's time of that claim
}

// due takes in a cursor that is due.
func (t *ticker) due(cursor storage.Task, now time.Time) {
	t.mu.Lock()
	t.queue = append(t.queue, dueCursor{cursor, now})
	t.mu.Unlock()
	kick(t.kick)
}

// loop declares and ticks until ctx ends.
func (t *ticker) loop(ctx context.Context) {
	t.declareAll(ctx)
	again := time.NewTicker(t.d.r.cfg.Lease / 3)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			t.declareAll(ctx)
		case <-t.kick:
			for _, due := range t.take() {
				t.d.r.tick(ctx, t.d.r.jobs, due)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (t *ticker) take() []dueCursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := t.queue
	t.queue = nil
	return queue
}

// declareAll stores what this runner declares in the domain, where it is not stored yet.
func (t *ticker) declareAll(ctx context.Context) {
	r := t.d.r
	for _, s := range r.schedules.all() {
		if !storage.Spans(r.store, t.d.member, s.Ref.Queue) {
			continue
		}
		if err := r.storeSchedule(ctx, s); err != nil && ctx.Err() == nil {
			r.log.trouble("declare schedule "+schedule.Name(s.Ref), err)
		}
	}
}

// tick enqueues the tasks of a due cursor and moves it on, in one step.
func (r *Runner) tick(ctx context.Context, session *storage.Session, d dueCursor) {
	c := d.cursor
	live, err := r.declaresLive(ctx, c)
	if err != nil || !live {
		return // it is handed out again in TickHide, and stands still while nobody declares it
	}
	due, next, err := schedule.Ticks(*c.Cursor, d.now)
	if err != nil {
		r.log.trouble("schedule "+schedule.Name(c.Ref), err)
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
		r.log.trouble("tick "+schedule.Name(c.Ref), err)
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
