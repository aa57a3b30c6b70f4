package runner

import (
	"context"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// ticker is the actor that declares a shard's schedules and turns its due cursors into tasks.
// Several tickers may be handed the same cursor: each changes the cursor at its version, so that
// only one succeeds.
type ticker struct {
	*shared

	shard     *shard
	schedules *schedules
	kick      chan struct{} // capacity 1; signals that a cursor is due
	pulse     *pulse

	mu    sync.Mutex // guards queue
	queue []dueCursor
}

// dueCursor is a cursor that a claim handed out as due.
type dueCursor struct {
	cursor storage.Task
	now    time.Time // the storage's time of that claim
}

// due queues a due cursor.
func (t *ticker) due(cursor storage.Task, now time.Time) {
	t.mu.Lock()
	t.queue = append(t.queue, dueCursor{cursor, now})
	t.mu.Unlock()
	kick(t.kick)
}

// loop declares the schedules and makes the ticks until ctx ends.
func (t *ticker) loop(ctx context.Context) {
	defer t.pulse.ends()
	t.declareAll(ctx)
	again := time.NewTicker(t.lease / 3)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			t.declareAll(ctx)
		case <-t.kick:
			for _, due := range t.takeQueue() {
				t.schedules.tick(ctx, t.tasks, due)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (t *ticker) takeQueue() []dueCursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := t.queue
	t.queue = nil
	return queue
}

// declareAll stores the runner's declared schedules of the shard that are not stored yet.
func (t *ticker) declareAll(ctx context.Context) {
	for _, own := range t.schedules.all() {
		ref := own.insert.Ref
		if !storage.Spans(t.store, t.shard.member, ref.Queue) {
			continue
		}
		if err := t.schedules.keep(ctx, own); err != nil && ctx.Err() == nil {
			t.log.trouble("declare schedule "+schedule.Name(ref), err)
		}
	}
}
